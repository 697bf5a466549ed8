//! A parsed value.

use crate::setting::{Kind, Setting, Unit, Validity};

/// The value of one setting.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of `Bool`.
    Bool(bool),
    /// Of the whole numbers, of `Duration` (milliseconds) and of `Bytes`.
    Number(i128),
    /// Of `F64`.
    Double(f64),
    /// Of `Text`.
    Text(String),
    /// Of `List`.
    List(Vec<String>),
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Bool(value) => write!(f, "{value}"),
            Value::Number(value) => write!(f, "{value}"),
            Value::Double(value) => write!(f, "{value}"),
            Value::Text(value) => f.write_str(value),
            Value::List(value) => f.write_str(&value.join(",")),
        }
    }
}

impl Value {
    pub(crate) fn parse(setting: &Setting, text: &str) -> Result<Value, String> {
        Value::parse_plain(setting, text).map_err(|legal| match (setting.kind, setting.unit) {
            // A duration says its own unit where the text makes no sense; its bounds are in milliseconds too.
            (Kind::Duration, _) if legal.contains("between") => format!("{legal} ms"),
            (Kind::I32 | Kind::I64 | Kind::U32 | Kind::U64, unit @ (Unit::Seconds | Unit::Millis | Unit::Bytes)) => {
                format!("{legal} ({})", unit.words())
            }
            _ => legal,
        })
    }

    fn parse_plain(setting: &Setting, text: &str) -> Result<Value, String> {
        let value = match setting.kind {
            Kind::Bool => Value::Bool(parse_bool(text)?),
            Kind::I32 => Value::Number(parse_whole(text, i32::MIN.into(), i32::MAX.into())?),
            Kind::I64 => Value::Number(parse_whole(text, i64::MIN.into(), i64::MAX.into())?),
            Kind::U32 => Value::Number(parse_whole(text, 0, u32::MAX.into())?),
            Kind::U64 => Value::Number(parse_whole(text, 0, u64::MAX.into())?),
            Kind::F64 => Value::Double(parse_double(text)?),
            Kind::Text => Value::Text(text.to_owned()),
            Kind::Duration => Value::Number(parse_duration_ms(text)?.into()),
            Kind::Bytes => Value::Number(parse_bytes(text)?.into()),
            Kind::List => {
                Value::List(text.split(',').map(str::trim).filter(|s| !s.is_empty()).map(str::to_owned).collect())
            }
        };
        check(setting.validity, &value)?;
        Ok(value)
    }
}

fn check(validity: Validity, value: &Value) -> Result<(), String> {
    match (validity, value) {
        (Validity::Range(low, high), Value::Number(n)) if *n < low || *n > high => {
            Err(format!("must be between {low} and {high}"))
        }
        (Validity::Ratio(low, high), Value::Double(x)) if !(*x >= low && *x <= high) => {
            Err(format!("must be between {low} and {high}"))
        }
        (Validity::OneOf(legal), Value::Text(text)) if !legal.contains(&text.as_str()) => {
            Err(format!("must be one of {}", legal.iter().map(|s| format!("{s:?}")).collect::<Vec<_>>().join(", ")))
        }
        _ => Ok(()),
    }
}

fn parse_bool(text: &str) -> Result<bool, String> {
    match text.to_ascii_lowercase().as_str() {
        "1" | "t" | "true" | "y" | "yes" | "on" => Ok(true),
        "0" | "f" | "false" | "n" | "no" | "off" => Ok(false),
        _ => Err("must be true or false".to_owned()),
    }
}

fn parse_whole(text: &str, low: i128, high: i128) -> Result<i128, String> {
    let text = text.trim();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text),
    };
    let number = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) if hex.starts_with(|c: char| c.is_ascii_hexdigit()) => i128::from_str_radix(hex, 16).ok(),
        Some(_) => None,
        None if digits.starts_with(|c: char| c.is_ascii_digit()) => digits.parse::<i128>().ok(),
        None => None,
    };
    let number = number.ok_or("must be a whole number")? * sign;
    if number < low || number > high {
        return Err(format!("must be between {low} and {high}"));
    }
    Ok(number)
}

fn parse_double(text: &str) -> Result<f64, String> {
    let number: f64 = text.trim().parse().map_err(|_| "must be a number".to_owned())?;
    if number.is_finite() { Ok(number) } else { Err("must be a finite number".to_owned()) }
}

/// A time as the peer writes it: whole milliseconds, or a whole number followed by `ms`, `s`, `m` or `h`.
///
/// # Errors
/// What would be legal.
///
/// ```
/// assert_eq!(yb_settings::parse_duration_ms("10s"), Ok(10_000));
/// assert_eq!(yb_settings::parse_duration_ms("250"), Ok(250));
/// assert!(yb_settings::parse_duration_ms("5 days").is_err());
/// ```
pub fn parse_duration_ms(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let factor = match suffix {
        "" | "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err("must be milliseconds, or a number with ms, s, m or h".to_owned()),
    };
    let number: u64 = digits.parse().map_err(|_| "must be milliseconds, or a number with ms, s, m or h".to_owned())?;
    number.checked_mul(factor).ok_or_else(|| "is too long".to_owned())
}

fn parse_bytes(text: &str) -> Result<u64, String> {
    const LEGAL: &str = "must be bytes, or a number with KiB, MiB, GiB or TiB";
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let shift = match suffix.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        "t" | "tb" | "tib" => 40,
        _ => return Err(LEGAL.to_owned()),
    };
    if let Ok(whole) = digits.parse::<u64>() {
        return whole.checked_mul(1 << shift).ok_or_else(|| "is too large".to_owned());
    }
    let number: f64 = digits.parse().map_err(|_| LEGAL.to_owned())?;
    let bytes = number * (1u64 << shift) as f64;
    if bytes.is_finite() && bytes >= 0.0 && bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err(LEGAL.to_owned()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_their_limits() {
        assert_eq!(parse_whole("-0x10", -100, 100), Ok(-16));
        assert!(parse_whole("0x-1", -100, 100).is_err());
        assert!(parse_whole("", -100, 100).is_err());
        assert!(parse_whole("101", -100, 100).is_err());
        assert!(parse_whole("--5", -100, 100).is_err());
        assert_eq!(parse_bytes("1.5GiB"), Ok(3 << 29));
        assert!(parse_bytes("99999999999TiB").is_err());
        assert!(parse_duration_ms("99999999999999999999h").is_err());
        assert!(parse_duration_ms("s").is_err());
    }
}
