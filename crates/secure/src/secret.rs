//! The shared secret: read, never shown, proven without being sent.
//!
//! ```text
//! C→S  client nonce                                                     32 bytes
//! S→C  server nonce                                                     32 bytes
//! C→S  HMAC-SHA256(secret, "yuebing 1 client" nonces binding)           32 bytes
//! S→C  0, HMAC-SHA256(secret, "yuebing 1 server" nonces binding)        33 bytes, or one byte: the refusal
//! ```
//!
//! The client proves first, so nobody gets a server's proof by asking. `binding` is what only the two ends of the TLS
//! connection know (empty without TLS): a proof cannot be carried from one connection to another.

use std::path::Path;

use ring::hmac;

use crate::SecurityError;
use crate::hello::Refusal;

/// Shortest secret: what is shorter can be guessed from an overheard proof.
pub const LEAST_SECRET: usize = 16;
/// Bytes of a nonce and of a proof.
pub(crate) const PART: usize = 32;

/// One or more secrets: the first is used, all are accepted, so that one can follow another without a gap.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<Vec<u8>>);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// Of a text with one secret a line; blank lines do not count.
    ///
    /// # Errors
    /// [`SecurityError::Secret`]: there is none, or one is shorter than [`LEAST_SECRET`].
    pub fn parse(text: &str, whence: &str) -> Result<Self, SecurityError> {
        let wrong = |why: String| SecurityError::Secret { whence: whence.to_owned(), why };
        let secrets: Vec<Vec<u8>> =
            text.lines().map(str::trim).filter(|line| !line.is_empty()).map(|line| line.as_bytes().to_vec()).collect();
        if secrets.is_empty() {
            return Err(wrong("it is empty".to_owned()));
        }
        if secrets.iter().any(|secret| secret.starts_with(b"#")) {
            return Err(wrong("a line begins with #: every line is a secret, there are no comments".to_owned()));
        }
        match secrets.iter().find(|secret| secret.len() < LEAST_SECRET) {
            Some(short) => {
                Err(wrong(format!("a secret of {} bytes is too short, {LEAST_SECRET} are the least", short.len())))
            }
            None => Ok(Secret(secrets)),
        }
    }

    /// Of a file.
    ///
    /// # Errors
    /// [`SecurityError::Secret`].
    pub fn read(path: &Path) -> Result<Self, SecurityError> {
        let whence = path.display().to_string();
        let text = std::fs::read_to_string(path)
            .map_err(|error| SecurityError::Secret { whence: whence.clone(), why: error.to_string() })?;
        Secret::parse(&text, &whence)
    }

    fn keys(&self) -> impl Iterator<Item = hmac::Key> + '_ {
        self.0.iter().map(|secret| hmac::Key::new(hmac::HMAC_SHA256, secret))
    }
}

/// Who proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    Client,
    Server,
}

/// What both sides have said so far, and what binds it to the connection.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    pub(crate) client_nonce: [u8; PART],
    pub(crate) server_nonce: [u8; PART],
    pub(crate) binding: Vec<u8>,
}

impl Exchange {
    fn message(&self, side: Side) -> Vec<u8> {
        let label: &[u8] = match side {
            Side::Client => b"yuebing 1 client",
            Side::Server => b"yuebing 1 server",
        };
        [label, &self.client_nonce, &self.server_nonce, &self.binding].concat()
    }

    /// The client's proof.
    pub(crate) fn client_proof(&self, secret: &Secret) -> Vec<u8> {
        let key = secret.keys().next();
        key.map_or_else(Vec::new, |key| hmac::sign(&key, &self.message(Side::Client)).as_ref().to_vec())
    }

    /// The server's answer to the client's proof.
    pub(crate) fn server_answer(&self, secret: &Secret, proof: &[u8]) -> Result<Vec<u8>, Refusal> {
        let message = self.message(Side::Client);
        let key = secret.keys().find(|key| hmac::verify(key, &message, proof).is_ok()).ok_or(Refusal::WrongSecret)?;
        let own = hmac::sign(&key, &self.message(Side::Server));
        Ok([&[0], own.as_ref()].concat())
    }

    /// Whether the server has proven that it knows the secret that the client used.
    pub(crate) fn is_proven_by(&self, secret: &Secret, proof: &[u8]) -> bool {
        let message = self.message(Side::Server);
        secret.keys().next().is_some_and(|key| hmac::verify(&key, &message, proof).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::parse(text, "here").unwrap()
    }

    fn exchange(binding: &[u8]) -> Exchange {
        Exchange { client_nonce: [1; PART], server_nonce: [2; PART], binding: binding.to_vec() }
    }

    #[test]
    fn proofs_hold_for_one_secret_and_one_connection() {
        let (old, both) = (secret("the old secret of it"), secret("the new secret of it\nthe old secret of it"));
        let proof = exchange(b"").client_proof(&old);
        let answer = exchange(b"").server_answer(&both, &proof).unwrap();
        assert!(exchange(b"").is_proven_by(&old, &answer[1..]));
        assert_eq!(exchange(b"other").server_answer(&both, &proof), Err(Refusal::WrongSecret));
        assert!(!exchange(b"other").is_proven_by(&old, &answer[1..]));
        assert!(!exchange(b"").is_proven_by(&old, &proof), "nobody can send back what he was sent");
        assert_eq!(exchange(b"").server_answer(&secret("another secret here"), &proof), Err(Refusal::WrongSecret));
        assert_eq!(exchange(b"").server_answer(&both, b""), Err(Refusal::WrongSecret));
    }

    #[test]
    fn secrets_are_long_and_not_shown() {
        assert!(Secret::parse("\n \n", "here").is_err() && Secret::parse("short", "here").is_err());
        let comment = Secret::parse("# the secret of the pool\na long enough secret", "here").unwrap_err().to_string();
        assert!(comment.contains("no comments"), "{comment}");
        let error = Secret::parse("a long enough secret\nshort-one", "here").unwrap_err().to_string();
        assert!(error.contains("too short") && !error.contains("short-one"), "{error}");
        assert!(!format!("{:?}", secret("a long enough secret")).contains("long"));
    }
}
