//! How much memory each client has reserved and not filled: no client takes all of it from the others.
//!
//! **Problem.** Whoever may write can begin writes until no space is left, end none of them, and revoke them too: their
//! space rests until no writer can write to it any more, ten minutes where no node confirms it. Nobody else could write then.
//!
//! **Rule.** Counted for a client are its unfinished writes, and extents that rest because it may still write to them. A write
//! counts for 4 KiB at least, so that the number of writes is bounded too. A client that has anything so far begins no
//! write with which it would have more than its [share](crate::CatalogSettings::unfinished_per_client).
//!
//! **Shape.** One number for each client, in a table of fixed size that clients are scattered over by a hash with a secret
//! seed: no list that grows with ids somebody makes up. Two clients in one place share a share. Batches are counted
//! once, at their end; so a number may be a moment late, or below zero for a moment.

use yb_types::{ByteLen, ClientId};

use crate::entry::Entry;
use crate::sync::atomic::{AtomicU64, Ordering};

/// Places of the table; a power of two.
const PLACES: usize = 4096;
/// What a write counts for at least.
const WRITE_MIN: u64 = 4096;
/// Where nothing is set, a client may always have this much.
const ALWAYS: u64 = 16 << 30;

/// A client's place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Account(u16);

/// The table.
pub(crate) struct Shares {
    /// Bytes, as two's complement: a moment below zero is possible.
    places: Box<[AtomicU64]>,
    seed: u64,
}

impl Shares {
    pub fn new(seed: u64) -> Self {
        Shares { places: (0..PLACES).map(|_| AtomicU64::new(0)).collect(), seed }
    }

    /// Where a client is counted.
    pub fn account(&self, client: ClientId) -> Account {
        let mixed = |word: u64| (word ^ self.seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
        let hash = mixed(mixed(client.0.first) ^ client.0.second);
        Account((hash as usize % PLACES) as u16)
    }

    fn place(&self, account: Account) -> &AtomicU64 {
        &self.places[usize::from(account.0) % PLACES]
    }

    /// Bytes that clients of this account have reserved and not filled.
    pub fn open(&self, account: Account) -> u64 {
        u64::try_from(self.place(account).load(Ordering::Relaxed).cast_signed()).unwrap_or(0)
    }

    /// It has more.
    pub fn add(&self, account: Account, bytes: u64) {
        if bytes > 0 {
            self.place(account).fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// It has less.
    pub fn sub(&self, account: Account, bytes: u64) {
        if bytes > 0 {
            self.place(account).fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// The most that one account has.
    pub fn largest(&self) -> ByteLen {
        let all = (0..PLACES).map(|at| self.open(Account(at as u16)));
        ByteLen(all.max().unwrap_or(0))
    }

    /// The bytes of all accounts together, to compare with what is there.
    pub fn sum(&self) -> u64 {
        self.places.iter().fold(0, |sum, place| sum.wrapping_add(place.load(Ordering::Relaxed)))
    }
}

/// What an unfinished write counts for.
pub(crate) fn weight(entry: &Entry) -> u64 {
    weight_of(entry.memory_bytes())
}

/// The same, of the bytes of all its replicas.
pub(crate) fn weight_of(bytes: u64) -> u64 {
    bytes.max(WRITE_MIN)
}

/// The most that one client may have, in a pool of that capacity.
pub(crate) fn limit(setting: Option<ByteLen>, capacity: ByteLen) -> u64 {
    setting.map_or_else(|| ALWAYS.max(capacity.0 / 2), |bytes| bytes.0)
}

#[cfg(test)]
mod tests {
    use yb_types::Uuid;

    use super::*;

    #[test]
    fn each_client_is_counted_for_itself_and_may_be_below_zero_for_a_moment() {
        let shares = Shares::new(7);
        let [one, other] = [1, 2].map(|second| shares.account(ClientId(Uuid { first: 3, second })));
        assert_ne!(one, other);
        shares.sub(one, 10);
        assert_eq!((shares.open(one), shares.largest()), (0, ByteLen(0)));
        shares.add(one, 30);
        shares.add(other, 5);
        assert_eq!((shares.open(one), shares.open(other), shares.largest().0, shares.sum()), (20, 5, 20, 25));
    }

    #[test]
    fn made_up_ids_are_scattered() {
        let shares = Shares::new(1);
        for n in 0..PLACES as u64 {
            shares.add(shares.account(ClientId(Uuid { first: 0, second: n })), 1);
        }
        assert!(shares.largest().0 < 16, "{} of {PLACES} ids in one place", shares.largest().0);
    }

    #[test]
    fn without_a_setting_half_of_the_memory_but_never_little() {
        assert_eq!(limit(None, ByteLen(1 << 20)), ALWAYS);
        assert_eq!(limit(None, ByteLen(1 << 40)), 1 << 39);
        assert_eq!(limit(Some(ByteLen(7)), ByteLen(1 << 40)), 7);
    }
}
