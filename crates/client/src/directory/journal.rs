//! The log of a directory, beside a memory file that outlives its process.
//!
//! Records as of [`yb_journal::frame`]. The first one says whose memory this is. What is half written at the end was not
//! acknowledged to the master, which says it again.

use std::borrow::Cow;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use yb_journal::frame::{self, Next};
use yb_journal::text::{put, put_entry, put_text, put_uuid, take, take_entry, take_text, take_u64, take_uuid};
use yb_types::{ClientId, SegmentId};

use super::segment::Log;
use super::table::{Change, Roster, Table};

/// Format of the log. That of before, without rosters, is read too, and no other.
const VERSION: u64 = 5;
const OLDEST: u64 = 4;
/// A log is written anew when this much of it is out of date.
const COMPACT_AFTER: u64 = 64 << 20;

/// A strike may be among what cannot be read.
const DAMAGED: &str = "a record in it is damaged";

/// Whose memory a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Of this start of the host.
    pub(crate) boot: Vec<u8>,
    pub(crate) size: u64,
    /// Of the memory file.
    pub(crate) inode: u64,
    pub(crate) base: u64,
    pub(crate) ports: Ports,
    pub(crate) client: ClientId,
    pub(crate) segment: SegmentId,
}

/// Where peers reach the memory: some remember both as long as they live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) handshake: u16,
    pub(crate) data: u16,
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
        frame::append(&mut bytes, |body| head(body, &identity));
        table.changes(|change| frame::append(&mut bytes, |body| encode(body, change)));
        // It names keys: for nobody else's eyes, as the memory is.
        let mut file = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&new)?;
        file.write_all(&bytes)?;
        std::fs::rename(&new, path)?;
        let written = bytes.len() as u64;
        Ok(Journal { path: path.to_owned(), identity, file: Some(file), waiting: Vec::new(), written })
    }

    /// Reads a log.
    ///
    /// # Errors
    /// There is none, none of this format, or it was changed by somebody else.
    pub(crate) fn read(path: &Path) -> Result<Found, &'static str> {
        let bytes = std::fs::read(path).map_err(|_| "there is none, or it cannot be read")?;
        let mut rest = bytes.as_slice();
        let Next::Record(first) = frame::next(&mut rest) else { return Err("it does not begin with a whole record") };
        let identity = read_head(first).ok_or("it is of another format")?;
        let (mut table, mut is_clean) = (Table::default(), false);
        loop {
            match frame::next(&mut rest) {
                Next::Record(body) => {
                    let said = decode(body).ok_or(DAMAGED)?;
                    is_clean = said.is_none();
                    said.iter().for_each(|change| table.change(change));
                }
                Next::End | Next::Torn => return Ok(Found { identity, table, is_clean }),
                // Strikes behind it would be lost with it.
                Next::Broken => return Err(DAMAGED),
            }
        }
    }

    /// Notes a change, to be written by the next [`commit`](Self::commit).
    pub(crate) fn note(&mut self, change: &Change<'_>) {
        frame::append(&mut self.waiting, |body| encode(body, change));
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
        frame::append(&mut self.waiting, |body| body.push(b'Q'));
        self.commit(table);
        self.file = None;
    }
}

impl Log for Option<Journal> {
    fn note(&mut self, change: &Change<'_>) {
        if let Some(journal) = self {
            journal.note(change);
        }
    }

    fn commit(&mut self, table: &Table) {
        if let Some(journal) = self {
            journal.commit(table);
        }
    }
}

fn head(body: &mut Vec<u8>, identity: &Identity) {
    let Identity { boot, size, inode, base, ports, client, segment } = identity;
    body.push(b'H');
    put(body, &[VERSION, *size, *inode, *base, u64::from(ports.handshake), u64::from(ports.data)]);
    put_uuid(body, client.0);
    put_uuid(body, segment.0);
    put_text(body, boot);
}

fn read_head(mut body: &[u8]) -> Option<Identity> {
    let rest = &mut body;
    if take(rest, 1)? != b"H" || !(OLDEST..=VERSION).contains(&take_u64(rest)?) {
        return None;
    }
    let (size, inode, base) = (take_u64(rest)?, take_u64(rest)?, take_u64(rest)?);
    let (handshake, data) = (u16::try_from(take_u64(rest)?).ok()?, u16::try_from(take_u64(rest)?).ok()?);
    let ports = Ports { handshake, data };
    let (client, segment) = (ClientId(take_uuid(rest)?), SegmentId(take_uuid(rest)?));
    Some(Identity { boot: take_text(rest)?.to_vec(), size, inode, base, ports, client, segment })
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
            body.push(b'N');
            put_entry(body, entry);
        }
        Change::Heard(roster) => {
            let Roster { incarnation, term, number, ref members } = **roster;
            body.push(b'R');
            put(body, &[incarnation, term, number]);
            members.iter().for_each(|id| put_uuid(body, id.0));
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
        b"N" => Change::Note(take_entry(rest)?),
        b"R" => Change::Heard(Cow::Owned(take_roster(rest)?)),
        _ => return None,
    };
    Some(Some(change))
}

fn take_roster(rest: &mut &[u8]) -> Option<Roster> {
    let (incarnation, term, number) = (take_u64(rest)?, take_u64(rest)?, take_u64(rest)?);
    let mut members = Vec::new();
    while !rest.is_empty() {
        members.push(SegmentId(take_uuid(rest)?));
    }
    Some(Roster { incarnation, term, number, members })
}

#[cfg(test)]
mod tests {
    use yb_types::Uuid;

    use super::super::table::tests::entry;
    use super::*;

    fn identity() -> Identity {
        let client = ClientId(Uuid { first: 1, second: 2 });
        let segment = SegmentId(Uuid { first: 3, second: 4 });
        Identity {
            boot: b"boot".to_vec(),
            size: 5,
            inode: 9,
            base: 6,
            ports: Ports { handshake: 7, data: 8 },
            client,
            segment,
        }
    }

    #[test]
    fn another_process_reads_what_was_committed_and_no_more() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("memory.directory");
        assert_eq!(Journal::read(&path).ok(), None);
        let mut table = Table::default();
        let mut journal = Journal::create(&path, identity(), &table).unwrap();
        let changes = [
            Change::Note(entry(0, "a")),
            Change::Note(entry(64, "b")),
            Change::Strike(0),
            Change::Doubt(true),
            Change::Heard(Cow::Owned(Roster {
                incarnation: 8,
                term: 2,
                number: 3,
                members: vec![SegmentId(Uuid { first: 3, second: 4 })],
            })),
            Change::Mark { incarnation: 8, applied: 9 },
        ];
        for change in &changes {
            table.change(change);
            journal.note(change);
        }
        assert!(Journal::read(&path).ok().unwrap().table.is_empty(), "not yet");
        journal.commit(&table);
        let found = Journal::read(&path).ok().unwrap();
        assert_eq!(found, Found { identity: identity(), table: table.clone(), is_clean: false });
        // Every cut of the end, and every changed byte, leaves a table of before.
        let whole = std::fs::read(&path).unwrap();
        for len in 0..whole.len() {
            std::fs::write(&path, &whole[..len]).unwrap();
            assert!(
                Journal::read(&path).ok().is_none_or(|found| found.table != table && found.table.len() <= 2),
                "{len}"
            );
        }
        for at in 0..whole.len() {
            let mut bad = whole.clone();
            bad[at] ^= 0x10;
            std::fs::write(&path, &bad).unwrap();
            assert!(Journal::read(&path).ok().is_none_or(|found| found.table != table), "{at}");
        }
        // What lies behind a damaged record is not given up for a table of before: a strike may be among it.
        let mut bad = whole.clone();
        let at = whole.iter().position(|byte| *byte == b'a').unwrap();
        bad[at] ^= 0x10;
        std::fs::write(&path, &bad).unwrap();
        assert_eq!(Journal::read(&path).ok(), None);
        let mut journal = Journal::create(&path, identity(), &table).unwrap();
        journal.close(&table);
        assert_eq!(Journal::read(&path).ok().unwrap(), Found { identity: identity(), table, is_clean: true });
    }
}
