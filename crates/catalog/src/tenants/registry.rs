//! Which names are tenants, and what each may use.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::sync::Mutex;
use arc_swap::ArcSwap;
use foldhash::fast::FixedState;
use yb_types::{ByteLen, DEFAULT_TENANT, ErrorCode, MonotonicTime};

use super::account::{Account, Charge, QuotaMiss};
use super::name::is_valid_tenant_name;
use super::order::Occupancy;
use super::shares::shares;
use crate::key::Tenant;
use crate::why::Usage;

/// A number rests this long before another name gets it, for calls that resolved the old name and are still on their
/// way to a shard.
const REST: Duration = Duration::from_secs(60);

/// Largest quota, as of the peer.
const QUOTA_MAX: u64 = (1 << 63) - 1;

/// Why a policy was not set or deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyRefusal {
    /// Multi-tenancy is off.
    #[error("multi-tenancy is off (setting enable_multi_tenants)")]
    SingleTenant,
    /// No such name can be a tenant's.
    #[error("a tenant's name must not be empty, begin with _ or hold control characters")]
    BadName,
    /// Not in 1 to 2^63 - 1.
    #[error("a tenant's quota must be in [1, 2^63 - 1] bytes")]
    BadQuota,
    /// No policy of that name.
    #[error("the tenant has no policy")]
    Unknown,
    /// It has objects.
    #[error("the tenant still has objects")]
    NotEmpty,
    /// No number is free. Retry when tenants that were deleted have rested for a minute.
    #[error("too many tenants")]
    TooMany,
}

impl PolicyRefusal {
    /// The peer's code.
    pub fn code(self) -> ErrorCode {
        match self {
            PolicyRefusal::SingleTenant => ErrorCode::UNAVAILABLE_IN_CURRENT_MODE,
            PolicyRefusal::BadName | PolicyRefusal::BadQuota => ErrorCode::INVALID_PARAMS,
            PolicyRefusal::Unknown => ErrorCode::OBJECT_NOT_FOUND,
            PolicyRefusal::NotEmpty => ErrorCode::TENANT_NOT_EMPTY,
            PolicyRefusal::TooMany => ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS,
        }
    }
}

/// How a tenant stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantQuota {
    /// Its name.
    pub name: Arc<str>,
    /// What the operator promised, in bytes; 0 without a policy.
    pub requested: u64,
    /// What it may use now: less than promised when the pool is too small.
    pub effective: u64,
    /// What its objects use.
    pub charged: u64,
    /// Its objects.
    pub objects: u64,
    /// Writes are refused.
    pub closed: bool,
    /// It uses more than it may.
    pub over: bool,
    /// The operator registered it; else it only has objects left.
    pub has_policy: bool,
    /// Writes refused for its quota.
    pub rejected: u64,
    /// Bytes evicted to keep it within its quota.
    pub evicted_bytes: u64,
}

/// Sums over all tenants with a policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantSums {
    /// Bytes that are shared out: all mounted segments.
    pub capacity: u64,
    /// Bytes promised.
    pub requested: u128,
    /// Bytes that tenants may use.
    pub effective: u64,
}

/// The tenants. Resolving a name and charging an account take no lock.
pub struct Tenants {
    multi: bool,
    accounts: Box<[Account]>,
    occupancy: Arc<Occupancy>,
    names: ArcSwap<Names>,
    register: Mutex<Register>,
    /// The capacity that the effective quotas were computed for.
    capacity: AtomicU64,
}

/// Both ways from name to number.
#[derive(Default)]
struct Names {
    by_name: HashMap<Arc<str>, Tenant, FixedState>,
    by_number: Vec<Option<Arc<str>>>,
}

/// What only changes of policies need.
#[derive(Default)]
struct Register {
    by_name: BTreeMap<Arc<str>, Registered>,
    /// Numbers of names that are gone, with the time from which another name may have them.
    resting: VecDeque<(Tenant, MonotonicTime)>,
    next: u16,
}

#[derive(Clone, Copy)]
struct Registered {
    tenant: Tenant,
    /// 0: no policy, only objects.
    requested: u64,
    /// A deletion is looking whether it is empty.
    blocked: bool,
}

impl Tenants {
    /// Only one tenant, whatever name a call gives.
    pub fn single() -> Self {
        Self::with(false, 0)
    }

    /// Up to `max` tenants besides the default one; none has a policy yet.
    pub fn multi(max: u16) -> Self {
        Self::with(true, max.min(Tenant::NOBODY.0 - 1))
    }

    fn with(multi: bool, max: u16) -> Self {
        let accounts = if multi { usize::from(max) + 1 } else { 0 };
        let tenants = Tenants {
            multi,
            occupancy: Arc::new(Occupancy::new(accounts)),
            accounts: (0..accounts).map(|_| Account::default()).collect(),
            names: ArcSwap::default(),
            register: Mutex::new(Register { next: 1, ..Register::default() }),
            capacity: AtomicU64::new(0),
        };
        tenants.show(&tenants.register.lock());
        tenants
    }

    /// Whether tenants are told apart.
    pub fn is_multi(&self) -> bool {
        self.multi
    }

    /// The tenant of a call that reads, ends, revokes or removes. A name that nobody registered is
    /// [`Tenant::NOBODY`], who has no objects.
    ///
    /// # Errors
    /// `INVALID_PARAMS` for what cannot be a name.
    pub fn reader(&self, name: &[u8]) -> Result<Tenant, ErrorCode> {
        if !self.multi || name.is_empty() {
            return Ok(Tenant::DEFAULT);
        }
        if !is_valid_tenant_name(name) {
            return Err(ErrorCode::INVALID_PARAMS);
        }
        Ok(self.resolve(name))
    }

    /// The tenant of a call that writes. Whoever is not registered is [`Tenant::NOBODY`], whose writes are refused with
    /// TENANT_NOT_REGISTERED.
    pub fn writer(&self, name: &[u8]) -> Tenant {
        if self.multi { self.resolve(name) } else { Tenant::DEFAULT }
    }

    fn resolve(&self, name: &[u8]) -> Tenant {
        let Ok(name) = std::str::from_utf8(name) else { return Tenant::NOBODY };
        self.names.load().by_name.get(name).copied().unwrap_or(Tenant::NOBODY)
    }

    /// The name of a tenant that is there.
    pub fn name(&self, tenant: Tenant) -> Option<Arc<str>> {
        self.names.load().by_number.get(usize::from(tenant.0)).cloned().flatten()
    }

    /// Counts an object of a tenant and charges its replicas.
    pub(crate) fn open_object(&self, tenant: Tenant, charge: Charge) -> Result<(), QuotaMiss> {
        if !self.multi {
            return Ok(());
        }
        self.account(tenant).ok_or(QuotaMiss::Closed)?.open_object(charge)
    }

    /// Charges more replicas of an object; give them back with [`refund`](Self::refund).
    pub(crate) fn charge(&self, tenant: Tenant, charge: Charge) -> Result<(), QuotaMiss> {
        if !self.multi {
            return Ok(());
        }
        self.account(tenant).ok_or(QuotaMiss::Closed)?.charge(charge)
    }

    /// Some replicas of an object are gone, or did not come.
    pub(crate) fn refund(&self, tenant: Tenant, bytes: u64) {
        if let Some(account) = self.account(tenant) {
            account.refund(bytes);
        }
    }

    /// An object is gone, with replicas of this many bytes.
    pub(crate) fn close_object(&self, tenant: Tenant, bytes: u64) {
        if let Some(account) = self.account(tenant) {
            account.close_object(bytes);
        }
    }

    /// The account of a tenant, while tenants are told apart.
    pub(crate) fn account(&self, tenant: Tenant) -> Option<&Account> {
        self.accounts.get(usize::from(tenant.0))
    }

    /// In which shards each tenant has objects.
    pub(crate) fn occupancy(&self) -> &Arc<Occupancy> {
        &self.occupancy
    }

    /// A write was refused for the quota.
    pub(crate) fn count_rejection(&self, tenant: Tenant) {
        if let Some(account) = self.account(tenant) {
            account.count_rejection();
        }
    }

    /// Whether writes of a tenant are refused whatever they ask for.
    pub(crate) fn is_closed(&self, tenant: Tenant) -> bool {
        self.multi && self.account(tenant).is_none_or(|account| account.quota().is_none())
    }

    /// Shares out another capacity. Costs the number of tenants when it changed, else nothing.
    pub(crate) fn set_capacity(&self, capacity: u64) {
        if self.multi && self.capacity.load(Ordering::Relaxed) != capacity {
            let register = self.register.lock();
            self.capacity.store(capacity, Ordering::Relaxed);
            self.share_out(&register);
        }
    }

    /// The tenants with more in use than `share` of their quota, with the bytes above that; those without a policy are
    /// left alone.
    pub(crate) fn above(&self, share: f64) -> Vec<(Tenant, u64)> {
        let register = self.register.lock();
        let above = register.by_name.values().filter(|known| known.requested > 0).filter_map(|known| {
            let account = self.account(known.tenant)?;
            let may = (account.quota()? as f64 * share) as u64;
            Some((known.tenant, account.charged().saturating_sub(may))).filter(|(_, bytes)| *bytes > 0)
        });
        above.collect()
    }

    /// The policies: name and bytes.
    pub fn policies(&self) -> BTreeMap<Arc<str>, u64> {
        let register = self.register.lock();
        let policies = register.by_name.iter().filter(|(_, known)| known.requested > 0);
        policies.map(|(name, known)| (Arc::clone(name), known.requested)).collect()
    }

    /// Whether a policy may be set.
    ///
    /// # Errors
    /// See [`PolicyRefusal`].
    pub fn check_policy(&self, name: &[u8], quota: u64) -> Result<(), PolicyRefusal> {
        if !self.multi {
            return Err(PolicyRefusal::SingleTenant);
        }
        if !is_valid_tenant_name(name) || std::str::from_utf8(name).is_err() {
            return Err(PolicyRefusal::BadName);
        }
        if quota == 0 || quota > QUOTA_MAX {
            return Err(PolicyRefusal::BadQuota);
        }
        Ok(())
    }

    /// Registers a tenant, or gives it another quota.
    ///
    /// # Errors
    /// See [`PolicyRefusal`]; nothing changed then.
    pub fn set_policy(&self, name: &str, quota: u64, now: MonotonicTime) -> Result<(), PolicyRefusal> {
        self.check_policy(name.as_bytes(), quota)?;
        let mut register = self.register.lock();
        self.sweep(&mut register, now);
        self.put(&mut register, name, quota, now)?;
        self.share_out(&register);
        self.show(&register);
        Ok(())
    }

    /// Makes the policies these and no others. A tenant that lost its policy and still has objects can be read and
    /// emptied, not written. Answers the names for which no number was free.
    ///
    /// # Errors
    /// The first name or quota that is not allowed; nothing changed then.
    pub fn set_policies(&self, all: &BTreeMap<String, u64>, now: MonotonicTime) -> Result<Vec<String>, PolicyRefusal> {
        for (name, quota) in all {
            self.check_policy(name.as_bytes(), *quota)?;
        }
        let mut register = self.register.lock();
        for (name, known) in &mut register.by_name {
            if !all.contains_key(&**name) {
                known.requested = 0;
            }
        }
        // Accounts close here, so that those that are empty can be swept out for the new names.
        self.share_out(&register);
        self.sweep(&mut register, now);
        let mut left_out = Vec::new();
        for (name, quota) in all {
            if self.put(&mut register, name, *quota, now).is_err() {
                left_out.push(name.clone());
            }
        }
        self.share_out(&register);
        self.show(&register);
        Ok(left_out)
    }

    fn put(&self, register: &mut Register, name: &str, quota: u64, now: MonotonicTime) -> Result<(), PolicyRefusal> {
        if let Some(known) = register.by_name.get_mut(name) {
            known.requested = quota;
            known.blocked = false;
            return Ok(());
        }
        let tenant = self.take_number(register, name, now).ok_or(PolicyRefusal::TooMany)?;
        if let Some(account) = self.account(tenant) {
            account.start_anew();
        }
        register.by_name.insert(name.into(), Registered { tenant, requested: quota, blocked: false });
        Ok(())
    }

    fn take_number(&self, register: &mut Register, name: &str, now: MonotonicTime) -> Option<Tenant> {
        if name == DEFAULT_TENANT {
            return Some(Tenant::DEFAULT);
        }
        // Those that rest longest first, so that a number lies still as long as possible.
        if register.resting.front().is_some_and(|(_, until)| *until <= now) {
            return register.resting.pop_front().map(|(tenant, _)| tenant);
        }
        let next = register.next;
        (usize::from(next) < self.accounts.len()).then(|| {
            register.next += 1;
            Tenant(next)
        })
    }

    /// First half of a deletion: refuses writes of the tenant from here on, if it has no object. Follow with
    /// [`forget`](Self::forget) or [`unblock`](Self::unblock).
    ///
    /// # Errors
    /// See [`PolicyRefusal`]; nothing changed then.
    pub fn block(&self, name: &str) -> Result<(), PolicyRefusal> {
        if !self.multi {
            return Err(PolicyRefusal::SingleTenant);
        }
        let mut register = self.register.lock();
        let known = register.by_name.get_mut(name).filter(|known| known.requested > 0).ok_or(PolicyRefusal::Unknown)?;
        known.blocked = true;
        let tenant = known.tenant;
        let account = self.account(tenant).ok_or(PolicyRefusal::Unknown)?;
        account.close();
        if account.is_empty() {
            return Ok(());
        }
        known.blocked = false;
        self.share_out(&register);
        Err(PolicyRefusal::NotEmpty)
    }

    /// Takes a deletion back.
    pub fn unblock(&self, name: &str) {
        let mut register = self.register.lock();
        if let Some(known) = register.by_name.get_mut(name) {
            known.blocked = false;
        }
        self.share_out(&register);
    }

    /// Second half of a deletion.
    pub fn forget(&self, name: &str, now: MonotonicTime) {
        let mut register = self.register.lock();
        if let Some(known) = register.by_name.get_mut(name) {
            known.requested = 0;
        }
        self.share_out(&register);
        self.sweep(&mut register, now);
        self.show(&register);
    }

    /// How one tenant stands; `None` for a name that is neither registered nor has objects.
    pub fn quota(&self, name: &str, now: MonotonicTime) -> Option<TenantQuota> {
        let mut register = self.register.lock();
        self.sweep(&mut register, now);
        let (name, known) = register.by_name.get_key_value(name)?;
        self.standing(name, known)
    }

    /// What a tenant uses, and may; `None` without a quota. Takes no lock.
    pub fn usage(&self, tenant: Tenant) -> Option<Usage> {
        let account = self.account(tenant)?;
        Some(Usage { used: ByteLen(account.charged()), limit: ByteLen(account.quota()?) })
    }

    /// How all tenants stand, by name.
    pub fn quotas(&self, now: MonotonicTime) -> Vec<TenantQuota> {
        let mut register = self.register.lock();
        self.sweep(&mut register, now);
        register.by_name.iter().filter_map(|(name, known)| self.standing(name, known)).collect()
    }

    /// Sums over all tenants.
    pub fn sums(&self) -> TenantSums {
        let register = self.register.lock();
        let quotas = register.by_name.values().filter_map(|known| self.account(known.tenant)?.quota());
        TenantSums {
            capacity: self.capacity.load(Ordering::Relaxed),
            requested: register.by_name.values().map(|known| u128::from(known.requested)).sum(),
            effective: quotas.fold(0, u64::saturating_add),
        }
    }

    fn standing(&self, name: &Arc<str>, known: &Registered) -> Option<TenantQuota> {
        let account = self.account(known.tenant)?;
        let (quota, (rejected, evicted_bytes)) = (account.quota(), account.totals());
        let has_policy = known.requested > 0;
        Some(TenantQuota {
            name: Arc::clone(name),
            requested: known.requested,
            effective: quota.unwrap_or(0),
            charged: account.charged(),
            objects: account.objects(),
            closed: quota.is_none(),
            over: !has_policy || account.over() > 0,
            has_policy,
            rejected,
            evicted_bytes,
        })
    }

    /// Computes every quota again.
    fn share_out(&self, register: &Register) {
        let open: Vec<&Registered> = register.by_name.values().filter(|known| known.requested > 0).collect();
        let requests: Vec<u64> = open.iter().map(|known| known.requested).collect();
        let shares = shares(&requests, self.capacity.load(Ordering::Relaxed));
        for known in register.by_name.values().filter(|known| known.requested == 0) {
            self.account(known.tenant).into_iter().for_each(Account::close);
        }
        for (known, share) in open.into_iter().zip(shares).filter(|(known, _)| !known.blocked) {
            self.account(known.tenant).into_iter().for_each(|account| account.set_quota(share));
        }
    }

    /// Forgets names that have neither a policy nor an object; their numbers rest.
    fn sweep(&self, register: &mut Register, now: MonotonicTime) {
        let accounts = &self.accounts;
        let is_gone = |known: &Registered| {
            known.requested == 0 && accounts.get(usize::from(known.tenant.0)).is_none_or(Account::is_empty)
        };
        let resting = &mut register.resting;
        let mut changed = false;
        register.by_name.retain(|_, known| {
            let gone = is_gone(known);
            if gone && known.tenant != Tenant::DEFAULT {
                resting.push_back((known.tenant, now + REST));
            }
            changed |= gone;
            !gone
        });
        if changed {
            self.show(register);
        }
    }

    /// Shows the names to those who resolve them.
    fn show(&self, register: &Register) {
        let default: Arc<str> = DEFAULT_TENANT.into();
        let mut names = Names::default();
        let known = register.by_name.iter().map(|(name, known)| (Arc::clone(name), known.tenant));
        for (name, tenant) in known.chain([(default, Tenant::DEFAULT)]) {
            let place = usize::from(tenant.0);
            if names.by_number.len() <= place {
                names.by_number.resize(place + 1, None);
            }
            names.by_number[place] = Some(Arc::clone(&name));
            names.by_name.insert(name, tenant);
        }
        self.names.store(Arc::new(names));
    }
}
