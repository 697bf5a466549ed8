//! What one tenant may use, and uses: a few words that change without a lock.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// No policy, or one that is being deleted: reads and removals work, writes do not.
const CLOSED: u64 = 0;

/// What is to be charged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Charge {
    /// Bytes in all its replicas.
    pub bytes: u64,
    /// Bytes that come free when this write ends, because it replaces an object.
    pub replaces: u64,
}

/// Why nothing was charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum QuotaMiss {
    /// The tenant is not registered, or on its way out.
    Closed,
    /// This many bytes too many.
    Deficit(u64),
    /// More than the whole quota: nothing that could be evicted makes it fit.
    LargerThanQuota,
}

/// The ledger of one tenant. Padded, so that tenants do not share a cache line.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Account {
    charged: AtomicU64,
    objects: AtomicU64,
    /// The effective quota plus one, or [`CLOSED`].
    limit: AtomicU64,
    rejected: AtomicU64,
    evicted_bytes: AtomicU64,
    /// The shard at which the next search for a victim begins.
    pub hand: AtomicU32,
}

impl Account {
    /// Counts an object and charges its replicas.
    pub fn open_object(&self, charge: Charge) -> Result<(), QuotaMiss> {
        self.objects.fetch_add(1, Ordering::SeqCst);
        self.charge(charge).inspect_err(|_| {
            self.objects.fetch_sub(1, Ordering::SeqCst);
        })
    }

    /// An object is gone with all its replicas.
    pub fn close_object(&self, bytes: u64) {
        self.refund(bytes);
        let before = self.objects.fetch_sub(1, Ordering::SeqCst);
        debug_assert!(before > 0, "more objects left than came");
    }

    /// Charges replicas of an object that is there.
    ///
    /// The count of objects and the charge change before the limit is looked at again, and a deletion closes the limit
    /// before it looks at them: one of the two sees the other.
    pub fn charge(&self, charge: Charge) -> Result<(), QuotaMiss> {
        let limit = self.limit.load(Ordering::SeqCst);
        let quota = limit.checked_sub(1).ok_or(QuotaMiss::Closed)?;
        let fits = |charged: u64| {
            let sum = charged.checked_add(charge.bytes)?;
            (sum.saturating_sub(charge.replaces) <= quota).then_some(sum)
        };
        match self.charged.fetch_update(Ordering::SeqCst, Ordering::Relaxed, fits) {
            Ok(_) if self.limit.load(Ordering::SeqCst) == CLOSED => {
                self.refund(charge.bytes);
                Err(QuotaMiss::Closed)
            }
            Ok(_) => Ok(()),
            Err(_) if charge.bytes > quota => Err(QuotaMiss::LargerThanQuota),
            Err(charged) => {
                let sum = charged.saturating_add(charge.bytes).saturating_sub(charge.replaces);
                Err(QuotaMiss::Deficit(sum.saturating_sub(quota).max(1)))
            }
        }
    }

    pub fn refund(&self, bytes: u64) {
        let before = self.charged.fetch_sub(bytes, Ordering::SeqCst);
        debug_assert!(before >= bytes, "refunded {bytes} of {before}");
    }

    pub fn charged(&self) -> u64 {
        self.charged.load(Ordering::SeqCst)
    }

    pub fn objects(&self) -> u64 {
        self.objects.load(Ordering::SeqCst)
    }

    /// Whether no object is there, nor one on its way.
    pub fn is_empty(&self) -> bool {
        self.objects() == 0 && self.charged() == 0
    }

    /// The effective quota, `None` when closed.
    pub fn quota(&self) -> Option<u64> {
        self.limit.load(Ordering::SeqCst).checked_sub(1)
    }

    pub fn set_quota(&self, quota: u64) {
        self.limit.store(quota.saturating_add(1), Ordering::SeqCst);
    }

    pub fn close(&self) {
        self.limit.store(CLOSED, Ordering::SeqCst);
    }

    /// Bytes above the quota; everything when closed.
    pub fn over(&self) -> u64 {
        self.charged().saturating_sub(self.quota().unwrap_or(0))
    }

    pub fn count_rejection(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    pub fn count_evicted(&self, bytes: u64) {
        self.evicted_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Writes refused for the quota, and bytes evicted for it, since the number was given to this tenant.
    pub fn totals(&self) -> (u64, u64) {
        (self.rejected.load(Ordering::Relaxed), self.evicted_bytes.load(Ordering::Relaxed))
    }

    /// Forgets the totals: another name gets the number.
    pub fn start_anew(&self) {
        self.rejected.store(0, Ordering::Relaxed);
        self.evicted_bytes.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charge(bytes: u64) -> Charge {
        Charge { bytes, replaces: 0 }
    }

    #[test]
    fn closed_until_it_has_a_quota() {
        let account = Account::default();
        assert_eq!(account.open_object(charge(0)), Err(QuotaMiss::Closed));
        account.set_quota(0);
        assert_eq!(account.open_object(charge(0)), Ok(()), "an empty object fits in no memory");
        assert_eq!(account.open_object(charge(1)), Err(QuotaMiss::LargerThanQuota));
        account.close_object(0);
        assert!(account.is_empty());
    }

    #[test]
    fn a_charge_ends_at_the_quota_and_a_miss_changes_nothing() {
        let account = Account::default();
        account.set_quota(100);
        account.open_object(charge(60)).unwrap();
        assert_eq!(account.open_object(charge(50)), Err(QuotaMiss::Deficit(10)));
        assert_eq!((account.charged(), account.objects()), (60, 1));
        assert_eq!(account.charge(charge(41)), Err(QuotaMiss::Deficit(1)));
        account.charge(charge(40)).unwrap();
        account.refund(40);
        account.set_quota(10);
        assert_eq!((account.over(), account.open_object(charge(5))), (50, Err(QuotaMiss::Deficit(55))));
    }

    #[test]
    fn a_replacement_needs_only_what_it_adds() {
        let account = Account::default();
        account.set_quota(100);
        account.open_object(charge(90)).unwrap();
        account.open_object(Charge { bytes: 95, replaces: 90 }).unwrap();
        account.close_object(90);
        assert_eq!(account.charged(), 95);
        assert_eq!(account.open_object(Charge { bytes: 101, replaces: 95 }), Err(QuotaMiss::LargerThanQuota));
    }
}
