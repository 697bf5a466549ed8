//! The directory of a node: the client's own code, over a disk that may be slow and a process that may die while it writes.

#[path = "../../client/src/directory/segment.rs"]
mod segment;
#[path = "../../client/src/directory/table.rs"]
#[allow(dead_code, unused_imports, reason = "the client's own file; its log is written in another way here")]
mod table;

pub(crate) use segment::Followed;
pub(crate) use table::{Kept, Roster, Table};

use segment::Log;
use table::Change;

/// The directory of one segment.
pub(crate) type Directory = segment::Directory<Disk>;

/// The log beside a memory file.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    written: Table,
    /// What the log would say after each change that is not on the disk yet.
    waiting: Vec<Table>,
}

impl Log for Disk {
    fn note(&mut self, change: &Change<'_>) {
        let mut next = self.waiting.last().unwrap_or(&self.written).clone();
        next.change(change);
        self.waiting.push(next);
    }

    /// The world says when it is there: nothing of what depends on it is done before.
    fn commit(&mut self, _: &Table) {}
}

impl Disk {
    /// All of it is written.
    pub(crate) fn arrives(&mut self) {
        if let Some(last) = self.waiting.pop() {
            self.written = last;
            self.waiting.clear();
        }
    }

    /// Changes that are not written.
    pub(crate) fn behind(&self) -> usize {
        self.waiting.len()
    }

    /// What another process finds.
    pub(crate) fn written(&self) -> &Table {
        &self.written
    }
}

impl segment::Directory<Disk> {
    /// What another process finds after a death in the middle of a write: so many changes of it were whole.
    pub(crate) fn after_death(mut self, whole: usize) -> Self {
        self.log.waiting.truncate(whole);
        self.log.arrives();
        Directory { table: self.log.written.clone(), log: self.log, met: 0 }
    }
}
