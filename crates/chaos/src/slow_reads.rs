//! Slow reads across eviction, removal and replacement (H05 of the case book): readers stand still in the middle of a read, or get
//! their bytes in trickles, while short leases end and a small pool is filled again and again.

use std::time::Duration;

use yb_history::Party;

use crate::plan::{Cast, Deed, Event};
use crate::relay::Weather;
use crate::run::Scene;

/// A pool that holds a third of what its clients write, with leases shorter than they stand still.
pub fn scene() -> Scene {
    let cast = Cast { nodes: 2, clients: 3, relayed_node: Some(0), ttl: Duration::from_secs(30) };
    let (lease, calm) = (Duration::from_millis(300), Duration::from_secs(1));
    Scene { cast, mib: 24, lease, keys: 1200, evicts: true, calm }
}

/// Clients stand still for longer than a lease, one after the other, and the bytes of one node come late or in trickles.
pub fn events(length: Duration) -> Vec<Event> {
    let mut events = Vec::new();
    for turn in 0..(length.as_secs() as u32).saturating_sub(1) {
        let at = Duration::from_secs(turn.into());
        let party = Party::Client(turn % 3);
        events.push(Event { at, lasts: Duration::from_millis(700), party, deed: Deed::Stop });
        let weather = match turn % 4 {
            0 => Weather::Trickle(400_000),
            2 => Weather::Delay(Duration::from_millis(60)),
            _ => continue,
        };
        let (lasts, party) = (Duration::from_millis(900), Party::Node(0));
        events.push(Event { at, lasts, party, deed: Deed::Weather(weather) });
    }
    events
}
