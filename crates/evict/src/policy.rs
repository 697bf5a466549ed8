//! What the master can tell a policy, and what it asks of it.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use yb_types::MonotonicTime;

use crate::chain::Chain;
use crate::keyed::Keyed;
use crate::lru::Lru;
use crate::near_lru::NearLru;
use crate::s3fifo::S3Fifo;

/// A key, by a number that stands for it: a 64-bit hash of tenant and key, or the id of a block in a trace. It need not
/// be well mixed. Two keys with one number would share their fate, never their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(pub u64);

/// Where the caller keeps a resident key: a small number, which is used again later, and which of the writes that were
/// kept there. A policy keeps its own facts under the same number and so needs no index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slot {
    /// Dense: memory grows with the largest.
    pub number: u32,
    /// Another for each write of the place.
    pub tag: NonZeroU32,
}

impl Slot {
    /// A slot; the tag 0 counts as 1.
    pub fn new(number: u32, tag: u32) -> Self {
        Slot { number, tag: NonZeroU32::new(tag).unwrap_or(NonZeroU32::MIN) }
    }
}

/// One key of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// It is there.
    Here(Slot),
    /// It is not.
    Missing(Key),
}

/// A key that became readable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Newcomer {
    /// Where it is kept.
    pub slot: Slot,
    /// Which it is.
    pub key: Key,
}

/// The order in which keys are given up.
///
/// Consecutive keys of a call are taken for a prefix chain: each is worth nothing without the one before it. A key that
/// comes twice is a second touch.
pub trait Policy: Send {
    /// Keys were looked up (exist, get), in the order of the call.
    fn looked_up(&mut self, keys: &[Seen], now: MonotonicTime);

    /// Keys became readable, in the order of the call. One that is known already counts as touched; a new write of a
    /// place takes the place of the old one. `group`: number of the group that the client named; a batch of a group
    /// continues where the group's last batch ended.
    fn inserted(&mut self, keys: &[Newcomer], group: Option<u64>, now: MonotonicTime);

    /// A key left for another reason than eviction. One that is not known is ignored.
    fn removed(&mut self, slot: Slot);

    /// The next victim, which the policy forgets thereby, with the bytes that come free. `None` when nothing may go
    /// or the budget of `victims` is used up. What `victims` protects stays, behind others.
    fn victim(&mut self, now: MonotonicTime, victims: &mut Victims<'_>) -> Option<(Slot, u64)>;

    /// Victims until `need` bytes are free, nothing more may go, or the budget is used up.
    fn victims(&mut self, need: u64, now: MonotonicTime, victims: &mut Victims<'_>) -> Vec<Slot> {
        let (mut slots, mut freed) = (Vec::new(), 0u64);
        while freed < need
            && let Some((slot, bytes)) = self.victim(now, victims)
        {
            slots.push(slot);
            freed = freed.saturating_add(bytes);
        }
        slots
    }

    /// Keys that it holds.
    fn len(&self) -> usize;

    /// Whether it holds no key.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many keys a full pool of `capacity` equal keys is to give up, beyond what puts evict for themselves.
    fn surplus(&self, _capacity: usize) -> usize {
        0
    }

    /// Nodes, links and table cells touched so far: the cost, free of clocks.
    fn steps(&self) -> u64;
}

/// What the owner of the keys says of a candidate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes, and frees so many bytes.
    Goes {
        /// Which key it was.
        key: Key,
        /// What comes free.
        bytes: u64,
    },
    /// A lease or a pin protects it.
    Protected,
    /// It left already, and its removal is not told yet.
    Gone,
}

/// The owner of the keys, as a policy sees it while it looks for a victim.
pub trait Judge {
    /// Decides on one candidate. What it lets go is out of the policy's hands when this returns.
    fn judge(&mut self, slot: Slot) -> Verdict;

    /// These will probably be asked for next: time to fetch from main memory what that takes.
    fn soon(&mut self, _slots: &[Slot]) {}
}

impl<F: FnMut(Slot) -> Verdict> Judge for F {
    fn judge(&mut self, slot: Slot) -> Verdict {
        self(slot)
    }
}

/// What may be evicted, and how many keys may be looked at for it.
pub struct Victims<'a> {
    budget: u32,
    judge: &'a mut dyn Judge,
}

impl<'a> Victims<'a> {
    /// No more than `budget` keys are shown to `judge`.
    pub fn new(budget: u32, judge: &'a mut dyn Judge) -> Self {
        Victims { budget, judge }
    }

    /// Whether another key may be looked at.
    pub fn left(&self) -> bool {
        self.budget > 0
    }

    /// How many more keys may be looked at.
    pub fn budget(&self) -> u32 {
        self.budget
    }

    /// Asks for one key; uses one of the budget.
    pub fn judge(&mut self, slot: Slot) -> Verdict {
        self.budget = self.budget.saturating_sub(1);
        self.judge.judge(slot)
    }

    /// Tells the owner which keys will probably be asked for next.
    pub fn soon(&mut self, slots: &[Slot]) {
        self.judge.soon(slots);
    }
}

impl fmt::Debug for Victims<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Victims").field("budget", &self.budget).finish_non_exhaustive()
    }
}

/// The policies, by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyKind {
    /// [`Chain`], ours.
    #[default]
    Chain,
    /// [`Lru`].
    Lru,
    /// [`NearLru`], what the peer does.
    NearLru,
    /// [`S3Fifo`].
    S3Fifo,
}

impl PolicyKind {
    /// All of them, the default one first.
    pub const ALL: [PolicyKind; 4] = [PolicyKind::Chain, PolicyKind::Lru, PolicyKind::NearLru, PolicyKind::S3Fifo];

    /// The name on a command line.
    pub fn name(self) -> &'static str {
        match self {
            PolicyKind::Chain => "chain",
            PolicyKind::Lru => "lru",
            PolicyKind::NearLru => "near-lru",
            PolicyKind::S3Fifo => "s3-fifo",
        }
    }

    /// A policy without keys.
    pub fn build(self) -> Box<dyn Policy> {
        match self {
            PolicyKind::Chain => Box::new(Chain::new()),
            PolicyKind::Lru => Box::new(Lru::new()),
            PolicyKind::NearLru => Box::new(NearLru::new()),
            PolicyKind::S3Fifo => Box::new(S3Fifo::new()),
        }
    }

    /// The same for callers that keep no places.
    pub fn keyed(self) -> Keyed<Box<dyn Policy>> {
        Keyed::new(self.build())
    }
}

impl fmt::Display for PolicyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The text names no policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy(String);

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = PolicyKind::ALL.map(PolicyKind::name).join(", ");
        write!(f, "no policy is called {:?}; there are: {names}", self.0)
    }
}

impl std::error::Error for UnknownPolicy {}

impl FromStr for PolicyKind {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        PolicyKind::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways_and_an_unknown_one_lists_them() {
        for kind in PolicyKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let text = "lfu".parse::<PolicyKind>().unwrap_err().to_string();
        assert!(PolicyKind::ALL.iter().all(|kind| text.contains(kind.name())), "{text}");
    }
}
