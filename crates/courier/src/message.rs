//! Messages as requests, and requests as messages.
//!
//! Data of up to [`INLINE_MAX`] bytes are the request's one argument, a string; longer data are its attachment, and the
//! string is empty. A tensor's bytes are the attachment of a function without arguments. The peer sends nothing else
//! with them, so its receiver does not learn type and shape; we put the head where it looks at nothing: into the body.

use std::sync::LazyLock;

use yb_pack::{BodyType, DecodeError, Form, Limits, Version};
use yb_rpc::Payload;

use crate::tensor::{HEAD_BYTES, TensorHead};

/// Function id of data: the first four bytes of the MD5 of `mooncake::RpcCommunicator::handleDataTransfer`.
pub const DATA: u32 = 0x2576_4c34;
/// Function id of tensors: the same of `mooncake::RpcCommunicator::handleTensorTransfer`.
pub const TENSOR: u32 = 0x0169_7aab;
/// Data up to this many bytes go in the body.
pub const INLINE_MAX: usize = 1024;

static STRING: LazyLock<BodyType> = LazyLock::new(|| BodyType::of::<&[u8]>(Version(0)));
static VOID: LazyLock<BodyType> = LazyLock::new(|| BodyType::of::<()>(Version(0)));

/// What a request is to its receiver. The bytes are those of the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Plain bytes.
    Data(&'a [u8]),
    /// A tensor, and the same with everything that came before its elements, for a receiver that knows only data.
    Tensor {
        /// Type and shape.
        head: TensorHead,
        /// The elements.
        elements: &'a [u8],
        /// What the peer's receiver would see as data.
        whole: &'a [u8],
    },
}

/// A request that is no message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotAMessage {
    /// Another function.
    OtherFunction,
    /// The argument is no string.
    Argument(DecodeError),
}

/// The request that carries data.
pub fn data(bytes: &[u8]) -> Payload {
    let inline = bytes.len() <= INLINE_MAX;
    let (argument, attachment) = if inline { (bytes, &[][..]) } else { (&[][..], bytes) };
    let mut body = Vec::new();
    // So short a string always encodes.
    let _ = yb_pack::encode(argument, &STRING, Form::Literal, &mut body);
    Payload { body, attachment: attachment.to_vec() }
}

/// The request that carries a tensor; without a head its receiver gets plain bytes.
pub fn tensor(head: Option<&TensorHead>, elements: &[u8]) -> Payload {
    let body = head.and_then(TensorHead::to_bytes).unwrap_or_default();
    Payload { body, attachment: elements.to_vec() }
}

/// What a request says.
///
/// # Errors
/// [`NotAMessage`].
pub fn read<'a>(function: u32, body: &'a [u8], attachment: &'a [u8]) -> Result<Message<'a>, NotAMessage> {
    match function {
        DATA => {
            let argument: &[u8] = yb_pack::decode(body, &STRING, Limits::default()).map_err(NotAMessage::Argument)?;
            Ok(looked_through(if attachment.is_empty() { argument } else { attachment }))
        }
        TENSOR => {
            let head = TensorHead::from_body(body);
            match head.filter(|head| head.data_bytes() == Some(attachment.len() as u64)) {
                Some(head) => Ok(Message::Tensor { head, elements: attachment, whole: attachment }),
                None => Ok(looked_through(attachment)),
            }
        }
        _ => Err(NotAMessage::OtherFunction),
    }
}

/// The peer's programs mark a tensor by a head in front of it, whatever function carries it.
fn looked_through(bytes: &[u8]) -> Message<'_> {
    match (TensorHead::in_front_of(bytes), bytes.get(HEAD_BYTES..)) {
        (Some(head), Some(elements)) => Message::Tensor { head, elements, whole: bytes },
        _ => Message::Data(bytes),
    }
}

/// Body and attachment of the answer to a message that was taken.
pub(crate) fn answer(function: u32, had_attachment: bool) -> (Vec<u8>, &'static [u8]) {
    let mut body = Vec::new();
    // A result without contents always encodes.
    let _ = yb_pack::encode(&(), &VOID, Form::Literal, &mut body);
    let attachment: &[u8] = if function == DATA && had_attachment { b"ok" } else { b"" };
    (body, attachment)
}
