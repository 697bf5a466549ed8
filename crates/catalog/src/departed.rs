//! Which keys went lately, and why: so that a miss can be explained.
//!
//! A direct-mapped table of fingerprints, 1024 cells a shard, made when the first object leaves that shard. It is a
//! memory for statistics: a newer departure overwrites an older one in its cell, and one absent key in some millions
//! looks like another that left.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::key::{KeyHash, SHARDS};

const CELLS: usize = 1024;

/// Why a key is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absence {
    /// Nothing is known of it: it was never put, or left long ago.
    NeverSeen,
    /// Evicted to make room.
    Evicted,
    /// Its last segment went away.
    Lost,
    /// Somebody removed it.
    Removed,
}

/// The memory of all shards.
pub(crate) struct Departed(Box<[OnceLock<Box<[AtomicU32]>>]>);

impl Departed {
    pub fn new() -> Self {
        Departed((0..SHARDS).map(|_| OnceLock::new()).collect())
    }

    /// A fingerprint of 22 bits above the reason; the other 10 bits choose the cell.
    fn mark(hash: KeyHash, why: u32) -> u32 {
        (hash.word / CELLS as u32) << 2 | why
    }

    pub fn note(&self, hash: KeyHash, why: Absence) {
        let why = match why {
            Absence::NeverSeen => return,
            Absence::Evicted => 1,
            Absence::Lost => 2,
            Absence::Removed => 3,
        };
        let cells = self.0[hash.shard].get_or_init(|| (0..CELLS).map(|_| AtomicU32::new(0)).collect());
        cells[hash.word as usize % CELLS].store(Self::mark(hash, why), Ordering::Relaxed);
    }

    pub fn why(&self, hash: KeyHash) -> Absence {
        let Some(cells) = self.0[hash.shard].get() else { return Absence::NeverSeen };
        let mark = cells[hash.word as usize % CELLS].load(Ordering::Relaxed);
        match mark {
            _ if mark & !3 != Self::mark(hash, 0) => Absence::NeverSeen,
            _ if mark & 3 == 1 => Absence::Evicted,
            _ if mark & 3 == 2 => Absence::Lost,
            _ if mark & 3 == 3 => Absence::Removed,
            _ => Absence::NeverSeen,
        }
    }
}
