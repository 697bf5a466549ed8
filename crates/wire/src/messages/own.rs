//! Functions of our own; no peer has them.

use yb_pack::{List, Pack};
use yb_types::{ClientId, SegmentId};

/// A node of ours introduces itself to a master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct HelloArgs<'a> {
    /// Who.
    pub client_id: ClientId,
    /// Version of the node.
    pub node_version: &'a str,
    /// What it can do: a bit each, meaning given by the crates that set them; unknown bits are ignored.
    pub capabilities: u64,
}

/// A master of ours introduces itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct HelloReply<'a> {
    /// Version of the master.
    pub master_version: &'a str,
    /// What it can do, as in [`HelloArgs`].
    pub capabilities: u64,
}

/// An extent whose put was given up; its writer may still write to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct QuiesceQuestion {
    /// The segment.
    pub segment_id: SegmentId,
    /// Absolute address in the owner's process.
    pub address: u64,
    /// Bytes that the writer was allowed to write.
    pub size: u64,
    /// The write that was given up.
    pub generation: u64,
    /// Who may still be writing.
    pub writer: ClientId,
}

/// A question answered with "nobody writes there any more, and nobody can begin to".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct QuiesceConfirmation {
    /// As asked.
    pub segment_id: SegmentId,
    /// As asked.
    pub address: u64,
    /// As asked.
    pub generation: u64,
}

/// A node tells what it can confirm and takes new questions.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct PollQuiesceArgs<'a> {
    /// The node.
    pub client_id: ClientId,
    /// Earlier questions that it can confirm. What it cannot confirm it keeps to itself: time decides.
    pub confirmed: List<'a, QuiesceConfirmation>,
    /// Most questions it takes.
    pub limit: u32,
}
