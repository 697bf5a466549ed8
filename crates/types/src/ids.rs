//! Identifiers. One newtype per idea, so that two of them cannot be swapped by accident.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use yb_pack::Pack;

/// A pair of u64, the peer's form of a UUID. Text form: the two decimal numbers joined by `-`.
///
/// ```
/// use yb_types::Uuid;
/// let id: Uuid = "12-34".parse().unwrap();
/// assert_eq!(id, Uuid { first: 12, second: 34 });
/// assert_eq!(id.to_string(), "12-34");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Pack)]
#[pack(memory_copied, name = "UUID")]
pub struct Uuid {
    /// First half.
    pub first: u64,
    /// Second half.
    pub second: u64,
}

impl Uuid {
    /// The id that means "none".
    pub const NIL: Uuid = Uuid { first: 0, second: 0 };

    /// True for `{0,0}`.
    pub fn is_nil(self) -> bool {
        self == Self::NIL
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.second)
    }
}

/// The text was not two decimal u64 joined by `-`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an id of the form FIRST-SECOND (two decimal numbers): {0:?}")]
pub struct ParseUuidError(String);

impl FromStr for Uuid {
    type Err = ParseUuidError;
    fn from_str(s: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (first, second) = s.split_once('-')?;
            Some(Uuid { first: first.parse().ok()?, second: second.parse().ok()? })
        };
        parse().ok_or_else(|| ParseUuidError(s.to_owned()))
    }
}

macro_rules! uuid_newtype {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Pack)]
        #[pack(transparent, name = "UUID")]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

uuid_newtype! {
    /// A client process: made by the client, random per process.
    ClientId
}
uuid_newtype! {
    /// A mounted segment: made by the client that owns the memory.
    SegmentId
}

/// A replica: a counter of the master, never reused within a process. The peer's master starts at 1; ours at a random
/// number from [`ReplicaId::NEVER_REUSED`] on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Pack)]
#[pack(transparent, name = "u64")]
pub struct ReplicaId(pub u64);

impl ReplicaId {
    /// The least id of a master that gives no id a second time, not even in another life, and lets nobody write to a
    /// replica that is complete.
    pub const NEVER_REUSED: u64 = 1 << 62;

    /// Whether the id stands for the same bytes for ever.
    pub fn is_never_reused(self) -> bool {
        self.0 >= Self::NEVER_REUSED
    }
}

/// One write of an object. Every put and upsert makes a new one; late messages of an older one change nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub NonZeroU64);
