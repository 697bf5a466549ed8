//! Where our master answers otherwise on purpose. `docs/master-differences.md` tells each by the same name.

use yb_types::ErrorCode as Code;

use crate::answer::Answer;
use crate::op::Op;
use crate::script::Memory;

/// Two answers to one question.
pub struct Pair<'a> {
    pub op: &'a Op,
    /// Which key of the operation.
    pub at: usize,
    /// What the script knows of the key, before the operation.
    pub memory: Memory,
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
        applies: |pair| {
            pair.memory.shown_to_admin && pair.theirs.is_code(Code::OBJECT_HAS_LEASE) && pair.ours.succeeded()
        },
    },
    Rule {
        name: "copy-task-of-an-unfinished-object",
        parts: false,
        applies: |pair| {
            matches!(pair.op, Op::CreateTask { .. })
                && pair.ours.is_code(Code::REPLICA_IS_NOT_READY)
                && pair.theirs.succeeded()
        },
    },
    Rule {
        name: "not-built",
        parts: true,
        applies: |pair| {
            let kept_by_its_group = pair.memory.grouped && pair.theirs.is_code(Code::OBJECT_HAS_LEASE);
            pair.ours.is_code(Code::NOT_SUPPORTED)
                || kept_by_its_group
                || matches!(pair.op, Op::RemoveRegex { force: false, .. } | Op::RemoveAll { force: false, .. })
                || matches!(pair.op, Op::Idle { .. } | Op::Fetch { .. })
        },
    },
];

/// The rule that allows the difference.
pub fn explain(pair: &Pair<'_>) -> Option<&'static Rule> {
    RULES.iter().find(|rule| (rule.applies)(pair))
}
