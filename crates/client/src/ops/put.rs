//! Writing objects.
//!
//! Reserve, move, publish: one request to the master for each of the first and the last, for all keys, and one transfer
//! batch between them. What fails is revoked. A key that another writer holds is asked for again for a while; a key
//! whose place turned out to be on a dead node is given a second place. An upsert goes the same way by requests of its
//! own: what is there stays readable until the end puts the new object in its place.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use yb_mem::Crc64;
use yb_transfer::{Opcode, TransferError};
use yb_types::{ErrorCode, MonotonicTime, ReplicaDescriptor, ReplicaType, ReplicateConfig};
use yb_wire::messages::{EndedWrite, NamedWrite};

use crate::core::Core;
use crate::deadline::{Deadline, KEY_BYTES};
use crate::link::{Ending, Manner, PerKey, Reservation};
use crate::memory::{PutItem, pieces};
use crate::mover::{self, Moved, Mover, Owner};
use crate::ops::portions::portions;
use crate::room::Wanted;
use crate::why::Failed;
use crate::{Error, NoRoom, Result, Why};

/// First pause before a held key is asked for again; each next one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(2);
/// Longest pause.
const LONGEST_PAUSE: Duration = Duration::from_millis(50);
/// A held key is waited for at most this part of the call's time.
const BUSY_SHARE: u32 = 4;
/// Places that a key is given in one call.
const MOST_PLACES: u32 = 2;
/// Places that it is given while all that fail do so at once: a master of the peer proposes the same node again and again.
const MOST_PLACES_AT_ONCE: u32 = 4;
/// Nothing may move to a place for this part of a call's base time while there may be another one.
const PLACE_SHARE: u32 = 4;
/// Time that publishing and revoking have at least, even when the transfer used up the call's.
pub(super) const CLEANUP_TIME: Duration = Duration::from_millis(250);

/// Bytes that a session id may have, as the peer's masters take it.
const LONGEST_SESSION_ID: usize = 256;

/// What a put did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutOutcome {
    /// The object was written by this call.
    Stored,
    /// The pool has a readable object of this name already; it was left as it is.
    AlreadyExists,
}

/// Which of several items with the same key in one batch is written; the others share its answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Duplicates {
    /// The first, as the peer's `put_batch` has it.
    #[default]
    FirstWins,
    /// The last, as the peer's `batch_put_from` has it.
    LastWins,
}

/// How the objects of one call are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writing<'c> {
    pub(crate) config: &'c ReplicateConfig,
    pub(crate) duplicates: Duplicates,
    pub(crate) manner: Manner,
}

/// One key on its way.
struct Write<'i, 'a> {
    item: &'i PutItem<'a>,
    /// Place in the caller's list, for settings that are given per key.
    index: usize,
    size: u64,
    /// Of its bytes, when the client is set up to give one.
    checksum: Option<u64>,
    /// Places it was given in this call.
    places: u32,
    outcome: Option<Result<PutOutcome>>,
}

/// A key that has space, in this round.
struct Started {
    /// Place in the list of writes.
    index: usize,
    replicas: Vec<ReplicaDescriptor>,
    failed: Option<TransferError>,
    /// The space is not what was asked for.
    unfit: bool,
    /// Bytes may still be under way to one of the replicas.
    restless: bool,
}

impl Core {
    /// Writes objects.
    pub(crate) fn write_many(&self, items: &[PutItem<'_>], writing: Writing<'_>) -> Vec<Result<PutOutcome>> {
        if self.is_closed() {
            return items.iter().map(|_| Err(Error::Closed)).collect();
        }
        if let Err(error) = check_config(writing.config, items.len()) {
            return items.iter().map(|_| Err(error.clone())).collect();
        }
        let leaders = leaders(items, writing.duplicates);
        let _under_way = UnderWay::enter(&self.puts);
        let write = |part| {
            let mut writes = Writes::new(self, Batch { items, part, leaders: leaders.as_deref() }, writing);
            writes.run();
            writes.list
        };
        let mut parts = portions(items.iter().map(|item| item.key.len()));
        let written = match parts.len() {
            1 => write(0..items.len()),
            _ => parts.drain(..).flat_map(write).collect(),
        };
        answers(written, items.len(), leaders.as_deref())
    }
}

/// Counts a put as long as it lives, so that no extent is called quiet under it.
pub(super) struct UnderWay<'a>(&'a AtomicUsize);

impl<'a> UnderWay<'a> {
    pub(super) fn enter(puts: &'a AtomicUsize) -> Self {
        puts.fetch_add(1, Ordering::SeqCst);
        UnderWay(puts)
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// What no master could do.
pub(super) fn check_config(config: &ReplicateConfig, keys: usize) -> Result<()> {
    if config.replica_num == 0 && config.nof_replica_num == 0 && config.dfs_replica_num == 0 {
        return Err(Error::invalid("the configuration asks for no replica at all"));
    }
    if config.prefer_alloc_in_same_node && (config.replica_num != 1 || config.nof_replica_num != 0) {
        return Err(Error::invalid("prefer_alloc_in_same_node works with one memory replica only"));
    }
    let per_key = [
        ("group_ids", config.group_ids.as_ref().map(Vec::len)),
        ("session_ids", config.session_ids.as_ref().map(Vec::len)),
        ("residency_affinity_ids", config.residency_affinity_ids.as_ref().map(Vec::len)),
    ];
    if config.session_ids.iter().flatten().any(|id| id.len() > LONGEST_SESSION_ID) {
        return Err(Error::invalid(format!("a session id of more than {LONGEST_SESSION_ID} bytes")));
    }
    match per_key.iter().find(|(_, len)| len.is_some_and(|len| len != keys)) {
        Some((name, len)) => {
            Err(Error::invalid(format!("{} entries in {name} for {keys} keys", len.unwrap_or_default())))
        }
        None => Ok(()),
    }
}

/// For each item the item that is written for its key; `None` when every key is there once.
fn leaders(items: &[PutItem<'_>], duplicates: Duplicates) -> Option<Vec<usize>> {
    let mut order: SmallVec<[usize; 32]> = (0..items.len()).collect();
    order.sort_by_key(|index| items[*index].key);
    if order.windows(2).all(|pair| items[pair[0]].key != items[pair[1]].key) {
        return None;
    }
    let mut leaders = vec![0; items.len()];
    // The sort is stable: the members of a run are in the caller's order.
    for run in order.chunk_by(|a, b| items[*a].key == items[*b].key) {
        let leader = match duplicates {
            Duplicates::FirstWins => run.first(),
            Duplicates::LastWins => run.last(),
        };
        for member in run {
            leaders[*member] = leader.copied().unwrap_or(*member);
        }
    }
    Some(leaders)
}

/// What of the items of a call goes together.
struct Batch<'i, 'a, 'l> {
    items: &'i [PutItem<'a>],
    part: Range<usize>,
    leaders: Option<&'l [usize]>,
}

/// Keys of one call that go together.
struct Writes<'c, 'i, 'a> {
    core: &'c Core,
    writing: Writing<'c>,
    /// Keys of the caller.
    keys: usize,
    deadline: Deadline,
    list: SmallVec<[Write<'i, 'a>; 1]>,
}

impl<'c, 'i, 'a> Writes<'c, 'i, 'a> {
    fn new(core: &'c Core, batch: Batch<'i, 'a, '_>, writing: Writing<'c>) -> Self {
        let Batch { items, part, leaders } = batch;
        let written = |index: &usize| leaders.is_none_or(|leaders| leaders.get(*index) == Some(index));
        let list: SmallVec<[Write<'i, 'a>; 1]> = items
            .iter()
            .enumerate()
            .take(part.end)
            .skip(part.start)
            .filter(|(index, _)| written(index))
            .map(|(index, item)| {
                let outcome = item.key.is_empty().then(|| Err(Error::invalid("the key is empty")));
                Write { item, index, size: item.len(), checksum: None, places: 0, outcome }
            })
            .collect();
        let bytes = list.iter().map(|write| write.size.saturating_add(KEY_BYTES)).fold(0, u64::saturating_add);
        let deadline = Deadline::start(&core.clock, &core.config.limits, bytes);
        Writes { core, writing, keys: items.len(), deadline, list }
    }

    /// Until every key has an outcome.
    fn run(&mut self) {
        let patience = self.core.now() + self.deadline.left(self.core.now()) / BUSY_SHARE;
        let mut pause = FIRST_PAUSE;
        loop {
            let open: SmallVec<[usize; 32]> =
                self.list.iter().enumerate().filter(|(_, w)| w.outcome.is_none()).map(|(i, _)| i).collect();
            if open.is_empty() {
                break;
            }
            let busy = match self.start(&open) {
                Ok((started, busy)) => {
                    let started = self.transfer(started);
                    self.finish(started);
                    busy
                }
                Err(error) => {
                    self.fail(&open, &error);
                    break;
                }
            };
            if busy.is_empty() {
                continue;
            }
            let now = self.core.now();
            if now >= patience || self.core.is_closed() {
                self.fail(&busy, &Error::Busy(Why::default()));
                continue;
            }
            self.core.counters.busy_waits.add(1);
            yb_env::sleep(pause.min(patience.since(now)));
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
        self.explain();
        self.count();
    }

    /// The master has one number for several reasons.
    fn explain(&mut self) {
        let (core, copies) = (self.core, self.writing.config.replica_num.max(1));
        let stored = |write: &&Write<'_, '_>| matches!(write.outcome, Some(Ok(PutOutcome::Stored)));
        let beside = self.list.iter().filter(stored).fold(0, |sum: u64, write| sum.saturating_add(write.size));
        let beside = beside.saturating_mul(copies);
        let failed = self.list.iter_mut().filter_map(|Write { item, size, outcome, .. }| {
            let Some(Err(error)) = outcome else { return None };
            let wanted = Wanted { object: *size, all_copies: size.saturating_mul(copies), beside };
            Some(Failed { key: item.key, error, wanted })
        });
        core.explain(failed, &self.deadline);
    }

    fn fail(&mut self, indices: &[usize], error: &Error) {
        self.core.count_unanswered(error);
        for index in indices {
            self.settle(*index, Err(error.clone()));
        }
    }

    fn settle(&mut self, index: usize, outcome: Result<PutOutcome>) {
        if let Some(write) = self.list.get_mut(index) {
            write.outcome = Some(outcome);
        }
    }

    /// Reserves space for the open keys: those that got it, and those that another writer holds.
    fn start(&mut self, open: &[usize]) -> Result<(Vec<Started>, SmallVec<[usize; 4]>)> {
        let writes = || open.iter().filter_map(|index| self.list.get(*index));
        let keys: SmallVec<[&[u8]; 32]> = writes().map(|write| write.item.key).collect();
        let sizes: SmallVec<[u64; 32]> = writes().map(|write| write.size).collect();
        let indices: SmallVec<[usize; 32]> = writes().map(|write| write.index).collect();
        let config = self.core.effective_config(self.writing.config, &indices, self.keys);
        let manner = self.writing.manner;
        let wanted = Reservation { manner, keys: &keys, sizes: &sizes, config };
        let answers: PerKey<Vec<ReplicaDescriptor>> = self.core.link.write_start(wanted, &self.deadline)?;
        let mut started = Vec::with_capacity(answers.len());
        let mut busy = SmallVec::new();
        for (index, answer) in open.iter().zip(answers) {
            match answer {
                Ok(replicas) => {
                    if let Some(write) = self.list.get_mut(*index) {
                        write.places += 1;
                    }
                    started.push(Started { index: *index, replicas, failed: None, unfit: false, restless: false });
                }
                Err(ErrorCode::OBJECT_ALREADY_EXISTS) if manner == Manner::Put => {
                    self.settle(*index, Ok(PutOutcome::AlreadyExists));
                }
                Err(ErrorCode::REPLICA_IS_NOT_READY) => busy.push(*index),
                Err(code) => self.settle(*index, Err(Error::from_master("PutStart", code))),
            }
        }
        Ok((started, busy))
    }

    /// Moves the bytes of all keys to all their replicas.
    fn transfer(&mut self, mut started: Vec<Started>) -> Vec<Started> {
        let core = self.core;
        let mut mover = Mover::new(Opcode::Write, &core.engine, started.len()).minding(&core.suspects, &core.clock);
        for (place, key) in started.iter_mut().enumerate() {
            let Some(write) = self.list.get_mut(key.index) else { continue };
            // An object without bytes is not moved, and has the checksum of no bytes.
            write.checksum = (core.config.checksum && write.size == 0).then_some(0);
            // A node that takes nothing costs a part of the call's time while there may be another place.
            let patience = (write.places < MOST_PLACES).then_some(core.config.limits.base / PLACE_SHARE);
            let mut written = 0;
            for buffer in key.replicas.iter().filter_map(ReplicaDescriptor::memory) {
                match pieces(&write.item.from, write.size) {
                    Ok(pieces) if buffer.size == write.size => {
                        // One copy of several tells the checksum.
                        let summed = core.config.checksum && written == 0;
                        mover.add_as(Owner { index: place as u32, summed, patience }, pieces, buffer);
                    }
                    _ => key.unfit = true,
                }
                written += 1;
            }
            key.unfit |= written == 0;
        }
        let Moved { failed, sums, .. } = core.move_all(mover, self.deadline.at);
        for (place, sum) in sums {
            let write = started.get(place as usize).and_then(|key| self.list.get_mut(key.index));
            if let Some(write) = write {
                write.checksum = sum.map(Crc64::value);
            }
        }
        for (place, error) in failed {
            if let Some(key) = started.get_mut(place as usize) {
                key.restless |= !mover::leaves_nothing_in_flight(&error);
                key.failed.get_or_insert(error);
            }
        }
        started
    }

    /// Publishes what arrived and revokes the rest.
    fn finish(&mut self, started: Vec<Started>) {
        let now = self.core.now();
        let cleanup = Deadline { at: self.deadline.at.max(now + CLEANUP_TIME), ..self.deadline };
        let (arrived, failed): (Vec<Started>, Vec<Started>) =
            started.into_iter().partition(|key| key.failed.is_none() && !key.unfit);
        self.publish(&arrived, &cleanup);
        self.revoke(&failed, &cleanup, now);
    }

    fn publish(&mut self, arrived: &[Started], deadline: &Deadline) {
        let written: SmallVec<[Written<'i>; 1]> = arrived
            .iter()
            .filter_map(|key| {
                let write = self.list.get(key.index)?;
                let ended = EndedWrite { write: named(write.item.key, &key.replicas), checksum: write.checksum };
                Some(Written { ended, memory_only: key.replicas.iter().all(|replica| replica.memory().is_some()) })
            })
            .collect();
        let outcomes = self.core.publish(self.writing.manner, &written, deadline);
        for (key, outcome) in arrived.iter().zip(outcomes) {
            self.settle(key.index, outcome.map(|()| PutOutcome::Stored));
        }
    }

    fn name(&self, started: &Started) -> Option<NamedWrite<'i>> {
        self.list.get(started.index).map(|write| named(write.item.key, &started.replicas))
    }

    fn revoke(&mut self, failed: &[Started], deadline: &Deadline, now: MonotonicTime) {
        let writes: SmallVec<[NamedWrite<'_>; 32]> = failed.iter().filter_map(|key| self.name(key)).collect();
        if writes.is_empty() {
            return;
        }
        let quiet = failed.iter().all(|key| !key.restless);
        let revoked = self.core.link.write_revoke((Ending::all(self.writing.manner), quiet), &writes, deadline);
        let revoked = revoked.map(|_| ()).inspect_err(|error| {
            tracing::warn!(%error, "failed puts could not be revoked; the master discards them in time");
        });
        for key in failed {
            let time_left = !self.deadline.left(now).is_zero() && revoked.is_ok();
            let places = self.list.get(key.index).map_or(0, |write| write.places);
            let most = if key.restless { MOST_PLACES } else { MOST_PLACES_AT_ONCE };
            let second_chance = key.failed.as_ref().is_some_and(mover::is_peers_fault) && places < most && time_left;
            if second_chance {
                continue;
            }
            let error = match &key.failed {
                Some(error) => mover::failure(error, Opcode::Write, &self.deadline, now),
                None => Error::NoSpace(NoRoom::Untold),
            };
            self.settle(key.index, Err(error));
        }
    }

    fn count(&self) {
        let counters = &self.core.counters;
        let now = self.core.now();
        for write in &self.list {
            match &write.outcome {
                Some(Ok(PutOutcome::Stored)) => {
                    counters.objects_written.add(1);
                    counters.bytes_written.add(write.size);
                }
                Some(Ok(PutOutcome::AlreadyExists)) => counters.puts_already_there.add(1),
                Some(Err(error)) => {
                    counters.failed_writes.add(1);
                    counters.failures.note("put", write.item.key, error, || now);
                }
                None => counters.failed_writes.add(1),
            }
        }
        let latency = if self.list.len() == 1 { &counters.put_latency } else { &counters.batch_put_latency };
        latency.record(self.deadline.elapsed(now));
    }
}

/// One answer per item of the caller.
fn answers(written: SmallVec<[Write<'_, '_>; 1]>, items: usize, leaders: Option<&[usize]>) -> Vec<Result<PutOutcome>> {
    let Some(leaders) = leaders else {
        return written.into_iter().map(|write| write.outcome.unwrap_or(Err(Error::Closed))).collect();
    };
    let mut by_item: Vec<Option<Result<PutOutcome>>> = vec![None; items];
    for write in written {
        if let Some(slot) = by_item.get_mut(write.index) {
            *slot = write.outcome;
        }
    }
    let answer = |leader: &usize| by_item.get(*leader).cloned().flatten().unwrap_or(Err(Error::Closed));
    leaders.iter().map(answer).collect()
}

/// A write as its master knows it among all there ever are: by the first replica that the start was answered with.
pub(super) fn named<'a>(key: &'a [u8], replicas: &[ReplicaDescriptor]) -> NamedWrite<'a> {
    NamedWrite { key, replica: replicas.first().map(|replica| replica.id).unwrap_or_default() }
}

/// One answer per object.
type Answers = SmallVec<[Result<()>; 1]>;

/// An object whose bytes have all arrived.
#[derive(Clone, Copy, Debug)]
pub(super) struct Written<'a> {
    pub(super) ended: EndedWrite<'a>,
    /// Whether the master reserved memory for it and nothing else.
    pub(super) memory_only: bool,
}

impl Core {
    /// Publishes objects: one answer each. Replicas of other kinds than memory are for a tier that this client does not
    /// write: they are given up.
    pub(super) fn publish(&self, manner: Manner, written: &[Written<'_>], deadline: &Deadline) -> Answers {
        let ended = |memory_only: bool| -> SmallVec<[EndedWrite<'_>; 32]> {
            written.iter().filter(|object| object.memory_only == memory_only).map(|object| object.ended).collect()
        };
        let (memory, mixed) = (ended(true), ended(false));
        let mut of_memory = self.end(Ending::all(manner), &memory, deadline).into_iter();
        let mut of_mixed = self.end(Ending { manner, replicas: ReplicaType::MEMORY }, &mixed, deadline).into_iter();
        let writes: SmallVec<[NamedWrite<'_>; 8]> = mixed.iter().map(|ended| ended.write).collect();
        for replicas in [ReplicaType::DISK, ReplicaType::NOF_SSD, ReplicaType::DFS] {
            if !writes.is_empty()
                && let Err(error) = self.link.write_revoke((Ending { manner, replicas }, false), &writes, deadline)
            {
                tracing::warn!(%error, "replicas of a tier that is not written could not be given up");
            }
        }
        let answer = |object: &Written<'_>| if object.memory_only { of_memory.next() } else { of_mixed.next() };
        written.iter().map(answer).map(|answer| answer.unwrap_or(Err(Error::Closed))).collect()
    }

    fn end(&self, ending: Ending, ended: &[EndedWrite<'_>], deadline: &Deadline) -> Answers {
        if ended.is_empty() {
            return Answers::new();
        }
        match self.link.write_end(ending, ended, deadline) {
            Ok(answers) => {
                answers.into_iter().map(|answer| answer.map_err(|code| Error::from_master("PutEnd", code))).collect()
            }
            Err(error) => {
                self.count_unanswered(&error);
                ended.iter().map(|_| Err(error.clone())).collect()
            }
        }
    }

    /// The caller's configuration as the master gets it: with this client's host, the deprecated single preferred
    /// segment merged in, and the per-key lists cut to the keys that are sent, those at `indices` of the caller's `of`.
    pub(super) fn effective_config(&self, config: &ReplicateConfig, indices: &[usize], of: usize) -> ReplicateConfig {
        let mut effective = config.clone();
        if effective.host_id.is_empty() {
            self.config.host_id().clone_into(&mut effective.host_id);
        }
        // With `prefer_alloc_in_same_node` a second replica is a contradiction, and without one in memory it is not wanted.
        if effective.replica_num > 0 && !effective.prefer_alloc_in_same_node {
            effective.replica_num = effective.replica_num.max(self.config.least_replicas);
        }
        if effective.preferred_segments.is_empty() {
            if !effective.preferred_segment.is_empty() {
                effective.preferred_segments.push(effective.preferred_segment.clone());
            } else if self.config.local_first && self.lent.bytes() > 0 {
                effective.preferred_segments.push(self.hostname.clone());
            }
        }
        effective.keep(indices, of);
        effective
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items<'a>(keys: &[&'a str]) -> Vec<PutItem<'a>> {
        keys.iter().map(|key| PutItem::new(key.as_bytes(), b"v")).collect()
    }

    #[test]
    fn a_key_that_is_there_twice_is_written_once() {
        assert_eq!(leaders(&items(&["a", "b", "c"]), Duplicates::FirstWins), None);
        let twice = items(&["b", "a", "b", "b", "a"]);
        assert_eq!(leaders(&twice, Duplicates::FirstWins), Some(vec![0, 1, 0, 0, 1]));
        assert_eq!(leaders(&twice, Duplicates::LastWins), Some(vec![3, 4, 3, 3, 4]));
    }

    #[test]
    fn configurations_that_cannot_work_are_refused() {
        let none = ReplicateConfig { replica_num: 0, ..ReplicateConfig::default() };
        assert!(check_config(&none, 1).is_err());
        let groups = ReplicateConfig { group_ids: Some(vec!["g".into()]), ..ReplicateConfig::default() };
        assert!(check_config(&groups, 1).is_ok());
        assert!(check_config(&groups, 2).is_err());
    }
}
