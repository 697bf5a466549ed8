//! Memory that the processes of a group on one host share, made by one of them.
//!
//! The problem: the ranks of a tensor-parallel group keep the same bytes; held once, they cost once. The owner makes the
//! memory, every rank tells the others a [`Blob`], and each maps the owner's memory when it has the blobs of all.
//!
//! ```text
//! create ──► blob ──(all ranks exchange theirs)──► complete ──► ready
//! ```
//! Invariants: every rank's address is fixed from `create` on; nothing is mapped unless all ranks declared the same; a
//! refused `complete` changes nothing and may be tried again.

mod blob;
mod window;

use std::fs::{File, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::fs::{MemfdFlags, OFlags};
use rustix::io::Errno;

pub use blob::{BLOB_BYTES, Blob, BlobError, Declaration, Handle};
use window::Window;

const PAGE: u64 = 4096;
const HUGE_PAGE: u64 = 2 << 20;
/// The largest segment, as the peer has it.
const MAX_SIZE: u64 = 70_368_744_177_664;
/// Where POSIX shared memory objects are.
const SHM_FOLDER: &str = "/dev/shm";
/// Names to try before giving up.
const NAME_TRIES: u32 = 100;

/// What the owner's handle is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HandleForm {
    /// A POSIX shared memory object: what 0.3.13 of the peer makes and takes.
    #[default]
    Posix,
    /// A memory file: what 0.3.14 of the peer makes and takes. It leaves nothing behind when its owner is killed.
    MemoryFile,
}

impl HandleForm {
    fn allocated(self, size: u64) -> u64 {
        size.next_multiple_of(match self {
            HandleForm::Posix => PAGE,
            HandleForm::MemoryFile => HUGE_PAGE,
        })
    }
}

/// What kind of failure it is, by the peer's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupErrorKind {
    /// Arguments or blobs that cannot work.
    InvalidArgument,
    /// The system refused.
    Memory,
}

/// Why a group has no segment.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind:?}: {text}")]
pub struct GroupError {
    /// What kind.
    pub kind: GroupErrorKind,
    /// In words; the peer's where it has some.
    pub text: String,
}

fn invalid(text: impl Into<String>) -> GroupError {
    GroupError { kind: GroupErrorKind::InvalidArgument, text: text.into() }
}

fn memory(what: &str, errno: Errno) -> GroupError {
    // The number behind the system's words is not among the peer's.
    let words = std::io::Error::from(errno).to_string();
    let words = words.split(" (os error").next().unwrap_or_default();
    GroupError { kind: GroupErrorKind::Memory, text: format!("{what} failed: {words}") }
}

fn io(what: &str, error: &std::io::Error) -> GroupError {
    memory(what, Errno::from_io_error(error).unwrap_or(Errno::IO))
}

/// The name of a POSIX object, removed when dropped.
#[derive(Debug)]
struct Name(PathBuf);

impl Drop for Name {
    fn drop(&mut self) {
        // Gone already is as good.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The owner's hold on the memory.
#[derive(Debug)]
struct Owned {
    _file: OwnedFd,
    _name: Option<Name>,
}

/// One rank's side of a shared segment. Unmapped when dropped; the owner's memory goes when the last rank drops it.
#[derive(Debug)]
pub struct GroupSegment {
    declaration: Declaration,
    fingerprint: u64,
    window: Window,
    completing: Mutex<()>,
    ready: AtomicBool,
    owned: Option<Owned>,
}

impl GroupSegment {
    /// Reserves the addresses, makes the memory if `rank` is the owner, and says what to tell the other ranks.
    ///
    /// # Errors
    /// [`GroupError`]: sizes and ranks that cannot be, or what the system refuses.
    pub fn create(declaration: Declaration, rank: u32, form: HandleForm) -> Result<(GroupSegment, Blob), GroupError> {
        let Declaration { size, world_size, owner_rank, .. } = declaration;
        if size == 0 || size > MAX_SIZE {
            return Err(invalid(format!("Shared segment size must be in (0, {MAX_SIZE}]")));
        }
        if world_size == 0 {
            return Err(invalid("Shared segment world_size must not be zero"));
        }
        if rank >= world_size || owner_rank >= world_size {
            return Err(invalid("Shared segment rank_id and owner_rank must be below world_size"));
        }
        let allocated = form.allocated(size);
        let len = usize::try_from(allocated).map_err(|_| memory("mmap", Errno::NOMEM))?;
        let window = Window::reserve(len).map_err(|errno| memory("mmap", errno))?;
        let (owned, handle) = if rank == owner_rank {
            let (owned, handle) = make(form, allocated)?;
            window.fill(owned._file.as_fd(), len).map_err(|errno| memory("mmap", errno))?;
            (Some(owned), handle)
        } else {
            (None, String::new())
        };
        let fingerprint = declaration.fingerprint();
        let blob = Blob::mapped(rank, fingerprint, allocated, handle.as_bytes()).ok_or_else(|| {
            invalid(format!("Shared segment handle of {} bytes does not fit in a blob", handle.len()))
        })?;
        let (completing, ready) = (Mutex::new(()), AtomicBool::new(false));
        Ok((GroupSegment { declaration, fingerprint, window, completing, ready, owned }, blob))
    }

    /// Takes the blobs of all ranks, in their order, and maps the owner's memory.
    ///
    /// # Errors
    /// [`GroupError`]; nothing is changed by it.
    pub fn complete<B: AsRef<[u8]>>(&self, blobs: &[B]) -> Result<(), GroupError> {
        let _one_at_a_time = self.completing.lock();
        if self.is_ready() {
            return Err(invalid("SharedSegment::Complete has already been called"));
        }
        let owner = self.check(blobs)?;
        if self.owned.is_none() {
            let file = open(&owner.handle)?;
            let needed = self.declaration.size.next_multiple_of(PAGE);
            if file.metadata().map_err(|error| io("fstat", &error))?.len() < needed {
                return Err(invalid("Shared segment owner's memory is shorter than was declared"));
            }
            let len = usize::try_from(needed).map_err(|_| memory("mmap", Errno::NOMEM))?;
            self.window.fill(file.as_fd(), len).map_err(|errno| memory("mmap", errno))?;
        }
        self.ready.store(true, Ordering::Release);
        Ok(())
    }

    /// All blobs have to say the same; the owner's is given back.
    fn check<B: AsRef<[u8]>>(&self, blobs: &[B]) -> Result<Blob, GroupError> {
        if blobs.len() != self.declaration.world_size as usize {
            return Err(invalid(format!("Shared segment expects one blob per rank, got {}", blobs.len())));
        }
        let mut owner = None;
        for (rank, blob) in (0u32..).zip(blobs) {
            let blob = Blob::parse(blob.as_ref()).map_err(|error| invalid(error.to_string()))?;
            let refuse = |what: &str, how: &str| Err(invalid(format!("Shared segment {what} of rank {rank} {how}")));
            if blob.rank != rank {
                return refuse("blob", "carries a different rank id");
            }
            if !blob.is_mapped() {
                return refuse("backend", "differs");
            }
            if blob.fingerprint != self.fingerprint {
                return refuse("declaration", "differs from the local one");
            }
            let forms = [HandleForm::Posix, HandleForm::MemoryFile];
            if !forms.iter().any(|form| form.allocated(self.declaration.size) == blob.allocated) {
                return refuse("allocation size", "differs from the local one");
            }
            if rank == self.declaration.owner_rank {
                owner = Some(blob);
            }
        }
        owner
            .filter(|owner| !owner.handle.is_empty())
            .ok_or_else(|| invalid("Shared segment owner rank did not export a handle"))
    }

    /// Whether the memory is there on this rank and all ranks agree.
    pub fn is_ready(&self) -> bool {
        self.ready.load(Ordering::Acquire)
    }

    /// Where the memory is, or will be, in this process.
    pub fn address(&self) -> u64 {
        self.window.address()
    }

    /// Bytes that are shared.
    pub fn size(&self) -> u64 {
        self.declaration.size
    }
}

/// Makes the memory; its handle.
fn make(form: HandleForm, allocated: u64) -> Result<(Owned, String), GroupError> {
    match form {
        HandleForm::Posix => {
            let (file, name) = make_posix()?;
            let room = rustix::fs::fstatvfs(&file).map_err(|errno| memory("fstatvfs", errno))?;
            if room.f_bavail.saturating_mul(room.f_frsize) < allocated {
                // Found out by a signal on first use otherwise.
                return Err(memory(&format!("{allocated} bytes in {SHM_FOLDER}"), Errno::NOSPC));
            }
            file.set_len(allocated).map_err(|error| io("ftruncate", &error))?;
            let handle = name.0.strip_prefix(SHM_FOLDER).map(|name| format!("/{}", name.display())).unwrap_or_default();
            Ok((Owned { _file: file.into(), _name: Some(name) }, handle))
        }
        HandleForm::MemoryFile => {
            let file = rustix::fs::memfd_create("mcss", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
                .map_err(|errno| memory("memfd_create", errno))?;
            rustix::fs::ftruncate(&file, allocated).map_err(|errno| memory("ftruncate", errno))?;
            let stat = rustix::fs::fstat(&file).map_err(|errno| memory("fstat", errno))?;
            let fd = std::os::fd::AsRawFd::as_raw_fd(&file);
            let handle = format!("/proc/{}/fd/{fd}:{}:{}", std::process::id(), stat.st_ino, boot_id()?);
            Ok((Owned { _file: file, _name: None }, handle))
        }
    }
}

/// A new POSIX object that only this user can open.
fn make_posix() -> Result<(File, Name), GroupError> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let pid = std::process::id();
    let mut refused = Errno::EXIST;
    for _ in 0..NAME_TRIES {
        // Only has to differ from the names of this process and of dead ones of its number, which are passed over.
        let number = (MADE.fetch_add(1, Ordering::Relaxed) ^ std::ptr::from_ref(&MADE) as u64)
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let path = PathBuf::from(format!("{SHM_FOLDER}/mcss_{pid}_{number:016x}"));
        match OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => return Ok((file, Name(path))),
            Err(error) => refused = Errno::from_io_error(&error).unwrap_or(Errno::IO),
        }
        if refused != Errno::EXIST {
            break;
        }
    }
    Err(memory("shm_open", refused))
}

/// The owner's memory, from its handle.
fn open(handle: &[u8]) -> Result<File, GroupError> {
    let mut options = OpenOptions::new();
    options.read(true).write(true);
    match Handle::parse(handle) {
        Some(Handle::Posix(name)) => {
            options.custom_flags(OFlags::NOFOLLOW.bits() as i32);
            options.open(format!("{SHM_FOLDER}/{name}")).map_err(|error| io("shm_open", &error))
        }
        Some(Handle::MemoryFile { pid, fd, inode, boot }) => {
            if boot != boot_id()? {
                return Err(invalid("Shared segment owner runs on another host, or in another boot of this one"));
            }
            let file = options.open(format!("/proc/{pid}/fd/{fd}")).map_err(|error| io("opening the memfd", &error))?;
            let found = file.metadata().map_err(|error| io("fstat", &error))?;
            if found.ino() != inode || !found.is_file() {
                return Err(invalid("Shared segment owner's descriptor is of another file by now"));
            }
            Ok(file)
        }
        None => Err(invalid("Shared segment owner handle is neither a POSIX shm name nor a memfd /proc/<pid>/fd path")),
    }
}

fn boot_id() -> Result<String, GroupError> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map(|id| id.trim().to_owned()).map_err(|error| io("reading the boot id", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declaration(size: u64) -> Declaration {
        Declaration { name: "t".to_owned(), size, world_size: 2, owner_rank: 0 }
    }

    fn pair(size: u64, owner: HandleForm, other: HandleForm) -> [(GroupSegment, [u8; BLOB_BYTES]); 2] {
        [(0, owner), (1, other)].map(|(rank, form)| {
            let (segment, blob) = GroupSegment::create(declaration(size), rank, form).unwrap();
            (segment, blob.to_bytes())
        })
    }

    fn posix_name(blob: &[u8]) -> String {
        match Handle::parse(&Blob::parse(blob).unwrap().handle) {
            Some(Handle::Posix(name)) => format!("{SHM_FOLDER}/{name}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_ranks_have_the_same_bytes_in_every_mix_of_forms() {
        let forms = [HandleForm::Posix, HandleForm::MemoryFile];
        for (owner_form, other_form) in forms.into_iter().flat_map(|owner| forms.map(|other| (owner, other))) {
            let [(owner, first), (other, second)] = pair(5000, owner_form, other_form);
            assert!(!owner.is_ready() && !other.is_ready());
            let address = other.address();
            for segment in [&other, &owner] {
                segment.complete(&[first, second]).unwrap();
            }
            assert!(owner.is_ready() && other.is_ready() && other.address() == address);
            let word = |segment: &GroupSegment, at: u64| (segment.address() + at) as *mut u8;
            // SAFETY: both segments are mapped, 5000 bytes long, and nobody else knows them.
            unsafe {
                word(&owner, 4999).write_volatile(7);
                assert_eq!(word(&other, 4999).read_volatile(), 7, "{owner_form:?} {other_form:?}");
            }
            assert_eq!(
                owner.complete(&[first, second]).unwrap_err().text,
                "SharedSegment::Complete has already been called"
            );
        }
    }

    #[test]
    fn the_name_goes_with_its_owner_and_the_bytes_with_the_last_rank() {
        let [(owner, first), (other, second)] = pair(4096, HandleForm::Posix, HandleForm::Posix);
        let path = posix_name(&first);
        assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        other.complete(&[first, second]).unwrap();
        drop(owner);
        assert!(std::fs::metadata(&path).is_err());
        // SAFETY: the rank's mapping lives on.
        assert_eq!(unsafe { (other.address() as *const u8).read_volatile() }, 0);
    }

    #[test]
    fn what_does_not_fit_together_is_refused_and_may_be_tried_again() {
        let [(owner, first), (other, second)] = pair(8192, HandleForm::Posix, HandleForm::Posix);
        let refused = |blobs: &[&[u8]]| other.complete(blobs).unwrap_err().text;
        let with = |at: usize, bytes: &[u8]| {
            let mut blob = first;
            blob[at..at + bytes.len()].copy_from_slice(bytes);
            blob
        };
        let first_handle_bytes = Blob::parse(&first).unwrap().handle.len();
        assert_eq!(refused(&[]), "Shared segment expects one blob per rank, got 0");
        assert_eq!(refused(&[&second, &first]), "Shared segment blob of rank 0 carries a different rank id");
        assert_eq!(refused(&[&with(6, &[2, 0]), &second]), "Shared segment backend of rank 0 differs");
        assert!(refused(&[&with(16, &[0; 8]), &second]).contains("declaration of rank 0 differs"));
        assert!(refused(&[&with(24, &[0; 8]), &second]).contains("allocation size of rank 0 differs"));
        assert!(refused(&[&with(12, &[0; 4]), &second]).contains("did not export a handle"));
        assert!(refused(&[&with(32, b"/etc/shadow_________________"), &second]).contains("neither"));
        assert!(refused(&[&with(32 + first_handle_bytes - 1, b"g"), &second]).contains("shm_open failed"));
        assert!(refused(&[&first[1..], &second]).contains("unexpected length"));
        // Shorter than declared.
        let path = posix_name(&first);
        File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
        assert!(refused(&[&first, &second]).contains("shorter"));
        File::options().write(true).open(&path).unwrap().set_len(8192).unwrap();
        assert!(!other.is_ready());
        other.complete(&[first, second]).unwrap();
        drop(owner);
    }

    #[test]
    fn arguments_that_cannot_be_are_refused() {
        let create = |size, world_size, owner_rank, rank| {
            let declaration = Declaration { name: String::new(), size, world_size, owner_rank };
            GroupSegment::create(declaration, rank, HandleForm::Posix).map(drop).unwrap_err().kind
        };
        let invalid = GroupErrorKind::InvalidArgument;
        assert_eq!([create(0, 1, 0, 0), create(MAX_SIZE + 1, 1, 0, 0)], [invalid; 2]);
        assert_eq!([create(1, 0, 0, 0), create(1, 1, 0, 1), create(1, 1, 1, 0)], [invalid; 3]);
        assert_eq!(create(MAX_SIZE, 1, 0, 0), GroupErrorKind::Memory, "no host has so much");
    }

    #[test]
    fn a_memory_file_of_another_boot_or_another_file_is_refused() {
        let [(_owner, first), (other, second)] = pair(4096, HandleForm::MemoryFile, HandleForm::MemoryFile);
        let handle = String::from_utf8(Blob::parse(&first).unwrap().handle).unwrap();
        let with = |handle: &str| {
            let blob = Blob { handle: handle.as_bytes().to_vec(), ..Blob::parse(&first).unwrap() };
            other.complete(&[blob.to_bytes(), second]).unwrap_err().text
        };
        let (place, boot) = handle.rsplit_once(':').unwrap();
        assert!(with(&format!("{place}:{}", boot.replace(['0', '1', '2', '3'], "4"))).contains("another host"));
        let (descriptor, _) = place.rsplit_once(':').unwrap();
        assert!(with(&format!("{descriptor}:1:{boot}")).contains("another file"));
    }
}
