//! A view of a pool as lines of text, no wider and no more than fit.

use super::view::View;
use crate::commands::status::percent;
use crate::output;
use crate::size::bytes;

/// Columns and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Characters of a line.
    pub columns: usize,
    /// Lines.
    pub rows: usize,
}

/// Rows of calls before the segments get the rest.
const CALLS: usize = 8;
/// Characters of a bar.
const BAR: usize = 24;

/// The lines, cut to the room; the last ones say what was left out.
pub fn lines(view: &View, room: Room) -> Vec<String> {
    let mut lines = head(view);
    lines.push(String::new());
    lines.extend(calls(view));
    lines.push(String::new());
    let left = room.rows.saturating_sub(lines.len());
    lines.extend(segments(view, left));
    lines.truncate(room.rows);
    for line in &mut lines {
        *line = line.chars().take(room.columns).collect::<String>().trim_end().to_owned();
    }
    lines
}

fn head(view: &View) -> Vec<String> {
    let up = view.uptime_seconds.map(|seconds| format!("  up {}", duration(seconds))).unwrap_or_default();
    let share = |ratio: Option<f64>| ratio.map_or("-".to_owned(), |ratio| format!("{:.1} %", 100.0 * ratio));
    vec![
        format!("yuebing top  http://{}{up}  over {:.1} s", view.admin, view.interval_seconds),
        format!(
            "memory  {} {} of {} ({})  keys {}  clients {}",
            bar(view.used_bytes, view.capacity_bytes),
            bytes(view.used_bytes),
            bytes(view.capacity_bytes),
            percent(view.used_bytes, view.capacity_bytes),
            view.keys,
            view.clients
        ),
        format!(
            "hits    {} of {} gets/s  (since the start {})",
            share(view.hit_ratio),
            rate(view.gets),
            share(view.hit_ratio_total)
        ),
        format!(
            "bytes   read {}/s  stored {}/s  evicted {}/s ({} keys/s)",
            bytes(view.read_bytes as u64),
            bytes(view.stored_bytes as u64),
            bytes(view.evicted_bytes as u64),
            rate(view.evicted_keys)
        ),
    ]
}

fn calls(view: &View) -> Vec<String> {
    let mut table = output::table(&["call", "per second", "failed", "in all"], 1);
    for call in view.calls.iter().take(CALLS) {
        table.add_row([output::shown(&call.name), rate(call.rate), rate(call.failed), call.total.to_string()]);
    }
    table.trim_fmt().lines().map(str::to_owned).collect()
}

fn segments(view: &View, rows: usize) -> Vec<String> {
    // A line for the header and one for what is left out.
    let shown = if view.segments.len() < rows { view.segments.len() } else { rows.saturating_sub(2) };
    let mut table = output::table(&["segment", "status", "use", "used", "size"], 3);
    for segment in view.segments.iter().take(shown) {
        table.add_row([
            output::shown(&segment.name),
            segment.status.clone().unwrap_or_else(|| "-".to_owned()),
            bar(segment.used_bytes, segment.capacity_bytes),
            bytes(segment.used_bytes),
            bytes(segment.capacity_bytes),
        ]);
    }
    let mut lines: Vec<String> = table.trim_fmt().lines().map(str::to_owned).collect();
    if shown < view.segments.len() {
        lines.push(format!("and {} more (yuebing segments)", view.segments.len() - shown));
    }
    lines
}

fn bar(part: u64, whole: u64) -> String {
    let full = if whole == 0 { 0 } else { (part as f64 / whole as f64 * BAR as f64).round() as usize };
    let full = full.min(BAR);
    format!("[{}{}]", "#".repeat(full), ".".repeat(BAR - full))
}

fn rate(per_second: f64) -> String {
    match per_second {
        0.0 => "0".to_owned(),
        few if few < 10.0 => format!("{few:.1}"),
        many => format!("{many:.0}"),
    }
}

fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match days {
        0 => format!("{hours}:{minutes:02}:{:02}", seconds % 60),
        days => format!("{days} d {hours}:{minutes:02}"),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::admin::{Sample, Segment};

    fn view(segments: usize) -> View {
        let mut now = Sample::default();
        now.status.segments = (0..segments)
            .map(|n| Segment { name: format!("10.0.0.{n}:1"), used_bytes: 1, capacity_bytes: 2, ..Segment::default() })
            .collect();
        now.numbers.insert("master_ping_requests_total".to_owned(), 30.0);
        now.numbers.insert("yuebing_uptime_seconds".to_owned(), 90_061.0);
        View::between(&Sample::default(), &now, Duration::from_secs(2))
    }

    #[test]
    fn everything_is_shown_where_there_is_room() {
        let lines = lines(&view(2), Room { columns: 200, rows: 50 });
        assert!(lines[0].contains("up 1 d 1:01"), "{lines:?}");
        assert!(lines.iter().any(|l| l.starts_with("ping") && l.contains("15")), "{lines:?}");
        assert!(
            lines.last().unwrap().starts_with("10.0.0.1:1") && lines.last().unwrap().contains("[############.....")
        );
    }

    #[test]
    fn a_small_terminal_gets_what_fits_and_is_told_what_is_missing() {
        let lines = lines(&view(300), Room { columns: 40, rows: 20 });
        assert_eq!(lines.len(), 20);
        assert!(lines.iter().all(|line| line.chars().count() <= 40));
        let shown = lines.iter().filter(|line| line.starts_with("10.0.0.")).count();
        assert_eq!(lines.last().unwrap(), &format!("and {} more (yuebing segments)", 300 - shown)[..]);
        assert_eq!(super::lines(&view(3), Room { columns: 0, rows: 0 }).len(), 0);
    }
}
