//! One client connection without its socket: sequence numbers, pending calls, the reply parser.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::error::RpcError;
use crate::RpcAddress;
use crate::frame::{REPLY_HEADER, ReplyHeader, RequestHeader};

/// Capacity of the input buffer that is kept while it is empty.
const KEPT_INPUT: usize = 64 << 10;

/// The body of a reply.
pub type ReplyBody = Vec<u8>;

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
    max_reply_bytes: u32,
}

impl<T> ClientCore<T> {
    /// A fresh connection to `address` that takes replies of up to `max_reply_bytes`.
    pub fn new(address: RpcAddress, max_reply_bytes: u32) -> Self {
        let pending = HashMap::with_hasher(FixedState::default());
        ClientCore { address, next: 0, pending, waiting: 0, input: Vec::new(), max_reply_bytes }
    }

    /// Starts a call: appends its frame to `out` and remembers the caller under the sequence number returned.
    ///
    /// # Errors
    /// [`RpcError::TooLarge`], with nothing appended.
    pub fn begin(&mut self, function: u32, body: &[u8], caller: T, out: &mut Vec<u8>) -> Result<u32, RpcError> {
        let length = u32::try_from(body.len()).map_err(|_| RpcError::TooLarge { bytes: body.len() })?;
        let sequence = self.next;
        self.next = self.next.wrapping_add(1);
        out.reserve(body.len() + 20);
        out.extend_from_slice(&RequestHeader { sequence, function, body: length, attachment: 0 }.encode());
        out.extend_from_slice(body);
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
            let Some(header) = ReplyHeader::parse(rest).map_err(|e| self.broken(e.to_string()))? else {
                return Ok(used);
            };
            if header.body > self.max_reply_bytes || header.attachment > self.max_reply_bytes {
                return Err(self.broken(format!("a reply of {} bytes, above the limit", header.body)));
            }
            let body_end = REPLY_HEADER + header.body as usize;
            let end = body_end + header.attachment as usize;
            let (Some(body), true) = (rest.get(REPLY_HEADER..body_end), rest.len() >= end) else { return Ok(used) };
            let Some(caller) = self.pending.remove(&header.sequence) else {
                return Err(self.broken(format!("a reply to a request {} that was not made", header.sequence)));
            };
            if let Some(caller) = caller {
                self.waiting -= 1;
                completed(Completed { caller, sequence: header.sequence, result: self.result(header.error, body) });
            }
            used += end;
        }
    }

    fn broken(&self, reason: String) -> RpcError {
        RpcError::Protocol { address: self.address.clone(), reason }
    }

    fn result(&self, error: u8, body: &[u8]) -> Result<ReplyBody, RpcError> {
        if error == 0 {
            return Ok(body.to_vec());
        }
        let (code, message) = error_text(error, body);
        Err(RpcError::Refused { address: self.address.clone(), code, message })
    }
}

/// Reads an error body: a struct_pack string, or {u16, string} for code 255. A body that is neither gives an empty text:
/// the code is what counts.
fn error_text(error: u8, body: &[u8]) -> (u16, String) {
    let read = || {
        let (head, mut rest) = body.split_at_checked(4)?;
        let mut wide = false;
        if head.first()? & 1 == 1 {
            let (metainfo, after) = rest.split_first()?;
            wide = metainfo & 0x18 != 0;
            rest = if metainfo & 4 == 0 { after } else { after.splitn(2, |&byte| byte == 0).nth(1)? };
        }
        let mut code = u16::from(error);
        if error == 255 {
            let (number, after) = rest.split_at_checked(2)?;
            (code, rest) = (u16::from_le_bytes(number.try_into().ok()?), after);
        }
        let text = rest.get(if wide { 2 } else { 1 }..)?;
        Some((code, String::from_utf8_lossy(text).into_owned()))
    };
    read().unwrap_or((u16::from(error), String::new()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::write_error;

    fn core() -> ClientCore<&'static str> {
        ClientCore::new(RpcAddress::Tcp(([127, 0, 0, 1], 1).into()), 1 << 20)
    }

    fn reply(sequence: u32, body: &[u8]) -> Vec<u8> {
        let header = ReplyHeader { error: 0, sequence, body: body.len() as u32, attachment: 0 };
        [&header.encode()[..], body].concat()
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
        write_error(&mut frame, 0, 11, "the rpc function not registered");
        let mut got = None;
        core.feed(&frame, |done| got = Some(done.result)).unwrap();
        let Some(Err(RpcError::Refused { code, message, .. })) = got else { panic!("not a refusal: {got:?}") };
        assert_eq!((code, message.as_str()), (11, "the rpc function not registered"));
    }

    #[test]
    fn strange_bytes_break_the_connection() {
        assert!(core().feed(b"HTTP/1.1 400", |_| ()).is_err());
        assert!(core().feed(&reply(5, b""), |_| ()).is_err(), "never asked");
        let huge = ReplyHeader { error: 0, sequence: 0, body: u32::MAX, attachment: 0 };
        assert!(core().feed(&huge.encode(), |_| ()).is_err(), "above the limit");
    }
}
