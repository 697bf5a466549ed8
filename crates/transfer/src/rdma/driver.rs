//! The driver thread: the only one that posts and polls. It sleeps on the completion channels, the devices' event files
//! and the bell of its inbox.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags};
use yb_types::MonotonicTime;
use yb_verbs::{Completion, EventKind, WorkStatus};

use super::connectors::Connectors;
use super::endpoint::{Cause, Ended};
use super::hub::{Hub, Order};
use super::nic::OpenNic;
use super::peer::Route;
use super::rails::{Move, Rails, RouteKey, SliceRef};
use super::ticket::poll;

/// Routes known before idle ones are forgotten.
const KEPT_ROUTES: usize = 256;
/// Rounds of polling a device before the others have their turn.
const ROUNDS: usize = 8;

/// Called when peers must be told of other devices than before.
pub(crate) type Changed = Box<dyn Fn() + Send + Sync>;

pub(crate) struct Driver {
    hub: Arc<Hub>,
    connectors: Arc<Connectors>,
    changed: Changed,
    routes: BTreeMap<RouteKey, Rails>,
    next_key: RouteKey,
    completions: Vec<Completion>,
    ended: Vec<Ended<SliceRef>>,
    /// When endpoints must be looked at.
    sweep: Option<MonotonicTime>,
    last_activity: MonotonicTime,
}

impl Driver {
    pub(crate) fn new(hub: Arc<Hub>, connectors: Arc<Connectors>, changed: Changed) -> Self {
        let last_activity = hub.clock.now();
        Driver {
            hub,
            connectors,
            changed,
            routes: BTreeMap::new(),
            next_key: 1,
            completions: Vec::new(),
            ended: Vec::new(),
            sweep: None,
            last_activity,
        }
    }

    /// Works until it is told to stop.
    pub(crate) fn run(mut self) {
        loop {
            let now = self.hub.clock.now();
            let Some(ordered) = self.obey(now) else { break };
            let mut busy = ordered | self.harvest(now) | self.events(now);
            self.sweep = self.hub.endpoints.lock().sweep(&mut self.ended, now);
            busy |= self.settle(now);
            let (hub, connectors) = (&self.hub, &self.connectors);
            for rails in self.routes.values_mut() {
                busy |= rails.pump(hub, connectors, now);
            }
            if busy {
                self.last_activity = now;
            } else if self.routes.values().all(Rails::is_idle)
                || now.since(self.last_activity) >= self.hub.settings.spin
            {
                self.sleep(now);
            }
        }
        self.close();
    }

    fn close(mut self) {
        let orders = self.hub.close();
        self.hub.endpoints.lock().destroy_all(&mut self.ended);
        for order in orders {
            if let Order::Submit(moves) = order {
                let now = self.hub.clock.now();
                moves.into_iter().for_each(|part| self.submit(part, now));
            }
        }
        self.routes.values_mut().for_each(Rails::close);
    }

    /// Takes the orders of the inbox; `None` to stop.
    fn obey(&mut self, now: MonotonicTime) -> Option<bool> {
        let orders = self.hub.take_orders();
        let any = !orders.is_empty();
        for order in orders {
            match order {
                Order::Submit(moves) => moves.into_iter().for_each(|part| self.submit(part, now)),
                Order::GiveUp(ticket, kind) => {
                    self.routes.values_mut().for_each(|rails| rails.give_up(&ticket, kind, now));
                }
                Order::Connected { nic, peer_path, result } => {
                    match &result {
                        Ok(()) => self.hub.counters.connected(),
                        Err(_) => self.hub.counters.connect_failed(),
                    }
                    for rails in self.routes.values_mut() {
                        rails.connected((nic, &peer_path), &result, now);
                        rails.publish_states(&self.hub);
                    }
                }
                Order::Stop => return None,
            }
        }
        Some(any)
    }

    fn submit(&mut self, part: Move, now: MonotonicTime) {
        let key = self.route(&part.route, now);
        if let Some(rails) = self.routes.get_mut(&key) {
            rails.submit(part, &self.hub, now);
        }
    }

    fn route(&mut self, route: &Arc<Route>, now: MonotonicTime) -> RouteKey {
        let known = self.routes.iter().find(|(_, rails)| Arc::ptr_eq(&rails.route, route));
        if let Some((key, _)) = known {
            return *key;
        }
        while self.routes.len() >= KEPT_ROUTES {
            let idle = self.routes.iter().filter(|(_, rails)| rails.is_idle());
            let Some(oldest) = idle.min_by_key(|(_, rails)| rails.idle_since).map(|(key, _)| *key) else { break };
            self.routes.remove(&oldest);
        }
        let key = self.next_key;
        self.next_key += 1;
        self.routes.insert(key, Rails::new(key, Arc::clone(route), &self.hub, now));
        key
    }

    fn open_nics(&self) -> impl Iterator<Item = (usize, &OpenNic)> {
        let list = self.hub.nics.list.iter().enumerate();
        list.filter_map(|(index, nic)| nic.open.as_ref().ok().map(|open| (index, open)))
    }

    /// Takes completions from every device.
    fn harvest(&mut self, now: MonotonicTime) -> bool {
        let hub = Arc::clone(&self.hub);
        let mut any = false;
        for (index, nic) in hub.nics.list.iter().enumerate() {
            let Ok(open) = &nic.open else { continue };
            for _ in 0..ROUNDS {
                self.completions.clear();
                match open.queue.poll(&mut self.completions) {
                    Ok(0) => break,
                    Ok(_) => any = true,
                    Err(error) => {
                        tracing::error!(%error, "a device is of no more use");
                        self.port(index, false, now);
                        break;
                    }
                }
                let mut endpoints = hub.endpoints.lock();
                for completion in &self.completions {
                    hub.counters.completed(!matches!(completion.status, WorkStatus::Done));
                    endpoints.complete(index, completion, &mut self.ended, now);
                }
            }
        }
        any
    }

    /// Tells the schedulers of work that is over.
    fn settle(&mut self, now: MonotonicTime) -> bool {
        let any = !self.ended.is_empty();
        for ended in self.ended.drain(..) {
            if let Some(rails) = self.routes.get_mut(&ended.slice.route()) {
                rails.ended(&ended, &self.hub, now);
            }
        }
        if any {
            self.hub.counters.endpoints(self.hub.endpoints.lock().count());
        }
        any
    }

    /// Takes the events of every device.
    fn events(&mut self, now: MonotonicTime) -> bool {
        let hub = Arc::clone(&self.hub);
        let mut any = false;
        for (index, nic) in hub.nics.list.iter().enumerate() {
            let Ok(open) = &nic.open else { continue };
            while let Some(event) = open.context().next_event() {
                any = true;
                let ours = event.port.is_none_or(|port| port == hub.settings.port);
                match event.kind {
                    EventKind::PortActive | EventKind::GidChange | EventKind::LidChange if ours => {
                        tracing::info!(device = nic.name, ?event, "RDMA event");
                        self.look_again(index, open, now);
                    }
                    EventKind::PortError if ours => {
                        tracing::warn!(device = nic.name, "the port is down");
                        self.port(index, false, now);
                    }
                    EventKind::DeviceFatal | EventKind::CqError => {
                        tracing::error!(device = nic.name, ?event, "the device is of no more use");
                        self.port(index, false, now);
                    }
                    EventKind::QpFatal => {
                        let mut endpoints = hub.endpoints.lock();
                        if let Some(id) = event.qp_num.and_then(|number| endpoints.of_pair(index, number)) {
                            endpoints.take_down(id, Cause::Rail, now);
                        }
                    }
                    _ => {}
                }
            }
        }
        any
    }

    /// A device may work again, or under another address.
    fn look_again(&mut self, index: usize, open: &OpenNic, now: MonotonicTime) {
        match open.reread(&self.hub.settings) {
            Ok(moved) => {
                if moved {
                    self.hub.endpoints.lock().take_down_all(index, now);
                    (self.changed)();
                }
                if !open.is_active() {
                    self.port(index, true, now);
                }
            }
            Err(reason) => {
                tracing::warn!(device = open.context().name(), reason, "the device cannot be used");
                self.port(index, false, now);
            }
        }
    }

    fn port(&mut self, index: usize, up: bool, now: MonotonicTime) {
        let before = self.hub.nics.get(index).map(|open| open.set_active(up));
        if before != Some(up) {
            (self.changed)();
        }
        if !up {
            self.hub.endpoints.lock().take_down_all(index, now);
        }
        for rails in self.routes.values_mut() {
            rails.port(index, up, &self.hub, now);
        }
    }

    /// Sleeps until something happens. What came between the last look and arming the queues is found by a last look.
    fn sleep(&mut self, now: MonotonicTime) {
        let mut came = false;
        for (_, open) in self.open_nics() {
            open.queue.take_notifications();
            if let Err(error) = open.queue.arm() {
                tracing::warn!(%error, "a completion queue cannot be armed");
            }
        }
        came |= self.harvest(now);
        if came {
            return;
        }
        let timeouts = self.routes.values().filter_map(Rails::next_timeout).chain(self.sweep);
        let millis = timeouts.min().map(|time| time.since(now).as_millis() + 1);
        let bell = self.hub.bell.as_fd();
        let files: Vec<_> =
            self.open_nics().flat_map(|(_, open)| [open.queue.fd(), open.context().async_fd()]).collect();
        let mut fds = vec![PollFd::new(&bell, PollFlags::IN)];
        fds.extend(files.iter().map(|file| PollFd::new(file, PollFlags::IN)));
        poll(&mut fds, millis);
        let mut rung = [0_u8; 8];
        let _ = rustix::io::read(&self.hub.bell, &mut rung);
    }
}
