//! The log of a directory, beside a memory file that outlives its process.
//!
//! A record is its length (u32), the CRC-64 of its body (u64), and the body; all numbers little-endian. The first one says
//! whose memory this is. What is half written at the end was not acknowledged to the master, which says it again.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use yb_types::{ClientId, ReplicaId, SegmentId, Uuid};
use yb_wire::messages::DirectoryEntry;

use super::table::{Change, Table};
use crate::checksum::Checksum;

/// Format of the log; another one is not read.
const VERSION: u64 = 2;
/// A log is written anew when this much of it is out of date.
const COMPACT_AFTER: u64 = 64 << 20;
/// No record is longer: a key has no more bytes.
const RECORD_MAX: usize = 64 << 20;

/// Whose memory a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Of this start of the host.
    pub(crate) boot: Vec<u8>,
    pub(crate) size: u64,
    /// Of the memory file.
    pub(crate) inode: u64,
    pub(crate) base: u64,
    pub(crate) port: u16,
    pub(crate) client: ClientId,
    pub(crate) segment: SegmentId,
}

/// What a log says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) identity: Identity,
    pub(crate) table: Table,
    /// Its process closed it.
    pub(crate) is_clean: bool,
}

/// The open log.
#[derive(Debug)]
pub(crate) struct Journal {
    path: PathBuf,
    identity: Identity,
    file: Option<File>,
    waiting: Vec<u8>,
    written: u64,
}

impl Journal {
    /// Writes a new log, which says what the table says.
    pub(crate) fn create(path: &Path, identity: Identity, table: &Table) -> io::Result<Journal> {
        // Beside the log under a name of its own: `memory.new` may be the memory of another node.
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        let mut bytes = Vec::new();
        record(&mut bytes, |body| head(body, &identity));
        table.changes(|change| record(&mut bytes, |body| encode(body, change)));
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).open(&new)?;
        file.write_all(&bytes)?;
        std::fs::rename(&new, path)?;
        let written = bytes.len() as u64;
        Ok(Journal { path: path.to_owned(), identity, file: Some(file), waiting: Vec::new(), written })
    }

    /// Reads a log; `None` when there is none, none of this format, or when it was changed by somebody else.
    pub(crate) fn read(path: &Path) -> Option<Found> {
        let bytes = std::fs::read(path).ok()?;
        let mut rest = bytes.as_slice();
        let identity = read_head(take_record(&mut rest)?)?;
        let (mut table, mut is_clean) = (Table::default(), false);
        while is_whole(rest) {
            // A record that is there as a whole was written as a whole: strikes behind it would be lost with it.
            let said = decode(take_record(&mut rest)?)?;
            is_clean = said.is_none();
            said.iter().for_each(|change| table.change(change));
        }
        Some(Found { identity, table, is_clean })
    }

    /// Notes a change, to be written by the next [`commit`](Self::commit).
    pub(crate) fn note(&mut self, change: &Change<'_>) {
        record(&mut self.waiting, |body| encode(body, change));
    }

    /// Writes what was noted. A log that cannot be written is removed: it would say what is not so.
    pub(crate) fn commit(&mut self, table: &Table) {
        if self.waiting.is_empty() {
            return;
        }
        let Some(file) = &mut self.file else { return self.waiting.clear() };
        let written = file.write_all(&self.waiting);
        self.written += self.waiting.len() as u64;
        self.waiting.clear();
        let compacted = match written {
            Ok(()) if self.written < COMPACT_AFTER.saturating_add(table.bytes() * 2) => return,
            Ok(()) => Journal::create(&self.path, self.identity.clone(), table),
            Err(error) => Err(error),
        };
        match compacted {
            Ok(new) => *self = new,
            Err(error) => {
                tracing::error!(%error, path = ?self.path, "the directory of the memory file cannot be written; the next process starts empty");
                self.file = None;
                let _ = std::fs::remove_file(&self.path);
            }
        }
    }

    /// Says that the process leaves in order.
    pub(crate) fn close(&mut self, table: &Table) {
        record(&mut self.waiting, |body| body.push(b'Q'));
        self.commit(table);
        self.file = None;
    }
}

fn record(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let mut body = Vec::new();
    write(&mut body);
    out.extend_from_slice(&u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend_from_slice(&crc(&body).to_le_bytes());
    out.append(&mut body);
}

fn crc(body: &[u8]) -> u64 {
    let mut sum = Checksum::default();
    sum.add(body);
    sum.value()
}

fn take<'a>(rest: &mut &'a [u8], len: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(len)?;
    *rest = left;
    Some(taken)
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(take(rest, 8)?.try_into().ok()?))
}

fn take_text<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = usize::try_from(take_u64(rest)?).ok()?;
    take(rest, len)
}

/// Whether the next record is there to its last byte: the end of a log may have been half written.
fn is_whole(rest: &[u8]) -> bool {
    let len = rest.first_chunk().map(|len| u32::from_le_bytes(*len) as usize);
    len.is_some_and(|len| rest.len() >= 12 + len)
}

fn take_record<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let len = u32::from_le_bytes(take(rest, 4)?.try_into().ok()?) as usize;
    let sum = take_u64(rest)?;
    let body = take(rest, len).filter(|_| len <= RECORD_MAX)?;
    (crc(body) == sum).then_some(body)
}

fn put(body: &mut Vec<u8>, numbers: &[u64]) {
    numbers.iter().for_each(|number| body.extend_from_slice(&number.to_le_bytes()));
}

fn put_text(body: &mut Vec<u8>, text: &[u8]) {
    put(body, &[text.len() as u64]);
    body.extend_from_slice(text);
}

fn head(body: &mut Vec<u8>, identity: &Identity) {
    let Identity { boot, size, inode, base, port, client, segment } = identity;
    body.push(b'H');
    put(body, &[VERSION, *size, *inode, *base, u64::from(*port)]);
    put(body, &[client.0.first, client.0.second, segment.0.first, segment.0.second]);
    put_text(body, boot);
}

fn read_head(mut body: &[u8]) -> Option<Identity> {
    let rest = &mut body;
    if take(rest, 1)? != b"H" || take_u64(rest)? != VERSION {
        return None;
    }
    let (size, inode, base) = (take_u64(rest)?, take_u64(rest)?, take_u64(rest)?);
    let port = u16::try_from(take_u64(rest)?).ok()?;
    let client = ClientId(Uuid { first: take_u64(rest)?, second: take_u64(rest)? });
    let segment = SegmentId(Uuid { first: take_u64(rest)?, second: take_u64(rest)? });
    Some(Identity { boot: take_text(rest)?.to_vec(), size, inode, base, port, client, segment })
}

fn encode(body: &mut Vec<u8>, change: &Change<'_>) {
    match change {
        Change::Clear => body.push(b'C'),
        Change::Strike(offset) => {
            body.push(b'S');
            put(body, &[*offset]);
        }
        Change::Mark { incarnation, applied } => {
            body.push(b'M');
            put(body, &[*incarnation, *applied]);
        }
        Change::Doubt(doubted) => body.extend_from_slice(&[b'D', u8::from(*doubted)]),
        Change::Note(entry) => {
            body.extend_from_slice(&[b'N', entry.flags, entry.data_type, u8::from(entry.checksum.is_some())]);
            put(body, &[entry.offset, entry.size, entry.generation, entry.replica.0]);
            put(body, &[entry.writer.0.first, entry.writer.0.second]);
            put(body, &[entry.checksum.unwrap_or(0), entry.soft_pin_until_ms]);
            [entry.tenant, entry.group, entry.key].iter().for_each(|text| put_text(body, text));
        }
    }
}

/// `Some(None)`: the process left in order.
fn decode(mut body: &[u8]) -> Option<Option<Change<'_>>> {
    let rest = &mut body;
    let change = match take(rest, 1)? {
        b"Q" => return Some(None),
        b"C" => Change::Clear,
        b"S" => Change::Strike(take_u64(rest)?),
        b"M" => Change::Mark { incarnation: take_u64(rest)?, applied: take_u64(rest)? },
        b"D" => Change::Doubt(take(rest, 1)? != [0]),
        b"N" => {
            let &[flags, data_type, has_checksum] = take(rest, 3)? else { return None };
            let (offset, size) = (take_u64(rest)?, take_u64(rest)?);
            let (generation, replica) = (take_u64(rest)?, ReplicaId(take_u64(rest)?));
            let writer = ClientId(Uuid { first: take_u64(rest)?, second: take_u64(rest)? });
            let checksum = Some(take_u64(rest)?).filter(|_| has_checksum != 0);
            let soft_pin_until_ms = take_u64(rest)?;
            let (tenant, group, key) = (take_text(rest)?, take_text(rest)?, take_text(rest)?);
            Change::Note(DirectoryEntry {
                offset,
                size,
                generation,
                replica,
                writer,
                checksum,
                flags,
                data_type,
                soft_pin_until_ms,
                tenant,
                group,
                key,
            })
        }
        _ => return None,
    };
    Some(Some(change))
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::entry;
    use super::*;

    fn identity() -> Identity {
        let client = ClientId(Uuid { first: 1, second: 2 });
        let segment = SegmentId(Uuid { first: 3, second: 4 });
        Identity { boot: b"boot".to_vec(), size: 5, inode: 9, base: 6, port: 7, client, segment }
    }

    #[test]
    fn another_process_reads_what_was_committed_and_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("memory.directory");
        assert_eq!(Journal::read(&path), None);
        let mut table = Table::default();
        let mut journal = Journal::create(&path, identity(), &table).unwrap();
        let changes = [
            Change::Note(entry(0, "a")),
            Change::Note(entry(64, "b")),
            Change::Strike(0),
            Change::Doubt(true),
            Change::Mark { incarnation: 8, applied: 9 },
        ];
        for change in &changes {
            table.change(change);
            journal.note(change);
        }
        assert!(Journal::read(&path).unwrap().table.is_empty(), "not yet");
        journal.commit(&table);
        let found = Journal::read(&path).unwrap();
        assert_eq!(found, Found { identity: identity(), table: table.clone(), is_clean: false });
        // Every cut of the end, and every changed byte, leaves a table of before.
        let whole = std::fs::read(&path).unwrap();
        for len in 0..whole.len() {
            std::fs::write(&path, &whole[..len]).unwrap();
            assert!(Journal::read(&path).is_none_or(|found| found.table != table && found.table.len() <= 2), "{len}");
        }
        for at in 0..whole.len() {
            let mut bad = whole.clone();
            bad[at] ^= 0x10;
            std::fs::write(&path, &bad).unwrap();
            assert!(Journal::read(&path).is_none_or(|found| found.table != table), "{at}");
        }
        // What lies behind a damaged record is not given up for a table of before: a strike may be among it.
        let mut bad = whole.clone();
        let at = whole.iter().position(|byte| *byte == b'a').unwrap();
        bad[at] ^= 0x10;
        std::fs::write(&path, &bad).unwrap();
        assert_eq!(Journal::read(&path), None);
        let mut journal = Journal::create(&path, identity(), &table).unwrap();
        journal.close(&table);
        assert_eq!(Journal::read(&path).unwrap(), Found { identity: identity(), table, is_clean: true });
    }
}
