//! One client connection without its socket: sequence numbers, pending calls, the reply parser.

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use yb_wire::frame::{FrameLimits, Parsed, REQUEST_HEADER_LEN, RequestHeader, parse_response};
use yb_wire::{ErrorBody, Limits};

use super::error::RpcError;
use crate::RpcAddress;

/// Capacity of the input buffer that is kept while it is empty.
const KEPT_INPUT: usize = 64 << 10;

/// The body of a reply.
pub type ReplyBody = Vec<u8>;

/// What a request carries.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts<'a> {
    /// The encoded arguments.
    pub body: &'a [u8],
    /// Bytes beside them, as they are; store calls carry none.
    pub attachment: &'a [u8],
}

/// A call that has its answer.
#[derive(Debug)]
pub struct Completed<T> {
    /// What [`ClientCore::begin`] was given.
    pub caller: T,
    /// Its sequence number.
    pub sequence: u32,
    /// The reply's body, or the server's refusal.
    pub result: Result<ReplyBody, RpcError>,
}

/// State of one connection. `T` is whatever finds the caller again.
#[derive(Debug)]
pub struct ClientCore<T> {
    address: RpcAddress,
    next: u32,
    /// `None`: the caller gave up, the reply will be dropped.
    pending: HashMap<u32, Option<T>, FixedState>,
    waiting: usize,
    input: Vec<u8>,
    limits: FrameLimits,
}

impl<T> ClientCore<T> {
    /// A fresh connection to `address` that takes replies of up to `max_reply_bytes`.
    pub fn new(address: RpcAddress, max_reply_bytes: u32) -> Self {
        let limits = FrameLimits { max_body: max_reply_bytes, max_attachment: max_reply_bytes };
        let pending = HashMap::with_hasher(FixedState::default());
        ClientCore { address, next: 0, pending, waiting: 0, input: Vec::new(), limits }
    }

    /// Starts a call: appends its frame to `out` and remembers the caller under the sequence number returned.
    ///
    /// # Errors
    /// [`RpcError::TooLarge`], with nothing appended.
    pub fn begin(&mut self, function: u32, body: &[u8], caller: T, out: &mut Vec<u8>) -> Result<u32, RpcError> {
        self.begin_with(function, Parts { body, attachment: &[] }, caller, out)
    }

    /// As [`ClientCore::begin`] for a request with an attachment.
    ///
    /// # Errors
    /// [`RpcError::TooLarge`], with nothing appended.
    pub fn begin_with(
        &mut self,
        function: u32,
        parts: Parts<'_>,
        caller: T,
        out: &mut Vec<u8>,
    ) -> Result<u32, RpcError> {
        let Parts { body, attachment } = parts;
        let length = |part: &[u8]| u32::try_from(part.len()).map_err(|_| RpcError::TooLarge { bytes: part.len() });
        let (body_len, attachment_len) = (length(body)?, length(attachment)?);
        let sequence = self.next;
        self.next = self.next.wrapping_add(1);
        let header = RequestHeader { message_type: 0, sequence, function_id: function, body_len, attachment_len };
        out.reserve(body.len() + attachment.len() + REQUEST_HEADER_LEN);
        out.extend_from_slice(&header.to_bytes());
        out.extend_from_slice(body);
        out.extend_from_slice(attachment);
        self.pending.insert(sequence, Some(caller));
        self.waiting += 1;
        Ok(sequence)
    }

    /// The caller of `sequence` no longer waits; its reply will be dropped. Gives the caller back if it still waited.
    pub fn give_up(&mut self, sequence: u32) -> Option<T> {
        let caller = self.pending.get_mut(&sequence)?.take()?;
        self.waiting -= 1;
        Some(caller)
    }

    /// Calls that still wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Any caller that still waits.
    pub fn any_waiting(&self) -> Option<&T> {
        self.pending.values().flatten().next()
    }

    /// Bytes came: every reply that is whole goes to `completed`, in the order of arrival.
    ///
    /// # Errors
    /// [`RpcError::Protocol`]: the connection is of no more use.
    pub fn feed(&mut self, bytes: &[u8], mut completed: impl FnMut(Completed<T>)) -> Result<(), RpcError> {
        if self.input.is_empty() {
            let used = self.parse(bytes, &mut completed)?;
            self.input.extend_from_slice(bytes.get(used..).unwrap_or_default());
            return Ok(());
        }
        let mut input = std::mem::take(&mut self.input);
        input.extend_from_slice(bytes);
        let used = self.parse(&input, &mut completed)?;
        input.drain(..used);
        if !input.is_empty() || input.capacity() <= KEPT_INPUT {
            self.input = input;
        }
        Ok(())
    }

    /// The connection is gone: all callers that still wait.
    pub fn fail(&mut self) -> impl Iterator<Item = T> + use<T> {
        self.waiting = 0;
        std::mem::take(&mut self.pending).into_values().flatten()
    }

    fn parse(&mut self, bytes: &[u8], completed: &mut impl FnMut(Completed<T>)) -> Result<usize, RpcError> {
        let mut used = 0;
        loop {
            let rest = bytes.get(used..).unwrap_or_default();
            let frame = match parse_response(rest, &self.limits).map_err(|e| self.no_frame(rest, &e))? {
                Parsed::Frame(frame) => frame,
                Parsed::NeedMore { .. } => return Ok(used),
            };
            let sequence = frame.header.sequence;
            let Some(caller) = self.pending.remove(&sequence) else {
                return Err(self.broken(format!("a reply to a request {sequence} that was not made")));
            };
            if let Some(caller) = caller {
                self.waiting -= 1;
                completed(Completed { caller, sequence, result: self.result(frame.header.error_code, frame.body) });
            }
            used += frame.len;
        }
    }

    /// What is wrong with bytes that are no reply: a server that takes secured connections only says so.
    fn no_frame(&self, bytes: &[u8], error: &dyn std::fmt::Display) -> RpcError {
        let refusal = yb_secure::Refusal::found_in(bytes);
        self.broken(refusal.map_or_else(|| error.to_string(), |refusal| refusal.to_string()))
    }

    fn broken(&self, reason: String) -> RpcError {
        RpcError::Protocol { address: self.address.clone(), reason }
    }

    fn result(&self, error: u8, body: &[u8]) -> Result<ReplyBody, RpcError> {
        if error == 0 {
            return Ok(body.to_vec());
        }
        // A body that is no error text gives an empty one: the code is what counts.
        let decoded = ErrorBody::decode(error, body, Limits::default()).ok();
        let code = decoded.map_or(u16::from(error), |decoded| decoded.error.0);
        let message = decoded.map_or(String::new(), |decoded| String::from_utf8_lossy(decoded.message).into_owned());
        Err(RpcError::Refused { address: self.address.clone(), code, message })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yb_wire::frame::ResponseHeader;
    use yb_wire::{Form, TransportError, encode_error_reply};

    fn core() -> ClientCore<&'static str> {
        ClientCore::new(RpcAddress::Tcp(([127, 0, 0, 1], 1).into()), 1 << 20)
    }

    fn reply(sequence: u32, body: &[u8]) -> Vec<u8> {
        let header = ResponseHeader { sequence, body_len: body.len() as u32, ..ResponseHeader::default() };
        [&header.to_bytes()[..], body].concat()
    }

    #[test]
    fn replies_find_their_callers_in_any_order_and_any_chunks() {
        let mut core = core();
        let mut out = Vec::new();
        for caller in ["a", "b", "c"] {
            core.begin(7, caller.as_bytes(), caller, &mut out).unwrap();
        }
        assert_eq!(out.len(), 3 * 21);
        assert!(core.give_up(1).is_some());
        let stream = [reply(2, b"C"), reply(1, b"B"), reply(0, b"A")].concat();
        let mut got = Vec::new();
        for chunk in stream.chunks(5) {
            core.feed(chunk, |done| got.push((done.caller, done.result.unwrap()))).unwrap();
        }
        assert_eq!(got, [("c", b"C".to_vec()), ("a", b"A".to_vec())]);
        assert_eq!(core.waiting(), 0);
    }

    #[test]
    fn refusals_carry_code_and_text() {
        let mut core = core();
        core.begin(7, b"", "a", &mut Vec::new()).unwrap();
        let mut frame = Vec::new();
        let text = "the rpc function not registered";
        encode_error_reply(0, TransportError::NO_SUCH_FUNCTION, text, Form::Literal, &mut frame);
        let mut got = None;
        core.feed(&frame, |done| got = Some(done.result)).unwrap();
        let Some(Err(RpcError::Refused { code, message, .. })) = got else { panic!("not a refusal: {got:?}") };
        assert_eq!((code, message.as_str()), (11, "the rpc function not registered"));
    }

    #[test]
    fn strange_bytes_break_the_connection() {
        assert!(core().feed(b"HTTP/1.1 400", |_| ()).is_err());
        assert!(core().feed(&reply(5, b""), |_| ()).is_err(), "never asked");
        let huge = ResponseHeader { body_len: u32::MAX, ..ResponseHeader::default() };
        assert!(core().feed(&huge.to_bytes(), |_| ()).is_err(), "above the limit");
    }
}
