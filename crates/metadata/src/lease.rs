//! Records that go away with their owner.

use std::time::Duration;

use yb_env::Rng;

/// One life of one engine, and how long its records stay when it no longer says that it lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    instance: String,
    ttl: Duration,
}

impl Lease {
    /// A new life. `ttl` is rounded up to seconds; at least one.
    pub fn new(ttl: Duration, rng: &mut Rng) -> Self {
        let ttl = Duration::from_secs(ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0)).max(Duration::from_secs(1));
        Lease { instance: format!("{:016x}{:016x}", rng.next_u64(), rng.next_u64()), ttl }
    }

    /// 32 hex digits that no other life has.
    pub fn instance(&self) -> &str {
        &self.instance
    }

    /// How long records stay without renewal; whole seconds.
    pub fn ttl(&self) -> Duration {
        self.ttl
    }
}

/// What became of the records of a lease when it was renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// They stay.
    Kept,
    /// They, or some of them, are gone or somebody else's: write them again, or give up the name.
    Lost,
    /// The store has no leases: records stay until they are removed.
    Unknown,
}
