//! Writers of ours, by the connections over which they say that they write.
//!
//! A client that lends memory pings; one that lends none does not, and nobody would know that it has ended half-way through a
//! write. Its kernel knows: it closes the connections. So a writer attends over one of its connections now and then, and when
//! the last of those has ended and it does not attend again within a moment, it is taken for dead.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use yb_types::{ClientId, MonotonicTime};

use crate::shared::Shared;

/// A writer whose connection was cut attends over another one within this time, if it lives and writes.
const GRACE: Duration = Duration::from_millis(1200);
/// Writers remembered; what others leave unfinished ends with the discard timeout.
const WRITERS_MAX: usize = 65_536;

#[derive(Debug, Default)]
struct Writer {
    connections: u32,
    /// Where the latest of them comes from; `None` over a UNIX socket.
    address: Option<SocketAddr>,
    /// When the last of them ended.
    left: Option<MonotonicTime>,
}

/// The writers that attend.
#[derive(Debug, Default)]
pub(crate) struct Attendance(Mutex<BTreeMap<ClientId, Writer>>);

impl Attendance {
    /// A writer attends over a connection that it did not attend over before. `false`: there are too many.
    pub(crate) fn came(&self, client: ClientId, from: Option<SocketAddr>) -> bool {
        let mut writers = self.0.lock();
        if writers.len() >= WRITERS_MAX && !writers.contains_key(&client) {
            return false;
        }
        let writer = writers.entry(client).or_default();
        (writer.connections, writer.left) = (writer.connections.saturating_add(1), None);
        writer.address = from;
        true
    }

    /// Where a writer calls from, as far as it attends.
    pub(crate) fn address_of(&self, client: ClientId) -> Option<SocketAddr> {
        self.0.lock().get(&client)?.address
    }

    /// Such a connection has ended.
    fn went(&self, client: ClientId, now: MonotonicTime) {
        let mut writers = self.0.lock();
        let Some(writer) = writers.get_mut(&client) else { return };
        writer.connections = writer.connections.saturating_sub(1);
        if writer.connections == 0 {
            writer.left = Some(now);
        }
    }

    /// Those that left and did not come again, and when; they are forgotten.
    pub(crate) fn gone(&self, now: MonotonicTime) -> Vec<(ClientId, MonotonicTime)> {
        let mut gone = Vec::new();
        self.0.lock().retain(|client, writer| match writer.left {
            Some(left) if now.since(left) >= GRACE => {
                gone.push((*client, left));
                false
            }
            _ => true,
        });
        gone
    }
}

/// What is done when a connection ends over which a writer attends.
pub(crate) fn farewell(shared: &Arc<Shared>, client: ClientId) -> impl FnOnce() + Send + 'static {
    let shared = Arc::clone(shared);
    move || shared.attendance.went(client, shared.clock.now())
}

#[cfg(test)]
mod tests {
    use yb_types::Uuid;

    use super::*;

    #[test]
    fn a_writer_is_gone_when_all_its_connections_are_for_a_while() {
        let (client, at) = (|first| ClientId(Uuid { first, second: 0 }), MonotonicTime::from_millis);
        let attendance = Attendance::default();
        let from: Option<SocketAddr> = "10.0.0.7:41234".parse().ok();
        assert!(
            attendance.came(client(1), None) && attendance.came(client(1), from) && attendance.came(client(2), None)
        );
        assert_eq!((attendance.address_of(client(1)), attendance.address_of(client(2))), (from, None));
        attendance.went(client(1), at(1000));
        assert!(attendance.gone(at(9000)).is_empty(), "one is left");
        attendance.went(client(1), at(10_000));
        assert!(attendance.gone(at(11_000)).is_empty(), "it may come again");
        assert!(attendance.came(client(1), None));
        assert!(attendance.gone(at(20_000)).is_empty(), "it did");
        attendance.went(client(1), at(21_000));
        assert_eq!(attendance.gone(at(22_200)), [(client(1), at(21_000))]);
        assert!(attendance.gone(at(30_000)).is_empty(), "once");
        attendance.went(client(7), at(1));
    }
}
