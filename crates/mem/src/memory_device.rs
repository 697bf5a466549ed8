//! A memory device that several processes or hosts share: device-DAX, CXL memory, or any file that stands for one.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;

use crate::{CopyHint, MapError, Mapping, Span, SpanError, copy};

/// Whether the hosts that share a device see each other's writes by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coherence {
    /// The hardware keeps their caches coherent, or there is one host.
    #[default]
    Hardware,
    /// They do not: cache lines are written back after a write, and dropped before a read.
    Flush,
}

/// A device, mapped whole, readable and writable.
///
/// Unlike memory of a peer it cannot be sealed. A file that stands for a device must not be made shorter while it is
/// mapped: whoever touches the missing pages is killed. Room for it is reserved when it is opened.
#[derive(Debug)]
pub struct MemoryDevice {
    mapping: Mapping,
    path: PathBuf,
    coherence: Coherence,
    /// Device number and inode of a file.
    file: Option<(u64, u64)>,
}

impl MemoryDevice {
    /// Opens and maps `len` bytes of it; `None` = all it has.
    ///
    /// # Errors
    /// The system's; [`MapError::TooShort`] when it has fewer bytes, or none; unsupported when cache lines are to be
    /// flushed and this processor's way is not known.
    pub fn open(path: &Path, len: Option<u64>, coherence: Coherence) -> Result<Self, MapError> {
        Self::map(path, len, coherence, None)
    }

    /// As [`MemoryDevice::open`], at this address where one is given, or not at all.
    ///
    /// # Errors
    /// As [`MemoryDevice::open`]; the system's when something else is at the address.
    pub fn open_at(path: &Path, len: u64, coherence: Coherence, address: Option<u64>) -> Result<Self, MapError> {
        Self::map(path, Some(len), coherence, address)
    }

    fn map(path: &Path, len: Option<u64>, coherence: Coherence, address: Option<u64>) -> Result<Self, MapError> {
        let os = |what| move |source: io::Error| MapError::Os { what, source };
        if coherence == Coherence::Flush && !flush::is_available() {
            let source = io::Error::new(io::ErrorKind::Unsupported, "no instruction for it is known on this processor");
            return Err(MapError::Os { what: "flushing cache lines", source });
        }
        let file = OpenOptions::new().read(true).write(true).open(path).map_err(os("opening a memory device"))?;
        let metadata = file.metadata().map_err(os("reading the size of a memory device"))?;
        let is_device = metadata.file_type().is_char_device();
        let size = if is_device { dax_size(&metadata)? } else { metadata.len() };
        let needed = len.unwrap_or(size).max(1);
        if needed > size {
            return Err(MapError::TooShort { size, needed });
        }
        if !is_device {
            reserve(&file, needed)?;
        }
        let len = usize::try_from(needed).map_err(|_| MapError::TooShort { size: 0, needed })?;
        let mapping = match address {
            Some(address) => Mapping::of_file_just_at(file.as_fd(), len, address)?,
            None => Mapping::of_file(file.as_fd(), len)?,
        };
        let file = (!is_device).then_some((metadata.dev(), metadata.ino()));
        Ok(MemoryDevice { mapping, path: path.to_owned(), coherence, file })
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// For a file, what tells it from others on this host; `None` for a real device.
    pub fn file(&self) -> Option<(u64, u64)> {
        self.file
    }

    /// Address of its first byte in this process.
    pub fn address(&self) -> u64 {
        self.mapping.address()
    }

    /// Bytes mapped.
    pub fn len(&self) -> u64 {
        self.mapping.len() as u64
    }

    /// True for a device of no bytes (which is never opened).
    pub fn is_empty(&self) -> bool {
        self.mapping.is_empty()
    }

    /// The offset of an address range that lies wholly inside the mapping.
    pub fn offset_of(&self, address: u64, len: u64) -> Option<u64> {
        let offset = address.checked_sub(self.address())?;
        (offset.checked_add(len)? <= self.len()).then_some(offset)
    }

    /// A part of the mapping.
    ///
    /// # Errors
    /// [`SpanError::OutOfRange`] when it is not wholly inside.
    pub fn span(&self, offset: u64, len: u64) -> Result<Span<'_>, SpanError> {
        let outside = SpanError::OutOfRange { offset, len, size: self.len() };
        match (usize::try_from(offset), usize::try_from(len)) {
            (Ok(offset), Ok(len)) => self.mapping.span().slice(offset, len),
            _ => Err(outside),
        }
    }

    /// Copies into the device. When it returns, whoever shares the device can see the bytes.
    ///
    /// # Errors
    /// [`SpanError::OutOfRange`]; nothing is copied then.
    pub fn write(&self, offset: u64, source: Span<'_>, hint: CopyHint) -> Result<(), SpanError> {
        let target = self.span(offset, source.len() as u64)?;
        copy(target, source, hint)?;
        match self.coherence {
            Coherence::Hardware => std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst),
            Coherence::Flush => flush::lines(target),
        }
        Ok(())
    }

    /// Copies out of the device what others have written until now.
    ///
    /// # Errors
    /// [`SpanError::OutOfRange`], [`SpanError::ReadOnly`]; nothing is copied then.
    pub fn read(&self, offset: u64, target: Span<'_>, hint: CopyHint) -> Result<(), SpanError> {
        let source = self.span(offset, target.len() as u64)?;
        match self.coherence {
            Coherence::Hardware => std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst),
            Coherence::Flush => flush::lines(source),
        }
        copy(target, source, hint)
    }
}

/// The size of a device-DAX node, from sysfs.
fn dax_size(metadata: &std::fs::Metadata) -> Result<u64, MapError> {
    let (major, minor) = (rustix::fs::major(metadata.rdev()), rustix::fs::minor(metadata.rdev()));
    let path = format!("/sys/dev/char/{major}:{minor}/size");
    let what = "reading the size of a DAX device";
    let text = std::fs::read_to_string(path).map_err(|source| MapError::Os { what, source })?;
    text.trim()
        .parse()
        .map_err(|error| MapError::Os { what, source: io::Error::new(io::ErrorKind::InvalidData, error) })
}

/// Takes the blocks of a file now: a mapping that finds the file system full later is killed. Where the file system
/// cannot reserve, it is used as it is.
fn reserve(file: &File, len: u64) -> Result<(), MapError> {
    match rustix::fs::fallocate(file, FallocateFlags::KEEP_SIZE, 0, len) {
        Ok(()) | Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(()),
        Err(errno) => Err(MapError::os("reserving room for a memory device")(errno)),
    }
}

#[cfg(target_arch = "x86_64")]
mod flush {
    use std::arch::asm;
    use std::arch::x86_64::{__cpuid_count, _mm_clflush, _mm_mfence};
    use std::sync::OnceLock;

    use crate::Span;

    const LINE: u64 = 64;

    /// Whether the processor has CLFLUSHOPT, which does not wait for each line.
    fn has_clflushopt() -> bool {
        static FOUND: OnceLock<bool> = OnceLock::new();
        *FOUND.get_or_init(|| __cpuid_count(0, 0).eax >= 7 && __cpuid_count(7, 0).ebx & (1 << 23) != 0)
    }

    pub(super) fn is_available() -> bool {
        true
    }

    /// Writes the span's lines back and drops them from all caches; they are in memory when this returns.
    pub(super) fn lines(span: Span<'_>) {
        let optimised = has_clflushopt();
        let end = span.address() + span.len() as u64;
        let mut line = span.address() & !(LINE - 1);
        // SAFETY: fences and flushes change no byte; every line that is flushed holds at least one byte of the span, which
        // is mapped. CLFLUSH belongs to x86-64, CLFLUSHOPT was found.
        unsafe {
            _mm_mfence();
            while line < end {
                if optimised {
                    asm!("clflushopt [{0}]", in(reg) line, options(nostack, preserves_flags));
                } else {
                    _mm_clflush(line as *const u8);
                }
                line += LINE;
            }
            _mm_mfence();
        }
    }
}

#[cfg(not(target_arch = "x86_64"))]
mod flush {
    use crate::Span;

    pub(super) fn is_available() -> bool {
        false
    }

    pub(super) fn lines(_span: Span<'_>) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(len: u64) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new_in("/dev/shm").unwrap();
        file.as_file().set_len(len).unwrap();
        file
    }

    #[test]
    fn two_mappings_see_each_other_with_and_without_flushes() {
        for coherence in [Coherence::Hardware, Coherence::Flush] {
            let file = pool(1 << 20);
            let open = || match MemoryDevice::open(file.path(), None, coherence) {
                Ok(device) => Some(device),
                Err(error) if coherence == Coherence::Flush && !flush::is_available() => {
                    println!("skipped: {error}");
                    None
                }
                Err(error) => panic!("{error}"),
            };
            let (Some(one), Some(other)) = (open(), open()) else { return };
            let sent: Vec<u8> = (0..300_000_u32).map(|i| (i % 251) as u8).collect();
            for hint in [CopyHint::Cached, CopyHint::Streaming] {
                one.write(77, Span::source(&sent), hint).unwrap();
                let mut got = vec![0; sent.len()];
                other.read(77, Span::destination(&mut got), hint).unwrap();
                assert!(got == sent);
            }
            assert_eq!(one.file(), other.file());
            assert_ne!(one.address(), other.address());
        }
    }

    #[test]
    fn bounds_are_those_of_the_mapping() {
        let file = pool(10_000);
        let device = MemoryDevice::open(file.path(), Some(8192), Coherence::Hardware).unwrap();
        let mut room = [0; 16];
        for offset in [8177, 8192, u64::MAX, u64::MAX - 15] {
            assert!(device.read(offset, Span::destination(&mut room), CopyHint::Cached).is_err(), "{offset}");
            assert!(device.write(offset, Span::source(&room), CopyHint::Cached).is_err(), "{offset}");
        }
        device.write(8176, Span::source(&room), CopyHint::Cached).unwrap();
        assert_eq!(device.offset_of(device.address() + 8, 8184), Some(8));
        for (address, len) in [(device.address() - 1, 2), (device.address() + 8, 8185), (device.address(), u64::MAX)] {
            assert_eq!(device.offset_of(address, len), None);
        }
        assert!(matches!(
            MemoryDevice::open(file.path(), Some(10_001), Coherence::Hardware),
            Err(MapError::TooShort { size: 10_000, needed: 10_001 })
        ));
        assert!(MemoryDevice::open(pool(0).path(), None, Coherence::Hardware).is_err());
        assert!(MemoryDevice::open(Path::new("/dev/null"), None, Coherence::Hardware).is_err());
        assert!(MemoryDevice::open(Path::new("/no/such"), None, Coherence::Hardware).is_err());
    }
}
