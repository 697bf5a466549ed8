//! Clients: who is alive.
//!
//! A client that pings is known; it is in good standing once it has mounted or remounted its segments. One that does not
//! ping for the client's time to live is given up: its segments are unmounted, its unfinished puts are discarded.

use std::collections::BTreeMap;
use std::time::Duration;

use yb_types::{ClientId, ClientStatus, ErrorCode, MonotonicTime};

use crate::catalog::Catalog;
use crate::effects::{Effects, UnmountCause};

struct Client {
    last_seen: MonotonicTime,
    in_good_standing: bool,
}

#[derive(Default)]
pub(crate) struct Clients {
    by_id: BTreeMap<ClientId, Client>,
    last_check: Option<MonotonicTime>,
    good: usize,
}

/// If nobody looked for this long, the master itself was held up, and the clients' time stood still too.
const CHECK_LATE: Duration = Duration::from_secs(2);

impl Clients {
    pub fn in_good_standing(&self) -> usize {
        self.good
    }

    /// Notes a sign of life. Answers whether the client is known now: beyond `max` clients it is not.
    pub fn seen(&mut self, client: ClientId, now: MonotonicTime, max: usize) -> bool {
        // So that a master that is held up before its first check notices.
        self.last_check.get_or_insert(now);
        if let Some(known) = self.by_id.get_mut(&client) {
            known.last_seen = known.last_seen.max(now);
            return true;
        }
        let room = self.by_id.len() < max;
        if room {
            self.by_id.insert(client, Client { last_seen: now, in_good_standing: false });
        }
        room
    }

    pub fn is_good(&self, client: ClientId) -> bool {
        self.by_id.get(&client).is_some_and(|known| known.in_good_standing)
    }

    pub fn set_good(&mut self, client: ClientId) {
        if let Some(known) = self.by_id.get_mut(&client)
            && !std::mem::replace(&mut known.in_good_standing, true)
        {
            self.good += 1;
        }
    }

    fn take_expired(&mut self, ttl: Duration, now: MonotonicTime) -> Vec<ClientId> {
        let held_up = self.last_check.map_or(Duration::ZERO, |last| now.since(last));
        self.last_check = Some(now);
        if held_up > CHECK_LATE {
            self.by_id.values_mut().for_each(|client| client.last_seen = (client.last_seen + held_up).min(now));
        }
        let late = |client: &Client| now.since(client.last_seen) > ttl;
        let expired: Vec<ClientId> = self.by_id.iter().filter(|(_, client)| late(client)).map(|(&id, _)| id).collect();
        for id in &expired {
            self.good -= usize::from(self.by_id.remove(id).is_some_and(|client| client.in_good_standing));
        }
        expired
    }
}

/// A client, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientReport {
    /// Its id.
    pub id: ClientId,
    /// `OK`, or `NEED_REMOUNT` while it only pings.
    pub status: ClientStatus,
    /// When it was last heard of.
    pub last_seen: MonotonicTime,
}

impl Catalog {
    /// A client's sign of life. `NEED_REMOUNT` tells it to call [`remount`](Self::remount), with its segments or none.
    ///
    /// # Errors
    /// `INTERNAL_ERROR` (the peer's answer of a full queue) when there are too many clients.
    pub fn ping(&self, client: ClientId, now: MonotonicTime) -> Result<ClientStatus, ErrorCode> {
        let mut clients = self.clients.lock();
        if !clients.seen(client, now, self.settings.clients_max) {
            return Err(ErrorCode::INTERNAL_ERROR);
        }
        Ok(if clients.is_good(client) { ClientStatus::OK } else { ClientStatus::NEED_REMOUNT })
    }

    /// Gives up clients that did not ping in time; to be called about every second. When the calls themselves were late,
    /// the time of the delay does not count against the clients.
    pub fn expire_clients(&self, now: MonotonicTime, effects: &mut Effects) {
        let expired = self.clients.lock().take_expired(self.settings.client_ttl, now);
        for client in expired {
            self.counters.add(|c| &c.clients_expired, 1);
            self.unmount_all_of(client, UnmountCause::ClientExpired, now, effects);
            self.chores.lock().add_dead_writer(client);
            self.copies.lock().hurry(client, now);
            effects.clients_gone.push(client);
        }
    }

    /// Every known client, in order of id.
    pub fn clients(&self) -> Vec<ClientReport> {
        let report = |(&id, client): (&ClientId, &Client)| ClientReport {
            id,
            status: if client.in_good_standing { ClientStatus::OK } else { ClientStatus::NEED_REMOUNT },
            last_seen: client.last_seen,
        };
        self.clients.lock().by_id.iter().map(report).collect()
    }
}
