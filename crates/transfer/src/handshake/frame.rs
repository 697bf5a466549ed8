//! Frames of the handshake port (pure).
//!
//! ```text
//! u64 LE length | u8 type 0..3 | JSON text          length counts the type byte
//! u64 LE length | JSON text                         old form, a Connection message; answered in the same form
//! ```

/// What a message asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum MessageType {
    /// Exchange of queue pairs (RDMA).
    Connection = 0,
    /// Exchange of SegmentDescs.
    Metadata = 1,
    /// A notification.
    Notify = 2,
    /// Are you alive.
    Probe = 3,
}

impl MessageType {
    fn from_byte(byte: u8) -> Option<Self> {
        [MessageType::Connection, MessageType::Metadata, MessageType::Notify, MessageType::Probe]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// A whole message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its type; `None` for the old form, which is a Connection message.
    pub kind: Option<MessageType>,
    /// The JSON text.
    pub json: &'a [u8],
}

/// The length was zero or above the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("handshake frame of {length} bytes, allowed are 1 to {limit}")]
pub struct FrameError {
    /// Bytes announced.
    pub length: u64,
    /// Bytes allowed.
    pub limit: u64,
}

const PREFIX: usize = 8;

impl Frame<'_> {
    /// The frame at the start of `bytes`; `None` when more bytes are needed.
    ///
    /// # Errors
    /// [`FrameError`] as soon as the length is known to be out of bounds.
    pub fn parse(bytes: &[u8], limit: u64) -> Result<Option<Frame<'_>>, FrameError> {
        let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else { return Ok(None) };
        let length = u64::from_le_bytes(*prefix);
        if length == 0 || length > limit {
            return Err(FrameError { length, limit });
        }
        let Some(payload) = usize::try_from(length).ok().and_then(|length| rest.get(..length)) else {
            return Ok(None);
        };
        let kind = payload.first().and_then(|byte| MessageType::from_byte(*byte));
        let json = if kind.is_some() { payload.get(1..).unwrap_or_default() } else { payload };
        Ok(Some(Frame { kind, json }))
    }

    /// The bytes of a message.
    pub fn encode(kind: Option<MessageType>, json: &[u8]) -> Vec<u8> {
        let length = json.len() as u64 + u64::from(kind.is_some());
        let mut bytes = Vec::with_capacity(PREFIX + 1 + json.len());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend(kind.map(|kind| kind as u8));
        bytes.extend_from_slice(json);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_come_back() {
        for kind in [None, Some(MessageType::Connection), Some(MessageType::Probe)] {
            let bytes = Frame::encode(kind, b"{}\n");
            assert_eq!(Frame::parse(&bytes, 100).unwrap(), Some(Frame { kind, json: b"{}\n" }));
            for end in 0..bytes.len() {
                assert_eq!(Frame::parse(&bytes[..end], 100).unwrap(), None);
            }
        }
    }

    #[test]
    fn lengths_out_of_bounds_are_refused_at_once() {
        assert!(Frame::parse(&0_u64.to_le_bytes(), 100).is_err());
        assert!(Frame::parse(&101_u64.to_le_bytes(), 100).is_err());
        assert!(Frame::parse(&u64::MAX.to_le_bytes(), u64::MAX).unwrap().is_none());
    }
}
