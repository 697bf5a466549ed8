//! Errors of the RPC layer, as opposed to business results, which are part of a reply's value.

use std::fmt;

use yb_pack::{BodyType, DecodeError, Form, Limits, Pack, encode};
use yb_types::WireVersion;

/// The error code of a response header; 0 is no error. A code above 254 travels as 255 with the real one in the body.
///
/// The peer's clients close the connection on any of them, so a business failure must never be told this way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TransportError(pub u16);

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        impl TransportError {
            $($(#[$doc])* pub const $name: TransportError = TransportError($value);)*

            /// What it means, `None` for a number without a meaning.
            pub fn text(self) -> Option<&'static str> {
                match self.0 { $($value => Some($text),)* _ => None }
            }
        }
    };
}

codes! {
    /// No error.
    OK = 0, "ok";
    /// Input or output failed.
    IO_ERROR = 1, "io error";
    /// No connection.
    NOT_CONNECTED = 2, "not connected";
    /// Too late.
    TIMED_OUT = 3, "timed out";
    /// The arguments do not decode. The connection goes on.
    INVALID_ARGUMENTS = 4, "arguments do not decode";
    /// The listen address is taken.
    ADDRESS_IN_USE = 5, "address in use";
    /// The address is no address.
    BAD_ADDRESS = 6, "bad address";
    /// A socket could not be opened.
    OPEN_ERROR = 7, "open error";
    /// Listening failed.
    LISTEN_ERROR = 8, "listen error";
    /// Cancelled.
    CANCELLED = 9, "cancelled";
    /// The handler failed.
    HANDLER_FAILED = 10, "handler failed";
    /// No such function. The connection goes on.
    NO_SUCH_FUNCTION = 11, "function not registered";
    /// The bytes are no frame.
    PROTOCOL_ERROR = 12, "protocol error";
    /// The frame has a version that is not spoken.
    UNKNOWN_PROTOCOL_VERSION = 13, "unknown protocol version";
    /// Too long.
    MESSAGE_TOO_LARGE = 14, "message too large";
    /// The server runs already.
    SERVER_ALREADY_RAN = 15, "server already ran";
    /// The result does not decode.
    INVALID_RESULT = 16, "result does not decode";
    /// Two requests with one sequence number.
    SEQUENCE_CLASH = 17, "sequence number clash";
}

/// Header code that says: the real code is in the body.
const EXTENDED: u8 = 255;

impl TransportError {
    /// What the response header holds.
    pub fn header_code(self) -> u8 {
        u8::try_from(self.0).unwrap_or(EXTENDED)
    }
}

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (transport error {})", self.text().unwrap_or("unknown"), self.0)
    }
}

impl fmt::Debug for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[derive(Pack)]
struct Extended<'a> {
    code: u16,
    message: &'a [u8],
}

/// The body of an error response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ErrorBody<'a> {
    /// The code.
    pub error: TransportError,
    /// A text for people; bytes, because nothing says that it is UTF-8.
    pub message: &'a [u8],
}

impl<'a> ErrorBody<'a> {
    /// Reads the body of a response whose header holds `header_code`.
    ///
    /// # Errors
    /// When the body is neither of the two forms.
    pub fn decode(header_code: u8, body: &'a [u8], limits: Limits) -> Result<Self, DecodeError> {
        let version = WireVersion::LATEST.ordinal();
        if header_code == EXTENDED {
            let ty = BodyType::of::<Extended<'_>>(version);
            let Extended { code, message } = yb_pack::decode(body, &ty, limits)?;
            return Ok(ErrorBody { error: TransportError(code), message });
        }
        let ty = BodyType::of::<&[u8]>(version);
        let message = yb_pack::decode(body, &ty, limits)?;
        Ok(ErrorBody { error: TransportError(u16::from(header_code)), message })
    }

    /// Appends the body.
    pub fn encode(&self, form: Form, out: &mut Vec<u8>) {
        let version = WireVersion::LATEST.ordinal();
        // Neither form has alternatives, and a message is never 4 GiB, so neither call fails.
        let _ = if self.error.0 < u16::from(EXTENDED) {
            encode(self.message, &BodyType::of::<&[u8]>(version), form, out)
        } else {
            let value = Extended { code: self.error.0, message: self.message };
            encode(&value, &BodyType::of::<Extended<'_>>(version), form, out)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_the_body_read_back() {
        for form in [Form::Bare, Form::Literal] {
            for code in [4u16, 11, 254, 255, 300] {
                let body = ErrorBody { error: TransportError(code), message: b"why" };
                let mut bytes = Vec::new();
                body.encode(form, &mut bytes);
                let back = ErrorBody::decode(body.error.header_code(), &bytes, Limits::default());
                assert_eq!(back, Ok(body));
            }
        }
    }
}
