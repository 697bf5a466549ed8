//! Clients at whose data address somebody found nobody.

use std::collections::{BTreeMap, BTreeSet};

use yb_types::{ClientId, MonotonicTime};

use crate::catalog::Catalog;
use crate::clients::{Found, Patience};
use crate::effects::Effects;
use crate::segment::Reach;

/// Why nothing more is placed with a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBack {
    /// Somebody found nobody at its address.
    Missing,
    /// It did not take in time what somebody wrote.
    Slow,
}

impl Catalog {
    /// The clients whose segments are reached at this address.
    pub fn clients_at(&self, endpoint: &str) -> BTreeSet<ClientId> {
        let registry = self.segments.registry();
        let there = registry.iter().filter(|segment| segment.info().te_endpoint == endpoint);
        there.map(|segment| segment.owner()).collect()
    }

    /// Owners of segments that are read and in which nothing is placed now, and all owners of segments that are read.
    pub fn held_back(&self) -> (usize, usize) {
        let registry = self.segments.registry();
        let owners = |is: &dyn Fn(Reach) -> bool| {
            let there = registry.iter().filter(|segment| is(segment.reach()));
            there.map(|segment| segment.owner()).collect::<BTreeSet<_>>().len()
        };
        (owners(&|reach| reach == Reach::Suspect), owners(&|reach| reach <= Reach::Suspect))
    }

    /// Places nothing more in the segments of a client until it pings, but, if it is only slow, what finds no other place.
    /// Answers whether that was news.
    pub fn hold_back(&self, client: ClientId, why: HeldBack, effects: &mut Effects) -> bool {
        let mut clients = self.clients.lock();
        let is_news = clients.hold_back(client);
        if is_news {
            let registry = self.segments.registry();
            for segment in registry.iter().filter(|segment| segment.owner() == client) {
                segment.set_slow(why == HeldBack::Slow);
            }
            drop(registry);
            self.follow(&mut self.segments.registry(), &BTreeMap::from([(client, Reach::Suspect)]));
            effects.clients_turned.push((client, Reach::Suspect));
            self.counters.add(|c| &c.clients_suspected, 1);
        }
        is_news
    }

    /// Undoes [`hold_back`](Self::hold_back) for a client that is not silent. Answers whether it was held back.
    pub fn let_go(&self, client: ClientId, now: MonotonicTime, effects: &mut Effects) -> bool {
        let mut clients = self.clients.lock();
        let patience = Patience { ttl: self.settings.client_ttl, suspicion: self.settings.client_suspicion_ttl };
        let is_news = clients.let_go(client, patience, now);
        if is_news {
            self.follow(&mut self.segments.registry(), &BTreeMap::from([(client, Reach::Online)]));
            effects.clients_turned.push((client, Reach::Online));
            self.counters.add(|c| &c.clients_recovered, 1);
        }
        is_news
    }

    /// Nobody answers at the data address of a client: its segments are not offered to readers from now on, and unless it
    /// pings soon its unfinished writes are given up. It is forgotten when it has been silent as long as any other.
    /// Answers whether that was news.
    pub fn doubt(&self, client: ClientId, now: MonotonicTime, effects: &mut Effects) -> bool {
        let mut clients = self.clients.lock();
        let is_news = clients.doubt(client, Found::Nobody, now);
        if is_news {
            self.follow(&mut self.segments.registry(), &BTreeMap::from([(client, Reach::Offline)]));
            effects.clients_turned.push((client, Reach::Offline));
            self.counters.add(|c| &c.clients_offline, 1);
        }
        is_news
    }
}
