//! The query part of a URL, as bytes: keys need not be UTF-8.

/// Names and values, percent-decoded.
///
/// ```
/// let query = yb_admin::Query::parse("key=a%2Fb%26c+d&force");
/// assert_eq!(query.bytes("key"), Some(&b"a/b&c+d"[..]));
/// assert_eq!(query.bytes("force"), Some(&b""[..]));
/// assert_eq!(query.bytes("other"), None);
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

    /// The raw value of a name split at commas, every item decoded: a comma inside a key is written `%2C`.
    pub fn list(raw: &str, name: &str) -> Option<Vec<Vec<u8>>> {
        let value = raw.split('&').find_map(|part| part.split_once('=').filter(|(n, _)| decode(n) == name.as_bytes()));
        value.map(|(_, value)| value).filter(|value| !value.is_empty()).map(|v| v.split(',').map(decode).collect())
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
        let list = Query::list("x=1&keys=a,b%2Cc,", "keys").unwrap();
        assert_eq!(list, [b"a".to_vec(), b"b,c".to_vec(), Vec::new()]);
        assert_eq!(Query::list("keys=", "keys"), None);
    }
}
