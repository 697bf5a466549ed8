//! Frames of the RPC layer (coro_rpc): a fixed header, a body, an attachment.
//!
//! Problem: the length fields come from outside and go up to 4 GiB each. Invariants: a parser never asks for more
//! than the limits allow, never copies, and tells apart "more bytes, please", "this is no frame" and "too long".

/// Bytes of a request header.
pub const REQUEST_HEADER_LEN: usize = 20;
/// Bytes of a response header.
pub const RESPONSE_HEADER_LEN: usize = 16;

const MAGIC: u8 = 21;
const VERSION: u8 = 0;
const SERIALIZE_STRUCT_PACK: u8 = 0;

/// Bounds of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameLimits {
    /// Longest body, in bytes.
    pub max_body: u32,
    /// Longest attachment, in bytes. The store's functions use none.
    pub max_attachment: u32,
}

impl Default for FrameLimits {
    fn default() -> Self {
        FrameLimits { max_body: 64 << 20, max_attachment: 64 << 10 }
    }
}

/// A header that ends the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The first byte is not that of this protocol (an HTTP request, a port scan).
    #[error("first byte {found:#04x} is not that of an RPC frame (0x15)")]
    BadMagic {
        /// The byte.
        found: u8,
    },
    /// A protocol version that is not spoken.
    #[error("frame version {found} is not spoken, only 0")]
    BadVersion {
        /// The version.
        found: u8,
    },
    /// Another body format.
    #[error("serialize type {found} is not struct_pack (0)")]
    BadSerializeType {
        /// The type.
        found: u8,
    },
    /// The body is longer than allowed.
    #[error("body of {len} bytes, the limit is {limit}; split the batch or raise the limit")]
    BodyTooLarge {
        /// Bytes announced.
        len: u32,
        /// The setting.
        limit: u32,
        /// Sequence number of the frame.
        sequence: u32,
    },
    /// The attachment is longer than allowed.
    #[error("attachment of {len} bytes, the limit is {limit}")]
    AttachmentTooLarge {
        /// Bytes announced.
        len: u32,
        /// The setting.
        limit: u32,
        /// Sequence number of the frame.
        sequence: u32,
    },
}

/// Header of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestHeader {
    /// Not looked at; 0.
    pub message_type: u8,
    /// Counts up per connection.
    pub sequence: u32,
    /// Which function.
    pub function_id: u32,
    /// Bytes of the body.
    pub body_len: u32,
    /// Bytes of the attachment.
    pub attachment_len: u32,
}

/// Header of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseHeader {
    /// 0, or a [`TransportError`](crate::TransportError); 255 = the code is in the body.
    pub error_code: u8,
    /// Not looked at; 0.
    pub message_type: u8,
    /// That of the request.
    pub sequence: u32,
    /// Bytes of the body.
    pub body_len: u32,
    /// Bytes of the attachment.
    pub attachment_len: u32,
}

/// A whole frame in the caller's buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a, H> {
    /// Its header.
    pub header: H,
    /// Its body.
    pub body: &'a [u8],
    /// Its attachment.
    pub attachment: &'a [u8],
    /// Bytes of all three together: where the next frame begins.
    pub len: usize,
}

/// What the bytes so far are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parsed<'a, H> {
    /// A whole frame.
    Frame(Frame<'a, H>),
    /// The beginning of one.
    NeedMore {
        /// Bytes the buffer must hold before parsing again makes sense (a header, or header, body and attachment).
        total: usize,
    },
}

/// Cuts the first request off `buf`.
///
/// # Errors
/// When the bytes are no frame, or one beyond the limits; the connection is of no more use then.
pub fn parse_request<'a>(buf: &'a [u8], limits: &FrameLimits) -> Result<Parsed<'a, RequestHeader>, FrameError> {
    check_start(buf)?;
    let Some(raw) = buf.first_chunk::<REQUEST_HEADER_LEN>() else {
        return Ok(Parsed::NeedMore { total: REQUEST_HEADER_LEN });
    };
    let header = RequestHeader {
        message_type: raw[3],
        sequence: u32_at(raw, 4),
        function_id: u32_at(raw, 8),
        body_len: u32_at(raw, 12),
        attachment_len: u32_at(raw, 16),
    };
    check_lengths(header.body_len, header.attachment_len, header.sequence, limits)?;
    Ok(cut(buf, REQUEST_HEADER_LEN, header, header.body_len, header.attachment_len))
}

/// Cuts the first response off `buf`. Magic and version are checked, unlike by the peer: a server that sends
/// something else is not one.
///
/// # Errors
/// As [`parse_request`].
pub fn parse_response<'a>(buf: &'a [u8], limits: &FrameLimits) -> Result<Parsed<'a, ResponseHeader>, FrameError> {
    check_magic_and_version(buf)?;
    let Some(raw) = buf.first_chunk::<RESPONSE_HEADER_LEN>() else {
        return Ok(Parsed::NeedMore { total: RESPONSE_HEADER_LEN });
    };
    let header = ResponseHeader {
        error_code: raw[2],
        message_type: raw[3],
        sequence: u32_at(raw, 4),
        body_len: u32_at(raw, 8),
        attachment_len: u32_at(raw, 12),
    };
    check_lengths(header.body_len, header.attachment_len, header.sequence, limits)?;
    Ok(cut(buf, RESPONSE_HEADER_LEN, header, header.body_len, header.attachment_len))
}

fn u32_at<const N: usize>(raw: &[u8; N], at: usize) -> u32 {
    match raw[at..].first_chunk::<4>() {
        Some(bytes) => u32::from_le_bytes(*bytes),
        None => 0,
    }
}

fn check_magic_and_version(buf: &[u8]) -> Result<(), FrameError> {
    match buf {
        [MAGIC] | [] => Ok(()),
        [MAGIC, VERSION, ..] => Ok(()),
        [MAGIC, found, ..] => Err(FrameError::BadVersion { found: *found }),
        [found, ..] => Err(FrameError::BadMagic { found: *found }),
    }
}

fn check_start(buf: &[u8]) -> Result<(), FrameError> {
    check_magic_and_version(buf)?;
    match buf.get(2) {
        None | Some(&SERIALIZE_STRUCT_PACK) => Ok(()),
        Some(&found) => Err(FrameError::BadSerializeType { found }),
    }
}

fn check_lengths(body: u32, attachment: u32, sequence: u32, limits: &FrameLimits) -> Result<(), FrameError> {
    if body > limits.max_body {
        return Err(FrameError::BodyTooLarge { len: body, limit: limits.max_body, sequence });
    }
    if attachment > limits.max_attachment {
        return Err(FrameError::AttachmentTooLarge { len: attachment, limit: limits.max_attachment, sequence });
    }
    Ok(())
}

fn cut<H>(buf: &[u8], header_len: usize, header: H, body_len: u32, attachment_len: u32) -> Parsed<'_, H> {
    let body_end = header_len.saturating_add(body_len as usize);
    let end = body_end.saturating_add(attachment_len as usize);
    match (buf.get(header_len..body_end), buf.get(body_end..end)) {
        (Some(body), Some(attachment)) => Parsed::Frame(Frame { header, body, attachment, len: end }),
        _ => Parsed::NeedMore { total: end },
    }
}

impl RequestHeader {
    /// The bytes of the header.
    pub fn to_bytes(&self) -> [u8; REQUEST_HEADER_LEN] {
        let mut raw = [0; REQUEST_HEADER_LEN];
        raw[0] = MAGIC;
        raw[3] = self.message_type;
        raw[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        raw[8..12].copy_from_slice(&self.function_id.to_le_bytes());
        raw[12..16].copy_from_slice(&self.body_len.to_le_bytes());
        raw[16..20].copy_from_slice(&self.attachment_len.to_le_bytes());
        raw
    }
}

impl ResponseHeader {
    /// The bytes of the header.
    pub fn to_bytes(&self) -> [u8; RESPONSE_HEADER_LEN] {
        let mut raw = [0; RESPONSE_HEADER_LEN];
        raw[0] = MAGIC;
        raw[2] = self.error_code;
        raw[3] = self.message_type;
        raw[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        raw[8..12].copy_from_slice(&self.body_len.to_le_bytes());
        raw[12..16].copy_from_slice(&self.attachment_len.to_le_bytes());
        raw
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: FrameLimits = FrameLimits { max_body: 100, max_attachment: 10 };

    fn request(body_len: u32, attachment_len: u32) -> Vec<u8> {
        let header = RequestHeader { message_type: 9, sequence: 7, function_id: 0x0102_0304, body_len, attachment_len };
        header.to_bytes().to_vec()
    }

    #[test]
    fn a_frame_appears_only_when_it_is_whole() {
        let mut bytes = request(3, 2);
        bytes.extend_from_slice(b"bodyatNEXT");
        let bytes = &bytes[..REQUEST_HEADER_LEN + 9];
        for cut in 0..REQUEST_HEADER_LEN {
            let expected = Parsed::NeedMore { total: REQUEST_HEADER_LEN };
            assert_eq!(parse_request(&bytes[..cut], &LIMITS), Ok(expected));
        }
        for cut in REQUEST_HEADER_LEN..REQUEST_HEADER_LEN + 5 {
            let expected = Parsed::NeedMore { total: REQUEST_HEADER_LEN + 5 };
            assert_eq!(parse_request(&bytes[..cut], &LIMITS), Ok(expected));
        }
        let Ok(Parsed::Frame(frame)) = parse_request(bytes, &LIMITS) else { panic!() };
        assert_eq!((frame.body, frame.attachment, frame.len), (&b"bod"[..], &b"ya"[..], REQUEST_HEADER_LEN + 5));
        assert_eq!((frame.header.sequence, frame.header.function_id), (7, 0x0102_0304));
    }

    #[test]
    fn strangers_are_told_apart() {
        assert_eq!(parse_request(b"GET /", &LIMITS), Err(FrameError::BadMagic { found: b'G' }));
        assert_eq!(parse_request(&[21, 1], &LIMITS), Err(FrameError::BadVersion { found: 1 }));
        assert_eq!(parse_request(&[21, 0, 3], &LIMITS), Err(FrameError::BadSerializeType { found: 3 }));
        assert_eq!(parse_response(&[21, 2], &LIMITS), Err(FrameError::BadVersion { found: 2 }));
        let too_long = FrameError::BodyTooLarge { len: u32::MAX, limit: 100, sequence: 7 };
        assert_eq!(parse_request(&request(u32::MAX, u32::MAX), &LIMITS), Err(too_long));
        let too_long = FrameError::AttachmentTooLarge { len: 11, limit: 10, sequence: 7 };
        assert_eq!(parse_request(&request(100, 11), &LIMITS), Err(too_long));
    }

    #[test]
    fn a_response_reads_back() {
        let header = ResponseHeader { error_code: 4, message_type: 0, sequence: 5, body_len: 1, attachment_len: 0 };
        let mut bytes = header.to_bytes().to_vec();
        bytes.push(b'x');
        let Ok(Parsed::Frame(frame)) = parse_response(&bytes, &LIMITS) else { panic!() };
        assert_eq!((frame.header, frame.body), (header, &b"x"[..]));
    }
}
