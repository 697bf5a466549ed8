//! What the ranks of a group tell each other about their segment: 160 bytes a rank.
//!
//! ```text
//! "SSCM" | u16 version 1 | u16 backend 3 (mmap) | u32 rank | u32 bytes of the handle | u64 fingerprint | u64 bytes allocated
//! handle, zeroes up to 128 bytes                                                                  (all little endian)
//! ```
//! The owner's handle names the memory, other ranks have none. Two forms are in use among versions of the peer:
//! `/mcss_<pid>_<16 hex>`, a POSIX shared memory object, and `/proc/<pid>/fd/<fd>:<inode>:<boot id>`, a memory file.

/// Bytes of a blob.
pub const BLOB_BYTES: usize = 160;

const HANDLE_BYTES: usize = 128;
const MAGIC: &[u8; 4] = b"SSCM";
const VERSION: u16 = 1;
const BACKEND_MMAP: u16 = 3;

/// Why a blob is refused. The texts are the peer's, so that its users find them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the texts say it")]
pub enum BlobError {
    #[error("Shared segment blob has an unexpected length")]
    Length,
    #[error("Shared segment blob magic mismatch")]
    Magic,
    #[error("Shared segment blob version mismatch, peers run different builds")]
    Version,
    #[error("Shared segment blob declares an oversized handle")]
    Handle,
}

/// What every rank of a group has to say alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declaration {
    /// Name of the segment.
    pub name: String,
    /// Bytes that are shared.
    pub size: u64,
    /// Ranks of the group.
    pub world_size: u32,
    /// The rank that makes the memory.
    pub owner_rank: u32,
}

impl Declaration {
    /// A number that is the same for the same declaration, in every process and in the peer's: FNV-1a with an offset of
    /// its own over the name and, as u64, the size, the ranks, the owner, and two options (mapped: 1, registered with a
    /// device: 0).
    pub fn fingerprint(&self) -> u64 {
        let words = [self.size, self.world_size.into(), self.owner_rank.into(), 1, 0];
        let bytes = self.name.bytes().chain(words.into_iter().flat_map(u64::to_le_bytes));
        bytes.fold(0x1465_0fb0_739d_0383, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    }
}

/// The blob of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// The rank.
    pub rank: u32,
    /// How the memory is shared; 3 is the only way that is built.
    pub backend: u16,
    /// See [`Declaration::fingerprint`].
    pub fingerprint: u64,
    /// Bytes that the rank reserved.
    pub allocated: u64,
    /// The owner's handle; empty for others.
    pub handle: Vec<u8>,
}

impl Blob {
    /// The blob of a rank that shares by mapping; `None` when the handle is too long.
    pub fn mapped(rank: u32, fingerprint: u64, allocated: u64, handle: &[u8]) -> Option<Blob> {
        let handle = handle.to_vec();
        (handle.len() <= HANDLE_BYTES).then_some(Blob { rank, backend: BACKEND_MMAP, fingerprint, allocated, handle })
    }

    /// Whether the memory is shared by mapping.
    pub fn is_mapped(&self) -> bool {
        self.backend == BACKEND_MMAP
    }

    /// The bytes.
    pub fn to_bytes(&self) -> [u8; BLOB_BYTES] {
        let mut out = Vec::with_capacity(BLOB_BYTES);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&self.backend.to_le_bytes());
        out.extend_from_slice(&self.rank.to_le_bytes());
        out.extend_from_slice(&(self.handle.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.fingerprint.to_le_bytes());
        out.extend_from_slice(&self.allocated.to_le_bytes());
        out.extend_from_slice(&self.handle);
        out.resize(BLOB_BYTES, 0);
        out.try_into().unwrap_or([0; BLOB_BYTES])
    }

    /// Reads a blob.
    ///
    /// # Errors
    /// [`BlobError`].
    pub fn parse(bytes: &[u8]) -> Result<Blob, BlobError> {
        let bytes: &[u8; BLOB_BYTES] = bytes.try_into().map_err(|_| BlobError::Length)?;
        if &bytes[..4] != MAGIC {
            return Err(BlobError::Magic);
        }
        if bytes[4..6] != VERSION.to_le_bytes() {
            return Err(BlobError::Version);
        }
        let handle_bytes = number(bytes, 12, 4);
        let handle = (handle_bytes <= HANDLE_BYTES as u64).then(|| bytes.get(32..32 + handle_bytes as usize)).flatten();
        Ok(Blob {
            backend: number(bytes, 6, 2) as u16,
            rank: number(bytes, 8, 4) as u32,
            fingerprint: number(bytes, 16, 8),
            allocated: number(bytes, 24, 8),
            handle: handle.ok_or(BlobError::Handle)?.to_vec(),
        })
    }
}

fn number(bytes: &[u8; BLOB_BYTES], at: usize, len: usize) -> u64 {
    bytes[at..at + len].iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

/// Where the owner's memory is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handle {
    /// A POSIX shared memory object, by its name without the slash.
    Posix(String),
    /// A memory file of another process.
    MemoryFile {
        /// The process.
        pid: u32,
        /// Its descriptor.
        fd: u32,
        /// The file's inode, which tells that the descriptor was not given to another file.
        inode: u64,
        /// Which start of which machine.
        boot: String,
    },
}

impl Handle {
    /// Reads a handle; `None` when it is of neither form. Only names that the peer's programs and ours make are taken:
    /// a blob comes from another process.
    pub fn parse(handle: &[u8]) -> Option<Handle> {
        let text = std::str::from_utf8(handle).ok()?.trim_end_matches('\0');
        if let Some(rest) = text.strip_prefix("/proc/") {
            let (pid, rest) = rest.split_once("/fd/")?;
            let (fd, rest) = rest.split_once(':')?;
            let (inode, boot) = rest.split_once(':')?;
            let plain = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            let known = plain(pid) && plain(fd) && plain(inode) && !boot.is_empty();
            return known.then_some(()).and_then(|()| {
                Some(Handle::MemoryFile {
                    pid: pid.parse().ok()?,
                    fd: fd.parse().ok()?,
                    inode: inode.parse().ok()?,
                    boot: boot.to_owned(),
                })
            });
        }
        let name = text.strip_prefix('/')?;
        let known = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
        (name.starts_with("mcss_") && name.bytes().all(known)).then(|| Handle::Posix(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declaration(name: &str, size: u64, world_size: u32, owner_rank: u32) -> Declaration {
        Declaration { name: name.to_owned(), size, world_size, owner_rank }
    }

    fn recorded(id: &str) -> Vec<(Vec<u8>, String)> {
        let lines = include_str!("../../tests/vectors/shared-segment.jsonl").lines();
        let of = |line: &str, key: &str| {
            let (_, rest) = line.split_once(&format!("\"{key}\": \"")).unwrap();
            rest.split('"').next().unwrap().to_owned()
        };
        let lines = lines.filter(|line| of(line, "id") == id);
        let bytes =
            |hex: &str| (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect();
        lines.map(|line| (bytes(&of(line, "hex")), of(line, "source"))).collect()
    }

    #[test]
    fn fingerprints_are_the_recorded_ones() {
        // Asked of the wheel 0.3.13.post1, and the same from 0.3.14.
        for (declared, expected) in [
            (declaration("t1", 8192, 2, 0), 0xa17d_6081_a87b_49af),
            (declaration("t", 8192, 2, 0), 0xaea2_ea97_cdfa_03f6),
            (declaration("t1", 8192, 2, 1), 0x2a28_de2d_3fbb_038e),
            (declaration("t1", 8192, 3, 0), 0x08d9_e7d8_2547_59ae),
            (declaration("t1", 8193, 2, 0), 0x786b_7715_2ea3_ca8e),
            (declaration("", 1, 1, 0), 0x48cd_3794_7e60_9102),
        ] {
            assert_eq!(declared.fingerprint(), expected, "{declared:?}");
        }
    }

    #[test]
    fn the_recorded_blobs_read_and_write_back() {
        let fingerprint = declaration("t1", 8192, 2, 0).fingerprint();
        let owners = recorded("shared-segment-blob-owner");
        assert_eq!(owners.len(), 2, "one of each version");
        for (bytes, source) in owners {
            let blob = Blob::parse(&bytes).unwrap();
            assert_eq!((blob.rank, blob.fingerprint, blob.is_mapped()), (0, fingerprint, true));
            let form = match Handle::parse(&blob.handle) {
                Some(Handle::Posix(name)) => name,
                Some(Handle::MemoryFile { pid, fd, inode, .. }) => format!("{pid} {fd} {inode}"),
                None => panic!("{:?}", blob.handle),
            };
            let expected = if source.ends_with("0.3.14") { "8847 5 117" } else { "mcss_29118_c8461a17ed7f99cf" };
            assert_eq!((blob.allocated, form.as_str()), (8192, expected));
            assert_eq!(blob.to_bytes()[..], bytes);
        }
        let (bytes, _) = recorded("shared-segment-blob-peer").remove(0);
        let peer = Blob::mapped(1, fingerprint, 8192, b"").unwrap();
        assert_eq!(peer.to_bytes()[..], bytes);
        assert_eq!(Blob::parse(&bytes), Ok(peer));
    }

    #[test]
    fn strange_blobs_and_handles_are_refused() {
        let good = Blob::mapped(0, 1, 4096, b"/mcss_1_0").unwrap().to_bytes();
        let with = |at: usize, byte: u8| {
            let mut bytes = good;
            bytes[at] = byte;
            Blob::parse(&bytes)
        };
        assert_eq!(Blob::parse(&good[1..]), Err(BlobError::Length));
        assert_eq!(with(0, b'X'), Err(BlobError::Magic));
        assert_eq!(with(4, 2), Err(BlobError::Version));
        assert_eq!(with(12, 129), Err(BlobError::Handle));
        assert_eq!(with(15, 255), Err(BlobError::Handle));
        assert!(!with(6, 2).unwrap().is_mapped());
        assert_eq!(Blob::mapped(0, 1, 1, &[b'x'; 129]), None);
        for handle in [
            "",
            "mcss_1_0",
            "/etc/passwd",
            "/mcss_1/../../etc/passwd",
            "/proc/1/mem:1:b",
            "/proc/1/fd/../../2/mem:1:b",
            "/proc/self/fd/3:1:b",
            "/proc/1/fd/3",
            "/proc/1/fd/3:1",
            "/proc/1/fd/3:x:b",
            "/proc/+1/fd/3:1:b",
            "/other_1",
        ] {
            assert_eq!(Handle::parse(handle.as_bytes()), None, "{handle:?}");
        }
        assert_eq!(Handle::parse(b"\xff\xfe"), None);
    }
}
