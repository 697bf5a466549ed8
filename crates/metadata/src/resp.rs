//! The part of redis' protocol that three commands need (pure).

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    /// `+OK`
    Status(String),
    /// `-ERR ..`
    Error(String),
    /// `:1`
    Number(i64),
    /// `$..`; `None` = no such key.
    Bytes(Option<Vec<u8>>),
}

/// The bytes were no answer of redis.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an answer of redis")]
pub(crate) struct RespError;

/// Longest line of a status, an error or a number.
const MAX_LINE: usize = 64 << 10;

/// A command and its arguments.
pub(crate) fn command(parts: &[&[u8]]) -> Vec<u8> {
    let mut out = format!("*{}\r\n", parts.len()).into_bytes();
    for part in parts {
        out.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
        out.extend_from_slice(part);
        out.extend_from_slice(b"\r\n");
    }
    out
}

impl Reply {
    /// The answer at the start of `bytes` and its length; `None` when more bytes are needed.
    ///
    /// # Errors
    /// [`RespError`] as soon as it cannot become one, or one longer than `limit`.
    pub(crate) fn parse(bytes: &[u8], limit: u64) -> Result<Option<(Reply, usize)>, RespError> {
        let Some((kind, rest)) = bytes.split_first() else { return Ok(None) };
        let Some(end) = rest.windows(2).position(|pair| pair == b"\r\n") else {
            return if rest.len() > MAX_LINE { Err(RespError) } else { Ok(None) };
        };
        let line = rest.get(..end).unwrap_or_default();
        let text = || String::from_utf8_lossy(line).into_owned();
        let number = || std::str::from_utf8(line).ok().and_then(|line| line.parse::<i64>().ok()).ok_or(RespError);
        let head = end + 3;
        match kind {
            b'+' => Ok(Some((Reply::Status(text()), head))),
            b'-' => Ok(Some((Reply::Error(text()), head))),
            b':' => Ok(Some((Reply::Number(number()?), head))),
            b'$' => match number()? {
                -1 => Ok(Some((Reply::Bytes(None), head))),
                len if len < 0 || len as u64 > limit => Err(RespError),
                len => {
                    let len = usize::try_from(len).map_err(|_| RespError)?;
                    let Some(body) = bytes.get(head..head + len + 2) else { return Ok(None) };
                    match body.split_at_checked(len) {
                        Some((value, b"\r\n")) => Ok(Some((Reply::Bytes(Some(value.to_vec())), head + len + 2))),
                        _ => Err(RespError),
                    }
                }
            },
            _ => Err(RespError),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_and_answers() {
        assert_eq!(command(&[b"GET", b"k"]), b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n");
        for (bytes, reply) in [
            (&b"+OK\r\n"[..], Reply::Status("OK".to_owned())),
            (b"-ERR no\r\n", Reply::Error("ERR no".to_owned())),
            (b":1\r\n", Reply::Number(1)),
            (b"$-1\r\n", Reply::Bytes(None)),
            (b"$4\r\na\r\nb\r\n", Reply::Bytes(Some(b"a\r\nb".to_vec()))),
            (b"$0\r\n\r\n", Reply::Bytes(Some(Vec::new()))),
        ] {
            assert_eq!(Reply::parse(bytes, 100).unwrap(), Some((reply, bytes.len())));
            for end in 0..bytes.len() {
                assert_eq!(Reply::parse(&bytes[..end], 100), Ok(None), "{:?}", &bytes[..end]);
            }
        }
        for bad in [&b"*1\r\n"[..], b"$101\r\n", b"$-2\r\n", b":x\r\n", b"$1\r\nabc"] {
            assert!(Reply::parse(bad, 100).is_err());
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        bolero::check!().with_iterations(20_000).for_each(|bytes: &[u8]| {
            for kind in b"+-:$" {
                let _ = Reply::parse(&[&[*kind], bytes].concat(), 64);
            }
        });
    }
}
