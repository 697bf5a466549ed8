//! The files behind a segment.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{AtFlags, OFlags, StatxFlags};

use crate::file::plan::{Alignment, Extent};
use crate::{TransferError, TransferErrorKind};

/// What the name of a segment that is a local file begins with; the path follows.
pub(crate) const SCHEME: &str = "file://";

/// Files that cannot be opened for writing, but perhaps for reading: no right to, and a program that runs.
const NOT_TO_BE_WRITTEN: [io::ErrorKind; 3] =
    [io::ErrorKind::PermissionDenied, io::ErrorKind::ReadOnlyFilesystem, io::ErrorKind::ExecutableFileBusy];

/// How files are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSettings {
    /// Go past the page cache where the file system allows it (`YB_FILE_DIRECT`).
    pub direct: bool,
    /// A write is done when the device says that the bytes are on it, not when they are in the page cache or in the
    /// device's own cache (`YB_FILE_DURABLE`). It costs one flush of each file and call.
    pub durable: bool,
    /// Use io_uring (`YB_FILE_URING`); without it, plain reads and writes one after the other.
    pub uring: bool,
    /// Most operations of one call in flight.
    pub depth: u16,
}

impl Default for FileSettings {
    fn default() -> Self {
        FileSettings { direct: true, durable: false, uring: true, depth: 32 }
    }
}

/// One of the files that a segment is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePart {
    /// A regular file or a block device.
    pub path: PathBuf,
    /// Bytes of it that belong to the segment; `None` = all that it has now. No write reaches past them.
    pub len: Option<u64>,
}

/// An opened file.
#[derive(Debug)]
pub(crate) struct OpenPart {
    path: PathBuf,
    /// Where it begins in the segment.
    start: u64,
    len: u64,
    writable: bool,
    cached: File,
    direct: Option<(File, Alignment)>,
    /// Set when the file system took back what it had promised.
    direct_failed: AtomicBool,
}

/// The opened files of a segment, end to end.
#[derive(Debug)]
pub(crate) struct FileSet {
    parts: Vec<OpenPart>,
    len: u64,
    durable: bool,
}

impl FileSet {
    /// Opens all files; for reading only, where writing is not allowed.
    pub(crate) fn open(name: &str, parts: &[FilePart], settings: FileSettings) -> Result<Self, TransferError> {
        let mut set = FileSet { parts: Vec::with_capacity(parts.len()), len: 0, durable: settings.durable };
        for part in parts {
            let refused = |error: io::Error| {
                let kind = match error.kind() {
                    io::ErrorKind::NotFound => TransferErrorKind::Unreachable,
                    _ => TransferErrorKind::InvalidRequest,
                };
                TransferError::new(kind, name, format!("opening {}: {error}", part.path.display()))
            };
            let opened = OpenPart::open(part, set.len, settings).map_err(refused)?;
            set.len = set.len.checked_add(opened.len).ok_or_else(|| refused(io::ErrorKind::FileTooLarge.into()))?;
            set.parts.push(opened);
        }
        if set.len == 0 {
            return Err(TransferError::new(TransferErrorKind::InvalidRequest, name, "its files have no bytes"));
        }
        Ok(set)
    }

    /// Bytes of the segment.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// Whether any of the files is used past the page cache.
    pub(crate) fn is_direct(&self) -> bool {
        self.parts.iter().any(|part| part.direct().is_some())
    }

    pub(crate) fn is_durable(&self) -> bool {
        self.durable
    }

    pub(crate) fn parts(&self) -> &[OpenPart] {
        &self.parts
    }

    pub(crate) fn part(&self, index: usize) -> Option<&OpenPart> {
        self.parts.get(index)
    }

    /// The files that `offset..offset+len` lies in; `None` when it is not wholly inside the segment.
    pub(crate) fn extents(&self, offset: u64, len: u64) -> Option<Vec<Extent>> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len)?;
        let inside = |(index, part): (usize, &OpenPart)| {
            let first = part.start.max(offset);
            let last = (part.start + part.len).min(end);
            (first < last).then(|| Extent {
                part: index,
                offset: first - part.start,
                len: last - first,
                local: first - offset,
            })
        };
        Some(self.parts.iter().enumerate().filter_map(inside).collect())
    }
}

impl OpenPart {
    fn open(part: &FilePart, start: u64, settings: FileSettings) -> io::Result<Self> {
        // Before the open: to open a pipe would wait for its other end.
        let kind = std::fs::metadata(&part.path)?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "neither a regular file nor a block device"));
        }
        let (cached, writable) = match open(&part.path, true, OFlags::empty()) {
            Ok(file) => (file, true),
            Err(error) if NOT_TO_BE_WRITTEN.contains(&error.kind()) => {
                (open(&part.path, false, OFlags::empty())?, false)
            }
            Err(error) => return Err(error),
        };
        // Of a block device, only this tells the size.
        let size = (&cached).seek(SeekFrom::End(0))?;
        let len = part.len.unwrap_or(size);
        if kind.is_block_device() && len > size {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("the device has {size} bytes, not {len}")));
        }
        let direct =
            if settings.direct { open_direct(&part.path, writable, &cached) } else { Err("switched off".into()) };
        if let Err(reason) = &direct {
            tracing::info!(path = %part.path.display(), reason, "the file is used through the page cache");
        }
        let direct_failed = AtomicBool::new(false);
        Ok(OpenPart { path: part.path.clone(), start, len, writable, cached, direct: direct.ok(), direct_failed })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.writable
    }

    /// The descriptor that goes through the page cache.
    pub(crate) fn cached(&self) -> &File {
        &self.cached
    }

    /// The descriptor that goes past the page cache, and what it wants to be aligned.
    pub(crate) fn direct(&self) -> Option<&(File, Alignment)> {
        self.direct.as_ref().filter(|_| !self.direct_failed.load(Ordering::Relaxed))
    }

    /// The file system refused an aligned operation: it is asked for no more of them.
    pub(crate) fn give_up_direct(&self) {
        if !self.direct_failed.swap(true, Ordering::Relaxed) {
            let path = self.path.display();
            tracing::warn!(%path, "the file system refuses aligned direct operations; the page cache is used");
        }
    }
}

fn open(path: &Path, write: bool, flags: OFlags) -> io::Result<File> {
    let flags = i32::try_from((flags | OFlags::CLOEXEC | OFlags::NOCTTY).bits()).unwrap_or(0);
    OpenOptions::new().read(true).write(write).custom_flags(flags).open(path)
}

/// Opens the file past the page cache, or says why that does not go.
fn open_direct(path: &Path, write: bool, cached: &File) -> Result<(File, Alignment), String> {
    let file = open(path, write, OFlags::DIRECT).map_err(|error| format!("O_DIRECT: {error}"))?;
    let same = |a: &rustix::fs::Stat, b: &rustix::fs::Stat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
    match (rustix::fs::fstat(&file), rustix::fs::fstat(cached)) {
        (Ok(a), Ok(b)) if same(&a, &b) => {}
        _ => return Err("the file was replaced while it was opened".to_owned()),
    }
    let said = rustix::fs::statx(&file, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN).ok();
    let said = said.filter(|stat| stat.stx_mask & StatxFlags::DIOALIGN.bits() != 0);
    // Kernels before 6.1 do not say; a page suits every file system.
    let (memory, offset) = said.map_or((4096, 4096), |stat| (stat.stx_dio_mem_align, stat.stx_dio_offset_align));
    Alignment::new(memory, offset).map(|alignment| (file, alignment)).ok_or_else(|| {
        format!("O_DIRECT is not supported here (the file system wants {memory}/{offset} bytes aligned)")
    })
}
