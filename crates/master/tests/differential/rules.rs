//! Where our master answers otherwise on purpose. `docs/master-differences.md` tells each by the same name.

use yb_types::ErrorCode as Code;

use crate::answer::Answer;
use crate::op::{Op, Shift, Write};
use crate::script::Memory;
use crate::side::OWNERS;

/// Two answers to one question.
pub struct Pair<'a> {
    pub op: &'a Op,
    /// Which key of the operation.
    pub at: usize,
    /// What the script knows of the key, before the operation.
    pub memory: Memory,
    /// Whether an upsert of any key is under way.
    pub upserting: bool,
    /// Whether memory was mounted in this burst.
    pub mounted: bool,
    /// Whether a start named a group for the key, ever.
    pub ever_grouped: bool,
    /// Whether a segment was asked to leave since the last time step.
    pub some_leaving: bool,
    /// Whether a segment was unmounted or asked to leave since the tasks of both sides were ended.
    pub sources_lost: bool,
    /// Whether a look-up in this burst met a key that was being written.
    pub met_unfinished: bool,
    pub ours: &'a Answer,
    pub theirs: &'a Answer,
}

impl Pair<'_> {
    /// Bytes that a start asks for.
    fn size(&self) -> Option<u64> {
        match self.op {
            Op::Start { sizes, .. } => sizes.get(self.at).copied(),
            _ => None,
        }
    }

    /// Whether the peer keeps for a lease what ours gives up.
    fn is_kept_by_a_lease(&self) -> bool {
        let cleared = matches!(self.op, Op::Clear { .. }) && *self.theirs == Answer::Text(String::new());
        self.ours.succeeded() && (cleared || self.theirs.is_code(Code::OBJECT_HAS_LEASE))
    }

    /// Whether a preferred segment was not to be had, so that each side chose another, as it may.
    pub fn placed_elsewhere(&self) -> bool {
        let (Op::Start { config, .. }, Answer::Places(ours)) = (self.op, self.ours) else { return false };
        let preferred = |at: &String| config.preferred_segments.contains(at);
        ours.iter().any(|place| !preferred(&place.at)) && self.ours.clone().anywhere() == self.theirs.clone().anywhere()
    }
}

pub struct Rule {
    pub name: &'static str,
    /// Whether the masters hold something different from here on, so that the key must be taken away on both.
    pub parts: bool,
    pub applies: fn(&Pair<'_>) -> bool,
}

fn codes(pair: &Pair<'_>, ours: Code, theirs: Code) -> bool {
    pair.ours.is_code(ours) && pair.theirs.is_code(theirs)
}

/// Every intended difference.
pub const RULES: &[Rule] = &[
    Rule {
        name: "put-of-a-busy-key",
        parts: false,
        applies: |pair| {
            matches!(pair.op, Op::Start { .. }) && codes(pair, Code::REPLICA_IS_NOT_READY, Code::OBJECT_ALREADY_EXISTS)
        },
    },
    Rule {
        name: "empty-object",
        parts: true,
        applies: |pair| pair.size() == Some(0) && pair.theirs.is_code(Code::INVALID_PARAMS),
    },
    Rule {
        name: "admin-lookup-without-lease",
        parts: true,
        applies: |pair| pair.memory.shown_to_admin && pair.is_kept_by_a_lease(),
    },
    Rule {
        name: "upsert-has-no-old-lease",
        parts: true,
        applies: |pair| pair.memory.upserted && pair.is_kept_by_a_lease(),
    },
    Rule {
        name: "upsert-keeps-the-old-object",
        parts: true,
        applies: |pair| match pair.op {
            Op::Regex { .. } | Op::RemoveRegex { .. } | Op::RemoveAll { .. } | Op::Clear { .. } => pair.upserting,
            Op::Start { write: Write::Upsert, .. } => {
                matches!((pair.ours, pair.theirs), (Answer::Places(_), Answer::Places(_)))
            }
            // The peer gave the upsert up, and with it the object.
            Op::Start { .. } if pair.memory.upserting && pair.ours.is_code(Code::OBJECT_ALREADY_EXISTS) => {
                matches!(pair.theirs, Answer::Places(_))
            }
            // The read of another member, being upserted, renewed the group.
            Op::Remove { .. } if pair.memory.grouped && pair.ours.is_code(Code::OBJECT_HAS_LEASE) => true,
            _ => pair.memory.upserting && (!pair.theirs.succeeded() || *pair.theirs == Answer::Flag(false)),
        },
    },
    Rule {
        name: "copy-by-a-stranger",
        parts: true,
        applies: |pair| {
            let (Op::ShiftStart { client, .. } | Op::ShiftEnd { client, .. } | Op::Mark { client, .. }) = pair.op
            else {
                return false;
            };
            !OWNERS.contains(client) && pair.theirs.is_code(Code::UNAVAILABLE_IN_CURRENT_STATUS)
        },
    },
    Rule {
        name: "move-task-to-its-own-source",
        parts: false,
        applies: |pair| {
            matches!(pair.op, Op::CreateTask { source, targets, .. } if targets.contains(source))
                && codes(pair, Code::OBJECT_NOT_FOUND, Code::INVALID_PARAMS)
        },
    },
    Rule {
        name: "task-that-one-did-not-make",
        parts: false,
        applies: |pair| {
            let unknown = |answer: &Answer| answer.is_code(Code::TASK_NOT_FOUND);
            matches!(pair.op, Op::QueryTask { .. } | Op::Mark { .. }) && unknown(pair.ours) != unknown(pair.theirs)
        },
    },
    Rule {
        name: "task-of-a-lost-source",
        parts: false,
        applies: |pair| {
            let Answer::Text(ours) = pair.ours else { return false };
            matches!(pair.op, Op::QueryTask { .. }) && ours.contains("the segment of the source is gone")
        },
    },
    Rule {
        name: "task-of-a-lost-source",
        parts: false,
        applies: |pair| {
            let (Answer::Text(ours), Answer::Text(theirs)) = (pair.ours, pair.theirs) else { return false };
            let fewer = ours.split("; ").filter(|task| !task.is_empty()).all(|task| theirs.contains(task));
            matches!(pair.op, Op::Fetch { .. }) && pair.sources_lost && fewer
        },
    },
    Rule {
        name: "move-whose-target-is-lost",
        parts: true,
        applies: |pair| {
            let moved = matches!(pair.op, Op::ShiftEnd { shift: Shift::Move, revoke: false, .. });
            moved && pair.ours.is_code(Code::REPLICA_IS_GONE) && *pair.theirs == Answer::Done
        },
    },
    Rule {
        name: "task-refused-for-its-target",
        parts: false,
        applies: |pair| {
            matches!(pair.op, Op::CreateTask { .. })
                && codes(pair, Code::INVALID_PARAMS, Code::UNAVAILABLE_IN_CURRENT_STATUS)
        },
    },
    Rule {
        name: "copy-task-of-an-unfinished-object",
        parts: false,
        applies: |pair| {
            let from_a_copy =
                pair.memory.shifting && pair.ours.is_code(Code::INVALID_PARAMS) && pair.theirs.succeeded();
            matches!(pair.op, Op::CreateTask { .. }) && from_a_copy
        },
    },
    Rule {
        name: "copy-task-of-an-unfinished-object",
        parts: false,
        applies: |pair| {
            matches!(pair.op, Op::CreateTask { .. })
                && pair.ours.is_code(Code::REPLICA_IS_NOT_READY)
                && (pair.theirs.succeeded()
                    || pair.theirs.is_code(Code::UNAVAILABLE_IN_CURRENT_STATUS)
                    || pair.theirs.is_code(Code::INVALID_PARAMS))
        },
    },
    Rule {
        name: "lease-of-an-unfinished-member",
        parts: false,
        applies: |pair| {
            let removed = matches!(pair.op, Op::Remove { .. });
            pair.ever_grouped && removed && codes(pair, Code::REPLICA_IS_NOT_READY, Code::OBJECT_HAS_LEASE)
        },
    },
    Rule {
        name: "lease-from-before-the-end",
        parts: true,
        applies: |pair| {
            let counts = matches!(pair.op, Op::RemoveRegex { force: false, .. } | Op::RemoveAll { force: false, .. });
            let held = pair.is_kept_by_a_lease() && (pair.memory.met_unfinished || pair.memory.grouped);
            pair.met_unfinished && (counts || held)
        },
    },
    Rule {
        name: "group-left",
        parts: true,
        applies: |pair| {
            let upsert = matches!(pair.op, Op::Start { write: Write::Upsert, .. });
            let refused = upsert && pair.theirs.is_code(Code::INVALID_PARAMS);
            let counts = matches!(pair.op, Op::RemoveRegex { force: false, .. } | Op::RemoveAll { force: false, .. });
            pair.ever_grouped && !pair.memory.grouped && (refused || counts || pair.is_kept_by_a_lease())
        },
    },
    Rule {
        name: "repeated-end-of-a-copied-object",
        parts: false,
        applies: |pair| {
            matches!(pair.op, Op::End { .. }) && *pair.ours == Answer::Done && pair.theirs.is_code(Code::INVALID_WRITE)
        },
    },
    Rule {
        name: "memory-that-comes-back-rests",
        parts: true,
        applies: |pair| {
            let refused = pair.ours.is_code(Code::NO_AVAILABLE_HANDLE) || matches!(pair.ours, Answer::Places(_));
            matches!(pair.op, Op::Start { .. }) && pair.mounted && refused && pair.theirs.succeeded()
        },
    },
    Rule {
        name: "evict-disk-of-an-absent-key",
        parts: false,
        applies: |pair| {
            matches!(pair.op, Op::EvictDisk { .. }) && codes(pair, Code::INVALID_PARAMS, Code::OBJECT_NOT_FOUND)
        },
    },
    Rule {
        name: "end-of-a-lost-write",
        parts: true,
        applies: |pair| {
            matches!(pair.op, Op::End { .. } | Op::Revoke { .. }) && pair.ours.is_code(Code::OBJECT_NOT_FOUND)
        },
    },
    Rule {
        name: "one-write-of-a-client",
        parts: true,
        applies: |pair| matches!(pair.op, Op::Start { .. }) && pair.ours.is_code(Code::REPLICA_IS_NOT_READY),
    },
    Rule {
        name: "swept-in-the-background",
        parts: true,
        applies: |pair| {
            let started = matches!(pair.op, Op::Start { .. }) && pair.theirs.is_code(Code::OBJECT_ALREADY_EXISTS);
            pair.some_leaving && started && (pair.ours.succeeded() || pair.ours.is_code(Code::NO_AVAILABLE_HANDLE))
        },
    },
    Rule {
        name: "evicts-no-memory",
        parts: false,
        applies: |pair| {
            matches!(pair.op, Op::EvictDisk { .. }) && codes(pair, Code::INVALID_PARAMS, Code::OBJECT_NOT_FOUND)
        },
    },
    Rule {
        name: "dfs-for-a-tenant",
        parts: false,
        applies: |pair| codes(pair, Code::DFS_SERVICE_UNAVAILABLE, Code::INVALID_PARAMS),
    },
    Rule {
        name: "copy-whose-source-is-lost",
        parts: true,
        applies: |pair| {
            pair.memory.copies == OWNERS.len() && codes(pair, Code::OBJECT_NOT_FOUND, Code::REPLICA_IS_NOT_READY)
        },
    },
    Rule {
        name: "tenant-told-first",
        parts: false,
        applies: |pair| !pair.ours.succeeded() && pair.theirs.is_code(Code::TENANT_NOT_REGISTERED),
    },
    Rule {
        name: "nothing-to-remove-without-a-disk",
        parts: false,
        applies: |pair| {
            let polled = matches!(pair.op, Op::Idle { .. }) && pair.at == 0;
            polled && *pair.ours == Answer::Flag(false) && pair.theirs.is_code(Code::SEGMENT_NOT_FOUND)
        },
    },
    Rule {
        name: "heartbeat-of-an-unknown-client",
        parts: false,
        applies: |pair| {
            let Op::Idle { client } = pair.op else { return false };
            let codes = codes(pair, Code::SEGMENT_NOT_FOUND, Code::UNAVAILABLE_IN_CURRENT_STATUS);
            matches!(pair.at, 2 | 3) && codes && !OWNERS.contains(client)
        },
    },
];

/// The rule that allows the difference.
pub fn explain(pair: &Pair<'_>) -> Option<&'static Rule> {
    RULES.iter().find(|rule| (rule.applies)(pair))
}
