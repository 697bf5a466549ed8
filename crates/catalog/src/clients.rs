//! Clients: who is alive.
//!
//! A client that pings is known; it is in good standing once it has mounted or remounted its segments. One that falls
//! silent loses trust in steps, see [`Reach`]: after half its time to live nothing more is placed in its segments, after
//! the time to live they are not offered to readers and its unfinished writes are discarded, and after the suspicion time
//! on top they are unmounted. A ping before that brings everything back; nothing was lost.
//!
//! Where nobody answers at its data address, a client is not offered either, and its unfinished writes are given up unless
//! it pings soon. It is forgotten no sooner than any other that is silent: its memory may outlive its process.
//!
//! A client that unmounts its last segment is said to have left: it is neither counted nor listed, and forgotten without
//! more when it is silent for its time to live. A ping or a mount says that it is still there.
//!
//! A process that was started again at the address of another one shows that the other is gone. Its segments are not
//! offered from that moment on, and unmounted unless it pings soon: two clients may share one engine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use yb_types::{ClientId, ClientStatus, ErrorCode, MonotonicTime};

use crate::catalog::Catalog;
use crate::directory::turn_to;
use crate::effects::{Effects, UnmountCause};
use crate::planted::{Fault, planted};
use crate::segment::{MountedSegment, Reach};
use crate::segments::Registry;

struct Client {
    last_seen: MonotonicTime,
    in_good_standing: bool,
    reach: Reach,
    /// Somebody else answers at its address, or nobody.
    doubt: Option<Doubt>,
    /// Unmounted its last segment and was not heard of since.
    left: bool,
}

impl Client {
    /// Whether it is one of those in good standing, for counts.
    fn counts(&self) -> bool {
        self.in_good_standing && !self.left
    }
}

#[derive(Default)]
pub(crate) struct Clients {
    by_id: BTreeMap<ClientId, Client>,
    last_check: Option<MonotonicTime>,
    good: usize,
    /// Came back since the last check.
    returned: Vec<ClientId>,
}

/// Why a client is not offered although it was heard of a moment ago. A ping ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Doubt {
    /// Nobody answers at its address: what it was writing is given up at this time, once.
    Unreachable(Option<MonotonicTime>),
    /// Another client answers there: gone at this time.
    Replaced(MonotonicTime),
}

/// Where a client is not found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Nobody,
    Another,
}

/// What a sign of life changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sign {
    /// It is not known and there is no room for more.
    NoRoom,
    /// Nothing.
    Fine,
    /// It was silent for so long that its segments were held back.
    Back,
}

/// How long a client may be silent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// Its segments are not offered after this time.
    pub ttl: Duration,
    /// They are unmounted after this time more.
    pub suspicion: Duration,
}

impl Patience {
    fn reach(self, silence: Duration) -> Reach {
        match silence {
            silence if silence > self.ttl + self.suspicion => Reach::Gone,
            silence if silence > self.ttl => Reach::Offline,
            silence if silence > self.ttl / 2 => Reach::Suspect,
            _ => Reach::Online,
        }
    }
}

/// A step down.
struct Turn {
    client: ClientId,
    reach: Reach,
    cause: UnmountCause,
}

/// If nobody looked for this long, the master itself was held up, and the clients' time stood still too.
pub(crate) const CHECK_LATE: Duration = Duration::from_secs(2);

/// A client at whose address another one answers, or nobody, has this long to ping; clients ping every second.
const DOUBT: Duration = Duration::from_secs(3);

impl Clients {
    pub fn in_good_standing(&self) -> usize {
        self.good
    }

    /// Notes a sign of life.
    pub fn seen(&mut self, client: ClientId, now: MonotonicTime, max: usize) -> Sign {
        // So that a master that is held up before its first check notices.
        self.last_check.get_or_insert(now);
        if let Some(known) = self.by_id.get_mut(&client) {
            known.last_seen = known.last_seen.max(now);
            known.doubt = None;
            if std::mem::replace(&mut known.left, false) {
                self.good += usize::from(known.in_good_standing);
            }
            if std::mem::replace(&mut known.reach, Reach::Online) == Reach::Online {
                return Sign::Fine;
            }
            self.returned.push(client);
            return Sign::Back;
        }
        if self.by_id.len() >= max {
            return Sign::NoRoom;
        }
        let new = Client { last_seen: now, in_good_standing: false, reach: Reach::Online, doubt: None, left: false };
        self.by_id.insert(client, new);
        Sign::Fine
    }

    /// For how long nobody has heard of a client that is not offered to readers; `None`: it is offered, or not known.
    pub fn silence(&self, client: ClientId, now: MonotonicTime) -> Option<Duration> {
        let known = self.by_id.get(&client).filter(|known| known.reach >= Reach::Offline)?;
        Some(now.since(known.last_seen))
    }

    pub fn is_good(&self, client: ClientId) -> bool {
        self.by_id.get(&client).is_some_and(|known| known.in_good_standing)
    }

    /// It has to mount anew.
    pub fn set_strange(&mut self, client: ClientId) {
        if let Some(known) = self.by_id.get_mut(&client) {
            self.good -= usize::from(known.counts());
            known.in_good_standing = false;
        }
    }

    pub fn set_good(&mut self, client: ClientId) {
        if let Some(known) = self.by_id.get_mut(&client) {
            self.good -= usize::from(known.counts());
            known.in_good_standing = true;
            self.good += usize::from(known.counts());
        }
    }

    /// It has unmounted its last segment: the last that is heard of it, unless it pings.
    pub fn leaves(&mut self, client: ClientId, now: MonotonicTime) {
        if let Some(known) = self.by_id.get_mut(&client) {
            self.good -= usize::from(known.counts());
            known.left = true;
            known.last_seen = known.last_seen.max(now);
        }
    }

    /// Somebody could not reach this one. Answers whether it was trusted before.
    pub fn hold_back(&mut self, client: ClientId) -> bool {
        let Some(known) = self.by_id.get_mut(&client).filter(|known| known.reach == Reach::Online) else {
            return false;
        };
        known.reach = Reach::Suspect;
        true
    }

    /// It can be reached after all. Answers whether it is trusted again: not while it is silent, or doubted.
    pub fn let_go(&mut self, client: ClientId, patience: Patience, now: MonotonicTime) -> bool {
        let held = self.by_id.get_mut(&client).filter(|known| known.reach == Reach::Suspect);
        let fine = |known: &&mut Client| patience.reach(now.since(known.last_seen)) == Reach::Online;
        let Some(known) = held.filter(|known| known.doubt.is_none()).filter(fine) else { return false };
        known.reach = Reach::Online;
        true
    }

    /// How far its segments can be used, as far as it is heard of.
    pub fn reach(&self, client: ClientId) -> Option<Reach> {
        self.by_id.get(&client).map(|known| known.reach)
    }

    /// Another client answers at the address of this one, or nobody does. Answers whether it was offered until now.
    pub fn doubt(&mut self, client: ClientId, found: Found, now: MonotonicTime) -> bool {
        let Some(known) = self.by_id.get_mut(&client) else { return false };
        known.doubt = match (found, known.doubt) {
            (_, Some(Doubt::Replaced(until))) => Some(Doubt::Replaced(until)),
            (Found::Another, _) => Some(Doubt::Replaced(now + DOUBT)),
            (Found::Nobody, Some(doubt)) => Some(doubt),
            (Found::Nobody, None) => Some(Doubt::Unreachable(Some(now + DOUBT))),
        };
        let was_offered = known.reach < Reach::Offline;
        known.reach = known.reach.max(Reach::Offline);
        was_offered
    }

    /// A process says that it is this client, and does not serve yet: it is not given up meanwhile.
    fn greeted(&mut self, client: ClientId, now: MonotonicTime) {
        if let Some(known) = self.by_id.get_mut(&client) {
            known.last_seen = known.last_seen.max(now);
            known.doubt = known.doubt.filter(|doubt| !matches!(doubt, Doubt::Replaced(_)));
        }
    }

    /// Who takes a step down now, and whose unfinished writes are given up. Those that are gone are forgotten.
    fn turns(&mut self, patience: Patience, now: MonotonicTime) -> (Vec<Turn>, Vec<ClientId>) {
        let held_up = self.last_check.map_or(Duration::ZERO, |last| now.since(last));
        self.last_check = Some(now);
        let slept = held_up > CHECK_LATE && !planted(Fault::SleepCounts);
        let extra = if slept { held_up } else { Duration::ZERO };
        let (mut turns, mut silenced) = (Vec::new(), Vec::new());
        for (&client, known) in &mut self.by_id {
            known.last_seen = (known.last_seen + extra).min(now);
            known.doubt = known.doubt.map(|doubt| doubt.put_off(extra));
            let silent = patience.reach(now.since(known.last_seen));
            let (reach, cause) = match known.doubt {
                _ if known.left => {
                    let reach = if silent < Reach::Offline { known.reach } else { Reach::Gone };
                    (reach, UnmountCause::Asked)
                }
                Some(Doubt::Replaced(until)) if now >= until && silent != Reach::Gone => {
                    (Reach::Gone, UnmountCause::Replaced)
                }
                _ => (silent, UnmountCause::ClientExpired),
            };
            if let Some(Doubt::Unreachable(Some(until))) = known.doubt
                && now >= until
            {
                known.doubt = Some(Doubt::Unreachable(None));
                silenced.push(client);
            }
            if reach > known.reach {
                known.reach = reach;
                turns.push(Turn { client, reach, cause });
                silenced.extend((reach > Reach::Suspect).then_some(client));
            }
        }
        for gone in turns.iter().filter(|turn| turn.reach == Reach::Gone) {
            self.good -= usize::from(self.by_id.remove(&gone.client).is_some_and(|client| client.counts()));
        }
        (turns, silenced)
    }
}

impl Doubt {
    fn put_off(self, by: Duration) -> Doubt {
        match self {
            Doubt::Unreachable(until) => Doubt::Unreachable(until.map(|until| until + by)),
            Doubt::Replaced(until) => Doubt::Replaced(until + by),
        }
    }
}

/// A client, for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClientReport {
    /// Its id.
    pub id: ClientId,
    /// `OK`, or `NEED_REMOUNT` while it only pings.
    pub status: ClientStatus,
    /// How far its segments can be used.
    pub reach: Reach,
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
        match clients.seen(client, now, self.settings.clients_max) {
            Sign::NoRoom => return Err(ErrorCode::INTERNAL_ERROR),
            Sign::Fine => {}
            Sign::Back => {
                self.counters.add(|c| &c.clients_recovered, 1);
                self.follow(&mut self.segments.registry(), &BTreeMap::from([(client, Reach::Online)]));
            }
        }
        Ok(if clients.is_good(client) { ClientStatus::OK } else { ClientStatus::NEED_REMOUNT })
    }

    /// A client introduces itself, perhaps long before it serves: one that is known is not given up meanwhile. Its
    /// segments are offered again when it mounts them, or pings.
    pub fn greet(&self, client: ClientId, now: MonotonicTime) {
        self.clients.lock().greeted(client, now);
    }

    /// Takes trust away from clients that do not ping; to be called about every second. When the calls themselves were
    /// late, the time of the delay does not count against the clients.
    pub fn expire_clients(&self, now: MonotonicTime, effects: &mut Effects) {
        let patience = Patience { ttl: self.settings.client_ttl, suspicion: self.settings.client_suspicion_ttl };
        // Held to the end: a ping must not come between the decision and what follows from it.
        let mut clients = self.clients.lock();
        let (turns, silenced) = clients.turns(patience, now);
        let returned = clients.returned.drain(..).map(|client| (client, Reach::Online));
        effects.clients_turned.extend(returned);
        self.look_for_stand_ins(now);
        self.forget_silent_slow(&clients, patience, now);
        self.warm_up_segments(now);
        self.give_up_works_of(&silenced, now);
        self.cuts.sweep(now);
        if turns.is_empty() {
            return;
        }
        let (mut following, mut leaving) = (BTreeMap::new(), BTreeMap::new());
        for Turn { client, reach, cause } in &turns {
            if *reach == Reach::Gone {
                leaving.insert(*client, *cause);
            } else {
                following.insert(*client, *reach);
            }
        }
        let mut registry = self.segments.registry();
        self.follow(&mut registry, &following);
        if !leaving.is_empty() {
            self.unmount_all_of(&mut registry, &leaving, now, effects);
        }
        drop((registry, clients));
        let expired = leaving.values().filter(|cause| **cause != UnmountCause::Asked).count();
        self.counters.add(|c| &c.clients_expired, expired as u64);
        let stepped = |to: Reach| following.values().filter(|reach| **reach == to).count() as u64;
        self.counters.add(|c| &c.clients_suspected, stepped(Reach::Suspect));
        self.counters.add(|c| &c.clients_offline, stepped(Reach::Offline));
        effects.clients_gone.extend(leaving);
        effects.clients_turned.extend(following);
    }

    /// Who was found slow and has fallen silent since may be dead: it is no place for anything.
    fn forget_silent_slow(&self, clients: &Clients, patience: Patience, now: MonotonicTime) {
        let mut registry = self.segments.registry();
        let is_silent = |owner: ClientId| {
            let known = clients.by_id.get(&owner);
            known.is_none_or(|known| patience.reach(now.since(known.last_seen)) != Reach::Online)
        };
        let turns = |segment: &&Arc<MountedSegment>| {
            segment.takes_as_last_resort() && is_silent(segment.owner()) && segment.set_slow(false)
        };
        if registry.iter().filter(turns).count() > 0 {
            self.segments.refresh(&mut registry);
        }
    }

    /// What these clients were writing or copying is free for others again.
    fn give_up_works_of(&self, clients: &[ClientId], now: MonotonicTime) {
        for client in clients {
            self.chores.lock().add_dead_writer(*client, now);
            self.copies.lock().hurry(*client, now);
            self.tiers.silence(*client, now);
        }
    }

    /// Gives new segments more of the new objects, in one walk.
    fn warm_up_segments(&self, now: MonotonicTime) {
        let mut registry = self.segments.registry();
        if registry.iter().filter(|segment| segment.warm_up(now)).count() > 0 {
            self.segments.refresh(&mut registry);
        }
    }

    /// Lets the segments of clients follow what is heard of them, in one walk.
    pub(crate) fn follow(&self, registry: &mut Registry, clients: &BTreeMap<ClientId, Reach>) {
        let turn =
            |segment: &Arc<MountedSegment>| clients.get(&segment.owner()).is_some_and(|&reach| turn_to(segment, reach));
        // Every segment has to turn, so this must not end at the first.
        if registry.iter().filter(|segment| turn(segment)).count() > 0 {
            self.segments.refresh(registry);
        }
    }

    /// Every known client, in order of id, but those that have left.
    pub fn clients(&self) -> Vec<ClientReport> {
        let report = |(&id, client): (&ClientId, &Client)| ClientReport {
            id,
            status: if client.in_good_standing { ClientStatus::OK } else { ClientStatus::NEED_REMOUNT },
            reach: client.reach,
            last_seen: client.last_seen,
        };
        self.clients.lock().by_id.iter().filter(|(_, client)| !client.left).map(report).collect()
    }
}
