//! Nodes of this project: who said Hello, and the extents they are asked about.

use std::collections::{BTreeMap, VecDeque};

use parking_lot::Mutex;
use yb_catalog::Quiesce;
use yb_types::ClientId;

/// The node answers quiescence questions.
pub const CAPABILITY_QUIESCE: u64 = 1;

/// Capabilities of this master.
pub(crate) const MASTER_CAPABILITIES: u64 = CAPABILITY_QUIESCE;

/// Nodes remembered; a Hello beyond is answered but not remembered, which costs that node the dial-back only.
const MAX_NODES: usize = 65_536;
/// Questions that wait for one node; older ones are dropped and left to the release timeout.
const MAX_QUESTIONS: usize = 4096;

#[derive(Debug, Default)]
struct Node {
    capabilities: u64,
    questions: VecDeque<Quiesce>,
}

/// The nodes that said Hello.
#[derive(Debug, Default)]
pub(crate) struct Nodes(Mutex<BTreeMap<ClientId, Node>>);

impl Nodes {
    pub(crate) fn hello(&self, client: ClientId, capabilities: u64) {
        let mut nodes = self.0.lock();
        if nodes.len() < MAX_NODES || nodes.contains_key(&client) {
            nodes.entry(client).or_default().capabilities = capabilities;
        }
    }

    pub(crate) fn is_ours(&self, client: ClientId) -> bool {
        self.0.lock().contains_key(&client)
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
