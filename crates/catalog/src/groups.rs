//! Groups: objects of a tenant that a writer named together. A read of one renews the leases of all; eviction takes all
//! that it may or none.
//!
//! **Problem.** The members of a group live in many shards, and no call holds two. So what they share lies in one small
//! record that every member points to: renewing all leases is one atomic maximum, whatever the size of the group.
//!
//! **Eviction** is decided by one compare-and-swap on [`Group::read_until`]: it succeeds only while no member has a
//! lease. From that moment readers of the members that go find nothing, and the members are taken out one shard after
//! the other. A reader that was earlier makes the swap fail, so the group stays whole.
//!
//! **Invariants**
//! - `read_until` is not before the end of any member's own lease (except while the group is leaving);
//! - a group is in the table while an entry points to it, finished or not; its members are the finished ones;
//! - the locks here are taken under a shard's lock, never the other way round.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use foldhash::fast::FixedState;
use yb_types::MonotonicTime;

use crate::key::Tenant;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One read: what it grants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LeaseGrant {
    pub now: MonotonicTime,
    pub until: MonotonicTime,
}

impl LeaseGrant {
    /// Whether a lease that ends then has less than half of its time left.
    fn is_stale(&self, end: MonotonicTime) -> bool {
        let half = self.until.0.saturating_sub(self.now.0) / 2;
        end.0 < self.now.0.saturating_add(half)
    }
}

/// What eviction takes of a group that leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// Soft-pinned members stay.
    ButPinned,
    /// Soft-pinned members go too.
    WithPinned,
}

/// What the members of a group share.
#[derive(Debug)]
pub(crate) struct Group {
    tenant: Tenant,
    id: Box<str>,
    /// The lease that every member has which was one when it was granted.
    lease: AtomicU64,
    /// No member is leased longer; or one of [`LEAVING`].
    read_until: AtomicU64,
    /// Somebody joined since the lease was granted.
    joined: AtomicBool,
    roster: Mutex<Roster>,
}

#[derive(Debug, Default)]
struct Roster {
    /// Entries that point to the group.
    users: u64,
    /// Of these, the finished ones: shard and slot in one word.
    members: BTreeSet<u64>,
}

/// Words of `read_until` above every time: the group is being evicted, without and with what has a soft pin.
const LEAVING: [u64; 2] = [u64::MAX - 1, u64::MAX];

impl Group {
    fn new(tenant: Tenant, id: &str) -> Self {
        Group {
            tenant,
            id: id.into(),
            lease: AtomicU64::new(0),
            read_until: AtomicU64::new(0),
            joined: AtomicBool::new(false),
            roster: Mutex::default(),
        }
    }

    /// Its name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// A number for its name, for eviction policies: FNV-1a.
    pub fn number(&self) -> u64 {
        self.id
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
    }

    /// Whether a member is leased, or the group is leaving already.
    pub fn is_held(&self, now: MonotonicTime) -> bool {
        self.read_until.load(Ordering::Acquire) > now.0
    }

    /// A member whose lease ended at `had` is read. Answers how the group is leaving, if it is: then only members that
    /// stay may be read.
    pub fn renew(&self, had: MonotonicTime, grant: LeaseGrant) -> Option<Leaving> {
        if self.read_until.load(Ordering::Relaxed) < grant.until.0 {
            self.read_until.fetch_max(grant.until.0, Ordering::AcqRel);
        }
        match self.read_until.load(Ordering::Acquire) {
            word if word == LEAVING[0] => return Some(Leaving::ButPinned),
            word if word == LEAVING[1] => return Some(Leaving::WithPinned),
            _ => {}
        }
        if self.lease.load(Ordering::Relaxed) < grant.until.0
            && (grant.is_stale(had) || self.joined.load(Ordering::Relaxed))
        {
            self.joined.store(false, Ordering::Relaxed);
            self.lease.fetch_max(grant.until.0, Ordering::Relaxed);
        }
        None
    }

    /// Begins to take the group away; `false` when a member is leased or somebody else is at it.
    pub fn begin_to_leave(&self, leaving: Leaving, now: MonotonicTime) -> bool {
        let word = match leaving {
            Leaving::ButPinned => LEAVING[0],
            Leaving::WithPinned => LEAVING[1],
        };
        let old = self.read_until.load(Ordering::Relaxed);
        old <= now.0 && self.read_until.compare_exchange(old, word, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Ends what [`begin_to_leave`](Self::begin_to_leave) began.
    pub fn end_to_leave(&self) {
        self.read_until.store(0, Ordering::SeqCst);
        self.read_until.fetch_max(self.lease.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// A member that stays is read while the group is leaving: whoever is later, this call or the end of the leaving,
    /// sees the other.
    pub fn renew_while_leaving(&self, grant: LeaseGrant) {
        self.lease.fetch_max(grant.until.0, Ordering::SeqCst);
        if !LEAVING.contains(&self.read_until.load(Ordering::SeqCst)) {
            self.read_until.fetch_max(grant.until.0, Ordering::SeqCst);
        }
    }

    /// The members now: shard and slot in one word each.
    pub fn members(&self) -> Vec<u64> {
        self.roster.lock().members.iter().copied().collect()
    }
}

/// What an entry knows of its group.
#[derive(Debug)]
pub(crate) struct Membership {
    pub group: Arc<Group>,
    /// The group's lease when the object joined: a later one is its lease too.
    joined_at: u64,
}

impl Membership {
    pub fn new(group: Arc<Group>) -> Self {
        Membership { group, joined_at: u64::MAX }
    }

    /// When the lease ends that reads of other members granted to this one.
    pub fn lease_end(&self) -> MonotonicTime {
        let lease = self.group.lease.load(Ordering::Relaxed);
        MonotonicTime(if lease > self.joined_at { lease } else { 0 })
    }
}

/// Tables of groups by name, each under its own lock.
const TABLES: usize = 64;

type ByName = HashMap<Box<str>, Arc<Group>, FixedState>;

/// All groups of the catalog.
pub(crate) struct Groups {
    tables: Box<[Mutex<BTreeMap<Tenant, ByName>>]>,
    hasher: FixedState,
}

impl Groups {
    pub fn new(seed: u64) -> Self {
        Groups { tables: (0..TABLES).map(|_| Mutex::default()).collect(), hasher: FixedState::with_seed(seed) }
    }

    /// The group of a name, if there is one.
    pub fn find(&self, tenant: Tenant, id: &str) -> Option<Arc<Group>> {
        self.table(id).lock().get(&tenant)?.get(id).cloned()
    }

    /// The group of a name, for one more entry that points to it.
    pub fn enter(&self, tenant: Tenant, id: &str) -> Membership {
        let mut table = self.table(id).lock();
        let by_name = table.entry(tenant).or_insert_with(|| HashMap::with_hasher(self.hasher.clone()));
        let group = match by_name.get(id) {
            Some(group) => Arc::clone(group),
            None => Arc::clone(by_name.entry(id.into()).or_insert_with(|| Arc::new(Group::new(tenant, id)))),
        };
        group.roster.lock().users += 1;
        Membership::new(group)
    }

    /// An entry became readable: it is a member from here on.
    pub fn join(&self, membership: &mut Membership, member: u64) {
        let group = &membership.group;
        membership.joined_at = group.lease.load(Ordering::Relaxed);
        group.roster.lock().members.insert(member);
        group.joined.store(true, Ordering::Relaxed);
    }

    /// An entry goes; the group goes with the last one.
    pub fn leave(&self, membership: &Membership, member: u64) {
        let group = &membership.group;
        let mut table = self.table(&group.id).lock();
        let last = {
            let mut roster = group.roster.lock();
            roster.members.remove(&member);
            roster.users = roster.users.saturating_sub(1);
            roster.users == 0
        };
        if last && let Some(by_name) = table.get_mut(&group.tenant) {
            by_name.remove(&group.id);
            if by_name.is_empty() {
                table.remove(&group.tenant);
            }
        }
    }

    /// Groups that exist.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.tables.iter().map(|table| table.lock().values().map(HashMap::len).sum::<usize>()).sum()
    }

    fn table(&self, id: &str) -> &Mutex<BTreeMap<Tenant, ByName>> {
        use std::hash::BuildHasher;
        &self.tables[self.hasher.hash_one(id) as usize % TABLES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: u64 = 100;

    fn at(now: u64) -> LeaseGrant {
        LeaseGrant { now: MonotonicTime(now), until: MonotonicTime(now + TTL) }
    }

    #[test]
    fn a_read_renews_all_members_when_half_of_its_lease_is_gone_or_somebody_joined() {
        let groups = Groups::new(1);
        let (mut a, mut b) = (groups.enter(Tenant::DEFAULT, "g"), groups.enter(Tenant::DEFAULT, "g"));
        groups.join(&mut a, 1);
        groups.join(&mut b, 2);
        assert_eq!(b.group.renew(MonotonicTime(0), at(1000)), None);
        assert_eq!(a.lease_end(), MonotonicTime(1100));
        a.group.renew(MonotonicTime(1100), at(1050));
        assert_eq!(b.lease_end(), MonotonicTime(1100), "half of the lease is left");
        a.group.renew(MonotonicTime(1100), at(1051));
        assert_eq!(b.lease_end(), MonotonicTime(1151));
        let mut c = groups.enter(Tenant::DEFAULT, "g");
        groups.join(&mut c, 3);
        assert_eq!(c.lease_end(), MonotonicTime(0), "an earlier lease is not its own");
        a.group.renew(MonotonicTime(1151), at(1052));
        assert_eq!(c.lease_end(), MonotonicTime(1152), "the newcomer is covered at once");
    }

    #[test]
    fn a_group_leaves_only_when_nobody_reads_and_readers_learn_of_it() {
        let groups = Groups::new(1);
        let mut a = groups.enter(Tenant::DEFAULT, "g");
        groups.join(&mut a, 1);
        a.group.renew(MonotonicTime(0), at(1000));
        assert!(a.group.is_held(MonotonicTime(1099)));
        assert!(!a.group.begin_to_leave(Leaving::ButPinned, MonotonicTime(1099)));
        assert!(a.group.begin_to_leave(Leaving::ButPinned, MonotonicTime(1100)));
        assert!(!a.group.begin_to_leave(Leaving::ButPinned, MonotonicTime(1100)), "one at a time");
        assert_eq!(a.group.renew(MonotonicTime(0), at(1200)), Some(Leaving::ButPinned));
        a.group.end_to_leave();
        assert!(!a.group.is_held(MonotonicTime(1100)), "a read that was refused holds nothing");
        assert!(a.group.begin_to_leave(Leaving::WithPinned, MonotonicTime(1100)));
        a.group.renew_while_leaving(at(1200));
        a.group.end_to_leave();
        assert!(a.group.is_held(MonotonicTime(1299)) && !a.group.is_held(MonotonicTime(1300)));
        groups.leave(&a, 1);
        assert_eq!(groups.len(), 0);
    }

    #[test]
    fn a_group_lives_as_long_as_an_entry_points_to_it() {
        let groups = Groups::new(1);
        let (mut a, b) = (groups.enter(Tenant::DEFAULT, "g"), groups.enter(Tenant::DEFAULT, "g"));
        let other = groups.enter(Tenant(1), "g");
        assert!(Arc::ptr_eq(&a.group, &b.group) && !Arc::ptr_eq(&a.group, &other.group));
        groups.join(&mut a, 7);
        assert_eq!(a.group.members(), [7]);
        groups.leave(&a, 7);
        assert_eq!((b.group.members().len(), groups.len()), (0, 2));
        groups.leave(&b, 8);
        assert_eq!(groups.len(), 1);
    }
}
