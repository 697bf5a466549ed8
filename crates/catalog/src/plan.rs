//! Choosing where a copy is read from and written to, before anybody begins it.

use std::sync::Arc;

use yb_types::{ByteLen, ClientId, ErrorCode, MonotonicTime, SegmentStatus};

use crate::catalog::{Catalog, Leave};
use crate::copies::{CopyLease, Copying, Plan};
use crate::copy::{replica_at, set_copying};
use crate::effects::Effects;
use crate::entry::{Entry, Replica};
use crate::key::Tenant;
use crate::placement::{Random, SegmentGroup};
use crate::segment::MountedSegment;
use crate::segments::SegmentTable;
use crate::view::ObjectView;

/// A replica to read from, and who can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// Name of its segment.
    pub segment: String,
    /// Who owns the segment.
    pub owner: ClientId,
}

/// Where an object on a segment that is to be emptied could go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Elsewhere {
    /// To this segment; the owner of the source is to move it.
    Move {
        /// Name of the segment.
        target: String,
        /// Who owns the source.
        owner: ClientId,
    },
    /// Every allowed segment holds a replica: the one here is not needed.
    Duplicate,
    /// No allowed segment has room.
    NoRoom,
    /// It is being copied or written.
    Busy,
    /// It is not here any more.
    Gone,
}

/// What a planned copy is for.
#[derive(Clone, Copy, Debug)]
pub struct DynamicCall<'a> {
    /// Whose key.
    pub tenant: Tenant,
    /// The key.
    pub key: &'a [u8],
    /// An object with so many replicas gets no more.
    pub max_replicas: u32,
    /// The id of the plan's lease.
    pub lease: yb_types::Uuid,
    /// When the plan ends if nobody begins the copy.
    pub until: MonotonicTime,
    /// Now.
    pub now: MonotonicTime,
}

/// A copy that may be made once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicPlan {
    /// Names it.
    pub lease: CopyLease,
    /// What to read, and who is to.
    pub source: Source,
    /// Name of the segment to write.
    pub target: String,
}

/// Why no copy was planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoPlan {
    /// Not there, or being written.
    Absent,
    /// It is being copied, or a plan waits.
    Busy,
    /// It has enough replicas.
    Enough,
    /// No segment without it has room below the limit.
    NoTarget,
}

/// Share of a target that may be used after a dynamic copy.
const DYNAMIC_USE_MAX: f64 = 0.85;

impl Catalog {
    /// A replica that a task can copy to `targets`: at random among the readable ones.
    ///
    /// # Errors
    /// The peer's answers to CreateCopyTask: INVALID_PARAMS without targets or for one that is not mounted,
    /// OBJECT_NOT_FOUND, UNAVAILABLE_IN_CURRENT_STATUS for a target that takes nothing. REPLICA_IS_NOT_READY while nothing
    /// can be read; the peer makes a task that fails.
    pub fn copy_source(
        &self,
        tenant: Tenant,
        key: &[u8],
        targets: &[&str],
        random: &mut dyn Random,
    ) -> Result<Source, ErrorCode> {
        if targets.is_empty() {
            return Err(ErrorCode::INVALID_PARAMS);
        }
        self.check_open(tenant)?;
        let mut sources = self.sources(tenant, key)?;
        for target in targets {
            self.check_task_target(target)?;
        }
        if sources.is_empty() {
            return Err(ErrorCode::REPLICA_IS_NOT_READY);
        }
        let at = (random.next_u64() % sources.len() as u64) as usize;
        Ok(sources.swap_remove(at))
    }

    /// Who can move a replica from one segment to another.
    ///
    /// # Errors
    /// As [`copy_source`](Self::copy_source); INVALID_PARAMS also when source and target are the same, or when
    /// the source holds no readable replica.
    pub fn move_source(&self, tenant: Tenant, key: &[u8], source: &str, target: &str) -> Result<Source, ErrorCode> {
        self.check_open(tenant)?;
        let sources = self.sources(tenant, key)?;
        if source == target || self.segments.registry().named(source).next().is_none() {
            return Err(ErrorCode::INVALID_PARAMS);
        }
        self.check_task_target(target)?;
        if sources.is_empty() {
            return Err(ErrorCode::REPLICA_IS_NOT_READY);
        }
        sources.into_iter().find(|found| found.segment == source).ok_or(ErrorCode::INVALID_PARAMS)
    }

    fn check_open(&self, tenant: Tenant) -> Result<(), ErrorCode> {
        if self.tenants.is_closed(tenant) { Err(ErrorCode::TENANT_NOT_REGISTERED) } else { Ok(()) }
    }

    /// Every readable replica; none while the object is being written.
    fn sources(&self, tenant: Tenant, key: &[u8]) -> Result<Vec<Source>, ErrorCode> {
        let mut sources = Err(ErrorCode::OBJECT_NOT_FOUND);
        self.peek(tenant, [key], |_, found| {
            sources = match found {
                Ok(view) => Ok(view.replicas().map(|replica| source_of(replica.segment)).collect()),
                Err(ErrorCode::REPLICA_IS_NOT_READY) => Ok(Vec::new()),
                Err(code) => Err(code),
            };
        });
        sources
    }

    fn check_task_target(&self, name: &str) -> Result<(), ErrorCode> {
        if self.segments.load().view.by_name(name).is_some() {
            return Ok(());
        }
        let is_mounted = self.segments.registry().named(name).next().is_some();
        Err(if is_mounted { ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS } else { ErrorCode::INVALID_PARAMS })
    }

    /// Where an object on a segment that is being emptied is to go: to the least used of the allowed segments (all with
    /// an empty list) that holds no replica of it.
    pub fn elsewhere(&self, tenant: Tenant, key: &[u8], from: &str, allowed: &[String]) -> Elsewhere {
        let hash = self.hash(tenant, key);
        let state = self.shards[hash.shard].state.read();
        let Some(slot) = state.find(tenant, hash.word, key) else { return Elsewhere::Gone };
        let (entry, table) = (&state.slab[slot], self.segments.load());
        if !entry.is_finished() || entry.is_referenced() || entry.successor().is_some() {
            return Elsewhere::Busy;
        }
        if replica_at(entry.replicas.as_slice(), &table, from).is_none() {
            return Elsewhere::Gone;
        }
        let Some(view) = ObjectView::readable(entry, &table) else { return Elsewhere::Busy };
        // Not offered to readers while its client is silent.
        let Some(source) = view.replicas().find(|replica| replica.segment.info().name == from) else {
            return Elsewhere::Busy;
        };
        let is_allowed = |group: &&SegmentGroup| allowed.is_empty() || allowed.iter().any(|name| name == group.name());
        let holds = |group: &SegmentGroup| replica_at(entry.replicas.as_slice(), &table, group.name()).is_some();
        let (mut best, mut duplicate, mut full): (Option<(f64, &str)>, bool, bool) = (None, false, false);
        for group in table.view.groups().iter().filter(is_allowed) {
            if holds(group) {
                duplicate = true;
            } else if !has_room(group, entry.size) {
                full = true;
            } else if best.is_none_or(|(share, _)| group.free_share() > share) {
                best = Some((group.free_share(), group.name()));
            }
        }
        match best {
            Some((_, target)) => Elsewhere::Move { target: target.to_owned(), owner: source.segment.owner() },
            None if duplicate && !full => Elsewhere::Duplicate,
            None => Elsewhere::NoRoom,
        }
    }

    /// Bytes of the largest segment in service that objects of these segments may go to (all others with an empty list), full or
    /// not, its client heard of or not; 0 when there is none.
    pub fn largest_beside(&self, emptied: &[String], allowed: &[String]) -> u64 {
        let registry = self.segments.registry();
        let may_take = |segment: &&Arc<MountedSegment>| {
            let name = &segment.info().name;
            let is_allowed = allowed.is_empty() || allowed.contains(name);
            segment.status() == SegmentStatus::OK && is_allowed && !emptied.contains(name)
        };
        registry.iter().filter(may_take).map(|segment| segment.capacity().0).max().unwrap_or(0)
    }

    /// Drops the replica on a segment if another readable one is there; `false` when nothing was dropped. Its space rests
    /// until its readers' leases have ended.
    pub fn drop_duplicate(&self, tenant: Tenant, key: &[u8], from: &str, now: MonotonicTime) -> bool {
        let hash = self.hash(tenant, key);
        let mut state = self.shards[hash.shard].state.write();
        let Some(slot) = state.find(tenant, hash.word, key) else { return false };
        let (entry, table) = (&state.slab[slot], self.segments.load());
        if !entry.is_finished() || entry.is_referenced() || entry.successor().is_some() {
            return false;
        }
        let is_here = |r: &Replica| table.live(r.segment).is_some_and(|segment| segment.info().name == from);
        let all = entry.replicas.as_slice();
        let elsewhere = |r: &Replica| r.is_complete() && table.readable(r.segment).is_some() && !is_here(r);
        if !all.iter().any(is_here) || !all.iter().any(elsewhere) {
            return false;
        }
        self.drop_replicas(&mut state, slot, Leave::Readable, now, is_here, &mut Effects::default());
        true
    }

    /// Plans another copy of a hot object: from a replica chosen by a stable hash, to a segment that holds none, on another
    /// host if there is one, least used, and below 85 % afterwards.
    ///
    /// # Errors
    /// [`NoPlan`]; nothing changed then.
    pub fn plan_dynamic(&self, call: &DynamicCall<'_>) -> Result<DynamicPlan, NoPlan> {
        let hash = self.hash(call.tenant, call.key);
        let mut state = self.shards[hash.shard].state.write();
        let slot = state.find(call.tenant, hash.word, call.key).ok_or(NoPlan::Absent)?;
        let (entry, table) = (&state.slab[slot], self.segments.load());
        let view = ObjectView::readable(entry, &table).ok_or(NoPlan::Absent)?;
        let waits = |copying: &Copying| matches!(copying, Copying::Planned(plan) if plan.until > call.now);
        let is_taken = entry.is_referenced() || entry.successor().is_some();
        if is_taken || entry.extras().and_then(|e| e.copy.as_deref()).is_some_and(waits) {
            return Err(NoPlan::Busy);
        }
        if entry.replicas.as_slice().len() >= call.max_replicas as usize {
            return Err(NoPlan::Enough);
        }
        let by_hash = view.replicas().min_by_key(|replica| fnv(replica.segment.info().name.as_bytes(), call.key));
        let source = source_of(by_hash.ok_or(NoPlan::Absent)?.segment);
        let target = dynamic_target(entry, &view, &table, call.key).ok_or(NoPlan::NoTarget)?;
        let lease = CopyLease { id: call.lease, epoch: entry.generation().0.get() };
        let plan = Plan {
            lease,
            source: source.segment.clone(),
            target: target.clone(),
            client: source.owner,
            until: call.until,
        };
        set_copying(&mut state.slab[slot], Some(Copying::Planned(plan)));
        Ok(DynamicPlan { lease, source, target })
    }

    /// Forgets a plan that nobody will carry out.
    pub fn drop_plan(&self, tenant: Tenant, key: &[u8], lease: CopyLease) {
        let hash = self.hash(tenant, key);
        let mut state = self.shards[hash.shard].state.write();
        let Some(slot) = state.find(tenant, hash.word, key) else { return };
        let copying = state.slab[slot].extras().and_then(|extras| extras.copy.as_deref());
        if matches!(copying, Some(Copying::Planned(plan)) if plan.lease == lease) {
            set_copying(&mut state.slab[slot], None);
        }
    }

    /// Whether all that lies in the mounted segments of a name is known: no directory of an earlier master is still unread.
    pub fn is_known(&self, name: &str) -> bool {
        let registry = self.segments.registry();
        registry.named(name).all(|segment| segment.feed().is_none_or(|feed| feed.is_live()))
    }

    /// How the mounted segments of a name stand, and how many there are. One that is being emptied counts before one that
    /// came later under the same name.
    pub fn look_at(&self, name: &str) -> Option<(SegmentStatus, u32)> {
        let registry = self.segments.registry();
        let of = |wanted: &dyn Fn(SegmentStatus) -> bool| {
            let mut found = registry.named(name).map(|segment| segment.status()).filter(|status| wanted(*status));
            let first = found.next()?;
            Some((first, 1 + found.count() as u32))
        };
        of(&|status| status != SegmentStatus::OK).or_else(|| of(&|_| true))
    }
}

pub(crate) fn source_of(segment: &MountedSegment) -> Source {
    Source { segment: segment.info().name.clone(), owner: segment.owner() }
}

fn has_room(group: &SegmentGroup, size: u64) -> bool {
    group.members.iter().any(|segment| segment.may_take(ByteLen(size)))
}

/// FNV-1a over two strings: the same in every process and build.
fn fnv(a: &[u8], b: &[u8]) -> u64 {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    a.iter().chain(b).fold(0xcbf2_9ce4_8422_2325, step)
}

/// Where another replica could go: as that of a hot object, but never to a host that has one while the pool has others.
pub(crate) fn other_place(entry: &Entry, view: &ObjectView<'_>, table: &SegmentTable) -> Option<String> {
    let name = dynamic_target(entry, view, table, entry.key.as_slice())?;
    let holds = |host: &str| view.replicas().any(|replica| replica.segment.info().host_id == host);
    let is_elsewhere = |segment: &Arc<MountedSegment>| {
        let host = &segment.info().host_id;
        !host.is_empty() && !holds(host)
    };
    let mut elsewhere = table.view.groups().iter().filter(|group| group.members.iter().any(is_elsewhere)).peekable();
    let has_others = elsewhere.peek().is_some();
    let goes_elsewhere = elsewhere.any(|group| group.name() == name);
    (goes_elsewhere || !has_others).then_some(name)
}

fn dynamic_target(entry: &Entry, view: &ObjectView<'_>, table: &SegmentTable, key: &[u8]) -> Option<String> {
    let host_of = |segment: &MountedSegment| segment.info().host_id.clone();
    let hosts: Vec<String> = view.replicas().map(|replica| host_of(replica.segment)).collect();
    let rank = |segment: &Arc<MountedSegment>| {
        let info = segment.info();
        let used = (segment.used().0 + entry.size) as f64 / info.size.max(1) as f64;
        let fits = used < DYNAMIC_USE_MAX && segment.may_take(ByteLen(entry.size));
        let same_host = info.host_id.is_empty() || hosts.contains(&info.host_id);
        fits.then_some((same_host, used, fnv(info.name.as_bytes(), key)))
    };
    let free =
        table.view.groups().iter().filter(|group| replica_at(entry.replicas.as_slice(), table, group.name()).is_none());
    let ranked = free.flat_map(|group| &group.members).filter_map(|segment| Some((rank(segment)?, segment)));
    let best = ranked.min_by(|(a, _), (b, _)| a.0.cmp(&b.0).then(a.1.total_cmp(&b.1)).then(a.2.cmp(&b.2)))?;
    Some(best.1.info().name.clone())
}
