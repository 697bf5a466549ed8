//! Memory that outlives its process: a named file, and the directory of what is in it beside it.
//!
//! The process that has the lock of the file has the memory. The next one is the same client with the same segment at the
//! same address and port, so that masters and readers need not know that there was another.

use std::fs::{File, OpenOptions, TryLockError};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use yb_env::Rng;
use yb_mem::Crc64;
use yb_transfer::{Coherence, MemoryDevice};
use yb_types::{ClientId, SegmentId};

use crate::directory::{Change, Found, Identity, Journal, Kept, Ports, Table};
use crate::{Error, Result};

/// The segment that a memory file is.
#[derive(Debug)]
pub(crate) struct Begun {
    pub(crate) segment: SegmentId,
    pub(crate) table: Table,
    pub(crate) journal: Journal,
    /// An earlier process lent it: others may still read there.
    pub(crate) was_lent: bool,
    /// Objects that are not in the table any more: a master that lives on may still offer them.
    pub(crate) misfits: Vec<Misfit>,
}

/// An object of an earlier process whose bytes are not those that were written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Misfit {
    pub(crate) object: Kept,
    /// Checksums: of the bytes that are there, and the writer's.
    pub(crate) found: u64,
    pub(crate) written: u64,
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
    /// Of that, taken out.
    misfits: Vec<Misfit>,
}

impl KeptMemory {
    /// Opens or makes the file, and maps it where an earlier process had it. `found_one`: called with who that was, before what
    /// lies there is looked at, which takes long where there is much.
    pub(crate) fn open(path: &Path, size: u64, found_one: impl FnOnce(ClientId)) -> Result<KeptMemory> {
        let failed = |error: &dyn std::fmt::Display| Error::setup("the memory file", format!("{path:?}: {error}"));
        check_place(path).map_err(|error| failed(&error))?;
        let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).mode(0o600).open(path);
        let file = file.map_err(|error| failed(&error))?;
        patiently(|| match file.try_lock() {
            Ok(()) => Ok(()),
            Err(TryLockError::WouldBlock) => Err(failed(&"another process has it")),
            Err(TryLockError::Error(error)) => Err(failed(&error)),
        })?;
        // One log, by whatever link the file is reached.
        let path = &path.canonicalize().map_err(|error| failed(&error))?;
        let about = file.metadata().map_err(|error| failed(&error))?;
        let inode = about.ino();
        if about.mode() & 0o077 != 0 {
            let mode = format!("{:o}", about.mode() & 0o7777);
            tracing::warn!(?path, mode, "other users of this host may read what lies in the memory file; make it 600");
        }
        let mut name = path.as_os_str().to_owned();
        name.push(".directory");
        let journal = PathBuf::from(name);
        let found = Journal::read(&journal).and_then(|found| match &found.identity {
            _ if about.len() != size => Err("the file has another size than was asked for"),
            identity if identity.boot != boot() => Err("its directory is of an earlier start of this host"),
            identity if identity.size != size => Err("its directory is of a file of another size"),
            identity if identity.inode != inode => Err("its directory is of another file of this name"),
            _ => Ok(found),
        });
        let found = found.inspect_err(|why| {
            if about.len() > 0 {
                tracing::warn!(?path, "the memory file starts empty: {why} (directory: {journal:?})");
            }
        });
        file.set_len(size).map_err(|error| failed(&error))?;
        let at = |base| MemoryDevice::open_at(path, size, Coherence::Hardware, base);
        let old = found.ok().and_then(|found| match at(Some(found.identity.base)) {
            Ok(device) => Some((device, found)),
            Err(error) => {
                tracing::warn!(%error, ?path, "the memory cannot be had at its old address; it starts empty");
                None
            }
        });
        let (device, found) = match old {
            Some((device, found)) => (device, Some(found)),
            None => (at(None).map_err(|error| failed(&error))?, None),
        };
        let (device, misfits) = (Arc::new(device), Vec::new());
        let mut kept = KeptMemory { _lock: file, device, journal, size, inode, found, misfits };
        if let Some(client) = kept.client() {
            found_one(client);
        }
        kept.sort_out(path);
        Ok(kept)
    }

    /// After a process that was killed: objects go whose bytes are others than were written.
    fn sort_out(&mut self, path: &Path) {
        let Some(mut found) = self.found.take().filter(|found| found.is_clean || self.holds(&found.table)) else {
            return;
        };
        if !found.is_clean {
            let (mut fitting, mut misfits) = (0, Vec::new());
            for (offset, kept) in found.table.from(0) {
                match self.compare(offset, kept) {
                    Some(misfit) => misfits.push((offset, misfit)),
                    None => fitting += usize::from(kept.checksum.is_some()),
                }
            }
            if misfits.len() > fitting {
                tracing::error!(
                    ?path,
                    misfits = misfits.len(),
                    "what lies in the memory file is not what its directory says; it starts empty"
                );
                return;
            }
            for (offset, misfit) in misfits {
                let key = String::from_utf8_lossy(misfit.object.entry(offset).key).into_owned();
                tracing::error!(?path, %key, offset, "an object in the memory file has other bytes than were written; it is dropped");
                found.table.change(&Change::Strike(offset));
                self.misfits.push(misfit);
            }
        }
        self.found = Some(found);
    }

    /// Whether every object lies inside.
    fn holds(&self, table: &Table) -> bool {
        table.from(0).all(|(offset, kept)| offset.checked_add(kept.size).is_some_and(|end| end <= self.size))
    }

    fn compare(&self, offset: u64, kept: &Kept) -> Option<Misfit> {
        let written = kept.checksum?;
        let found = self.device.span(offset, kept.size).ok().and_then(Crc64::of)?.value();
        (found != written).then(|| Misfit { object: kept.clone(), found, written })
    }

    /// The ports at which an earlier process was reached.
    pub(crate) fn ports(&self) -> Option<Ports> {
        self.found.as_ref().map(|found| found.identity.ports)
    }

    /// The handshake port cannot be had: readers would not find what is here.
    pub(crate) fn start_anew(&mut self) {
        self.found = None;
        self.misfits.clear();
    }

    /// Who an earlier process was.
    pub(crate) fn client(&self) -> Option<ClientId> {
        self.found.as_ref().map(|found| found.identity.client)
    }

    /// The segment and what is known of it; the log is open from here on.
    pub(crate) fn begin(&mut self, client: ClientId, ports: Ports, rng: &mut Rng) -> Result<Begun> {
        let found = self.found.take();
        let was_lent = found.is_some();
        let segment = found.as_ref().map_or_else(|| SegmentId(rng.uuid()), |found| found.identity.segment);
        let table = found.map(|found| found.table).unwrap_or_default();
        let base = self.device.address();
        let identity = Identity { boot: boot(), size: self.size, inode: self.inode, base, ports, client, segment };
        let journal = Journal::create(&self.journal, identity, &table).map_err(|error| {
            Error::setup("the directory of the memory file", format!("{:?}: {error}", self.journal))
        })?;
        if !table.is_empty() {
            tracing::info!(objects = table.len(), "the memory of an earlier process is taken over");
        }
        Ok(Begun { segment, table, journal, was_lent, misfits: std::mem::take(&mut self.misfits) })
    }
}

/// A process that was killed has its files and ports until its memory is freed: who comes after it waits so long.
const PREDECESSOR_ENDS: Duration = Duration::from_secs(4);
const BETWEEN_TRIES: Duration = Duration::from_millis(20);

/// Tries until it works, or for four seconds, after which a process that is ending should have let go of its files and ports.
///
/// # Errors
/// That of the last try.
pub fn patiently<T, E>(mut attempt: impl FnMut() -> std::result::Result<T, E>) -> std::result::Result<T, E> {
    let clock = yb_env::Clock::real();
    let until = clock.now() + PREDECESSOR_ENDS;
    loop {
        match attempt() {
            Err(_) if clock.now() < until => yb_env::sleep(BETWEEN_TRIES),
            done => return done,
        }
    }
}

/// File systems whose files are memory, as `statfs` names them: tmpfs, ramfs, hugetlbfs.
const MEMORY_FILE_SYSTEMS: [u64; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

/// Refuses a place where the memory would be the page cache of a disk: every write to the segment would be written there
/// too.
fn check_place(path: &Path) -> std::result::Result<(), String> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The file itself where it is there: it may be a link, or the folder a mount with another below it.
    let place = if path.exists() { path } else { folder };
    let kind = rustix::fs::statfs(place).map_err(|error| format!("{}: {error}", place.display()))?.f_type as u64;
    if MEMORY_FILE_SYSTEMS.contains(&(kind & 0xffff_ffff)) || is_mapped_directly(place) {
        return Ok(());
    }
    Err(format!(
        "it is not memory but a file system of a disk (type {kind:#x}): all that is written to the segment would be written \
         to the disk too; name a file on a tmpfs such as /dev/shm, or on a hugetlbfs"
    ))
}

/// Persistent memory, mounted so that mapping a file maps the memory.
fn is_mapped_directly(place: &Path) -> bool {
    use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statx};
    let found = statx(CWD, place, AtFlags::empty(), StatxFlags::BASIC_STATS);
    found.is_ok_and(|found| found.stx_attributes.contains(StatxAttributes::DAX))
}

/// What tells this start of the host from others.
fn boot() -> Vec<u8> {
    std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use yb_types::ReplicaId;
    use yb_wire::messages::DirectoryEntry;

    use super::*;

    const SIZE: u64 = 1 << 20;
    const OBJECT: u64 = 4096;
    const PORTS: Ports = Ports { handshake: 7, data: 8 };

    fn entry(number: u64, checksum: Option<u64>, key: &[u8]) -> DirectoryEntry<'_> {
        DirectoryEntry {
            offset: number * OBJECT,
            size: OBJECT,
            generation: 1 + number,
            replica: ReplicaId(1 + number),
            writer: ClientId::default(),
            checksum,
            flags: 0,
            data_type: 0,
            soft_pin_until_ms: 0,
            tenant: b"default",
            group: b"",
            key,
        }
    }

    fn fill(memory: &KeptMemory, number: u64, byte: u8) -> u64 {
        let span = memory.device.span(number * OBJECT, OBJECT).unwrap();
        yb_mem::copy(span, yb_mem::Span::source(&[byte; OBJECT as usize]), yb_mem::CopyHint::Cached).unwrap();
        Crc64::of(span).unwrap().value()
    }

    /// What a killed process left: objects 0 to 3, the last one without a checksum; bytes of `damaged` are others by now.
    fn left_behind(path: &Path, damaged: &[u64]) {
        let mut memory = KeptMemory::open(path, SIZE, |_| {}).unwrap();
        let mut begun = memory.begin(ClientId::default(), PORTS, &mut Rng::from_entropy()).unwrap();
        for number in 0..4 {
            let sum = fill(&memory, number, 0x40 + number as u8);
            let key = format!("key-{number}");
            let change = Change::Note(entry(number, (number < 3).then_some(sum), key.as_bytes()));
            begun.table.change(&change);
            begun.journal.note(&change);
        }
        begun.journal.commit(&begun.table);
        for number in damaged {
            fill(&memory, *number, 0xff);
        }
    }

    fn taken_over(path: &Path) -> (Vec<u64>, Vec<Misfit>) {
        let mut memory = KeptMemory::open(path, SIZE, |_| {}).unwrap();
        let begun = memory.begin(ClientId::default(), PORTS, &mut Rng::from_entropy()).unwrap();
        (begun.table.from(0).map(|(offset, _)| offset / OBJECT).collect(), begun.misfits)
    }

    #[test]
    fn an_object_with_other_bytes_goes_and_the_others_stay() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("memory");
        left_behind(&path, &[1]);
        let (numbers, misfits) = taken_over(&path);
        assert_eq!(numbers, [0, 2, 3]);
        let [Misfit { object, found, written }] = &misfits[..] else { unreachable!("{misfits:?}") };
        assert_eq!((object.entry(0).key, object.replica), (&b"key-1"[..], ReplicaId(2)));
        assert_ne!(found, written);
        // The log of the next process says what is left.
        assert_eq!(taken_over(&path), (vec![0, 2, 3], vec![]));
    }

    #[test]
    fn nobody_else_may_read_the_files() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        left_behind(&folder.path().join("memory"), &[]);
        for name in ["memory", "memory.directory"] {
            let mode = folder.path().join(name).metadata().unwrap().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn any_damage_to_the_directory_gives_no_object_that_was_not_there() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("memory");
        left_behind(&path, &[]);
        let journal = folder.path().join("memory.directory");
        let whole = std::fs::read(&journal).unwrap();
        let mut rng = Rng::seeded(5);
        for round in 0..300 {
            let mut bad = whole.clone();
            for _ in 0..=rng.next_u64() % 4 {
                let at = rng.next_u64() as usize % bad.len();
                bad[at] = rng.next_u64() as u8;
            }
            bad.truncate(bad.len() - rng.next_u64() as usize % (bad.len() / 2));
            std::fs::write(&journal, &bad).unwrap();
            let (numbers, _) = taken_over(&path);
            assert!(numbers.iter().all(|number| *number < 4), "{round}: {numbers:?}");
        }
    }

    #[test]
    fn where_most_have_other_bytes_it_is_not_the_directory_of_this_memory() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("memory");
        left_behind(&path, &[0, 2]);
        assert_eq!(taken_over(&path), (vec![], vec![]));
    }

    #[test]
    fn an_object_that_leaves_the_memory_makes_the_directory_worthless() {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("memory");
        let mut memory = KeptMemory::open(&path, SIZE, |_| {}).unwrap();
        let mut begun = memory.begin(ClientId::default(), PORTS, &mut Rng::from_entropy()).unwrap();
        for (number, size) in [(0, OBJECT), (1, u64::MAX)] {
            let change = Change::Note(DirectoryEntry { size, ..entry(number, None, b"key") });
            begun.table.change(&change);
            begun.journal.note(&change);
        }
        begun.journal.commit(&begun.table);
        drop((memory, begun));
        assert_eq!(taken_over(&path), (vec![], vec![]));
    }

    #[test]
    fn memory_is_told_from_disks() {
        assert_eq!(check_place(Path::new("/dev/shm/none")), Ok(()));
        let refused = check_place(Path::new("/proc/none")).unwrap_err();
        assert!(refused.contains("type 0x9fa0") && refused.contains("/dev/shm"), "{refused}");
        assert!(check_place(Path::new("/no/such/folder/file")).unwrap_err().contains("/no/such/folder"));
    }
}
