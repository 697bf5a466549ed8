//! Messages of the UNIX socket beside the local helper service: descriptors of shared memory, one way or the other.
//!
//! A request is a kind (u32) and a body in the native layout of the peer's structs (same machine, so native order; the
//! peer is x86-64 or aarch64, both little-endian); a descriptor travels with its bytes. A connection carries any number
//! of requests.

use yb_types::{ClientId, Uuid};

/// Kind of [`ShmRegister`].
pub const REGISTER: u32 = 0;
/// Kind of [`FdRequest`].
pub const REQUEST_FD: u32 = 1;

/// The abstract name of the side channel of the daemon whose RPC port is `port`, without the zero byte before it. The `@`
/// is part of the name.
///
/// ```
/// assert_eq!(yb_wire::side_channel::socket_name(50052), "@mooncake_client_50052.sock");
/// ```
pub fn socket_name(port: u16) -> String {
    format!("@mooncake_client_{port}.sock")
}

/// The port from which a daemon derives this name.
pub fn port_of(socket_name: &str) -> Option<u16> {
    let port = socket_name.strip_prefix("@mooncake_client_")?.strip_suffix(".sock")?;
    port.parse().ok().filter(|port: &u16| self::socket_name(*port) == socket_name)
}

/// A dummy hands over memory; its descriptor travels with the message. Answered with an i32: 0, or a code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShmRegister {
    /// Whose.
    pub client_id: ClientId,
    /// Where it starts in the dummy's address space.
    pub base: u64,
    /// Bytes.
    pub size: u64,
    /// Device; -1 or 0 for host memory.
    pub device_id: i32,
    /// Whether the daemon may give room in it out ([`acquire_buffer_dummy`](crate::call::AcquireBufferDummy)).
    pub is_local: bool,
}

impl ShmRegister {
    /// Bytes of the body.
    pub const LEN: usize = 40;

    /// The body, three bytes of padding at its end.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0..8].copy_from_slice(&self.client_id.0.first.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.client_id.0.second.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.base.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.size.to_le_bytes());
        bytes[32..36].copy_from_slice(&self.device_id.to_le_bytes());
        bytes[36] = u8::from(self.is_local);
        bytes
    }

    /// From a body.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        ShmRegister {
            client_id: client_at(bytes),
            base: u64_at(bytes, 16),
            size: u64_at(bytes, 24),
            device_id: u32_at(bytes, 32).cast_signed(),
            is_local: bytes[36] != 0,
        }
    }
}

/// A dummy asks for memory of the daemon. Answered with an [`FdAnswer`], and the descriptor if its status is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdRequest {
    /// Who asks.
    pub client_id: ClientId,
    /// Which memory; 0: the hot cache.
    pub segment: u32,
}

impl FdRequest {
    /// Bytes of the body.
    pub const LEN: usize = 24;

    /// The body, four bytes of padding at its end.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0..8].copy_from_slice(&self.client_id.0.first.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.client_id.0.second.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.segment.to_le_bytes());
        bytes
    }

    /// From a body.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        FdRequest { client_id: client_at(bytes), segment: u32_at(bytes, 16) }
    }
}

/// The answer to an [`FdRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FdAnswer {
    /// 0, or a code.
    pub status: i32,
    /// Bytes of the memory.
    pub size: u64,
}

impl FdAnswer {
    /// Bytes of the answer.
    pub const LEN: usize = 16;

    /// The answer, four bytes of padding in it.
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[0..4].copy_from_slice(&self.status.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.size.to_le_bytes());
        bytes
    }

    /// From an answer.
    pub fn from_bytes(bytes: &[u8; Self::LEN]) -> Self {
        FdAnswer { status: u32_at(bytes, 0).cast_signed(), size: u64_at(bytes, 8) }
    }
}

fn client_at(bytes: &[u8]) -> ClientId {
    ClientId(Uuid { first: u64_at(bytes, 0), second: u64_at(bytes, 8) })
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |raw| u64::from_le_bytes(*raw))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |raw| u32::from_le_bytes(*raw))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_have_the_peers_layout() {
        let client_id = ClientId(Uuid { first: 0x0102, second: 0x0304 });
        let register = ShmRegister { client_id, base: 0x7000_0000, size: 4096, device_id: -1, is_local: true };
        let bytes = register.to_bytes();
        assert_eq!((bytes[0], bytes[8], bytes[36], &bytes[32..36]), (2, 4, 1, &[255; 4][..]));
        assert_eq!(ShmRegister::from_bytes(&bytes), register);
        let request = FdRequest { client_id, segment: 7 };
        assert_eq!(FdRequest::from_bytes(&request.to_bytes()), request);
        let answer = FdAnswer { status: -704, size: 1 << 40 };
        assert_eq!(FdAnswer::from_bytes(&answer.to_bytes()), answer);
    }
}
