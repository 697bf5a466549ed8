//! What one segment holds, as masters told it. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;

use yb_types::{ClientId, ReplicaId, SegmentId};
use yb_wire::messages::{DirectoryEntry, RosterReply};

/// An object in the segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) size: u64,
    pub(crate) generation: u64,
    pub(crate) replica: ReplicaId,
    pub(crate) writer: ClientId,
    pub(crate) checksum: Option<u64>,
    pub(crate) flags: u8,
    pub(crate) data_type: u8,
    pub(crate) soft_pin_until_ms: u64,
    /// Tenant, group and key, one after the other.
    texts: Box<[u8]>,
    tenant_end: u32,
    group_end: u32,
}

impl Kept {
    pub(crate) fn new(entry: &DirectoryEntry<'_>) -> Kept {
        let texts = [entry.tenant, entry.group, entry.key].concat().into_boxed_slice();
        // A message is far shorter than what this counts to.
        let end = |len: usize| u32::try_from(len).unwrap_or(u32::MAX);
        Kept {
            size: entry.size,
            generation: entry.generation,
            replica: entry.replica,
            writer: entry.writer,
            checksum: entry.checksum,
            flags: entry.flags,
            data_type: entry.data_type,
            soft_pin_until_ms: entry.soft_pin_until_ms,
            tenant_end: end(entry.tenant.len()),
            group_end: end(entry.tenant.len() + entry.group.len()),
            texts,
        }
    }

    pub(crate) fn entry(&self, offset: u64) -> DirectoryEntry<'_> {
        let (tenant, rest) = self.texts.split_at((self.tenant_end as usize).min(self.texts.len()));
        let group = (self.group_end.saturating_sub(self.tenant_end) as usize).min(rest.len());
        let (group, key) = rest.split_at(group);
        DirectoryEntry {
            offset,
            size: self.size,
            generation: self.generation,
            replica: self.replica,
            writer: self.writer,
            checksum: self.checksum,
            flags: self.flags,
            data_type: self.data_type,
            soft_pin_until_ms: self.soft_pin_until_ms,
            tenant,
            group,
            key,
        }
    }
}

/// The segments whose directories were up to date, as a master said; of number 0: none was heard.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Roster {
    pub(crate) incarnation: u64,
    pub(crate) term: u64,
    pub(crate) number: u64,
    pub(crate) members: Vec<SegmentId>,
}

impl From<RosterReply> for Roster {
    fn from(reply: RosterReply) -> Roster {
        let RosterReply { incarnation, term, number, members } = reply;
        Roster { incarnation, term, number, members }
    }
}

/// A change of a directory.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Change<'a> {
    /// Nothing is in the segment.
    Clear,
    /// Nothing that was known is at this offset.
    Strike(u64),
    /// An object was published.
    Note(DirectoryEntry<'a>),
    /// All that this life of a master told up to this batch is done.
    Mark { incarnation: u64, applied: u64 },
    /// A master was asked to mount the segment, and nobody knows yet whether it will keep the directory true.
    Doubt(bool),
    /// A master said whose directories are up to date.
    Heard(Cow<'a, Roster>),
}

/// The directory of one segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Table {
    entries: BTreeMap<u64, Kept>,
    incarnation: u64,
    applied: u64,
    doubted: bool,
    /// The last one that was heard; outlives everything else.
    roster: Roster,
}

impl Table {
    pub(crate) fn change(&mut self, change: &Change<'_>) {
        match *change {
            Change::Clear => self.entries.clear(),
            Change::Strike(offset) => drop(self.entries.remove(&offset)),
            Change::Note(ref entry) => drop(self.entries.insert(entry.offset, Kept::new(entry))),
            Change::Mark { incarnation, applied } => (self.incarnation, self.applied) = (incarnation, applied),
            Change::Doubt(doubted) => self.doubted = doubted,
            Change::Heard(ref roster) => self.roster = Roster::clone(roster),
        }
    }

    /// The life of the master that told it, 0: nobody; and its last batch.
    pub(crate) fn mark(&self) -> (u64, u64) {
        (self.incarnation, self.applied)
    }

    /// The last roster that was heard.
    pub(crate) fn roster(&self) -> &Roster {
        &self.roster
    }

    /// Whether a master may have placed objects in the segment without telling.
    pub(crate) fn is_doubted(&self) -> bool {
        self.doubted
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// What makes this table of an empty one.
    pub(crate) fn changes(&self, mut sink: impl FnMut(&Change<'_>)) {
        if self.roster.number != 0 {
            sink(&Change::Heard(Cow::Borrowed(&self.roster)));
        }
        self.entries.iter().for_each(|(offset, kept)| sink(&Change::Note(kept.entry(*offset))));
        sink(&Change::Mark { incarnation: self.incarnation, applied: self.applied });
        sink(&Change::Doubt(self.doubted));
    }

    /// About so many bytes does a log of it take.
    pub(crate) fn bytes(&self) -> u64 {
        self.entries.len() as u64 * 256
    }

    /// From an offset on, in order.
    pub(crate) fn from(&self, offset: u64) -> impl Iterator<Item = (u64, &Kept)> {
        self.entries.range(offset..).map(|(offset, kept)| (*offset, kept))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn entry(offset: u64, key: &str) -> DirectoryEntry<'_> {
        DirectoryEntry {
            offset,
            size: 100,
            generation: 7,
            replica: ReplicaId(8),
            writer: ClientId::default(),
            checksum: Some(9),
            flags: 1,
            data_type: 2,
            soft_pin_until_ms: 3,
            tenant: b"tenant",
            group: b"",
            key: key.as_bytes(),
        }
    }

    #[test]
    fn a_record_comes_back_as_it_was_told() {
        let mut table = Table::default();
        table.change(&Change::Note(entry(64, "key")));
        table.change(&Change::Note(entry(0, "")));
        let all: Vec<_> = table.from(0).map(|(offset, kept)| kept.entry(offset)).collect();
        assert_eq!(all, [entry(0, ""), entry(64, "key")]);
        table.change(&Change::Strike(64));
        table.change(&Change::Strike(64));
        assert_eq!((table.len(), table.from(1).count()), (1, 0));
        table.change(&Change::Mark { incarnation: 5, applied: 6 });
        table.change(&Change::Clear);
        assert!(table.is_empty() && table.mark() == (5, 6));
    }
}
