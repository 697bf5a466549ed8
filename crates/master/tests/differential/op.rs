//! One operation of a played sequence, without anything that belongs to one master.

use yb_types::{ReplicaType, ReplicateConfig};

/// A key of a tenant, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    pub tenant: usize,
    pub number: usize,
}

impl Key {
    pub fn bytes(self) -> Vec<u8> {
        format!("key-{:02}", self.number).into_bytes()
    }
}

/// Put or upsert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Write {
    Put,
    Upsert,
}

/// One call or many in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    Single,
    Batch,
}

/// A copy, or a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shift {
    Copy,
    Move,
}

/// Clients, segments and tasks are numbers; each side knows what they stand for there. The keys of a batch have one
/// tenant.
#[derive(Clone, Debug)]
pub enum Op {
    Ping { client: usize },
    Mount { client: usize, segment: usize, broken: bool },
    Remount { client: usize },
    Unmount { client: usize, segment: usize },
    Graceful { client: usize, segment: usize, grace_ms: u64 },
    Status { segment: usize, by_id: bool },
    QueryIp,
    Start { write: Write, form: Form, client: usize, keys: Vec<Key>, sizes: Vec<u64>, config: Box<ReplicateConfig> },
    End { write: Write, form: Form, client: usize, keys: Vec<Key>, which: ReplicaType, checksum: Option<u64> },
    Revoke { write: Write, form: Form, client: usize, keys: Vec<Key>, which: ReplicaType },
    Exist { form: Form, keys: Vec<Key> },
    Get { form: Form, keys: Vec<Key> },
    Regex { tenant: usize, pattern: &'static str },
    Remove { form: Form, keys: Vec<Key>, force: bool },
    RemoveRegex { tenant: usize, pattern: &'static str, force: bool },
    RemoveAll { tenant: usize, force: bool },
    Clear { client: usize, keys: Vec<Key>, segment: Option<usize> },
    ShiftStart { shift: Shift, client: usize, key: Key, source: usize, targets: Vec<usize> },
    ShiftEnd { shift: Shift, client: usize, key: Key, revoke: bool },
    CreateTask { shift: Shift, key: Key, source: usize, targets: Vec<usize> },
    QueryTask { task: usize },
    Fetch { client: usize, most: u64 },
    Mark { client: usize, task: usize, status: i32 },
    EvictDisk { form: Form, client: usize, keys: Vec<Key>, which: ReplicaType },
    Probe { form: Form, keys: Vec<Key>, mode: u8, group: u64 },
    AdminGet { form: Form, keys: Vec<Key> },
    Idle { client: usize },
}

impl Op {
    /// Whether it mounts or unmounts segments, or tells of them.
    pub fn is_of_segments(&self) -> bool {
        matches!(self, Op::Mount { .. } | Op::Remount { .. } | Op::Unmount { .. } | Op::Graceful { .. })
            || matches!(self, Op::Status { .. } | Op::QueryIp)
    }

    /// Whether it makes tasks or hands them out.
    pub fn is_of_tasks(&self) -> bool {
        matches!(self, Op::CreateTask { .. } | Op::QueryTask { .. } | Op::Fetch { .. } | Op::Mark { .. })
    }

    /// Whether it may change keys that it does not name.
    pub fn is_about_all(&self) -> bool {
        matches!(self, Op::Unmount { .. } | Op::Graceful { .. } | Op::Regex { .. } | Op::RemoveRegex { .. })
            || matches!(self, Op::RemoveAll { .. })
    }

    /// The keys whose answers come one by one, in order.
    pub fn keys(&self) -> &[Key] {
        match self {
            Op::Start { keys, .. }
            | Op::End { keys, .. }
            | Op::Revoke { keys, .. }
            | Op::Exist { keys, .. }
            | Op::Get { keys, .. }
            | Op::Remove { keys, .. }
            | Op::Clear { keys, .. }
            | Op::EvictDisk { keys, .. }
            | Op::Probe { keys, .. }
            | Op::AdminGet { keys, .. } => keys,
            Op::ShiftStart { key, .. } | Op::ShiftEnd { key, .. } | Op::CreateTask { key, .. } => {
                std::slice::from_ref(key)
            }
            _ => &[],
        }
    }
}
