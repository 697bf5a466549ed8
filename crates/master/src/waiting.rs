//! Writes that found no space wait here, a short time, for the janitor to make some: no worker waits with them.
//!
//! A write comes in with the keys that were refused for want of space; the others of its batch are reserved already. After
//! each round of eviction the refused ones are tried again. The answer goes out when none is left, when waiting is of no
//! use any more, or when the time is up.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use yb_catalog::{Caller, Catalog, Effects, ObjectView, PutCall, PutRefusal, Random};
use yb_env::Rng;
use yb_pack::Scratch;
use yb_rpc::DeferredReply;
use yb_types::{ClientId, MonotonicTime, ReplicateConfig};
use yb_wire::{Rpc, WireProfile};

use crate::handlers::{count_refusal, replica_ref};
use crate::service::write_body;
use crate::shared::Shared;

/// Calls, and keys of all calls, that may wait. Others are refused at once.
const MAX_CALLS: usize = 1024;
const MAX_KEYS: usize = 64 << 10;
/// Of these, one client may have this part, so that the others may wait too.
const PART_OF_ONE: usize = 2;

/// What a write does where its key is readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    Put,
    Upsert,
}

impl Start {
    /// Starts writes, see [`Catalog::put_start`] and [`Catalog::upsert_start`].
    pub(crate) fn run<K: AsRef<[u8]>>(
        self,
        catalog: &Catalog,
        call: &PutCall<'_>,
        items: impl IntoIterator<Item = (K, u64), IntoIter: ExactSizeIterator>,
        random: &mut impl Random,
        effects: &mut Effects,
        sink: impl FnMut(usize, Result<ObjectView<'_>, PutRefusal>),
    ) {
        match self {
            Start::Put => catalog.put_start(call, items, random, effects, sink),
            Start::Upsert => catalog.upsert_start(call, items, random, effects, sink),
        }
    }
}

/// What was asked for.
pub(crate) struct WaitingStart {
    pub(crate) start: Start,
    pub(crate) caller: Caller,
    pub(crate) config: ReplicateConfig,
    pub(crate) items: Vec<(Vec<u8>, u64)>,
    pub(crate) batch: bool,
}

/// How it is answered, and until when.
pub(crate) struct WaitingAnswer {
    pub(crate) rpc: Rpc,
    pub(crate) profile: WireProfile,
    pub(crate) deferred: DeferredReply,
    pub(crate) until: MonotonicTime,
}

/// A call that waits. `refused`: which of its keys, and why; the others are reserved.
pub(crate) struct Waiting {
    pub(crate) start: WaitingStart,
    pub(crate) refused: Vec<(usize, PutRefusal)>,
    pub(crate) answer: WaitingAnswer,
}

impl Waiting {
    fn waits(&self) -> bool {
        self.refused.iter().any(|(_, refusal)| refusal.waits())
    }

    fn give_up(&mut self) {
        for (_, refusal) in &mut self.refused {
            if *refusal == PutRefusal::NoSpace {
                *refusal = PutRefusal::NothingEvictable;
            }
        }
    }

    /// Tries the keys again that found no space.
    fn try_again(&mut self, catalog: &Catalog, now: MonotonicTime, rng: &mut Rng, effects: &mut Effects) {
        let WaitingStart { start, caller, config, items, .. } = &mut self.start;
        caller.now = now;
        let again: Vec<usize> = self.refused.iter().filter(|(_, why)| why.waits()).map(|(at, _)| *at).collect();
        let groups = config.group_ids.as_ref();
        let groups = groups.map(|ids| again.iter().filter_map(|&at| ids.get(at).cloned()).collect());
        let config = ReplicateConfig { group_ids: groups, ..config.clone() };
        let call = PutCall { caller: *caller, config: &config, allow_empty: true, waited: true };
        self.refused.retain(|(_, why)| !why.waits());
        let refused = &mut self.refused;
        let keys = again.iter().map(|&at| (&items[at].0, items[at].1));
        let mut random = || rng.next_u64();
        start.run(catalog, &call, keys, &mut random, effects, |nth, answer| {
            if let Err(refusal) = answer {
                refused.push((again[nth], refusal));
            }
        });
    }

    fn send(mut self, shared: &Shared) {
        self.refused.sort_unstable_by_key(|(at, _)| *at);
        let lane = shared.metrics.shared_lane();
        let WaitingStart { caller, items, batch, .. } = &self.start;
        let WaitingAnswer { rpc, profile, deferred, .. } = self.answer;
        let (mut refused, mut failed) = (self.refused.iter().peekable(), 0);
        let mut scratch = Scratch::default();
        deferred.send(|out| {
            let form = (rpc, profile, if *batch { items.len() } else { 0 });
            let written = write_body(form, &mut scratch, out, |writer| {
                if *batch {
                    writer.list(items.len());
                }
                for (at, (key, size)) in items.iter().enumerate() {
                    if let Some((_, refusal)) = refused.next_if(|(of, _)| *of == at) {
                        failed += 1;
                        count_refusal(shared, lane, *refusal, *batch);
                        writer.err(refusal.code());
                        continue;
                    }
                    shared.catalog.open_write(caller, key, |write| match write {
                        Some(view) => {
                            shared.metrics.value_size(lane, *size);
                            writer.reservation(view.replicas().map(replica_ref));
                        }
                        // Its segment went away while the others waited.
                        None => {
                            failed += 1;
                            let refusal = PutRefusal::NoSegment;
                            count_refusal(shared, lane, refusal, *batch);
                            writer.err(refusal.code());
                        }
                    });
                }
            });
            if let Err(error) = written {
                tracing::error!(error, "the answer of a write that waited cannot be encoded");
            }
        });
        shared.metrics.call(lane, rpc, items.len() as u64, failed);
    }
}

/// Those who wait, in the order in which they came.
pub(crate) struct WaitingRoom {
    queue: Mutex<VecDeque<Waiting>>,
    /// How long one waits, in nanoseconds; 0: nobody does.
    patience: AtomicU64,
    /// Calls that were refused at once since too many waited, of all or of their client.
    turned_away: AtomicU64,
}

/// Some of those who wait.
#[derive(Default)]
struct Crowd {
    calls: usize,
    keys: usize,
}

impl Crowd {
    fn add(&mut self, waiting: &Waiting) {
        self.calls += 1;
        self.keys += waiting.start.items.len();
    }

    /// Whether one more call fits into this part of the room.
    fn has_room(&self, keys: usize, part: usize) -> bool {
        self.calls < MAX_CALLS / part && self.keys + keys <= MAX_KEYS / part
    }
}

impl WaitingRoom {
    pub(crate) fn new(patience: Duration) -> WaitingRoom {
        let room = WaitingRoom { queue: Mutex::default(), patience: AtomicU64::new(0), turned_away: AtomicU64::new(0) };
        room.set_patience(patience);
        room
    }

    /// How long those wait who come from now on.
    pub(crate) fn set_patience(&self, patience: Duration) {
        self.patience.store(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Calls that were refused at once since too many waited.
    pub(crate) fn turned_away(&self) -> u64 {
        self.turned_away.load(Ordering::Relaxed)
    }

    /// Calls that wait.
    pub(crate) fn depth(&self) -> usize {
        self.queue.lock().len()
    }

    /// Until when a call of a client with so many keys may wait; `None`: it is to be refused now.
    pub(crate) fn admit(&self, client: ClientId, keys: usize, now: MonotonicTime) -> Option<MonotonicTime> {
        let patience = Duration::from_nanos(self.patience.load(Ordering::Relaxed));
        let queue = self.queue.lock();
        if patience.is_zero() {
            return None;
        }
        let (mut all, mut own) = (Crowd::default(), Crowd::default());
        for waiting in queue.iter() {
            all.add(waiting);
            if waiting.start.caller.client == client {
                own.add(waiting);
            }
        }
        let fits = all.has_room(keys, 1) && (own.calls == 0 || own.has_room(keys, PART_OF_ONE));
        if !fits {
            self.turned_away.fetch_add(1, Ordering::Relaxed);
        }
        fits.then(|| now + patience)
    }

    pub(crate) fn enter(&self, waiting: Waiting) {
        self.queue.lock().push_back(waiting);
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.lock().is_empty()
    }

    /// Tries each call that waits once more, and answers those that are done with waiting; all, when nothing may be
    /// evicted now (`hopeless`).
    pub(crate) fn serve(&self, shared: &Shared, hopeless: bool, rng: &mut Rng, effects: &mut Effects) {
        let all = std::mem::take(&mut *self.queue.lock());
        let mut left = VecDeque::new();
        for mut waiting in all {
            let now = shared.clock.now();
            waiting.try_again(&shared.catalog, now, rng, effects);
            if hopeless {
                waiting.give_up();
            }
            if waiting.waits() && now < waiting.answer.until {
                left.push_back(waiting);
            } else {
                waiting.send(shared);
            }
        }
        let mut queue = self.queue.lock();
        let came_meanwhile = std::mem::replace(&mut *queue, left);
        queue.extend(came_meanwhile);
    }
}
