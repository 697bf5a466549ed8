//! Memory that outlives its process: a named file, and the directory of what is in it beside it.
//!
//! The process that has the lock of the file has the memory. The next one is the same client with the same segment at the
//! same address and port, so that masters and readers need not know that there was another.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use yb_env::Rng;
use yb_mem::Crc64;
use yb_transfer::{Coherence, MemoryDevice, Span};
use yb_types::{ClientId, SegmentId};

use crate::directory::{Found, Identity, Journal, Table};
use crate::{Error, Result};

/// The segment that a memory file is.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) segment: SegmentId,
    pub(crate) table: Table,
    pub(crate) journal: Journal,
    /// An earlier process lent it: others may still read there.
    pub(crate) was_lent: bool,
}

/// A memory file that this process has.
#[derive(Debug)]
pub(crate) struct KeptMemory {
    /// Locked as long as it is open.
    _lock: File,
    pub(crate) device: Arc<MemoryDevice>,
    journal: PathBuf,
    size: u64,
    /// Of the file: another one of this name has nothing of what the log says.
    inode: u64,
    /// What an earlier process left.
    found: Option<Found>,
}

impl KeptMemory {
    /// Opens or makes the file, and maps it where an earlier process had it.
    pub(crate) fn open(path: &Path, size: u64) -> Result<KeptMemory> {
        let failed = |error: &dyn std::fmt::Display| Error::setup("the memory file", format!("{path:?}: {error}"));
        let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(path);
        let file = file.map_err(|error| failed(&error))?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(failed(&"another process has it")),
            Err(TryLockError::Error(error)) => return Err(failed(&error)),
        }
        // One log, by whatever link the file is reached.
        let path = &path.canonicalize().map_err(|error| failed(&error))?;
        let inode = file.metadata().map_err(|error| failed(&error))?.ino();
        let mut name = path.as_os_str().to_owned();
        name.push(".directory");
        let journal = PathBuf::from(name);
        let found = Journal::read(&journal).filter(|found| {
            let same = found.identity.boot == boot() && found.identity.size == size && found.identity.inode == inode;
            same && file.metadata().is_ok_and(|metadata| metadata.len() == size)
        });
        file.set_len(size).map_err(|error| failed(&error))?;
        let at = |base| MemoryDevice::open_at(path, size, Coherence::Hardware, base);
        let mut kept = match found {
            Some(found) => match at(Some(found.identity.base)) {
                Ok(device) => {
                    KeptMemory { _lock: file, device: Arc::new(device), journal, size, inode, found: Some(found) }
                }
                Err(error) => {
                    tracing::warn!(%error, ?path, "the memory cannot be had at its old address; it starts empty");
                    let device = at(None).map_err(|error| failed(&error))?;
                    KeptMemory { _lock: file, device: Arc::new(device), journal, size, inode, found: None }
                }
            },
            None => {
                let device = at(None).map_err(|error| failed(&error))?;
                KeptMemory { _lock: file, device: Arc::new(device), journal, size, inode, found: None }
            }
        };
        if kept.found.as_ref().is_some_and(|found| !found.is_clean && !kept.is_whole(&found.table)) {
            tracing::error!(?path, "what lies in the memory file does not fit its directory; it starts empty");
            kept.found = None;
        }
        Ok(kept)
    }

    /// The port at which an earlier process was reached.
    pub(crate) fn port(&self) -> Option<u16> {
        self.found.as_ref().map(|found| found.identity.port)
    }

    /// The port cannot be had: readers would not find what is here.
    pub(crate) fn start_anew(&mut self) {
        self.found = None;
    }

    /// Who an earlier process was.
    pub(crate) fn client(&self) -> Option<ClientId> {
        self.found.as_ref().map(|found| found.identity.client)
    }

    /// The segment and what is known of it; the log is open from here on.
    pub(crate) fn begin(&mut self, client: ClientId, port: u16, rng: &mut Rng) -> Result<Begun> {
        let found = self.found.take();
        let was_lent = found.is_some();
        let segment = found.as_ref().map_or_else(|| SegmentId(rng.uuid()), |found| found.identity.segment);
        let table = found.map(|found| found.table).unwrap_or_default();
        let base = self.device.address();
        let identity = Identity { boot: boot(), size: self.size, inode: self.inode, base, port, client, segment };
        let journal = Journal::create(&self.journal, identity, &table).map_err(|error| {
            Error::setup("the directory of the memory file", format!("{:?}: {error}", self.journal))
        })?;
        if !table.is_empty() {
            tracing::info!(objects = table.len(), "the memory of an earlier process is taken over");
        }
        Ok(Begun { segment, table, journal, was_lent })
    }

    /// Whether every object that has a checksum fits it, and every object lies inside.
    fn is_whole(&self, table: &Table) -> bool {
        table.from(0).all(|(offset, kept)| {
            let Ok(span): std::result::Result<Span<'_>, _> = self.device.span(offset, kept.size) else { return false };
            kept.checksum.is_none() || Crc64::of(span).map(Crc64::value) == kept.checksum
        })
    }
}

/// What tells this start of the host from others.
fn boot() -> Vec<u8> {
    std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}
