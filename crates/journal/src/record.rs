//! What a master writes into its log.

use yb_types::{ClientId, Segment, SegmentId, SegmentStatus};
use yb_wire::messages::DirectoryEntry;

use crate::text::{put, put_entry, put_text, put_uuid, take, take_entry, take_text, take_u64, take_uuid};

/// Format of the log; the one of before, without rosters, is read too, and no other.
pub const FORMAT: u64 = 2;
pub(crate) const OLDEST_FORMAT: u64 = 1;

/// The first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// See [`FORMAT`].
    pub format: u64,
    /// Start of the host on which it was written.
    pub boot: &'a [u8],
    /// What was acknowledged was on the disk by then: it outlives the host, not only the process.
    pub synced: bool,
}

/// A segment, as far as it has to be told from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentNote {
    /// Its id.
    pub id: SegmentId,
    /// Who mounted it.
    pub owner: ClientId,
    /// First address in the owner's process.
    pub base: u64,
    /// Bytes.
    pub size: u64,
    /// The name that it was mounted under.
    pub name: Vec<u8>,
    /// Data address of its owner.
    pub endpoint: Vec<u8>,
}

impl SegmentNote {
    /// What is noted of a segment.
    pub fn of(segment: &Segment, owner: ClientId) -> SegmentNote {
        SegmentNote {
            id: segment.id,
            owner,
            base: segment.base,
            size: segment.size,
            name: segment.name.clone().into_bytes(),
            endpoint: segment.te_endpoint.clone().into_bytes(),
        }
    }
}

/// An object of a segment, as the body of its record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted<'a>(pub &'a [u8]);

impl<'a> Noted<'a> {
    /// The object; `None` when these bytes are none.
    pub fn entry(&self) -> Option<DirectoryEntry<'a>> {
        let mut rest = self.0;
        take_entry(&mut rest).filter(|_| rest.is_empty())
    }
}

/// A record. Segments go by a number that the log gave them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// The first one.
    Head(Head<'a>),
    /// A life of a master: its number, never 0. What follows it told.
    Life(u64),
    /// The master lives at this time, in milliseconds since 1970.
    Alive(u64),
    /// A segment begins, with nothing in it.
    Mounted(u32, SegmentNote),
    /// A segment is gone; its number is not used again in this log.
    Gone(u32),
    /// Nothing is in the segment.
    Clear(u32),
    /// Nothing that was known is at this offset of the segment.
    Strike(u32, u64),
    /// An object was published in the segment.
    Note(u32, Noted<'a>),
    /// The segment of this id, whoever keeps its directory, is being emptied, was emptied, or takes objects again.
    Status(SegmentId, SegmentStatus),
    /// From here on these directories of nodes are up to date.
    Roster(RosterNote),
}

/// Whose directories were up to date.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RosterNote {
    /// The life of the master that made it.
    pub incarnation: u64,
    /// Larger than those of the masters before.
    pub term: u64,
    /// Which of the rosters of its master, never 0.
    pub number: u64,
    /// The segments.
    pub members: Vec<SegmentId>,
}

fn number(body: &mut Vec<u8>, kind: u8, segment: u32) {
    body.push(kind);
    body.extend_from_slice(&segment.to_le_bytes());
}

fn take_number(rest: &mut &[u8]) -> Option<u32> {
    Some(u32::from_le_bytes(take(rest, 4)?.try_into().ok()?))
}

/// Appends the body of the record of an object.
pub(crate) fn encode_note(body: &mut Vec<u8>, segment: u32, entry: &DirectoryEntry<'_>) {
    number(body, b'N', segment);
    put_entry(body, entry);
}

impl<'a> Record<'a> {
    /// Appends the record, framed.
    pub fn append(&self, log: &mut Vec<u8>) {
        crate::frame::append(log, |body| self.encode(body));
    }

    /// Appends the record of an object, framed.
    pub fn append_note(log: &mut Vec<u8>, segment: u32, entry: &DirectoryEntry<'_>) {
        crate::frame::append(log, |body| encode_note(body, segment, entry));
    }

    fn encode(&self, body: &mut Vec<u8>) {
        match self {
            Record::Head(Head { format, boot, synced }) => {
                body.push(b'H');
                put(body, &[*format, u64::from(*synced)]);
                put_text(body, boot);
            }
            Record::Life(incarnation) => {
                body.push(b'L');
                put(body, &[*incarnation]);
            }
            Record::Alive(epoch_ms) => {
                body.push(b'A');
                put(body, &[*epoch_ms]);
            }
            Record::Mounted(segment, note) => {
                number(body, b'G', *segment);
                put_uuid(body, note.id.0);
                put_uuid(body, note.owner.0);
                put(body, &[note.base, note.size]);
                put_text(body, &note.name);
                put_text(body, &note.endpoint);
            }
            Record::Gone(segment) => number(body, b'X', *segment),
            Record::Clear(segment) => number(body, b'C', *segment),
            Record::Strike(segment, offset) => {
                number(body, b'S', *segment);
                put(body, &[*offset]);
            }
            Record::Note(segment, noted) => {
                number(body, b'N', *segment);
                body.extend_from_slice(noted.0);
            }
            Record::Status(id, status) => {
                body.push(b'D');
                put_uuid(body, id.0);
                put(body, &[u64::try_from(status.0).unwrap_or(0)]);
            }
            Record::Roster(RosterNote { incarnation, term, number, members }) => {
                body.push(b'R');
                put(body, &[*incarnation, *term, *number]);
                members.iter().for_each(|id| put_uuid(body, id.0));
            }
        }
    }

    /// Reads the body of a record; `None` when it is none, or says more than it should.
    pub fn decode(body: &'a [u8]) -> Option<Record<'a>> {
        let (kind, mut rest) = body.split_first()?;
        let rest = &mut rest;
        let record = match kind {
            b'H' => {
                let (format, synced) = (take_u64(rest)?, take_u64(rest)? != 0);
                // What follows in another format is not ours to read.
                let boot =
                    if (OLDEST_FORMAT..=FORMAT).contains(&format) { take_text(rest)? } else { std::mem::take(rest) };
                Record::Head(Head { format, boot, synced })
            }
            b'L' => Record::Life(Some(take_u64(rest)?).filter(|life| *life != 0)?),
            b'A' => Record::Alive(take_u64(rest)?),
            b'G' => {
                let segment = take_number(rest)?;
                let (id, owner) = (SegmentId(take_uuid(rest)?), ClientId(take_uuid(rest)?));
                let (base, size) = (take_u64(rest)?, take_u64(rest)?);
                let (name, endpoint) = (take_text(rest)?.to_vec(), take_text(rest)?.to_vec());
                Record::Mounted(segment, SegmentNote { id, owner, base, size, name, endpoint })
            }
            b'X' => Record::Gone(take_number(rest)?),
            b'C' => Record::Clear(take_number(rest)?),
            b'S' => Record::Strike(take_number(rest)?, take_u64(rest)?),
            b'N' => {
                let segment = take_number(rest)?;
                let noted = Noted(std::mem::take(rest));
                noted.entry()?;
                Record::Note(segment, noted)
            }
            b'D' => {
                let id = SegmentId(take_uuid(rest)?);
                let status = SegmentStatus(i32::try_from(take_u64(rest)?).ok()?);
                let is_known = [SegmentStatus::OK, SegmentStatus::DRAINING, SegmentStatus::DRAINED].contains(&status);
                Record::Status(id, Some(status).filter(|_| is_known)?)
            }
            b'R' => {
                let (incarnation, term) = (take_u64(rest)?, take_u64(rest)?);
                let number = Some(take_u64(rest)?).filter(|number| *number != 0)?;
                let mut members = Vec::new();
                while !rest.is_empty() {
                    members.push(SegmentId(take_uuid(rest)?));
                }
                Record::Roster(RosterNote { incarnation, term, number, members })
            }
            _ => return None,
        };
        rest.is_empty().then_some(record)
    }
}
