//! The data port: threads that drive the sessions of peers.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use yb_secure::Admitted;
use yb_types::MonotonicTime;

use crate::engine::Shared;
use crate::handshake::session::Wants;
use crate::reactor::{Reactor, Ready};
use crate::tcp::session::{Activity, Host, Session};

const LISTENER: u64 = 0;
/// How often stalled sessions are looked for.
const SWEEP: Duration = Duration::from_millis(250);
/// How long to leave the listener alone when the system has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A connection that was let in.
struct Arrived {
    admitted: Admitted,
    /// Whose it is.
    peer: IpAddr,
}

/// What the threads of one data port share.
pub(crate) struct DataPort {
    pub(crate) lanes: Vec<Lane>,
    activities: Mutex<Vec<Weak<Activity>>>,
    connections: AtomicUsize,
    /// How many each address has; those with none are not there.
    by_address: Mutex<BTreeMap<IpAddr, usize>>,
    next: AtomicUsize,
    recalls: AtomicUsize,
    writes_ended: AtomicUsize,
    stop: AtomicBool,
}

/// One data thread, seen from the others.
pub(crate) struct Lane {
    reactor: Reactor,
    handed_over: Mutex<Vec<Arrived>>,
}

impl DataPort {
    pub(crate) fn new(threads: usize) -> io::Result<Self> {
        let lane = |_| Ok(Lane { reactor: Reactor::new()?, handed_over: Mutex::new(Vec::new()) });
        Ok(DataPort {
            lanes: (0..threads.max(1)).map(lane).collect::<io::Result<_>>()?,
            activities: Mutex::new(Vec::new()),
            connections: AtomicUsize::new(0),
            by_address: Mutex::default(),
            next: AtomicUsize::new(0),
            recalls: AtomicUsize::new(0),
            writes_ended: AtomicUsize::new(0),
            stop: AtomicBool::new(false),
        })
    }

    /// True when no session is writing into the range or holds bytes that were not looked at.
    pub(crate) fn is_quiet(&self, address: u64, len: u64) -> bool {
        let activities = self.activities.lock();
        activities.iter().filter_map(Weak::upgrade).all(|activity| activity.is_quiet(address, len))
    }

    /// Makes every thread close the sessions inside regions that are to be released.
    pub(crate) fn recall(&self) {
        self.recalls.fetch_add(1, Ordering::SeqCst);
        self.wake();
    }

    /// Makes every thread close the sessions that are in the middle of a write.
    pub(crate) fn end_writes(&self) {
        self.writes_ended.fetch_add(1, Ordering::SeqCst);
        self.wake();
    }

    fn wake(&self) {
        for lane in &self.lanes {
            lane.reactor.wake();
        }
    }

    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
        self.wake();
    }

    /// Counts a connection of `peer`; false: there are too many, of all or of that address.
    fn enters(&self, peer: IpAddr, most: usize, most_of_one: usize) -> bool {
        let mut by_address = self.by_address.lock();
        let of_one = by_address.entry(peer).or_default();
        if self.connections.load(Ordering::SeqCst) >= most || *of_one >= most_of_one {
            if *of_one == 0 {
                by_address.remove(&peer);
            }
            return false;
        }
        *of_one += 1;
        self.connections.fetch_add(1, Ordering::SeqCst);
        true
    }

    /// A connection of `peer` is gone.
    fn leaves(&self, peer: IpAddr) {
        let mut by_address = self.by_address.lock();
        self.connections.fetch_sub(1, Ordering::SeqCst);
        if let Some(of_one) = by_address.get_mut(&peer) {
            *of_one -= 1;
            if *of_one == 0 {
                by_address.remove(&peer);
            }
        }
    }

    /// Leaves a connection to the next thread.
    fn hand_over(&self, arrived: Arrived) {
        let lane = self.next.fetch_add(1, Ordering::Relaxed) % self.lanes.len();
        if let Some(lane) = self.lanes.get(lane) {
            lane.handed_over.lock().push(arrived);
            lane.reactor.wake();
        }
    }

    fn watch(&self, activity: &Arc<Activity>) {
        let mut activities = self.activities.lock();
        if activities.len() == activities.capacity() {
            activities.retain(|activity| activity.strong_count() > 0);
        }
        activities.push(Arc::downgrade(activity));
    }
}

struct Served {
    session: Session,
    peer: IpAddr,
    wants: Wants,
    /// When to give it up; sessions between two requests have none.
    deadline: Option<MonotonicTime>,
}

/// One data thread.
pub(crate) struct DataThread {
    pub(crate) shared: Arc<Shared>,
    pub(crate) port: Arc<DataPort>,
    pub(crate) index: usize,
    /// The first thread accepts.
    pub(crate) listener: Option<TcpListener>,
    sessions: BTreeMap<u64, Served>,
    next_token: u64,
    swept: MonotonicTime,
    /// Whether some session may have a deadline.
    timed: bool,
    recalls_seen: usize,
    writes_ended_seen: usize,
}

impl DataThread {
    pub(crate) fn new(shared: Arc<Shared>, port: Arc<DataPort>, index: usize, listener: Option<TcpListener>) -> Self {
        let swept = shared.clock.now();
        DataThread {
            shared,
            port,
            index,
            listener,
            sessions: BTreeMap::new(),
            next_token: LISTENER + 1,
            swept,
            timed: false,
            recalls_seen: 0,
            writes_ended_seen: 0,
        }
    }

    /// Serves until the port is stopped.
    pub(crate) fn run(mut self) {
        let port = Arc::clone(&self.port);
        let Some(lane) = port.lanes.get(self.index) else { return };
        if let Some(listener) = &self.listener
            && let Err(error) = lane.reactor.add(listener, LISTENER, Wants::Read)
        {
            tracing::error!(%error, "the data port cannot be watched; nobody is served over TCP");
        }
        let mut ready = Ready::default();
        while !port.stop.load(Ordering::SeqCst) {
            if let Err(error) = lane.reactor.wait(&mut ready, self.timed.then_some(SWEEP)) {
                tracing::error!(%error, "a data thread cannot wait for its sockets and ends");
                break;
            }
            for token in ready.tokens() {
                if token == LISTENER { self.accept(&port) } else { self.advance(lane, token) }
            }
            for arrived in std::mem::take(&mut *lane.handed_over.lock()) {
                self.adopt(lane, arrived);
            }
            self.sweep(lane);
        }
        self.shared.counters.data_connections.fetch_sub(self.sessions.len() as u64, Ordering::Relaxed);
    }

    fn accept(&mut self, port: &Arc<DataPort>) {
        let Some(listener) = &self.listener else { return };
        loop {
            match listener.accept() {
                Ok((stream, peer)) => self.judge(port, stream, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a data connection");
                    yb_env::sleep(ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    /// Lets a connection in, or not.
    fn judge(&self, port: &Arc<DataPort>, stream: TcpStream, from: SocketAddr) {
        let (settings, peer) = (&self.shared.settings, from.ip().to_canonical());
        if !port.enters(peer, settings.max_data_connections, settings.max_data_connections_per_address) {
            self.shared.counters.refused.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // Only latency suffers when this fails.
        let _ = stream.set_nodelay(true);
        let Some(security) = &settings.security else {
            return port.hand_over(Arrived { admitted: Admitted { socket: stream.into(), passage: None }, peer });
        };
        let (port, shared) = (Arc::clone(port), Arc::clone(&self.shared));
        security.admit("data", stream.into(), from, move |admitted| match admitted {
            Some(admitted) => port.hand_over(Arrived { admitted, peer }),
            None => {
                port.leaves(peer);
                shared.counters.refused.fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    fn adopt(&mut self, lane: &Lane, arrived: Arrived) {
        let Arrived { admitted, peer } = arrived;
        let ready = admitted.socket.set_nonblocking(true);
        let token = self.next_token;
        self.next_token += 1;
        let session = Session::new(admitted);
        if ready.and_then(|()| lane.reactor.add(session.stream(), token, Wants::Read)).is_err() {
            self.port.leaves(peer);
            return;
        }
        self.port.watch(session.activity());
        self.shared.counters.data_connections.fetch_add(1, Ordering::Relaxed);
        let deadline = Some(self.shared.clock.now() + self.shared.settings.silent_timeout);
        self.timed = true;
        self.sessions.insert(token, Served { session, peer, wants: Wants::Read, deadline });
    }

    fn advance(&mut self, lane: &Lane, token: u64) {
        let Some(served) = self.sessions.get_mut(&token) else { return };
        let host = Host {
            registry: &self.shared.registry,
            served: &self.shared.counters.served,
            gpus: &self.shared.hardware.gpus,
        };
        let wants = served.session.advance(&host);
        if wants == Wants::Close {
            return self.close(lane, token);
        }
        if served.session.is_idle() {
            served.deadline = None;
        } else if std::mem::take(&mut served.session.progress) > 0 || served.deadline.is_none() {
            let settings = &self.shared.settings;
            let patience =
                if served.session.is_between_requests() { settings.silent_timeout } else { settings.progress_timeout };
            served.deadline = Some(self.shared.clock.now() + patience);
            self.timed = true;
        }
        if wants != served.wants {
            served.wants = wants;
            if lane.reactor.change(served.session.stream(), token, wants).is_err() {
                self.close(lane, token);
            }
        }
    }

    /// Gives up sessions that stall, those that use a region which is to be released, and writes that are to end.
    fn sweep(&mut self, lane: &Lane) {
        let recalls = self.port.recalls.load(Ordering::SeqCst);
        if recalls != self.recalls_seen {
            self.recalls_seen = recalls;
            self.close_all(lane, false, |served| served.session.holds_wanted());
        }
        let writes_ended = self.port.writes_ended.load(Ordering::SeqCst);
        if writes_ended != self.writes_ended_seen {
            self.writes_ended_seen = writes_ended;
            self.close_all(lane, false, |served| served.session.is_writing());
        }
        let now = self.shared.clock.now();
        if now.since(self.swept) < SWEEP {
            return;
        }
        self.swept = now;
        self.close_all(lane, true, |served| served.deadline.is_some_and(|deadline| deadline <= now));
        self.timed = self.sessions.values().any(|served| served.deadline.is_some());
    }

    /// Closes the chosen sessions; those at fault are counted first, so that whoever sees the end sees the count.
    fn close_all(&mut self, lane: &Lane, at_fault: bool, which: impl Fn(&Served) -> bool) {
        let chosen: Vec<u64> =
            self.sessions.iter().filter(|(_, served)| which(served)).map(|(token, _)| *token).collect();
        if at_fault {
            self.shared.counters.refused.fetch_add(chosen.len() as u64, Ordering::Relaxed);
        }
        for token in chosen {
            self.close(lane, token);
        }
    }

    fn close(&mut self, lane: &Lane, token: u64) {
        if let Some(served) = self.sessions.remove(&token) {
            lane.reactor.remove(served.session.stream());
            self.port.leaves(served.peer);
            self.shared.counters.data_connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
