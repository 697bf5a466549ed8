//! Reading objects.
//!
//! One lookup for all keys, one transfer batch per round; a key goes round again with its next replica while it has one.
//! The lease is checked after the last byte, and a key whose lease ended is looked up and read once more. Bytes whose
//! checksum is not the writer's are as good as a failed transfer, and the master is told of the replica that has them.

use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use yb_mem::Crc64;
use yb_transfer::{Opcode, Span, TransferError, TransferErrorKind};
use yb_types::{MonotonicTime, READ_LIMIT, ReplicaDescriptor};
use yb_wire::messages::GetReplicaListResponse;

use super::hot_reads::{Fill, target};
use crate::core::Core;
use crate::deadline::{Deadline, KEY_BYTES};
use crate::leases::{Flight, Watched};
use crate::link::CorruptReplica;
use crate::memory::{GetItem, Parts, Piece, pieces, total};
use crate::mover::{self, Moved, Mover, Owner};
use crate::ops::portions::portions;
use crate::ops::ranges::{Fragment, covered};
use crate::replicas::{Order, Viewpoint, is_still_there, object_size, readable};
use crate::room::Wanted;
use crate::why::Failed;
use crate::{Error, Result};

/// Clocks of two machines may differ by this part of a time: that much of a lease is not counted on. What keeps time by NTP
/// differs by a thousandth at most, while both are being put right.
const DRIFT: u32 = 500;
/// Times a key is looked up in one call: a second time when its lease ended under the read.
const MOST_LOOKUPS: u32 = 2;
/// A replica is late after this part of a call's base time at most, where there is another.
const HEDGE_SHARE: u32 = 4;
/// Reads of no more bytes than this tell how long a peer takes to answer.
const PACE_BYTES: u64 = 1 << 20;
/// A round of fewer bytes and fewer keys than these is over before its leases could be renewed.
const LONG_ROUND: (u64, usize) = (4 << 20, 256);

/// What the master said of an object: where it can be read, and until when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// Its replicas, in any state.
    pub replicas: Vec<ReplicaDescriptor>,
    /// End of the read lease on this client's clock; the lease is counted from before the request was sent.
    pub lease_ends: MonotonicTime,
    /// How long the lease was when it was given, [`READ_LIMIT`] at most, without what clocks may differ.
    pub lease: Duration,
    /// CRC-64/ECMA-182 of the object, if its writer gave one.
    pub checksum: Option<u64>,
}

impl Lookup {
    /// The master's answer to a request that was sent at `asked`.
    pub(crate) fn new(found: GetReplicaListResponse, asked: MonotonicTime) -> Self {
        let lease = Duration::from_millis(found.lease_ttl_ms).min(READ_LIMIT);
        let lease = lease - lease / DRIFT;
        Lookup { replicas: found.replicas, lease_ends: asked + lease, lease, checksum: found.object_checksum }
    }

    /// Whether more than half of the lease is over.
    pub(crate) fn is_waning(&self, now: MonotonicTime) -> bool {
        self.lease_ends.since(now) <= self.lease / 2
    }

    /// Bytes of the object; `None` when it has no replica.
    pub fn size(&self) -> Option<u64> {
        self.replicas.first().map(object_size)
    }
}

/// Where an object's bytes go.
pub(crate) enum Into<'a> {
    /// The caller's memory.
    Caller(Parts<'a>),
    /// Ranges of the object into the caller's memory; those that are not inside the object are left out.
    Ranges(Vec<Fragment<'a>>),
    /// Memory that is made once the size is known.
    New(Vec<u8>),
}

impl Into<'_> {
    /// Makes room for `size` bytes.
    fn prepare(&mut self, size: u64) -> Result<()> {
        match self {
            Into::Caller(parts) if total(parts) >= size => Ok(()),
            Into::Caller(parts) => Err(Error::BufferTooSmall { object: size, buffer: total(parts) }),
            Into::Ranges(_) => Ok(()),
            Into::New(bytes) => {
                let size = usize::try_from(size).map_err(|_| Error::invalid("the object exceeds the address space"))?;
                bytes.clear();
                let room = bytes.try_reserve_exact(size);
                room.map_err(|_| Error::invalid(format!("no memory for an object of {size} bytes")))?;
                bytes.resize(size, 0);
                Ok(())
            }
        }
    }

    /// The first `size` bytes, after [`Into::prepare`].
    pub(super) fn pieces(&mut self, size: u64) -> Result<SmallVec<[Piece<'_>; 1]>> {
        match self {
            Into::Caller(parts) => pieces(parts, size),
            Into::Ranges(fragments) => Ok(covered(fragments, size)),
            Into::New(bytes) => Ok(smallvec![Piece { offset: 0, span: Span::destination(bytes) }]),
        }
    }

    /// Bytes that an object of `size` bytes brings here.
    fn bytes(&self, size: u64) -> u64 {
        match self {
            Into::Caller(_) | Into::New(_) => size,
            Into::Ranges(fragments) => {
                let inside = fragments.iter().filter(|fragment| fragment.is_inside(size));
                inside.map(|fragment| fragment.memory.len()).sum()
            }
        }
    }

    /// Whether all bytes of the object are here.
    pub(super) fn is_whole(&self) -> bool {
        !matches!(self, Into::Ranges(_))
    }

    /// Whether the pieces, one after the other, are an object of `size` bytes, also where they are ranges of it.
    fn covers(&self, size: u64) -> bool {
        let Into::Ranges(fragments) = self else { return true };
        let mut at = 0_u64;
        let follows = |fragment: &Fragment<'_>| {
            let follows = fragment.offset == at;
            at = at.saturating_add(fragment.memory.len());
            follows
        };
        fragments.iter().all(follows) && at == size
    }
}

/// One key on its way.
pub(super) struct Read<'a> {
    pub(super) key: &'a [u8],
    pub(super) into: Into<'a>,
    pub(super) lookup: Option<Lookup>,
    lookups: u32,
    pub(super) size: u64,
    pub(super) order: Order,
    /// Place in `order` of the replica that is read now.
    at: usize,
    /// Replicas in the first round; behind them come those that were late in it.
    first_round: usize,
    /// Whether the last replica was given a second chance.
    again: bool,
    failed: Option<TransferError>,
    /// What arrived may be another object's: the replica was gone before the last byte.
    is_doubtful: bool,
    /// The checksum of what arrived last, where it is to be compared.
    sum: Option<u64>,
    /// Where the bytes go first when the hot cache is to keep them.
    pub(super) fill: Option<Fill>,
    /// Bytes of the object.
    pub(super) outcome: Option<Result<u64>>,
}

impl<'a> Read<'a> {
    pub(super) fn new(key: &'a [u8], into: Into<'a>) -> Self {
        let outcome = key.is_empty().then(|| Err(Error::invalid("the key is empty")));
        let order = Order::new();
        let (lookup, failed, fill) = (None, None, None);
        Read {
            key,
            into,
            lookup,
            lookups: 0,
            size: 0,
            order,
            at: 0,
            first_round: 0,
            again: false,
            failed,
            is_doubtful: false,
            sum: None,
            fill,
            outcome,
        }
    }

    /// The replica that is read now.
    fn replica(&self) -> Option<&ReplicaDescriptor> {
        let (lookup, index) = self.lookup.as_ref().zip(self.order.get(self.at))?;
        lookup.replicas.get(*index as usize)
    }

    /// The read as it is watched, at its place in the list; `None` when nothing of it is under way.
    fn watched(&self, index: usize) -> Option<Watched> {
        let (lookup, replica) = self.lookup.as_ref().zip(self.replica()).filter(|_| self.is_open())?;
        let (lease_ends, lease, checksum) = (lookup.lease_ends, lookup.lease, lookup.checksum);
        let (key, replica) = (self.key.to_vec(), replica.clone());
        Some(Watched { index, key, replica, checksum, lease_ends, lease, is_lost: false })
    }

    fn is_open(&self) -> bool {
        self.outcome.is_none()
    }

    /// Whether what came may be another object's: its lease ended before the last byte.
    fn is_in_doubt(&self, now: MonotonicTime) -> bool {
        let ended = |lookup: &Lookup| self.is_doubtful || lookup.lease_ends <= now;
        matches!(self.outcome, Some(Ok(_))) && self.lookup.as_ref().is_some_and(ended)
    }

    fn may_look_again(&self) -> bool {
        self.lookups < MOST_LOOKUPS
    }

    /// Whether the replica that was read has an id that stands for the same bytes for ever.
    fn has_lasting_id(&self) -> bool {
        self.replica().is_some_and(|replica| replica.id.is_never_reused())
    }

    fn is_confirmed_by(&self, now: &Lookup) -> bool {
        let checksum = self.lookup.as_ref().and_then(|lookup| lookup.checksum);
        self.has_lasting_id() && self.replica().is_some_and(|replica| is_still_there(replica, checksum, now))
    }

    /// Takes what is known now for all that will ever be known.
    pub(super) fn never_look_again(&mut self) {
        self.lookups = MOST_LOOKUPS;
        if self.lookup.is_none() && self.is_open() {
            self.outcome = Some(Err(Error::LeaseExpired));
        }
    }

    /// Whether somebody else is asked if this replica is late.
    fn may_be_late(&self) -> bool {
        self.at + 1 < self.first_round
    }

    /// The checksum that the writer gave, if the bytes that come are to be compared with it.
    fn written(&self) -> Option<u64> {
        self.lookup.as_ref()?.checksum.filter(|_| self.into.covers(self.size))
    }

    /// What the checksum says of the bytes that arrived.
    fn judge(&self) -> Verdict {
        match self.written().zip(self.sum) {
            Some((written, found)) if written == found => Verdict::Verified,
            Some((written, found)) => Verdict::Corrupt(Mismatch { found, written }),
            None => Verdict::Unverified,
        }
    }

    /// Whether the lease was over when the bytes had come: what lies there may be another object's.
    fn is_late(&self, now: MonotonicTime) -> bool {
        self.is_doubtful || self.lookup.as_ref().is_none_or(|lookup| lookup.lease_ends <= now)
    }

    /// Forgets what is known, so that it is looked up anew.
    fn start_over(&mut self) {
        (self.lookup, self.again, self.is_doubtful) = (None, false, false);
        self.order.clear();
        self.at = 0;
    }
}

/// What a checksum says of bytes.
enum Verdict {
    Verified,
    /// There is none, or it cannot be compared: ranges, memory of a device.
    Unverified,
    Corrupt(Mismatch),
}

/// Two checksums that should be one.
#[derive(Clone, Copy, Debug)]
struct Mismatch {
    found: u64,
    written: u64,
}

impl Core {
    /// Reads objects into the caller's memory: bytes of each.
    pub(crate) fn get_many<'a>(&self, items: impl IntoIterator<Item = GetItem<'a>>) -> Vec<Result<u64>> {
        let reads = self.read_all(items.into_iter().map(|item| Read::new(item.key, Into::Caller(item.into))));
        reads.into_iter().map(|read| read.outcome.unwrap_or(Err(Error::Closed))).collect()
    }

    /// Reads objects into new memory.
    pub(crate) fn get_new<'k>(&self, keys: impl IntoIterator<Item = &'k [u8]>) -> Vec<Result<Vec<u8>>> {
        let reads = self.read_all(keys.into_iter().map(|key| Read::new(key, Into::New(Vec::new()))));
        let finished = reads.into_iter().map(|read| match (read.outcome, read.into) {
            (Some(Ok(_)), Into::New(bytes)) => Ok(bytes),
            (Some(Err(error)), _) => Err(error),
            _ => Err(Error::Closed),
        });
        finished.collect()
    }

    /// Reads an object that was looked up before; looks again if the lease ends meanwhile.
    pub(crate) fn get_known(&self, item: GetItem<'_>, lookup: Lookup) -> Result<u64> {
        self.get_many_known([(item, lookup)]).pop().unwrap_or(Err(Error::Closed))
    }

    /// As [`Core::get_known`] for many.
    pub(crate) fn get_many_known<'a>(
        &self,
        items: impl IntoIterator<Item = (GetItem<'a>, Lookup)>,
    ) -> Vec<Result<u64>> {
        let reads = self.read_all(items.into_iter().map(|(item, lookup)| {
            let mut read = Read::new(item.key, Into::Caller(item.into));
            self.start_known(&mut read, lookup);
            read
        }));
        reads.into_iter().map(|read| read.outcome.unwrap_or(Err(Error::Closed))).collect()
    }

    /// Lets a read begin with what is known, while the lease lasts.
    pub(super) fn start_known(&self, read: &mut Read<'_>, lookup: Lookup) {
        if read.is_open() && lookup.lease_ends > self.now() {
            self.choose(read, lookup);
            read.lookups = 1;
        }
    }

    /// Runs reads to their end, as many at a time as one request has room for.
    pub(super) fn read_all<'a>(&self, list: impl IntoIterator<Item = Read<'a>>) -> SmallVec<[Read<'a>; 1]> {
        let list: SmallVec<[Read<'a>; 1]> = list.into_iter().collect();
        let mut parts = portions(list.iter().map(|read| read.key.len()));
        if parts.len() == 1 {
            return self.read_together(list);
        }
        let mut rest = list.into_iter();
        parts.drain(..).flat_map(|part| self.read_together(rest.by_ref().take(part.len()).collect())).collect()
    }

    fn read_together<'a>(&self, list: SmallVec<[Read<'a>; 1]>) -> SmallVec<[Read<'a>; 1]> {
        let mut reads = Reads::new(self, list);
        reads.run();
        reads.list
    }

    /// What the master says of these keys.
    pub(crate) fn look_up(&self, keys: &[&[u8]], deadline: &Deadline) -> Result<SmallVec<[Result<Lookup>; 1]>> {
        let before = self.now();
        let answers = self.link.lookup(keys, deadline)?;
        let lookups = answers.into_iter().map(|answer| match answer {
            Ok(found) => Ok(Lookup::new(found, before)),
            Err(code) => Err(Error::from_master("GetReplicaList", code)),
        });
        Ok(lookups.collect())
    }

    /// Plans the read of an object that was found.
    fn choose(&self, read: &mut Read<'_>, lookup: Lookup) {
        let now = self.now();
        let is_suspect = |endpoint: &str| self.suspects.contains(endpoint, now);
        let view = Viewpoint { endpoint: self.endpoint().unwrap_or_default(), is_suspect: &is_suspect };
        read.order = readable(&lookup.replicas, &view);
        read.at = 0;
        read.first_round = read.order.len();
        read.is_doubtful = false;
        read.fill = None;
        let first = read.order.first().and_then(|index| lookup.replicas.get(*index as usize));
        match first.map(object_size) {
            Some(size) => {
                read.size = size;
                read.lookup = Some(lookup);
                if let Err(error) = read.into.prepare(size) {
                    read.outcome = Some(Err(error));
                }
                if let Some(cache) = &self.hot {
                    self.consult_cache(cache, read);
                }
            }
            None => read.outcome = Some(Err(Error::NoReadableReplica)),
        }
    }
}

impl Core {
    /// Says in the log that a replica has other bytes than were written, and tells a master of ours, which lists it no more.
    fn report_corrupt(&self, read: &Read<'_>, Mismatch { found, written }: Mismatch) {
        let Some(replica) = read.replica() else { return };
        let peer = replica.memory().map(|memory| memory.transport_endpoint.as_str()).unwrap_or_default();
        let key = String::from_utf8_lossy(read.key);
        tracing::error!(%key, peer, found, written, "a replica has other bytes than were written");
        let corrupt = CorruptReplica { tenant: None, key: read.key, replica: replica.id, written, found };
        let deadline = self.short_word();
        match self.link.report_corrupt(&corrupt, &deadline) {
            Ok(()) => self.counters.corrupt_reported.add(1),
            Err(error) => tracing::warn!(%error, "the master was not told of a replica with other bytes"),
        }
    }
}

/// All keys of one call.
struct Reads<'c, 'a> {
    core: &'c Core,
    deadline: Deadline,
    list: SmallVec<[Read<'a>; 1]>,
}

impl<'c, 'a> Reads<'c, 'a> {
    fn new(core: &'c Core, list: SmallVec<[Read<'a>; 1]>) -> Self {
        let deadline = Deadline::for_keys(&core.clock, &core.config.limits, list.len());
        Reads { core, deadline, list }
    }

    /// Until every key has an outcome.
    fn run(&mut self) {
        if self.core.is_closed() {
            self.close_all(&Error::Closed);
        }
        while self.list.iter().any(Read::is_open) {
            self.look_up();
            let open = self.list.iter().filter(|read| read.is_open());
            let bytes = open.map(|read| read.into.bytes(read.size).saturating_add(KEY_BYTES)).sum();
            self.deadline = self.deadline.with_bytes(&self.core.config.limits, bytes);
            while self.transfer_round() {}
            self.check_leases();
        }
        if let Some(cache) = &self.core.hot {
            self.list.iter_mut().for_each(|read| self.core.deliver(cache, read));
        }
        self.explain();
        self.count();
    }

    /// The master has one number for a key that is being written and for one whose node is silent.
    fn explain(&mut self) {
        let failed = self.list.iter_mut().filter_map(|Read { key, outcome, .. }| {
            let Some(Err(error)) = outcome else { return None };
            Some(Failed { key, error, wanted: Wanted::default() })
        });
        self.core.explain(failed, &self.deadline);
    }

    fn close_all(&mut self, error: &Error) {
        for read in self.list.iter_mut().filter(|read| read.is_open()) {
            read.outcome = Some(Err(error.clone()));
        }
    }

    /// One request for every key that has no lookup.
    fn look_up(&mut self) {
        let wanted = |read: &Read<'_>| read.is_open() && read.lookup.is_none();
        let keys: SmallVec<[&[u8]; 32]> = self.list.iter().filter(|read| wanted(read)).map(|read| read.key).collect();
        if keys.is_empty() {
            return;
        }
        match self.core.look_up(&keys, &self.deadline) {
            Ok(found) => {
                for (read, found) in self.list.iter_mut().filter(|read| wanted(read)).zip(found) {
                    read.lookups += 1;
                    match found {
                        Ok(lookup) => self.core.choose(read, lookup),
                        Err(error) => read.outcome = Some(Err(error)),
                    }
                }
            }
            Err(error) => {
                self.core.count_unanswered(&error);
                for read in self.list.iter_mut().filter(|read| wanted(read)) {
                    read.outcome = Some(Err(error.clone()));
                }
            }
        }
    }

    /// One transfer batch over every open key that has bytes to come. True when some have to go round again.
    fn transfer_round(&mut self) -> bool {
        let until = self.attempt_ends();
        let (core, flight) = (self.core, self.watch(until));
        let most = core.config.limits.base / HEDGE_SHARE;
        let mut mover = Mover::new(Opcode::Read, &core.engine, self.list.len()).minding(&core.suspects, &core.clock);
        for (index, read) in self.list.iter_mut().enumerate() {
            let summed = core.config.checksum && read.written().is_some();
            let may_be_late = read.may_be_late();
            // An object without bytes is not moved.
            read.sum = (summed && read.size == 0).then_some(0);
            let Read { lookup, order, at, into, fill, size, outcome, .. } = read;
            let open = outcome.is_none() && *at < order.len();
            let replica = lookup.as_ref().zip(order.get(*at)).and_then(|(l, i)| l.replicas.get(*i as usize));
            let (true, Some(buffer)) = (open, replica.and_then(ReplicaDescriptor::memory)) else { continue };
            if *size == 0 {
                continue;
            }
            match target(into, fill, *size) {
                Ok(pieces) => {
                    let endpoint = buffer.transport_endpoint.as_str();
                    let patience = may_be_late.then(|| core.pace.bound(endpoint, most));
                    mover.add_as(Owner { index: index as u32, summed, patience }, pieces, buffer);
                }
                Err(error) => *outcome = Some(Err(error)),
            }
        }
        let before = core.now();
        let Moved { failed, sums, .. } = core.move_all(mover, until);
        if failed.is_empty() {
            self.note_pace(before);
        }
        for (index, sum) in sums {
            if let Some(read) = self.list.get_mut(index as usize) {
                read.sum = sum.map(Crc64::value);
            }
        }
        self.land(flight);
        self.settle(failed)
    }

    /// Notes how long a peer took for a read of one object that has other replicas.
    fn note_pace(&self, since: MonotonicTime) {
        let [read] = self.list.as_slice() else { return };
        let memory = read.replica().and_then(ReplicaDescriptor::memory);
        if let Some(memory) = memory.filter(|_| read.order.len() > 1 && read.into.bytes(read.size) <= PACE_BYTES) {
            self.core.pace.took(&memory.transport_endpoint, self.core.now().since(since));
        }
    }

    /// Has the leases renewed that may end before this round does.
    fn watch(&self, until: MonotonicTime) -> Option<Flight<'c>> {
        let bytes: u64 = self.list.iter().filter(|read| read.is_open()).map(|read| read.into.bytes(read.size)).sum();
        if bytes < LONG_ROUND.0 && self.list.len() < LONG_ROUND.1 {
            return None;
        }
        let may_end = |read: &Read<'_>| read.lookup.as_ref().is_some_and(|lookup| lookup.lease_ends <= until);
        let watched = self.list.iter().enumerate().filter(|(_, read)| may_end(read));
        self.core.leases.watch(watched.filter_map(|(index, read)| read.watched(index)).collect())
    }

    /// Takes over what became of the leases.
    fn land(&mut self, flight: Option<Flight<'_>>) {
        for watched in flight.map(Flight::end).unwrap_or_default() {
            let Some(read) = self.list.get_mut(watched.index) else { continue };
            read.is_doubtful |= watched.is_lost;
            if let Some(lookup) = &mut read.lookup {
                (lookup.lease_ends, lookup.lease) = (watched.lease_ends, watched.lease);
            }
        }
    }

    /// When this round must be over, so that every key has time left for its other replicas.
    fn attempt_ends(&self) -> MonotonicTime {
        let open = self.list.iter().filter(|read| read.is_open());
        let tries = open.map(|read| read.order.len().saturating_sub(read.at)).max().unwrap_or(1).max(1);
        let now = self.core.now();
        now + self.deadline.left(now) / u32::try_from(tries).unwrap_or(1)
    }

    /// Moves failed keys on to their next replica. True when there is one.
    fn settle(&mut self, failed: SmallVec<[(u32, TransferError); 1]>) -> bool {
        let now = self.core.now();
        let mut round_again = false;
        let mut last = None;
        for (index, error) in failed {
            let Some(read) = self.list.get_mut(index as usize).filter(|_| last != Some(index)) else { continue };
            last = Some(index);
            if error.kind() == TransferErrorKind::TimedOut && read.may_be_late() {
                // It comes round again when the others have failed.
                self.core.counters.late_replicas.add(1);
                if let Some(late) = read.order.get(read.at).copied() {
                    read.order.push(late);
                }
            }
            let more = read.at + 1 < read.order.len();
            if more {
                self.core.counters.replica_fallbacks.add(1);
                read.at += 1;
            } else if error.kind() == TransferErrorKind::TimedOut && !read.again {
                // Its time was cut short for the sake of others.
                read.again = true;
            } else {
                read.outcome = Some(Err(mover::failure(&error, Opcode::Read, &self.deadline, now)));
                continue;
            }
            if self.deadline.left(now).is_zero() {
                read.outcome = Some(Err(mover::failure(&error, Opcode::Read, &self.deadline, now)));
                continue;
            }
            read.failed = Some(error);
            round_again = true;
        }
        self.keep_what_arrived() || round_again
    }

    /// Keys whose bytes are there must not be read again with those that go round. True when some of them turn out to be
    /// other bytes than were written, and have another replica.
    fn keep_what_arrived(&mut self) -> bool {
        let (now, counters) = (self.core.now(), &self.core.counters);
        let mut round_again = false;
        for read in self.list.iter_mut().filter(|read| read.is_open() && read.lookup.is_some()) {
            if read.failed.take().is_some() {
                continue;
            }
            let mismatch = match read.judge() {
                Verdict::Corrupt(mismatch) => mismatch,
                verdict => {
                    let is_verified = matches!(verdict, Verdict::Verified);
                    counters.objects_verified.add(u64::from(is_verified));
                    counters.objects_unverified.add(u64::from(!is_verified));
                    read.outcome = Some(Ok(read.size));
                    continue;
                }
            };
            if read.is_late(now) {
                // Nothing is wrong with the replica: it may be another object's by now.
                match read.may_look_again() && !self.deadline.left(now).is_zero() {
                    true => read.start_over(),
                    false => read.outcome = Some(Err(Error::LeaseExpired)),
                }
                continue;
            }
            counters.objects_corrupt.add(1);
            self.core.report_corrupt(read, mismatch);
            if read.at + 1 < read.order.len() {
                counters.replica_fallbacks.add(1);
                read.at += 1;
                round_again = true;
            } else {
                read.outcome = Some(Err(Error::Corrupt { found: mismatch.found, written: mismatch.written }));
            }
        }
        round_again
    }

    /// After the last byte: objects whose lease has ended are looked up again. If the replica is still there under an id
    /// that is never given to other bytes, what came is right; else it is read once more.
    fn check_leases(&mut self) {
        let now = self.core.now();
        let mut doubtful: SmallVec<[usize; 8]> = SmallVec::new();
        for (index, read) in self.list.iter_mut().enumerate().filter(|(_, read)| read.is_in_doubt(now)) {
            if self.deadline.left(now).is_zero() || !(read.may_look_again() || read.has_lasting_id()) {
                read.outcome = Some(Err(Error::LeaseExpired));
            } else {
                doubtful.push(index);
            }
        }
        if doubtful.is_empty() {
            return;
        }
        let keys: SmallVec<[&[u8]; 8]> =
            doubtful.iter().filter_map(|index| self.list.get(*index)).map(|read| read.key).collect();
        match self.core.look_up(&keys, &self.deadline) {
            Ok(answers) => {
                for (index, answer) in doubtful.into_iter().zip(answers) {
                    self.decide(index, answer);
                }
            }
            Err(error) => {
                self.core.count_unanswered(&error);
                for index in doubtful {
                    if let Some(read) = self.list.get_mut(index) {
                        read.outcome = Some(Err(error.clone()));
                    }
                }
            }
        }
    }

    /// What becomes of bytes that came when the lease was over, now that the master has said what is there.
    fn decide(&mut self, index: usize, answer: Result<Lookup>) {
        let Some(read) = self.list.get_mut(index) else { return };
        match answer {
            Ok(now) if read.is_confirmed_by(&now) => {
                self.core.counters.leases_renewed.add(1);
                read.lookup = Some(now);
            }
            Ok(now) if read.may_look_again() => {
                self.core.counters.lease_retries.add(1);
                read.lookups += 1;
                (read.outcome, read.again) = (None, false);
                self.core.choose(read, now);
            }
            Err(error) if read.may_look_again() => read.outcome = Some(Err(error)),
            _ => read.outcome = Some(Err(Error::LeaseExpired)),
        }
    }

    fn count(&self) {
        let counters = &self.core.counters;
        let now = self.core.now();
        for read in &self.list {
            match &read.outcome {
                Some(Ok(bytes)) => {
                    counters.objects_read.add(1);
                    counters.bytes_read.add(read.into.bytes(*bytes));
                }
                Some(Err(error)) => {
                    let failed = if *error == Error::NotFound { &counters.misses } else { &counters.failed_reads };
                    failed.add(1);
                    counters.failures.note("get", read.key, error, || now);
                }
                None => counters.failed_reads.add(1),
            }
        }
        let latency = if self.list.len() == 1 { &counters.get_latency } else { &counters.batch_get_latency };
        latency.record(self.deadline.elapsed(now));
    }
}
