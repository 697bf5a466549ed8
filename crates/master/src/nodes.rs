//! Nodes of this project: who said Hello, and the extents they are asked about.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use yb_catalog::{Keeper, Quiesce};
use yb_types::ClientId;

/// The node answers quiescence questions.
pub const CAPABILITY_QUIESCE: u64 = 1;
/// The node keeps directories of its segments; the master tells what is in them.
pub const CAPABILITY_DIRECTORY: u64 = 2;
/// The node brings what an earlier master told it.
pub const CAPABILITY_FILLED: u64 = 4;

/// The node looks at its memory when it is asked what lies there.
pub const CAPABILITY_LOOKS: u64 = 8;

/// The master understands ends and revokes that name their write.
pub const CAPABILITY_NAMES: u64 = 16;

/// Capabilities of this master.
pub(crate) const MASTER_CAPABILITIES: u64 = CAPABILITY_QUIESCE | CAPABILITY_DIRECTORY | CAPABILITY_NAMES;

/// What a node says of its directories.
pub(crate) fn keeper(capabilities: u64) -> Keeper {
    match capabilities & (CAPABILITY_DIRECTORY | CAPABILITY_FILLED) {
        CAPABILITY_DIRECTORY => Keeper::Empty,
        0 | CAPABILITY_FILLED => Keeper::No,
        _ => Keeper::Filled,
    }
}

/// Nodes remembered; a Hello beyond is answered but not remembered, which costs that node the dial-back only.
const MAX_NODES: usize = 65_536;
/// Questions that wait for one node; older ones are dropped and left to the release timeout.
const MAX_QUESTIONS: usize = 4096;

/// Characters of a version that are kept.
const MAX_VERSION: usize = 32;
/// Versions told apart on the metrics page.
const MAX_VERSIONS: usize = 16;

#[derive(Debug, Default)]
struct Node {
    version: String,
    capabilities: u64,
    questions: VecDeque<Quiesce>,
}

/// The nodes that said Hello.
#[derive(Debug, Default)]
pub(crate) struct Nodes(Mutex<BTreeMap<ClientId, Node>>);

impl Nodes {
    pub(crate) fn hello(&self, client: ClientId, version: &str, capabilities: u64) {
        let mut nodes = self.0.lock();
        if nodes.len() < MAX_NODES || nodes.contains_key(&client) {
            let node = nodes.entry(client).or_default();
            node.capabilities = capabilities;
            node.version = version.chars().take(MAX_VERSION).collect();
        }
    }

    /// How many nodes there are of each version; beyond [`MAX_VERSIONS`] they are one group.
    pub(crate) fn versions(&self) -> BTreeMap<String, u64> {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for node in self.0.lock().values() {
            let known = counts.len() < MAX_VERSIONS || counts.contains_key(&node.version);
            let name = if known { node.version.clone() } else { "others".to_owned() };
            *counts.entry(name).or_default() += 1;
        }
        counts
    }

    /// What a node said of itself.
    pub(crate) fn version(&self, client: ClientId) -> Option<String> {
        self.0.lock().get(&client).map(|node| node.version.clone())
    }

    pub(crate) fn is_ours(&self, client: ClientId) -> bool {
        self.0.lock().contains_key(&client)
    }

    /// Whether a node said that it can do this.
    pub(crate) fn can(&self, client: ClientId, capability: u64) -> bool {
        self.0.lock().get(&client).is_some_and(|node| node.capabilities & capability != 0)
    }

    pub(crate) fn forget(&self, client: ClientId) {
        self.0.lock().remove(&client);
    }

    /// Keeps the questions that their owner can answer; says how many.
    pub(crate) fn ask(&self, questions: impl Iterator<Item = Quiesce>) -> u64 {
        let mut nodes = self.0.lock();
        let mut kept = 0;
        for question in questions {
            // A writer that is only presumed gone may still begin a transfer; no node can rule that out, time does.
            let Some(node) = nodes.get_mut(&question.owner).filter(|_| question.revoked) else { continue };
            if node.capabilities & CAPABILITY_QUIESCE == 0 {
                continue;
            }
            if node.questions.len() >= MAX_QUESTIONS {
                node.questions.pop_front();
            }
            node.questions.push_back(question);
            kept += 1;
        }
        kept
    }

    /// Takes the oldest questions for a node.
    pub(crate) fn take_questions(&self, client: ClientId, limit: usize) -> Vec<Quiesce> {
        let mut nodes = self.0.lock();
        let Some(node) = nodes.get_mut(&client) else { return Vec::new() };
        let count = node.questions.len().min(limit);
        node.questions.drain(..count).collect()
    }
}
