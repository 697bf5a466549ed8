//! The query part of a URL, as bytes: keys need not be UTF-8. Every endpoint reads it through here, so that all decode
//! alike: `%XX` is a byte, `+` is a plus sign.

/// Names and values, percent-decoded.
///
/// ```
/// let query = yb_admin::Query::parse("key=a%2Fb%26c+d&force");
/// assert_eq!(query.bytes("key"), Some(&b"a/b&c+d"[..]));
/// assert_eq!(query.bytes("force"), Some(&b""[..]));
/// assert_eq!(query.bytes("other"), None);
/// assert_eq!(query.unknown(&["key"]), Some("force".to_owned()));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Query(Vec<(Vec<u8>, Vec<u8>)>);

impl Query {
    /// Splits at `&` and `=` first and decodes then, so that any byte can stand in a value.
    pub fn parse(text: &str) -> Query {
        let parts = text.split('&').filter(|part| !part.is_empty());
        Query(
            parts
                .map(|part| match part.split_once('=') {
                    Some((name, value)) => (decode(name), decode(value)),
                    None => (decode(part), Vec::new()),
                })
                .collect(),
        )
    }

    /// The first value of a name.
    pub fn bytes(&self, name: &str) -> Option<&[u8]> {
        self.0.iter().find(|(n, _)| n == name.as_bytes()).map(|(_, value)| value.as_slice())
    }

    /// The first value of a name as text.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.bytes(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// Every value of a name.
    pub fn all<'q>(&'q self, name: &'q str) -> impl Iterator<Item = &'q [u8]> {
        self.0.iter().filter(move |(n, _)| n == name.as_bytes()).map(|(_, value)| value.as_slice())
    }

    /// The first name that is none of these; what changes something refuses it, since a slip must not widen what is meant.
    pub fn unknown(&self, known: &[&str]) -> Option<String> {
        let is_known = |name: &[u8]| known.iter().any(|known| known.as_bytes() == name);
        self.0.iter().find(|(name, _)| !is_known(name)).map(|(name, _)| String::from_utf8_lossy(name).into_owned())
    }

    /// True for `true` and `1`, as the peer reads a flag.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.bytes(name), Some(b"true" | b"1"))
    }

    /// A whole number, `None` when the name is absent.
    ///
    /// # Errors
    /// Words for the caller when it is there and no number.
    pub fn number(&self, name: &str) -> Result<Option<u64>, String> {
        let Some(value) = self.bytes(name) else { return Ok(None) };
        let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        number.map(Some).ok_or_else(|| format!("{name} must be a whole number"))
    }
}

/// Which rows of a list are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Rows to leave out.
    pub offset: usize,
    /// Most rows of the answer.
    pub limit: usize,
}

impl Window {
    /// From `offset` and `limit`: 0 and 100 if absent, at most 10000 rows.
    ///
    /// # Errors
    /// Words for the caller.
    pub fn of(query: &Query) -> Result<Window, String> {
        let whole = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
        let offset = query.number("offset")?.map_or(0, whole);
        let limit = query.number("limit")?.map_or(100, whole).clamp(1, 10_000);
        Ok(Window { offset, limit })
    }
}

fn decode(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let escaped = (byte == b'%').then(|| bytes.get(at + 1..at + 3)).flatten().and_then(|hex| {
            let digit = |c: u8| char::from(c).to_digit(16);
            Some((digit(hex[0])? * 16 + digit(hex[1])?) as u8)
        });
        out.push(escaped.unwrap_or(byte));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decodes_what_is_whole_and_keeps_the_rest() {
        assert_eq!(decode("%41%zz%4"), b"A%zz%4");
        assert_eq!(decode("%ff"), [0xff]);
        let query = Query::parse("key=a&key=b%2Cc&limit=x");
        assert_eq!(query.all("key").collect::<Vec<_>>(), [&b"a"[..], b"b,c"]);
        assert!(Window::of(&query).is_err());
        assert_eq!(Window::of(&Query::parse("limit=0")), Ok(Window { offset: 0, limit: 1 }));
    }
}
