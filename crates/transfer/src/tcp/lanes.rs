//! The connections to one peer's data port: how many there are, which are idle, what went over them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use socket2::Socket;
use yb_types::MonotonicTime;

use crate::segment::PeerAddress;
use crate::transport::Limits;
use crate::{EngineSettings, Opcode};

/// How often a call that waits for a lane looks whether it was cancelled.
const CANCEL_POLL: Duration = Duration::from_millis(20);

/// An open connection that is not in use.
#[derive(Debug)]
struct Idle {
    stream: Socket,
    address: Arc<PeerAddress>,
    since: MonotonicTime,
}

impl Idle {
    /// Whether it can still be trusted.
    fn is_fresh(&self, now: MonotonicTime, timeout: Duration) -> bool {
        now.since(self.since) < timeout
    }
}

#[derive(Debug, Default)]
struct State {
    /// The one used last is at the end.
    idle: Vec<Idle>,
    /// Idle, in use, and on their way.
    open: usize,
}

/// The connections to one peer's data port.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    state: Mutex<State>,
    freed: Condvar,
    opened: AtomicU64,
    read: AtomicU64,
    written: AtomicU64,
}

/// What one peer's lanes have done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneStats {
    /// Connections that are open now, in use or not.
    pub open: u64,
    /// Those of them that are not in use.
    pub idle: u64,
    /// Connections that were ever made.
    pub opened: u64,
    /// Bytes that were read from the peer.
    pub read_bytes: u64,
    /// Bytes that were written to the peer.
    pub written_bytes: u64,
}

impl Lanes {
    /// An idle connection to that address, or the right to make a new one; `None` when too many are in use.
    pub(crate) fn try_take(
        &self,
        address: &Arc<PeerAddress>,
        now: MonotonicTime,
        settings: &EngineSettings,
    ) -> Option<Lane<'_>> {
        let mut state = self.state.lock();
        while let Some(idle) = state.idle.pop() {
            if idle.address == *address && idle.is_fresh(now, settings.idle_lane_timeout) {
                return Some(self.lane(Some(idle.stream), address));
            }
            state.open -= 1;
        }
        if state.open >= settings.max_lanes.max(1) {
            return None;
        }
        state.open += 1;
        self.opened.fetch_add(1, Ordering::Relaxed);
        Some(self.lane(None, address))
    }

    /// As [`Lanes::try_take`], and waits for one; `None` when the call must end.
    pub(crate) fn take(
        &self,
        address: &Arc<PeerAddress>,
        settings: &EngineSettings,
        limits: &Limits<'_>,
    ) -> Option<Lane<'_>> {
        while limits.over().is_none() {
            let now = limits.clock.now();
            if let Some(lane) = self.try_take(address, now, settings) {
                return Some(lane);
            }
            let mut state = self.state.lock();
            if state.open >= settings.max_lanes.max(1) && state.idle.is_empty() {
                self.freed.wait_for(&mut state, limits.deadline.since(now).min(CANCEL_POLL));
            }
        }
        None
    }

    fn lane(&self, stream: Option<Socket>, address: &Arc<PeerAddress>) -> Lane<'_> {
        let reused = stream.is_some();
        Lane { lanes: self, stream, address: Arc::clone(address), reused }
    }

    /// Closes what is idle: whatever closed one connection while it was idle has closed the others too.
    pub(crate) fn close_idle(&self) {
        let mut state = self.state.lock();
        state.open -= state.idle.len();
        state.idle.clear();
    }

    /// Closes connections that were idle for too long, and says whether any is left.
    pub(crate) fn prune(&self, now: MonotonicTime, timeout: Duration) -> bool {
        let mut state = self.state.lock();
        let before = state.idle.len();
        state.idle.retain(|idle| idle.is_fresh(now, timeout));
        state.open -= before - state.idle.len();
        state.open > 0
    }

    /// Counts bytes that arrived.
    pub(crate) fn moved(&self, op: Opcode, bytes: u64) {
        let counter = if op == Opcode::Read { &self.read } else { &self.written };
        counter.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn stats(&self) -> LaneStats {
        let (open, idle) = {
            let state = self.state.lock();
            (state.open as u64, state.idle.len() as u64)
        };
        LaneStats {
            open,
            idle,
            opened: self.opened.load(Ordering::Relaxed),
            read_bytes: self.read.load(Ordering::Relaxed),
            written_bytes: self.written.load(Ordering::Relaxed),
        }
    }
}

/// The right to one connection. Dropped, it closes the connection and lets another call make one.
#[derive(Debug)]
pub(crate) struct Lane<'a> {
    lanes: &'a Lanes,
    /// `None` until it is connected.
    pub(crate) stream: Option<Socket>,
    /// Where the connection goes.
    pub(crate) address: Arc<PeerAddress>,
    /// Whether the connection served an earlier call, and so may have been closed meanwhile.
    pub(crate) reused: bool,
}

impl Lane<'_> {
    /// Leaves the connection to later calls.
    pub(crate) fn keep(mut self, now: MonotonicTime) {
        if let Some(stream) = self.stream.take() {
            let mut state = self.lanes.state.lock();
            state.open += 1;
            state.idle.push(Idle { stream, address: Arc::clone(&self.address), since: now });
        }
    }
}

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        // The socket is closed before another may take its place.
        self.stream = None;
        self.lanes.state.lock().open -= 1;
        self.lanes.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;
    use yb_env::Clock;

    fn address(port: u16) -> Arc<PeerAddress> {
        Arc::new(PeerAddress { host: "127.0.0.1".to_owned(), port, version_2: true })
    }

    fn stream() -> Socket {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap().into()
    }

    fn state(lanes: &Lanes) -> (u64, u64, u64) {
        let stats = lanes.stats();
        (stats.open, stats.idle, stats.opened)
    }

    #[test]
    fn idle_lanes_are_used_again_and_no_more_are_made_than_allowed() {
        let (lanes, clock) = (Lanes::default(), Clock::manual());
        let settings = EngineSettings { max_lanes: 2, ..EngineSettings::default() };
        let take = |port| lanes.try_take(&address(port), clock.now(), &settings);
        let (mut first, second) = (take(1).unwrap(), take(1).unwrap());
        assert!(take(1).is_none());
        drop(second);
        first.stream = Some(stream());
        first.keep(clock.now());
        assert_eq!(state(&lanes), (1, 1, 2));
        let again = take(1).unwrap();
        assert!(again.reused);
        again.keep(clock.now());
        assert!(!take(2).unwrap().reused, "a connection to another address is of no use");
        assert_eq!(state(&lanes), (0, 0, 3));
    }

    #[test]
    fn old_lanes_are_not_trusted() {
        let (lanes, clock) = (Lanes::default(), Clock::manual());
        let settings = EngineSettings::default();
        let mut lane = lanes.try_take(&address(1), clock.now(), &settings).unwrap();
        lane.stream = Some(stream());
        lane.keep(clock.now());
        clock.advance(settings.idle_lane_timeout);
        assert!(!lanes.try_take(&address(1), clock.now(), &settings).unwrap().reused);
        assert!(!lanes.prune(clock.now(), settings.idle_lane_timeout));
    }

    #[test]
    fn a_call_waits_for_a_lane_until_its_deadline() {
        let (lanes, clock) = (Lanes::default(), Clock::real());
        let settings = EngineSettings { max_lanes: 1, ..EngineSettings::default() };
        let limits = |ms| Limits { clock: &clock, deadline: clock.now() + Duration::from_millis(ms), cancel: None };
        let held = lanes.try_take(&address(1), clock.now(), &settings).unwrap();
        assert!(lanes.take(&address(1), &settings, &limits(5)).is_none());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| lanes.take(&address(1), &settings, &limits(20_000)).is_some());
            drop(held);
            assert!(waiting.join().unwrap());
        });
    }
}
