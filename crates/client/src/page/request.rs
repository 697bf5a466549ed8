//! The first line of an HTTP request. Pure.

/// Bytes that a request may have; the page needs one line of it.
pub(super) const LONGEST: usize = 8 << 10;

/// What a visitor wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wish<'a> {
    /// More bytes are needed to tell.
    Incomplete,
    /// A page, or only its head.
    Get {
        /// The path, without what follows a `?`.
        path: &'a str,
        /// `HEAD`.
        head_only: bool,
    },
    /// Something that the page does not do.
    OtherMethod,
    /// No HTTP, or too long.
    Nonsense,
}

/// Reads what has come so far.
pub(super) fn read(bytes: &[u8]) -> Wish<'_> {
    let ends = bytes.windows(4).any(|window| window == b"\r\n\r\n");
    if !ends {
        return if bytes.len() < LONGEST { Wish::Incomplete } else { Wish::Nonsense };
    }
    let line = bytes.split(|byte| *byte == b'\r').next().and_then(|line| std::str::from_utf8(line).ok());
    let mut words = line.unwrap_or_default().split(' ');
    match (words.next(), words.next(), words.next()) {
        (Some(method), Some(target), Some(version)) if version.starts_with("HTTP/1") && target.starts_with('/') => {
            let path = target.split('?').next().unwrap_or(target);
            match method {
                "GET" | "HEAD" => Wish::Get { path, head_only: method == "HEAD" },
                _ => Wish::OtherMethod,
            }
        }
        _ => Wish::Nonsense,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_counts() {
        let get = |path, head_only| Wish::Get { path, head_only };
        assert_eq!(read(b"GET /health HTTP/1.1\r\nHost: a\r\n\r\n"), get("/health", false));
        assert_eq!(read(b"HEAD /metrics?x=1 HTTP/1.0\r\n\r\n"), get("/metrics", true));
        assert_eq!(read(b"GET /health HTTP/1.1\r\nHost:"), Wish::Incomplete);
        assert_eq!(read(b"POST /health HTTP/1.1\r\n\r\n"), Wish::OtherMethod);
        for nonsense in [
            &b"\r\n\r\n"[..],
            b"GET /health\r\n\r\n",
            b"GET health HTTP/1.1\r\n\r\n",
            b"GET /\xff HTTP/1.1\r\n\r\n",
            &[b'a'; LONGEST],
        ] {
            assert_eq!(read(nonsense), Wish::Nonsense);
        }
    }
}
