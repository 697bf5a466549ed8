//! What the threads of the transport share: devices, endpoints, memory, and the driver's inbox. Also both roles of the
//! handshake, which run on the control thread (as the one who answers) and on connectors (as the one who asks).

use std::os::fd::OwnedFd;
use std::sync::Arc;

use parking_lot::Mutex;
use rustix::event::EventfdFlags;
use serde_json::Value;
use yb_env::Clock;
use yb_types::MonotonicTime;
use yb_verbs::QueuePair;

use super::endpoint::{Cause, EndpointId, Endpoints};
use super::gid::{gid_text, parse_gid};
use super::link::{Link, LinkState, OwnAddress, Verdict, judge};
use super::memory::RegionTable;
use super::message::ConnectionMessage;
use super::nic::{Nics, OpenNic};
use super::peer::Route;
use super::rails::SliceRef;
use super::settings::RdmaSettings;
use super::stats::RdmaCounters;
use crate::handshake::client::{Timing, exchange};
use crate::handshake::frame::MessageType;
use crate::transport::Limits;

/// What the driver is told.
#[derive(Debug)]
pub(crate) enum Order {
    /// Move these.
    Submit(Vec<super::rails::Move>),
    /// Give up what belongs to the ticket.
    GiveUp(Arc<super::ticket::Ticket>, crate::TransferErrorKind),
    /// A connector is done.
    Connected {
        /// Our device.
        nic: usize,
        /// The peer's.
        peer_path: Arc<str>,
        /// Done (or the peer is at it), or why not.
        result: Result<(), String>,
    },
    /// End.
    Stop,
}

/// See the module.
pub(crate) struct Hub {
    pub(crate) nics: Nics,
    pub(crate) settings: RdmaSettings,
    pub(crate) clock: Clock,
    /// Host part of our NIC paths.
    pub(crate) server: Arc<str>,
    pub(crate) timing: Timing,
    /// How long a peer may take to answer, after it was connected to.
    pub(crate) answer_timeout: std::time::Duration,
    pub(crate) endpoints: Mutex<Endpoints<SliceRef>>,
    pub(crate) regions: RegionTable,
    pub(crate) counters: RdmaCounters,
    /// `None` once the driver has ended.
    inbox: Mutex<Option<Vec<Order>>>,
    pub(crate) bell: OwnedFd,
}

impl std::fmt::Debug for Hub {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hub").field("server", &self.server).finish_non_exhaustive()
    }
}

/// The text for a device that is not there, as the peer words it.
fn no_context(nic: &str) -> Value {
    let reply = format!("Local RDMA context not found for handshake NIC: {nic}");
    ConnectionMessage { reply, ..ConnectionMessage::default() }.to_json()
}

impl Hub {
    /// Puts the parts together.
    ///
    /// # Errors
    /// The system's, when it has no descriptor left.
    pub(crate) fn new(
        nics: Nics,
        settings: RdmaSettings,
        clock: Clock,
        server: Arc<str>,
        (timing, answer_timeout): (Timing, std::time::Duration),
    ) -> std::io::Result<Self> {
        let budget = |nic: &super::nic::Nic| nic.open.as_ref().map_or(0, OpenNic::budget);
        let budgets: Vec<usize> = nics.list.iter().map(budget).collect();
        let endpoints = Mutex::new(Endpoints::new(&budgets, &settings));
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Hub {
            nics,
            settings,
            clock,
            server,
            timing,
            answer_timeout,
            endpoints,
            regions: RegionTable::default(),
            counters: RdmaCounters::default(),
            inbox: Mutex::new(Some(Vec::new())),
            bell,
        })
    }

    /// Tells the driver something; false when it has ended.
    pub(crate) fn order(&self, order: Order) -> bool {
        let mut inbox = self.inbox.lock();
        let Some(orders) = inbox.as_mut() else { return false };
        orders.push(order);
        drop(inbox);
        self.wake();
        true
    }

    pub(crate) fn take_orders(&self) -> Vec<Order> {
        self.inbox.lock().as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Takes the last orders; there are none after them.
    pub(crate) fn close(&self) -> Vec<Order> {
        self.inbox.lock().take().unwrap_or_default()
    }

    /// Makes the driver look at everything again.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// Our `server@nic`.
    pub(crate) fn own_path(&self, nic: usize) -> Arc<str> {
        let name = self.nics.list.get(nic).map_or("", |nic| nic.name.as_str());
        format!("{}@{name}", self.server).into()
    }

    fn address(open: &OpenNic) -> OwnAddress {
        OwnAddress { gid: gid_text(&open.gid.read().entry.gid), lid: open.port.read().lid }
    }

    /// Answers a Connection message: the passive role. Does not wait for anybody.
    pub(crate) fn answer(&self, body: &Value) -> Value {
        let message = match ConnectionMessage::parse(body) {
            Ok(message) => message,
            Err(error) => {
                return ConnectionMessage { reply: error.to_string(), ..ConnectionMessage::default() }.to_json();
            }
        };
        let Some((nic, open)) = self.nics.by_name(message.wanted_nic()) else {
            return no_context(message.wanted_nic());
        };
        let own = Self::address(open);
        let own_path = self.own_path(nic);
        let refuse = |reply: String| {
            tracing::info!(peer = message.local_nic_path, reply, "an RDMA connection is refused");
            let (local_nic_path, peer_nic_path) = (own_path.to_string(), message.local_nic_path.clone());
            let (gid, lid) = (own.gid.clone(), own.lid);
            let ready_ack = Some(false);
            ConnectionMessage { local_nic_path, peer_nic_path, lid, gid, pairs: Vec::new(), reply, ready_ack }.to_json()
        };
        match self.accept((nic, open), &own_path, &message) {
            Ok(None) => ConnectionMessage::default().to_json(),
            Ok(Some(link)) => link.reply(&own).to_json(),
            Err(text) => refuse(text),
        }
    }

    /// `None` after the ready word.
    fn accept(
        &self,
        (nic, open): (usize, &OpenNic),
        own_path: &Arc<str>,
        message: &ConnectionMessage,
    ) -> Result<Option<Link>, String> {
        let now = self.clock.now();
        let pairs = self.settings.pairs_per_endpoint;
        let mut endpoints = self.endpoints.lock();
        // The driver closes its inbox before it destroys the endpoints: none is made behind its back.
        if self.inbox.lock().is_none() {
            return Err("the engine is shutting down".to_owned());
        }
        let existing = endpoints.find(nic, &message.local_nic_path).map(|(id, endpoint)| (id, endpoint.link.clone()));
        let verdict = judge(existing.as_ref().map(|(_, link)| link), own_path, message, pairs, now);
        let id = match (verdict, existing) {
            (Verdict::Refuse(text), _) => return Err(text),
            (Verdict::Ready, Some((id, _))) => {
                if let Some(link) = endpoints.link_mut(id) {
                    link.state = LinkState::Connected;
                }
                drop(endpoints);
                self.wake();
                return Ok(None);
            }
            (Verdict::Reuse, Some((_, link))) => return Ok(Some(link)),
            (Verdict::Join, Some((id, _))) => id,
            (verdict, _) => {
                self.counters.accepted(verdict == Verdict::Rebuild);
                let peer_path = message.local_nic_path.as_str().into();
                self.prepare(&mut endpoints, (nic, open), own_path, peer_path, now)?
            }
        };
        let peer_gid = message.peer_gid().map_err(str::to_owned)?.ok_or_else(|| "no GID".to_owned())?;
        if let Err(text) = self.join(&endpoints, id, open, (peer_gid, message.lid), &message.pairs) {
            endpoints.take_down(id, Cause::Rail, now);
            return Err(text);
        }
        let patience = self.settings.ready_timeout;
        let link = endpoints.link_mut(id).ok_or_else(|| "the endpoint was taken down".to_owned())?;
        link.accepted(message, now, patience);
        let link = link.clone();
        drop(endpoints);
        self.wake();
        Ok(Some(link))
    }

    /// A new endpoint whose pairs wait to be connected.
    fn prepare(
        &self,
        endpoints: &mut Endpoints<SliceRef>,
        (nic, open): (usize, &OpenNic),
        own_path: &Arc<str>,
        peer_path: Arc<str>,
        now: MonotonicTime,
    ) -> Result<EndpointId, String> {
        let pairs: Vec<QueuePair> =
            (0..self.settings.pairs_per_endpoint).map(|_| open.pair(&self.settings)).collect::<Result<_, String>>()?;
        let link = Link {
            own_path: Arc::clone(own_path),
            peer_path,
            own_pairs: pairs.iter().map(QueuePair::number).collect(),
            peer_pairs: Vec::new(),
            state: LinkState::Connecting,
            born: now,
        };
        Ok(endpoints.add(nic, link, pairs, now))
    }

    /// Connects the pairs of an endpoint with the peer's.
    fn join(
        &self,
        endpoints: &Endpoints<SliceRef>,
        id: EndpointId,
        open: &OpenNic,
        (peer_gid, peer_lid): ([u8; 16], u16),
        peer_pairs: &[u32],
    ) -> Result<(), String> {
        let endpoint = endpoints.get(id).ok_or_else(|| "the endpoint was taken down".to_owned())?;
        for (pair, number) in endpoint.queue_pairs().zip(peer_pairs) {
            let path = open.path(&self.settings, peer_gid, peer_lid, *number);
            open.connect(pair, &path, &self.settings)?;
        }
        Ok(())
    }

    /// Connects one of our devices with one of a peer's: the active role. Waits for the peer.
    ///
    /// # Errors
    /// One sentence; nothing of the endpoint is left then.
    pub(crate) fn connect(&self, route: &Route, nic: usize, device: usize) -> Result<(), String> {
        let open = self.nics.active(nic).ok_or_else(|| "our device cannot carry data now".to_owned())?;
        let peer_path = route.path(device).ok_or_else(|| "the peer has no such device".to_owned())?;
        let own_path = self.own_path(nic);
        let id = {
            let mut endpoints = self.endpoints.lock();
            if endpoints.find(nic, &peer_path).is_some() {
                // The peer was quicker, or is at it.
                return Ok(());
            }
            self.prepare(&mut endpoints, (nic, open), &own_path, Arc::clone(&peer_path), self.clock.now())?
        };
        let result =
            if own_path == peer_path { self.connect_to_itself(id, open) } else { self.ask(route, (id, device), open) };
        if result.is_err() {
            self.endpoints.lock().take_down(id, Cause::Rail, self.clock.now());
        }
        result
    }

    fn connect_to_itself(&self, id: EndpointId, open: &OpenNic) -> Result<(), String> {
        let mut endpoints = self.endpoints.lock();
        let numbers = endpoints.get(id).map(|endpoint| endpoint.link.own_pairs.clone()).unwrap_or_default();
        let (gid, lid) = (open.gid.read().entry.gid, open.port.read().lid);
        self.join(&endpoints, id, open, (gid, lid), &numbers)?;
        if let Some(link) = endpoints.link_mut(id) {
            link.peer_pairs = numbers;
            link.state = LinkState::Connected;
        }
        Ok(())
    }

    fn ask(&self, route: &Route, (id, device): (EndpointId, usize), open: &OpenNic) -> Result<(), String> {
        let own = Self::address(open);
        let gone = || "the endpoint was taken down".to_owned();
        let link = self.endpoints.lock().get(id).map(|endpoint| endpoint.link.clone()).ok_or_else(gone)?;
        let reply = self.say(route, &link.request(&own, false))?;
        {
            let mut endpoints = self.endpoints.lock();
            let link = endpoints.get(id).map(|endpoint| endpoint.link.clone()).ok_or_else(gone)?;
            link.check_reply(&reply)?;
            if link.state == LinkState::Connecting {
                let sent = reply.peer_gid().map_err(|text| format!("invalid GID {text}"))?;
                let known = || route.devices.get(device).and_then(|device| parse_gid(&device.gid));
                let gid = sent.or_else(known).ok_or_else(|| "the peer told no GID".to_owned())?;
                self.join(&endpoints, id, open, (gid, reply.lid), &reply.pairs)?;
            } else if link.peer_pairs != reply.pairs {
                return Err("the peer connected to us with other queue pairs meanwhile".to_owned());
            }
            let link = endpoints.link_mut(id).ok_or_else(gone)?;
            link.peer_pairs.clone_from(&reply.pairs);
            link.born = self.clock.now();
        }
        if reply.ready_ack.is_some() {
            let acknowledged = self.say(route, &link.request(&own, true))?;
            if !acknowledged.reply.is_empty() {
                return Err(format!("the peer refuses the acknowledgement: {}", acknowledged.reply));
            }
        }
        self.endpoints.lock().link_mut(id).ok_or_else(gone)?.state = LinkState::Connected;
        Ok(())
    }

    /// One exchange with the peer's handshake port.
    fn say(&self, route: &Route, message: &ConnectionMessage) -> Result<ConnectionMessage, String> {
        let deadline = self.clock.now() + self.timing.connect + self.answer_timeout;
        let limits = Limits { clock: &self.clock, deadline, cancel: None };
        let body = format!("{}\n", message.to_json());
        let at = || format!("handshake with {}:{}", route.host, route.port);
        let kind = MessageType::Connection;
        let reply = exchange(&route.host, route.port, kind, body.as_bytes(), &self.timing, &limits)
            .map_err(|error| format!("{}: {error}", at()))?;
        let value: Value = serde_json::from_slice(&reply).map_err(|error| format!("{}: {error}", at()))?;
        ConnectionMessage::parse(&value).map_err(|error| format!("{}: {error}", at()))
    }
}
