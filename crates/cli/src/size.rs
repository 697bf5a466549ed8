//! Sizes on the command line.

use std::str::FromStr;

use yb_types::ByteLen;

/// A number of bytes as people write it: `65536`, `64KiB`, `2GiB`, `1.5 GB`. Units count in steps of 1024, with or
/// without the `i`, as the peer's settings do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let illegal = || format!("not a size: {text:?}; write 65536, 64KiB or 2GiB");
        let trimmed = text.trim();
        let digits = trimmed.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kb" | "kib" => 1 << 10,
            "m" | "mb" | "mib" => 1 << 20,
            "g" | "gb" | "gib" => 1 << 30,
            "t" | "tb" | "tib" => 1 << 40,
            _ => return Err(illegal()),
        };
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(Size).ok_or_else(illegal);
        }
        let bytes = number.parse::<f64>().map_err(|_| illegal())? * factor as f64;
        if bytes < u64::MAX as f64 { Ok(Size(bytes as u64)) } else { Err(illegal()) }
    }
}

/// Bytes for people, without needless digits: `64 KiB`, `1.50 GiB`.
pub fn bytes(count: u64) -> String {
    ByteLen(count).to_string().replace(".00 ", " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_people_write_them() {
        for (text, bytes) in
            [("0", 0), ("65536", 65536), ("64KiB", 65536), ("2 gb", 2 << 30), ("1.5G", 3 << 29), ("7b", 7)]
        {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
        for bad in ["", "GiB", "-1", "1x", "99999999999999999999", "16777216TiB", "1.2.3"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
        assert_eq!(bytes(65536), "64 KiB");
        assert_eq!(bytes(3 << 29), "1.50 GiB");
    }
}
