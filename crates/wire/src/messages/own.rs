//! Functions of our own; no peer has them.

use yb_pack::Pack;
use yb_types::ClientId;

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
