//! Copies and moves: a client asks for space beside a replica that it holds, writes there, and says that it did.
//!
//! Invariants:
//! - an object has one copy or move at a time, of one client, between replicas that are known by their ids;
//! - a target is read only after its end, and its space comes free only when its writer cannot write any more;
//! - a move gives its source up only when another readable replica is there.

use smallvec::{SmallVec, smallvec};
use yb_types::{ByteLen, ErrorCode, MonotonicTime, ReplicaId};

use crate::catalog::{Caller, Catalog, Leave};
use crate::copies::{CopyKind, CopyLease, Copying, Running};
use crate::effects::{Effects, PutRefusal};
use crate::entry::{Entry, Replica, Replicas};
use crate::key::KeyHash;
use crate::segments::SegmentTable;
use crate::shard::ShardState;
use crate::sync::atomic::Ordering;
use crate::tenants::Charge;
use crate::view::{ObjectView, ReplicaView};

/// A copy or a move that begins.
#[derive(Clone, Copy, Debug)]
pub struct CopyCall<'a> {
    /// Who, for whom, when.
    pub caller: Caller,
    /// The key.
    pub key: &'a [u8],
    /// Name of the segment to read.
    pub source: &'a str,
    /// Names of the segments to write.
    pub targets: &'a [&'a str],
    /// For a copy that was planned.
    pub lease: Option<CopyLease>,
}

/// How a client says that a copy ended.
#[derive(Clone, Copy, Debug)]
pub struct CopyEnd<'a> {
    /// Who, for whom, when.
    pub caller: Caller,
    /// The key.
    pub key: &'a [u8],
    /// What it was.
    pub kind: CopyKind,
    /// Of a planned copy.
    pub lease: Option<CopyLease>,
    /// Which copy, if the client says it.
    pub target: Option<CopyTarget>,
}

/// Names a copy: the first of the targets that its start was answered with, which no other copy ever has; 0 without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CopyTarget(pub ReplicaId);

/// Where to read, and where to write.
pub struct CopyView<'a> {
    /// Readable.
    pub source: ReplicaView<'a>,
    /// To be written; none at segments that hold the object already.
    pub targets: SmallVec<[ReplicaView<'a>; 2]>,
}

impl Catalog {
    /// Begins a copy: takes space at the targets. Targets that hold a replica already are left out.
    ///
    /// # Errors
    /// The peer's: SEGMENT_NOT_FOUND and UNAVAILABLE_IN_CURRENT_STATUS for a target, OBJECT_NOT_FOUND,
    /// OBJECT_HAS_REPLICATION_TASK, REPLICA_NOT_FOUND when the source holds no readable replica, NO_AVAILABLE_HANDLE. Of a
    /// planned copy also UNAVAILABLE_IN_CURRENT_STATUS (no such plan), INVALID_VERSION, ILLEGAL_CLIENT and
    /// OBJECT_ALREADY_EXISTS (nothing to do). Nothing changed then.
    pub fn copy_start(&self, call: &CopyCall<'_>, sink: impl FnOnce(CopyView<'_>)) -> Result<(), ErrorCode> {
        self.begin_copy(call, CopyKind::Copy, sink)
    }

    /// Begins a move to one target. Without a target in the answer there is nothing to write: the target holds a replica.
    ///
    /// # Errors
    /// As [`copy_start`](Self::copy_start); INVALID_PARAMS when source and target are the same.
    pub fn move_start(&self, call: &CopyCall<'_>, sink: impl FnOnce(CopyView<'_>)) -> Result<(), ErrorCode> {
        if call.targets == [call.source] {
            return Err(ErrorCode::INVALID_PARAMS);
        }
        self.begin_copy(call, CopyKind::Move, sink)
    }

    fn begin_copy(
        &self,
        call: &CopyCall<'_>,
        kind: CopyKind,
        sink: impl FnOnce(CopyView<'_>),
    ) -> Result<(), ErrorCode> {
        for target in call.targets {
            self.check_target(target)?;
        }
        let Caller { tenant, client, now } = call.caller;
        let hash = self.hash(tenant, call.key);
        let mut state = self.shards[hash.shard].state.write();
        let slot = self.find_live(&mut state, tenant, hash, call.key, now).ok_or(ErrorCode::OBJECT_NOT_FOUND)?;
        check_free(&mut state.slab[slot], call)?;
        if self.copies.lock().is_stale(client, hash, now) {
            return Err(ErrorCode::OBJECT_HAS_REPLICATION_TASK);
        }
        let table = self.segments.load();
        let source = source_at(&state.slab[slot], &table, call.source).ok_or(ErrorCode::REPLICA_NOT_FOUND)?;
        let reserve = Reserve { table: &table, hash, slot, now };
        let (targets, existing) = new_targets(&state.slab[slot], &table, call.targets);
        if call.lease.is_some() && targets.is_empty() {
            set_copying(&mut state.slab[slot], None);
            return Err(ErrorCode::OBJECT_ALREADY_EXISTS);
        }
        let placed = self.place_targets(&state.slab[slot], &reserve, kind, &targets)?;
        let entry = &mut state.slab[slot];
        let running = Running {
            ticket: self.next_id.0.fetch_add(1, Ordering::Relaxed),
            kind,
            client,
            source,
            targets: placed.iter().map(Replica::id).collect(),
            existing,
            until: now + self.settings.release_timeout,
            lease: call.lease,
        };
        let all: SmallVec<[Replica; 4]> = entry.replicas.as_slice().iter().chain(&placed).copied().collect();
        entry.replicas = Replicas::from_slice(&all);
        self.copies.lock().add(&running, hash.shard, slot);
        set_copying(entry, Some(Copying::Running(running.clone())));
        if let Some(view) = show(entry, &table, &running) {
            sink(view);
        }
        Ok(())
    }

    /// Whether objects can be copied to the segments of a name.
    fn check_target(&self, name: &str) -> Result<(), ErrorCode> {
        if self.segments.load().view.by_name(name).is_some() {
            return Ok(());
        }
        let is_mounted = self.segments.registry().named(name).next().is_some();
        Err(if is_mounted { ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS } else { ErrorCode::SEGMENT_NOT_FOUND })
    }

    /// Takes space, charged to the tenant, at each of these targets or at none.
    fn place_targets(
        &self,
        entry: &Entry,
        reserve: &Reserve<'_>,
        kind: CopyKind,
        targets: &[&str],
    ) -> Result<Placed, ErrorCode> {
        let bytes = entry.size.saturating_mul(targets.len() as u64);
        let replaces = if kind == CopyKind::Move { entry.size } else { 0 };
        if self.tenants.is_closed(entry.tenant) {
            return Err(ErrorCode::TENANT_NOT_REGISTERED);
        }
        if targets.is_empty() {
            // Everything is where it is wanted: nothing to ask a tenant for whose quota was lowered below its use.
            return Ok(Placed::new());
        }
        let charged = self.tenants.charge(entry.tenant, Charge { bytes, replaces });
        charged.map_err(|miss| PutRefusal::from(miss).code())?;
        let mut placed = Placed::new();
        for target in targets {
            match self.place_target(entry.size, reserve, target) {
                Some(replica) => placed.push(replica),
                None => {
                    self.give_back(&placed, reserve.table);
                    // Nothing is evicted for a copy: what would go is anywhere, the room is wanted here.
                    self.tenants.refund(entry.tenant, bytes);
                    return Err(ErrorCode::NO_AVAILABLE_HANDLE);
                }
            }
        }
        Ok(placed)
    }

    fn place_target(&self, size: u64, reserve: &Reserve<'_>, target: &str) -> Option<Replica> {
        let Reserve { table, hash, slot, now } = *reserve;
        let group = table.view.groups().get(table.view.by_name(target)?)?;
        let owner = (hash.shard as u64) << 32 | u64::from(slot);
        let allocate = || {
            let try_segment = |segment: &std::sync::Arc<crate::MountedSegment>| {
                let extent = segment.allocate(ByteLen(size), owner, now)?;
                Some(Replica::new(self.next_id.0.fetch_add(1, Ordering::Relaxed), segment.index(), extent))
            };
            group.members.iter().find_map(try_segment)
        };
        allocate().or_else(|| if self.release_withheld(now, u64::MAX) > 0 { allocate() } else { None })
    }

    /// Frees what nobody was told of.
    fn give_back(&self, placed: &[Replica], table: &SegmentTable) {
        for replica in placed {
            if let Some(segment) = table.live(replica.segment) {
                segment.give_up(replica.node());
            }
        }
    }

    /// The bytes of a copy have arrived: its targets are readable from here on; the source of a move is given up.
    ///
    /// # Errors
    /// The peer's: OBJECT_NOT_FOUND, OBJECT_NO_REPLICATION_TASK, ILLEGAL_CLIENT, INVALID_PARAMS for the other kind,
    /// INVALID_VERSION for another plan, REPLICA_IS_GONE when source or a target was lost meanwhile (targets that are
    /// still there are readable all the same).
    pub fn copy_end(&self, end: &CopyEnd<'_>) -> Result<(), ErrorCode> {
        let (hash, now) = (self.hash(end.caller.tenant, end.key), end.caller.now);
        let mut state = self.shards[hash.shard].state.write();
        let (slot, running) = self.find_running(&mut state, end, hash)?;
        let entry = &mut state.slab[slot];
        let mut arrived = 0;
        for replica in entry.replicas.as_mut_slice() {
            if running.targets.contains(&replica.id()) {
                replica.complete();
                arrived += 1;
            }
        }
        set_copying(entry, None);
        self.copies.lock().remove(running.ticket);
        if self.segments.is_any_fed() {
            self.mention(&state, hash.member(slot), slot);
        }
        let entry = &state.slab[slot];
        let has_source = has_replica(entry, running.source);
        let intact = has_source && arrived == running.targets.len();
        if running.kind == CopyKind::Copy {
            return if intact { Ok(()) } else { Err(ErrorCode::REPLICA_IS_GONE) };
        }
        let table = self.segments.load();
        let is_readable = |replica: &Replica| replica.is_complete() && table.readable(replica.segment).is_some();
        let elsewhere = entry.replicas.as_slice().iter().any(|r| is_readable(r) && r.id() != running.source);
        if !intact || !elsewhere || running.existing.is_some_and(|id| !has_replica(entry, id)) {
            return Err(ErrorCode::REPLICA_IS_GONE);
        }
        let only = |replica: &Replica| replica.id() == running.source;
        self.drop_replicas(&mut state, slot, Leave::Readable, now, only, &mut Effects::default());
        Ok(())
    }

    /// A copy is given up; its targets stay out of use until its writer cannot write any more, see
    /// [`Effects::quiesce`].
    ///
    /// # Errors
    /// As [`copy_end`](Self::copy_end), but for REPLICA_IS_GONE.
    pub fn copy_revoke(&self, end: &CopyEnd<'_>, effects: &mut Effects) -> Result<(), ErrorCode> {
        let hash = self.hash(end.caller.tenant, end.key);
        let mut state = self.shards[hash.shard].state.write();
        let (slot, running) = self.find_running(&mut state, end, hash)?;
        self.discard_copy(&mut state, slot, &running, true, end.caller.now, effects);
        Ok(())
    }

    /// The copy that a client speaks of.
    fn find_running(
        &self,
        state: &mut ShardState,
        end: &CopyEnd<'_>,
        hash: KeyHash,
    ) -> Result<(u32, Running), ErrorCode> {
        let Caller { tenant, client, now } = end.caller;
        // About an older copy, which ended without its client.
        let is_late = self.copies.lock().settle_stale(client, hash, end.target);
        let slot = self.find_live(state, tenant, hash, end.key, now);
        // What the client had to say about a copy that went just now is said.
        let is_late = self.copies.lock().settle_stale(client, hash, end.target) || is_late;
        let slot = slot.ok_or(ErrorCode::OBJECT_NOT_FOUND)?;
        let copying = state.slab[slot].extras().and_then(|extras| extras.copy.as_deref());
        let running = copying.and_then(Copying::running).filter(|_| !is_late);
        let running = running.ok_or(ErrorCode::OBJECT_NO_REPLICATION_TASK)?;
        if running.client != client {
            return Err(ErrorCode::ILLEGAL_CLIENT);
        }
        if end.target.is_some_and(|target| target != running.name()) {
            return Err(ErrorCode::OBJECT_NO_REPLICATION_TASK);
        }
        if running.kind != end.kind {
            return Err(ErrorCode::INVALID_PARAMS);
        }
        if end.lease.is_some() && end.lease != running.lease {
            return Err(ErrorCode::INVALID_VERSION);
        }
        Ok((slot, running.clone()))
    }

    /// Gives up the targets of a running copy.
    fn discard_copy(
        &self,
        state: &mut ShardState,
        slot: u32,
        running: &Running,
        revoked: bool,
        now: MonotonicTime,
        effects: &mut Effects,
    ) {
        let leave = Leave::Unfinished { until: running.until, revoked };
        let target = |replica: &Replica| running.targets.contains(&replica.id());
        self.drop_replicas(state, slot, leave, now, target, effects);
        set_copying(&mut state.slab[slot], None);
        self.copies.lock().remove(running.ticket);
    }

    /// Gives up some copies that are overdue, or whose client is gone; answers how many.
    pub(crate) fn expire_copies(&self, most: u32, now: MonotonicTime, effects: &mut Effects) -> u32 {
        let mut expired = 0;
        while expired < most {
            let Some(due) = self.copies.lock().due(now) else { break };
            expired += 1;
            let mut state = self.shards[due.shard].state.write();
            let entry = state.slab.get(due.slot);
            let copying = entry.and_then(|entry| entry.extras()).and_then(|extras| extras.copy.as_deref());
            match copying.and_then(Copying::running).filter(|running| running.ticket == due.ticket).cloned() {
                Some(running) => {
                    self.discard_copy(&mut state, due.slot, &running, false, now, effects);
                    let entry = &state.slab[due.slot];
                    let hash = self.hash(entry.tenant, entry.key.as_slice());
                    self.note_stale(&running, hash, now);
                }
                None => self.copies.lock().remove(due.ticket),
            }
        }
        self.copies.lock().forget_stale(now);
        expired
    }

    /// An object goes while it is being copied.
    pub(crate) fn copy_lost(&self, running: &Running, hash: KeyHash, now: MonotonicTime) {
        self.copies.lock().remove(running.ticket);
        self.note_stale(running, hash, now);
    }

    fn note_stale(&self, running: &Running, hash: KeyHash, now: MonotonicTime) {
        let until = now.max(running.until) + self.settings.release_timeout;
        self.copies.lock().set_stale(running, hash, until);
    }

    /// Copies under way.
    pub fn copies_running(&self) -> usize {
        self.copies.lock().len()
    }
}

/// Where space for targets is taken, and for whom.
struct Reserve<'a> {
    table: &'a SegmentTable,
    hash: KeyHash,
    slot: u32,
    now: MonotonicTime,
}

type Placed = SmallVec<[Replica; 2]>;

/// Refuses while another copy, or anything else that works with the object, is under way. An object that is being
/// replaced is not worth a copy.
fn check_free(entry: &mut Entry, call: &CopyCall<'_>) -> Result<(), ErrorCode> {
    if entry.successor().is_some() {
        return Err(ErrorCode::REPLICA_NOT_FOUND);
    }
    if entry.is_referenced() {
        return Err(ErrorCode::OBJECT_HAS_REPLICATION_TASK);
    }
    let plan = match entry.extras().and_then(|extras| extras.copy.as_deref()) {
        Some(Copying::Planned(plan)) if plan.until > call.caller.now => plan,
        _ if call.lease.is_some() => return Err(ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS),
        _ => return Ok(()),
    };
    let lease = call.lease.ok_or(ErrorCode::OBJECT_HAS_REPLICATION_TASK)?;
    if plan.lease.epoch != entry.generation().0.get() {
        set_copying(entry, None);
        return Err(ErrorCode::INVALID_VERSION);
    }
    if plan.lease != lease {
        return Err(ErrorCode::INVALID_VERSION);
    }
    if plan.source != call.source || call.targets != [plan.target.as_str()] {
        return Err(ErrorCode::OBJECT_HAS_REPLICATION_TASK);
    }
    if plan.client != call.caller.client {
        return Err(ErrorCode::ILLEGAL_CLIENT);
    }
    Ok(())
}

pub(crate) fn set_copying(entry: &mut Entry, copying: Option<Copying>) {
    entry.extras_mut().copy = copying.map(Box::new);
    entry.settle_extras();
}

fn has_replica(entry: &Entry, id: ReplicaId) -> bool {
    entry.replicas.as_slice().iter().any(|replica| replica.id() == id)
}

/// Those targets that hold no replica, each once; and the replica of the last that holds one.
fn new_targets<'a>(
    entry: &Entry,
    table: &SegmentTable,
    targets: &[&'a str],
) -> (SmallVec<[&'a str; 4]>, Option<ReplicaId>) {
    let (mut new, mut existing) = (SmallVec::new(), None);
    for target in targets {
        match replica_at(entry.replicas.as_slice(), table, target) {
            Some(id) => existing = Some(id),
            None if new.contains(target) => {}
            None => new.push(*target),
        }
    }
    (new, existing)
}

/// The replica, in any status, in a segment of this name.
pub(crate) fn replica_at(replicas: &[Replica], table: &SegmentTable, name: &str) -> Option<ReplicaId> {
    let lies_there =
        |replica: &&Replica| table.live(replica.segment).is_some_and(|segment| segment.info().name == name);
    replicas.iter().find(lies_there).map(Replica::id)
}

/// The readable replica in a segment of this name.
fn source_at(entry: &Entry, table: &SegmentTable, name: &str) -> Option<ReplicaId> {
    let view = ObjectView::readable(entry, table)?;
    view.replicas().find(|replica| replica.segment.info().name == name).map(|replica| replica.id)
}

fn show<'a>(entry: &'a Entry, table: &'a SegmentTable, running: &Running) -> Option<CopyView<'a>> {
    let mut view = CopyView { source: ObjectView::whole(entry, table).replicas().next()?, targets: smallvec![] };
    for replica in ObjectView::whole(entry, table).replicas() {
        if replica.id == running.source {
            view.source = replica;
        } else if running.targets.contains(&replica.id) {
            view.targets.push(replica);
        }
    }
    Some(view)
}
