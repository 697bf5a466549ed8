//! Units of a throughput.

/// A unit that the peer's report knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReportUnit {
    name: &'static str,
    /// Eighths of a byte in one, so that bits are whole too.
    eighths: u64,
}

/// Name and eighths of a byte.
const UNITS: [(&str, u64); 9] = [
    ("GB", 8_000_000_000),
    ("GiB", 8 << 30),
    ("Gb", 1_000_000_000),
    ("MB", 8_000_000),
    ("MiB", 8 << 20),
    ("Mb", 1_000_000),
    ("KB", 8_000),
    ("KiB", 8 << 10),
    ("Kb", 1_000),
];

impl ReportUnit {
    /// The unit of that name; GB for one nobody knows.
    pub(crate) fn named(name: &str) -> Self {
        let (name, eighths) = UNITS.into_iter().find(|(known, _)| *known == name).unwrap_or(("GB", 8_000_000_000));
        ReportUnit { name, eighths }
    }

    /// The throughput with its unit, such as `0.61 GB/s`.
    pub(crate) fn rate(self, bytes: u64, seconds: f64, precision: usize) -> String {
        let amount = bytes as f64 * 8.0 / self.eighths as f64;
        let rate = if seconds > 0.0 { amount / seconds } else { 0.0 };
        format!("{rate:.precision$} {}/s", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_in_every_unit() {
        let rate = |unit: &str| ReportUnit::named(unit).rate(2_000_000_000, 2.0, 3);
        assert_eq!(rate("GB"), "1.000 GB/s");
        assert_eq!(rate("GiB"), "0.931 GiB/s");
        assert_eq!(rate("Gb"), "8.000 Gb/s");
        assert_eq!(rate("MiB"), "953.674 MiB/s");
        assert_eq!(rate("Kb"), "8000000.000 Kb/s");
        assert_eq!(ReportUnit::named("GB").rate(1, 0.0, 2), "0.00 GB/s");
    }
}
