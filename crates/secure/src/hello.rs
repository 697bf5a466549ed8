//! The first bytes of a secured connection, and of a refusal (pure).
//!
//! ```text
//! hello    C→S  89 'Y' 'B' 'S' 'E' 'C' | u8 version = 1 | u8 what: 1 secret, 2 TLS, 3 both         8 bytes
//! refusal  S→C  89 'Y' 'B' 'S' 'E' 'C' | u8 version = 1 | u8 0x80 + reason                         8 bytes
//! ```
//!
//! No plain protocol behind the same ports begins so: a request of the RPC wire begins with 0x15, one of HTTP with a
//! letter; read as the first field of the data wire or of the handshake it is a length of more than 2^55 bytes.

/// Bytes of a hello and of a refusal.
pub const HELLO_LEN: usize = 8;

const MAGIC: [u8; 6] = *b"\x89YBSEC";
const VERSION: u8 = 1;
const REFUSED: u8 = 0x80;

/// What protects a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// Both sides prove that they know the secret.
    pub secret: bool,
    /// All bytes after the hello are TLS.
    pub tls: bool,
}

/// Why a server refuses a connection that wants to be secured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u8)]
pub enum Refusal {
    /// The server speaks another version.
    #[error("the server does not speak this version of the secured wire")]
    Version = 0,
    /// The plain wire is closed to this address.
    #[error("the server takes secured connections only (set YUEBING_SECRET_FILE, or YUEBING_TLS_CA)")]
    PlainClosed = 1,
    /// The server uses other means than the client.
    #[error("the server secures its connections with a secret and without TLS")]
    WantsSecret = 2,
    /// As above.
    #[error("the server secures its connections with TLS and without a secret")]
    WantsTls = 3,
    /// As above.
    #[error("the server secures its connections with TLS and a secret")]
    WantsBoth = 4,
    /// The server has no secret and no certificate.
    #[error("the server's connections are not secured")]
    WantsPlain = 5,
    /// The client's secret is not the server's.
    #[error("the secrets are not the same")]
    WrongSecret = 6,
    /// Too many connections are being secured.
    #[error("the server secures too many other connections")]
    Crowded = 7,
}

impl Refusal {
    const ALL: [Refusal; 8] = [
        Refusal::Version,
        Refusal::PlainClosed,
        Refusal::WantsSecret,
        Refusal::WantsTls,
        Refusal::WantsBoth,
        Refusal::WantsPlain,
        Refusal::WrongSecret,
        Refusal::Crowded,
    ];

    /// What a server of this mode says to a client of another.
    pub(crate) fn of_mode(server: Mode) -> Self {
        match (server.secret, server.tls) {
            (true, true) => Refusal::WantsBoth,
            (true, false) => Refusal::WantsSecret,
            (false, true) => Refusal::WantsTls,
            (false, false) => Refusal::WantsPlain,
        }
    }

    pub(crate) fn from_code(code: u8) -> Self {
        Refusal::ALL.into_iter().find(|refusal| *refusal as u8 == code).unwrap_or(Refusal::Version)
    }

    /// The bytes on the wire.
    pub fn encode(self) -> [u8; HELLO_LEN] {
        frame(REFUSED | self as u8)
    }

    /// The refusal at the start of `bytes`, where a plain reply was expected.
    pub fn found_in(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(&MAGIC)?;
        let code = rest.get(1).filter(|code| *code & REFUSED != 0)?;
        Some(Refusal::from_code(code & !REFUSED))
    }
}

/// What a connection begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// Not enough bytes to tell.
    NeedMore,
    /// A plain protocol.
    Plain,
    /// A hello of another version.
    Unknown,
    /// A hello.
    Secured(Mode),
}

impl Opening {
    /// Reads the first bytes.
    pub fn parse(bytes: &[u8]) -> Self {
        let seen = bytes.len().min(MAGIC.len());
        if bytes.get(..seen) != MAGIC.get(..seen) {
            return Opening::Plain;
        }
        match bytes.get(MAGIC.len()..HELLO_LEN) {
            None => Opening::NeedMore,
            Some([VERSION, what @ 1..=3]) => Opening::Secured(Mode { secret: what & 1 != 0, tls: what & 2 != 0 }),
            Some(_) => Opening::Unknown,
        }
    }
}

impl Mode {
    /// The hello of a client.
    pub(crate) fn hello(self) -> [u8; HELLO_LEN] {
        frame(u8::from(self.secret) | u8::from(self.tls) << 1)
    }
}

fn frame(last: u8) -> [u8; HELLO_LEN] {
    let mut bytes = [0; HELLO_LEN];
    bytes[..MAGIC.len()].copy_from_slice(&MAGIC);
    bytes[MAGIC.len()] = VERSION;
    bytes[MAGIC.len() + 1] = last;
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hellos_come_back_and_are_told_from_plain_protocols() {
        for (secret, tls) in [(true, false), (false, true), (true, true)] {
            let mode = Mode { secret, tls };
            assert_eq!(Opening::parse(&mode.hello()), Opening::Secured(mode));
            for end in 0..HELLO_LEN {
                assert_eq!(Opening::parse(&mode.hello()[..end]), Opening::NeedMore);
            }
        }
        assert_eq!(Opening::parse(&frame(0)), Opening::Unknown);
        assert_eq!(Opening::parse(b"\x89YBSEC\x02\x01"), Opening::Unknown);
        for plain in [&b"GET / HTTP/1.1"[..], b"\x15", b"\x16\x03\x01", b"\x89\0\0\0\0\0\0\0", b"\x89YC"] {
            assert_eq!(Opening::parse(plain), Opening::Plain, "{plain:?}");
        }
        let as_length = u64::from_le_bytes(Mode { secret: true, tls: false }.hello());
        assert!(as_length > 1 << 55, "no length on the data wire");
    }

    #[test]
    fn refusals_come_back() {
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::found_in(&refusal.encode()), Some(refusal));
        }
        assert_eq!(Refusal::found_in(b"\x15\0\0\0\0\0\0\0"), None);
        assert_eq!(Refusal::found_in(&Mode { secret: true, tls: true }.hello()), None);
    }
}
