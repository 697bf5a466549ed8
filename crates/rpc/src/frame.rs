//! Headers of requests and replies: fixed size, little-endian. Source: coro_rpc, as seen on the wire.

/// First byte of every frame.
pub(crate) const MAGIC: u8 = 21;
/// Bytes of a request header.
pub(crate) const REQUEST_HEADER: usize = 20;
/// Bytes of a reply header.
pub(crate) const REPLY_HEADER: usize = 16;

/// A request header that passed the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestHeader {
    pub(crate) sequence: u32,
    pub(crate) function: u32,
    pub(crate) body: u32,
    pub(crate) attachment: u32,
}

/// Why bytes are not a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FrameError {
    #[error("first byte {0} is not 21: not this protocol")]
    Magic(u8),
    #[error("protocol version {0}, only 0 is known")]
    Version(u8),
    #[error("serialize type {0}, only 0 (struct_pack) is known")]
    SerializeType(u8),
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

impl RequestHeader {
    /// `Ok(None)`: nothing wrong so far, more bytes are needed.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Self>, FrameError> {
        match bytes {
            [magic, ..] if *magic != MAGIC => return Err(FrameError::Magic(*magic)),
            [_, version, ..] if *version != 0 => return Err(FrameError::Version(*version)),
            [_, _, kind, ..] if *kind != 0 => return Err(FrameError::SerializeType(*kind)),
            _ => {}
        }
        let read = || {
            let (sequence, function) = (word(bytes, 4)?, word(bytes, 8)?);
            Some(RequestHeader { sequence, function, body: word(bytes, 12)?, attachment: word(bytes, 16)? })
        };
        Ok(read())
    }

    /// The 20 bytes on the wire.
    pub(crate) fn encode(self) -> [u8; REQUEST_HEADER] {
        let mut bytes = [0; REQUEST_HEADER];
        bytes[0] = MAGIC;
        bytes[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.function.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.body.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.attachment.to_le_bytes());
        bytes
    }
}

/// A reply header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReplyHeader {
    /// 0: the body is the result; else a transport error.
    pub(crate) error: u8,
    pub(crate) sequence: u32,
    pub(crate) body: u32,
    pub(crate) attachment: u32,
}

impl ReplyHeader {
    /// `Ok(None)`: more bytes are needed.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Self>, FrameError> {
        if let [magic, ..] = bytes
            && *magic != MAGIC
        {
            return Err(FrameError::Magic(*magic));
        }
        let read = || {
            let (error, sequence) = (*bytes.get(2)?, word(bytes, 4)?);
            Some(ReplyHeader { error, sequence, body: word(bytes, 8)?, attachment: word(bytes, 12)? })
        };
        Ok(read())
    }

    /// The 16 bytes on the wire.
    pub(crate) fn encode(self) -> [u8; REPLY_HEADER] {
        let mut bytes = [0; REPLY_HEADER];
        bytes[0] = MAGIC;
        bytes[2] = self.error;
        bytes[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.body.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.attachment.to_le_bytes());
        bytes
    }
}
