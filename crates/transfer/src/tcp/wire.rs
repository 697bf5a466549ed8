//! Header and status frame of the data wire (pure).
//!
//! ```text
//! header   u64 size | u64 address | u8 opcode (0 read, 1 write; bit 7 = version 2) | 7 bytes padding      24 bytes LE
//! status   u32 code (0 ok, 1 address rejected) | "MCTV" as u32 0x4D435456                                8 bytes LE
//! ```
//!
//! | | version 1 | version 2 |
//! |---|---|---|
//! | write | header, body; no reply | header, body; status when the last byte is stored |
//! | read | header; bytes | header; status, then bytes if ok |
//! | rejected | the server closes | status 1, then the server closes |

use crate::Opcode;

/// Bytes of a header.
pub const HEADER_LEN: usize = 24;
/// Bytes of a status frame.
pub const STATUS_LEN: usize = 8;

const VERSION_2: u8 = 0x80;
const MAGIC: u32 = 0x4D43_5456;

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of payload.
    pub size: u64,
    /// First address in the server's process.
    pub address: u64,
    /// Direction, seen from the initiator.
    pub op: Opcode,
    /// Whether the server answers with a status frame.
    pub version_2: bool,
}

/// The opcode was neither read nor write. (Mooncake's server would treat it as a read.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown opcode {0:#04x}")]
pub struct UnknownOpcode(pub u8);

impl Header {
    /// The bytes on the wire; padding is zero.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        bytes[..8].copy_from_slice(&self.size.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.address.to_le_bytes());
        bytes[16] = self.op as u8 | if self.version_2 { VERSION_2 } else { 0 };
        bytes
    }

    /// Reads a header; the padding may hold anything.
    ///
    /// # Errors
    /// [`UnknownOpcode`].
    pub fn decode(bytes: &[u8; HEADER_LEN]) -> Result<Self, UnknownOpcode> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        let op = match bytes[16] & !VERSION_2 {
            0 => Opcode::Read,
            1 => Opcode::Write,
            _ => return Err(UnknownOpcode(bytes[16])),
        };
        Ok(Header { size: word(0), address: word(8), op, version_2: bytes[16] & VERSION_2 != 0 })
    }
}

/// What a server says to a version 2 request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done, or: the bytes follow.
    Ok,
    /// The range is not inside one registered region, or is empty.
    Rejected,
}

/// The frame's magic or code is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a status frame: {0:#018x}")]
pub struct BadStatus(pub u64);

impl Status {
    /// The bytes on the wire.
    pub fn encode(self) -> [u8; STATUS_LEN] {
        let code = u64::from(self == Status::Rejected);
        (u64::from(MAGIC) << 32 | code).to_le_bytes()
    }

    /// Reads a status frame. Codes other than 0 are rejections.
    ///
    /// # Errors
    /// [`BadStatus`] for another magic.
    pub fn decode(bytes: [u8; STATUS_LEN]) -> Result<Self, BadStatus> {
        let word = u64::from_le_bytes(bytes);
        if word >> 32 != u64::from(MAGIC) {
            return Err(BadStatus(word));
        }
        Ok(if word & 0xffff_ffff == 0 { Status::Ok } else { Status::Rejected })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_status_come_back() {
        for (op, version_2) in [(Opcode::Read, true), (Opcode::Write, false), (Opcode::Write, true)] {
            let header = Header { size: 64, address: 0x7fca_e04f_d020, op, version_2 };
            assert_eq!(Header::decode(&header.encode()), Ok(header));
        }
        for status in [Status::Ok, Status::Rejected] {
            assert_eq!(Status::decode(status.encode()), Ok(status));
        }
        assert!(Status::decode([0; 8]).is_err());
        let mut odd = [0; HEADER_LEN];
        odd[16] = 0x7d;
        assert_eq!(Header::decode(&odd), Err(UnknownOpcode(0x7d)));
    }
}
