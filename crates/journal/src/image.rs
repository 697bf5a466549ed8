//! What a log says when it is read from its beginning.

use std::collections::BTreeMap;

use yb_types::{SegmentId, SegmentStatus};
use yb_wire::messages::DirectoryEntry;

use crate::frame::{self, Next};
use crate::record::{FORMAT, Head, Noted, OLDEST_FORMAT, Record, RosterNote, SegmentNote};

/// A segment, and what is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Which segment.
    pub note: SegmentNote,
    /// By offset: the object, as in its record.
    entries: BTreeMap<u64, Box<[u8]>>,
}

impl Held {
    /// The objects in order of offset.
    pub fn entries(&self) -> impl Iterator<Item = DirectoryEntry<'_>> {
        self.entries.values().filter_map(|body| Noted(body).entry())
    }

    /// How many objects.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

/// What a log says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Start of the host on which it was written.
    pub boot: Vec<u8>,
    /// What was acknowledged was on the disk by then.
    pub synced: bool,
    /// The last life of a master that wrote to it, 0: none.
    pub life: u64,
    /// When that master was last known to live, in milliseconds since 1970.
    pub alive_ms: u64,
    /// By the number that the log gave them.
    pub segments: BTreeMap<u32, Held>,
    /// Segments that are being emptied, or were.
    pub statuses: BTreeMap<SegmentId, SegmentStatus>,
    /// Whose directories were up to date at last; `None`: it never said.
    pub roster: Option<RosterNote>,
    /// The last number that the log gave.
    pub last_number: u32,
    /// Bytes of whole records; what is behind them was torn and never acknowledged.
    pub whole: u64,
}

/// Why a log is not used. What came before the damage is not either: strikes behind it are lost, and with them the
/// knowledge which of its objects have given way to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Damage {
    /// Not the beginning of such a log.
    #[error("it does not begin as a log of a master does")]
    NoLog,
    /// Another format.
    #[error("it is of format {0}, this build reads format {FORMAT}")]
    Format(u64),
    /// A record in the middle is not the one that was written.
    #[error("the record at byte {0} is damaged")]
    Record(u64),
    /// A whole record says what cannot be.
    #[error("the record at byte {0} contradicts what is before it")]
    Contradiction(u64),
}

/// Reads a log. An end that is torn is left out: nobody was told that it is there.
///
/// # Errors
/// [`Damage`]; then nothing of the log may be used.
pub fn read(log: &[u8]) -> Result<Image, Damage> {
    let mut rest = log;
    let mut image = Image::default();
    match frame::next(&mut rest) {
        Next::Record(body) => match Record::decode(body) {
            Some(Record::Head(head)) => image.begin(&head)?,
            _ => return Err(Damage::NoLog),
        },
        _ => return Err(Damage::NoLog),
    }
    loop {
        let at = (log.len() - rest.len()) as u64;
        image.whole = at;
        match frame::next(&mut rest) {
            Next::Record(body) => {
                let record = Record::decode(body).ok_or(Damage::Contradiction(at))?;
                image.apply(&record).ok_or(Damage::Contradiction(at))?;
            }
            Next::End | Next::Torn => return Ok(image),
            Next::Broken => return Err(Damage::Record(at)),
        }
    }
}

impl Image {
    /// The number of the segment of this id that was mounted last.
    pub fn find(&self, id: SegmentId) -> Option<u32> {
        self.segments.iter().rev().find(|(_, held)| held.note.id == id).map(|(number, _)| *number)
    }

    fn begin(&mut self, head: &Head<'_>) -> Result<(), Damage> {
        if !(OLDEST_FORMAT..=FORMAT).contains(&head.format) {
            return Err(Damage::Format(head.format));
        }
        (self.boot, self.synced) = (head.boot.to_vec(), head.synced);
        Ok(())
    }

    /// Follows a record; `None` when it cannot be.
    pub fn apply(&mut self, record: &Record<'_>) -> Option<()> {
        match record {
            Record::Head(_) => return None,
            Record::Life(life) => self.life = *life,
            Record::Alive(epoch_ms) => self.alive_ms = self.alive_ms.max(*epoch_ms),
            Record::Mounted(number, note) => {
                if *number <= self.last_number {
                    return None;
                }
                self.last_number = *number;
                self.segments.insert(*number, Held { note: note.clone(), entries: BTreeMap::new() });
            }
            Record::Gone(number) => drop(self.segments.remove(number)?),
            Record::Clear(number) => self.segments.get_mut(number)?.entries.clear(),
            Record::Strike(number, offset) => drop(self.segments.get_mut(number)?.entries.remove(offset)),
            Record::Note(number, noted) => {
                let offset = noted.entry()?.offset;
                self.segments.get_mut(number)?.entries.insert(offset, noted.0.into());
            }
            Record::Roster(roster) => self.roster = Some(roster.clone()),
            Record::Status(id, SegmentStatus::OK) => drop(self.statuses.remove(id)),
            Record::Status(id, status) => drop(self.statuses.insert(*id, *status)),
        }
        Some(())
    }

    /// Appends a log that says the same, shorter: the snapshot with which a log begins.
    pub fn append(&self, log: &mut Vec<u8>) {
        Record::Head(Head { format: FORMAT, boot: &self.boot, synced: self.synced }).append(log);
        if self.life != 0 {
            Record::Life(self.life).append(log);
        }
        Record::Alive(self.alive_ms).append(log);
        if let Some(roster) = &self.roster {
            Record::Roster(roster.clone()).append(log);
        }
        for (id, status) in &self.statuses {
            Record::Status(*id, *status).append(log);
        }
        for (number, held) in &self.segments {
            Record::Mounted(*number, held.note.clone()).append(log);
            for body in held.entries.values() {
                Record::Note(*number, Noted(body)).append(log);
            }
        }
    }
}
