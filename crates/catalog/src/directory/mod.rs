//! Directories: what a node keeps of the objects in its segments, so that another master can know them.
//!
//! The master tells the node what was published and what is to be struck out, in numbered batches ([`feed`], [`tell`]). A
//! master that starts gets it back and takes it over ([`adopt`]), unless it knows better ([`relearning`]). For segments of
//! clients that keep no directory, a log of the master may do the same ([`logged`]). What went while a node was away is kept
//! from coming back with it by a roster of those who are up to date ([`roster`]).
//!
//! Invariants:
//! - an extent of an object that was readable, in a segment with a directory, comes free only after a batch that strikes it
//!   out was acknowledged: so a directory never names bytes of another write;
//! - nothing is placed in a segment whose directory was not read, or thrown away;
//! - a key that this master published or gave up is never taken over;
//! - a directory is read only if it is in the freshest roster that is known;
//! - what was not offered, as its node was silent, is offered again only when that node has applied what it was told since it
//!   came back ([`elsewhere`]).

mod adopt;
mod elsewhere;
mod feed;
mod logged;
mod relearning;
mod roster;
mod tell;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use yb_types::{ClientId, ReplicaId, SegmentId};

pub use adopt::Adopting;
pub use elsewhere::Whereabouts;
pub(crate) use elsewhere::turn_to;
pub(crate) use feed::{Feed, Strike};
pub use logged::LoggedSegment;
pub(crate) use logged::{LogBook, Logged};
pub(crate) use relearning::Relearning;
pub(crate) use roster::Roll;
pub use roster::Roster;
pub use tell::{Order, SyncCall, Told};

/// A replica as a directory knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published<'a> {
    /// First byte, from the start of the segment.
    pub offset: u64,
    /// Bytes of the object.
    pub size: u64,
    /// Which write made it, never 0.
    pub generation: u64,
    /// The replica's number.
    pub replica: ReplicaId,
    /// Who wrote it.
    pub writer: ClientId,
    /// CRC-64 that the writer gave.
    pub checksum: Option<u64>,
    /// Never evicted.
    pub hard_pin: bool,
    /// How long the soft pin still holds.
    pub soft_pin: Option<Duration>,
    /// What the bytes are, as the writer said.
    pub data_type: u8,
    /// Empty: the default one.
    pub tenant: &'a str,
    /// Empty: none.
    pub group: &'a str,
    /// The key, never empty.
    pub key: &'a [u8],
}

/// What a client said of the directories that it keeps, before it mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// It keeps none.
    No,
    /// It keeps them, and they are empty.
    Empty,
    /// It keeps them, and brings what an earlier master told it.
    Filled,
}

/// Who keeps directories: clients, and for all others the log of the master, if it has one.
#[derive(Default)]
pub(crate) struct Keepers {
    clients: BTreeMap<ClientId, Keeper>,
    /// They went from this master to another one and came back: that one is no forerunner of this one.
    strayed: BTreeSet<ClientId>,
    pub log: Option<LogBook>,
}

/// More are not remembered: their segments are handled as those of clients without directories.
const KEEPERS_MAX: usize = 65_536;

impl Keepers {
    pub fn note(&mut self, client: ClientId, keeper: Keeper) {
        if keeper == Keeper::No {
            self.clients.remove(&client);
        } else if self.clients.len() < KEEPERS_MAX || self.clients.contains_key(&client) {
            self.clients.insert(client, keeper);
        }
    }

    /// Another master had this client, while this one lived.
    pub fn stray(&mut self, client: ClientId) {
        if self.strayed.len() < KEEPERS_MAX {
            self.strayed.insert(client);
        }
    }

    /// Whether another master had this client, while this one lived.
    pub fn has_strayed(&self, client: ClientId) -> bool {
        self.strayed.contains(&client)
    }

    /// The feed of a segment that this client mounts. `again`: it says that the memory was in the pool before.
    pub fn feed(&mut self, client: ClientId, segment: SegmentId, again: bool) -> Option<Box<Feed>> {
        if let Some(keeper) = self.clients.get(&client) {
            return Some(Box::new(Feed::new(*keeper, None)));
        }
        let log = self.log.as_mut()?;
        let (keeper, logged) = log.mounted(segment, again);
        Some(Box::new(Feed::new(keeper, Some(logged))))
    }
}
