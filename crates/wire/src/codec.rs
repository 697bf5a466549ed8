//! Whole frames: a typed call or reply in, bytes out, and back.

use yb_pack::{DecodeError, EncodeError, Form, Limits};

use crate::frame::{REQUEST_HEADER_LEN, RESPONSE_HEADER_LEN, RequestHeader, ResponseHeader};
use crate::schema::{Call, Rpc, WireTable};
use crate::{ErrorBody, TransportError, WireVersion};

/// A message that cannot be encoded or decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The function does not exist in this generation of the wire.
    #[error("{} does not exist in wire generation {version}", rpc.name())]
    NoSuchRpc {
        /// The function.
        rpc: Rpc,
        /// The generation.
        version: WireVersion,
    },
    /// The body does not decode.
    #[error("{}: {source}", rpc.name())]
    Decode {
        /// The function.
        rpc: Rpc,
        /// Why.
        source: DecodeError,
    },
    /// The value does not encode.
    #[error("{}: {source}", rpc.name())]
    Encode {
        /// The function.
        rpc: Rpc,
        /// Why.
        source: EncodeError,
    },
}

/// Appends a request frame.
///
/// # Errors
/// When the function or a value in its arguments does not exist in the generation of `table`; `out` is then as before.
pub fn encode_request<C: Call>(
    table: &WireTable,
    sequence: u32,
    args: &C::Args<'_>,
    form: Form,
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    let signature = table.signature(C::RPC)?;
    let start = out.len();
    out.extend_from_slice(&[0; REQUEST_HEADER_LEN]);
    if let Err(source) = yb_pack::encode(args, &signature.args, form, out) {
        out.truncate(start);
        return Err(WireError::Encode { rpc: C::RPC, source });
    }
    let header = RequestHeader {
        message_type: 0,
        sequence,
        function_id: signature.function_id,
        body_len: body_len(out, start, REQUEST_HEADER_LEN),
        attachment_len: 0,
    };
    patch(out, start, &header.to_bytes());
    Ok(())
}

/// Appends the response frame of a call that was answered.
///
/// # Errors
/// As [`encode_request`].
pub fn encode_reply<C: Call>(
    table: &WireTable,
    sequence: u32,
    reply: &C::Reply<'_>,
    form: Form,
    out: &mut Vec<u8>,
) -> Result<(), WireError> {
    let signature = table.signature(C::RPC)?;
    let start = out.len();
    out.extend_from_slice(&[0; RESPONSE_HEADER_LEN]);
    if let Err(source) = yb_pack::encode(reply, &signature.reply, form, out) {
        out.truncate(start);
        return Err(WireError::Encode { rpc: C::RPC, source });
    }
    finish_response(out, start, sequence, TransportError::OK);
    Ok(())
}

/// Appends the response frame of a call that could not be answered.
pub fn encode_error_reply(sequence: u32, error: TransportError, message: &str, form: Form, out: &mut Vec<u8>) {
    let start = out.len();
    out.extend_from_slice(&[0; RESPONSE_HEADER_LEN]);
    ErrorBody { error, message: message.as_bytes() }.encode(form, out);
    finish_response(out, start, sequence, error);
}

/// Decodes the body of a response whose header has error code 0.
///
/// # Errors
/// When the body is not the function's result in the generation of `table`.
pub fn decode_reply<'a, C: Call>(table: &WireTable, body: &'a [u8], limits: Limits) -> Result<C::Reply<'a>, WireError> {
    let signature = table.signature(C::RPC)?;
    yb_pack::decode(body, &signature.reply, limits).map_err(|source| WireError::Decode { rpc: C::RPC, source })
}

pub(crate) fn finish_response(out: &mut [u8], start: usize, sequence: u32, error: TransportError) {
    let header = ResponseHeader {
        error_code: error.header_code(),
        message_type: 0,
        sequence,
        body_len: body_len(out, start, RESPONSE_HEADER_LEN),
        attachment_len: 0,
    };
    patch(out, start, &header.to_bytes());
}

/// Length of the body of the frame that starts at `start`; the encoder refused bodies that do not fit a u32.
fn body_len(out: &[u8], start: usize, header_len: usize) -> u32 {
    u32::try_from(out.len() - start - header_len).unwrap_or(u32::MAX)
}

fn patch(out: &mut [u8], start: usize, header: &[u8]) {
    if let Some(field) = out.get_mut(start..start + header.len()) {
        field.copy_from_slice(header);
    }
}
