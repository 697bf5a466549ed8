//! Records one after the other.
//!
//! A record is its length (u32), the CRC-32 of these four bytes, the CRC-32 of its body, and the body; all numbers
//! little-endian. The length has a checksum of its own, so that a damaged length is not taken for a torn end: behind it
//! there may be records that must not be lost silently.

/// Bytes before a body.
pub const HEADER: usize = 12;
/// No record is longer: a key has no more bytes.
pub const BODY_MAX: usize = 64 << 20;

/// What comes next in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next<'a> {
    /// A whole record.
    Record(&'a [u8]),
    /// Nothing: the log ends behind a record.
    End,
    /// The beginning of a record that was not written to its end, or nothing but zeros up to the end.
    Torn,
    /// Bytes that are no record, or not the one that was written.
    Broken,
}

/// Appends a record whose body `write` appends.
pub fn append(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER]);
    write(out);
    let body = out.get(start + HEADER..).unwrap_or_default();
    // Longer ones than can be read are never written: see BODY_MAX.
    let len = u32::try_from(body.len()).unwrap_or(u32::MAX).to_le_bytes();
    let (len_sum, body_sum) = (crc32fast::hash(&len).to_le_bytes(), crc32fast::hash(body).to_le_bytes());
    if let Some(header) = out.get_mut(start..start + HEADER) {
        header.copy_from_slice(&[len, len_sum, body_sum].concat());
    }
}

/// Takes the next record from the front of `rest`; leaves `rest` as it is when there is none.
pub fn next<'a>(rest: &mut &'a [u8]) -> Next<'a> {
    let Some((header, behind)) = rest.split_first_chunk::<HEADER>() else {
        return if rest.is_empty() { Next::End } else { Next::Torn };
    };
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *header;
    let len = [a, b, c, d];
    if crc32fast::hash(&len) != u32::from_le_bytes([e, f, g, h]) {
        // A file may have grown before what was to fill it was written, when the power went.
        return if rest.iter().all(|byte| *byte == 0) { Next::Torn } else { Next::Broken };
    }
    let len = u32::from_le_bytes(len) as usize;
    if len > BODY_MAX {
        return Next::Broken;
    }
    let Some((body, behind)) = behind.split_at_checked(len) else { return Next::Torn };
    if crc32fast::hash(body) != u32::from_le_bytes([i, j, k, l]) {
        return Next::Broken;
    }
    *rest = behind;
    Next::Record(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_is_torn_and_a_changed_byte_is_broken() {
        let mut log = Vec::new();
        for body in [&b"first"[..], b"", b"the third"] {
            append(&mut log, |out| out.extend_from_slice(body));
        }
        let mut rest = log.as_slice();
        assert_eq!(next(&mut rest), Next::Record(b"first"));
        assert_eq!(next(&mut rest), Next::Record(b""));
        assert_eq!(next(&mut rest), Next::Record(b"the third"));
        assert_eq!((next(&mut rest), rest.len()), (Next::End, 0));
        let last = log.len() - HEADER - 9;
        for cut in last + 1..log.len() {
            assert_eq!(next(&mut &log[last..cut]), Next::Torn, "{cut}");
        }
        for at in last..log.len() {
            let mut bad = log.clone();
            bad[at] ^= 4;
            assert_eq!(next(&mut &bad[last..]), Next::Broken, "{at}");
        }
        let mut zeros = log.clone();
        zeros.resize(log.len() + 4096, 0);
        assert_eq!(next(&mut &zeros[log.len()..]), Next::Torn);
        zeros.push(1);
        assert_eq!(next(&mut &zeros[log.len()..]), Next::Broken, "there was something behind them");
        let mut long = Vec::new();
        let len = u32::MAX.to_le_bytes();
        long.extend_from_slice(&[len, crc32fast::hash(&len).to_le_bytes(), [0; 4]].concat());
        assert_eq!(next(&mut long.as_slice()), Next::Broken, "nobody reserves memory for it");
    }
}
