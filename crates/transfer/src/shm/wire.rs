//! Messages of the shared-memory socket (pure); drawn in `docs/transfer-net.md`.

use yb_types::{ClientId, Uuid};

/// Bytes of a hello.
pub const HELLO_LEN: usize = 24;
/// Bytes of a list's head.
pub const LIST_HEAD: usize = 24;
/// Bytes of an entry of a list.
pub const ENTRY_LEN: usize = 32;
/// Most regions in a list.
pub const MAX_REGIONS: u32 = 4096;
/// The request for a new list.
pub const AGAIN: u8 = 1;

const MAGIC: [u8; 6] = *b"YBSHM\0";
const VERSION: u16 = 2;

/// A region of the owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// First address in the owner's process.
    pub address: u64,
    /// Bytes.
    pub len: u64,
    /// Where it starts in its memory file; 0 without one.
    pub offset: u64,
    /// Whether a memory file comes with it. Without one, it lies in an allocation of the owner's application.
    pub mappable: bool,
    /// Whether the owner has touched every page, so that mapping them costs no memory.
    pub populated: bool,
}

const POPULATED: u64 = 1;
const FOREIGN: u64 = 2;

/// The other side is not one of ours, or of another version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a message of the shared-memory socket, version {VERSION}")]
pub struct NotOurs;

fn word<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}

/// The first message of a peer: who it is.
pub fn encode_hello(client: ClientId) -> [u8; HELLO_LEN] {
    let mut bytes = [0; HELLO_LEN];
    bytes[..6].copy_from_slice(&MAGIC);
    bytes[6..8].copy_from_slice(&VERSION.to_le_bytes());
    bytes[8..16].copy_from_slice(&client.0.first.to_le_bytes());
    bytes[16..].copy_from_slice(&client.0.second.to_le_bytes());
    bytes
}

/// Reads a hello.
///
/// # Errors
/// [`NotOurs`] for another magic or version.
pub fn decode_hello(bytes: &[u8; HELLO_LEN]) -> Result<ClientId, NotOurs> {
    if bytes[..6] != MAGIC || word(bytes, 6).map(u16::from_le_bytes) != Some(VERSION) {
        return Err(NotOurs);
    }
    let id = |at| word(bytes, at).map(u64::from_le_bytes).ok_or(NotOurs);
    Ok(ClientId(Uuid { first: id(8)?, second: id(16)? }))
}

/// The head of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListHead {
    /// How many entries follow.
    pub regions: u32,
    /// The peer's seat in the control page; out of range when none is left.
    pub seat: u32,
    /// The counter of the control page, read before the regions were.
    pub counter: u64,
    /// Where the owner has the nonce of the control page.
    pub nonce_address: u64,
}

impl ListHead {
    /// The bytes of a head.
    pub fn encode(&self) -> [u8; LIST_HEAD] {
        let mut bytes = [0; LIST_HEAD];
        bytes[..4].copy_from_slice(&self.regions.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.seat.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.counter.to_le_bytes());
        bytes[16..].copy_from_slice(&self.nonce_address.to_le_bytes());
        bytes
    }

    /// Reads a head.
    ///
    /// # Errors
    /// [`NotOurs`] for more than [`MAX_REGIONS`].
    pub fn decode(bytes: &[u8; LIST_HEAD]) -> Result<Self, NotOurs> {
        let regions = word(bytes, 0).map(u32::from_le_bytes).filter(|regions| *regions <= MAX_REGIONS);
        let seat = word(bytes, 4).map(u32::from_le_bytes);
        let long = |at| word(bytes, at).map(u64::from_le_bytes).ok_or(NotOurs);
        Ok(ListHead {
            regions: regions.ok_or(NotOurs)?,
            seat: seat.ok_or(NotOurs)?,
            counter: long(8)?,
            nonce_address: long(16)?,
        })
    }
}

impl Entry {
    /// The bytes of an entry.
    pub fn encode(&self) -> [u8; ENTRY_LEN] {
        let mut bytes = [0; ENTRY_LEN];
        bytes[..8].copy_from_slice(&self.address.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.offset.to_le_bytes());
        let flags = if self.populated { POPULATED } else { 0 } | if self.mappable { 0 } else { FOREIGN };
        bytes[24..].copy_from_slice(&flags.to_le_bytes());
        bytes
    }

    /// Reads an entry.
    ///
    /// # Errors
    /// [`NotOurs`] for a range that is empty or wraps around.
    pub fn decode(bytes: &[u8]) -> Result<Self, NotOurs> {
        let field = |at| word(bytes, at).map(u64::from_le_bytes).ok_or(NotOurs);
        let (populated, mappable) = (field(24)? & POPULATED != 0, field(24)? & FOREIGN == 0);
        let entry = Entry { address: field(0)?, len: field(8)?, offset: field(16)?, mappable, populated };
        let sound = entry.len > 0 && entry.address.checked_add(entry.len).is_some();
        if sound { Ok(entry) } else { Err(NotOurs) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_back() {
        let client = ClientId(Uuid { first: 1, second: 2 });
        assert_eq!(decode_hello(&encode_hello(client)), Ok(client));
        assert_eq!(decode_hello(&[0; HELLO_LEN]), Err(NotOurs));
        let head = ListHead { regions: 7, seat: 5, counter: 9, nonce_address: 4160 };
        assert_eq!(ListHead::decode(&head.encode()), Ok(head));
        assert_eq!(ListHead::decode(&[0xff; LIST_HEAD]), Err(NotOurs));
        let entry = Entry { address: 4096, len: 10, offset: 3, mappable: true, populated: true };
        for entry in [entry, Entry { mappable: false, ..entry }, Entry { populated: false, ..entry }] {
            assert_eq!(Entry::decode(&entry.encode()), Ok(entry));
        }
        for bad in [Entry { len: 0, ..entry }, Entry { address: u64::MAX, ..entry }] {
            assert_eq!(Entry::decode(&bad.encode()), Err(NotOurs));
        }
        assert_eq!(Entry::decode(&[]), Err(NotOurs));
    }
}
