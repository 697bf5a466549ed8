//! Times as the peer writes them.

/// Milliseconds since 1970 as the peer writes times: `YYYY-mm-dd HH:MM:SS.uuuuuu` (in UTC here).
pub fn timestamp(epoch_millis: u64) -> String {
    let (seconds, millis) = (epoch_millis / 1000, epoch_millis % 1000);
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    // Civil date from day number: years start in March, so that the leap day is the last of its year.
    let shifted = day + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let date = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{date:02} {hour:02}:{minute:02}:{:02}.{:06}", second % 60, millis * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_look_as_the_peers() {
        assert_eq!(timestamp(0), "1970-01-01 00:00:00.000000");
        assert_eq!(timestamp(1_709_210_096_789), "2024-02-29 12:34:56.789000");
        assert_eq!(timestamp(1_795_964_581_001), "2026-11-29 15:03:01.001000");
    }
}
