//! Which of a client's writes of a key an end or a revoke is about.
//!
//! **Problem.** The wire's own requests name key and client. Of two writes of one client to one key, the second one's bytes
//! would be published, or its space given out, by what is said late of the first.
//!
//! **Rule.** A client of ours names the write by the first of the replicas that its start was answered with: that number is
//! the write's generation, and no other write ever has it. For a client that names none, the one write that it may have
//! open of a key is meant (see [`overtaken`](crate::overtaken)), which holds as long as no message of an earlier one is
//! late.

use yb_types::{ClientId, ErrorCode, MonotonicTime, ReplicaId};

use crate::entry::Entry;
use crate::overtaken::Overtaken;
use crate::planted::{Fault, planted};

/// How a write is named.
pub(crate) trait Naming: Copy {
    /// Whether this entry of the caller's is meant.
    fn names(self, entry: &Entry) -> bool;

    /// What to answer if a write is meant that is gone without its writer's doing; it is answered for herewith.
    fn settle(self, overtaken: &mut Overtaken, of: (u32, ClientId), now: MonotonicTime) -> Option<ErrorCode>;
}

/// No name: whatever the caller has under the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnyWrite;

impl Naming for AnyWrite {
    fn names(self, _entry: &Entry) -> bool {
        true
    }

    fn settle(
        self,
        overtaken: &mut Overtaken,
        (word, writer): (u32, ClientId),
        now: MonotonicTime,
    ) -> Option<ErrorCode> {
        overtaken.settle(word, writer, now)
    }
}

impl Naming for ReplicaId {
    fn names(self, entry: &Entry) -> bool {
        // Of an answer that waited, the first replica may have been lost before it was given.
        let is_one = || entry.replicas.as_slice().iter().any(|replica| replica.id() == self);
        entry.generation().0.get() == self.0 || is_one() || planted(Fault::AnyWrite)
    }

    fn settle(
        self,
        overtaken: &mut Overtaken,
        (word, writer): (u32, ClientId),
        now: MonotonicTime,
    ) -> Option<ErrorCode> {
        overtaken.settle_named((word, writer, self.0), now)
    }
}
