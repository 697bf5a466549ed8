//! When a request of a trace is due.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How fast a trace is replayed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Speed {
    /// So many seconds of the trace in one second. Finite and above zero.
    Times(f64),
    /// As fast as the clients can.
    Max,
}

impl Speed {
    /// Time from the start of the replay until a request with this timestamp may start.
    pub fn due_after(self, timestamp_ms: u64) -> Duration {
        match self {
            Speed::Max => Duration::ZERO,
            Speed::Times(factor) => {
                Duration::try_from_secs_f64(timestamp_ms as f64 / 1000.0 / factor).unwrap_or(Duration::MAX)
            }
        }
    }
}

/// The text is not a speed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a speed: {0:?}; write max, 1x, 10x, 0.5x")]
pub struct ParseSpeedError(String);

impl FromStr for Speed {
    type Err = ParseSpeedError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.eq_ignore_ascii_case("max") {
            return Ok(Speed::Max);
        }
        let number = text.strip_suffix(['x', 'X']).unwrap_or(text);
        match number.parse::<f64>() {
            Ok(factor) if factor.is_finite() && factor > 0.0 => Ok(Speed::Times(factor)),
            _ => Err(ParseSpeedError(text.to_owned())),
        }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Speed::Max => f.write_str("max"),
            Speed::Times(factor) => write!(f, "{factor}x"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_speeds() {
        assert_eq!("max".parse(), Ok(Speed::Max));
        assert_eq!("10x".parse(), Ok(Speed::Times(10.0)));
        assert_eq!("0.5".parse(), Ok(Speed::Times(0.5)));
        for bad in ["", "x", "0x", "-1x", "nan", "infx", "fast"] {
            assert!(bad.parse::<Speed>().is_err(), "{bad}");
        }
        assert_eq!(Speed::Times(10.0).to_string(), "10x");
    }

    #[test]
    fn due_times_scale() {
        assert_eq!(Speed::Times(10.0).due_after(30_000), Duration::from_secs(3));
        assert_eq!(Speed::Max.due_after(30_000), Duration::ZERO);
        assert_eq!(Speed::Times(f64::MIN_POSITIVE).due_after(u64::MAX), Duration::MAX);
    }
}
