//! `yuebing segments`: every segment with its owner, use and state.

use crate::admin::{self, Segment};
use crate::args::{SegmentOrder, SegmentsArgs};
use crate::commands::status::percent;
use crate::connect;
use crate::failure::Outcome;
use crate::output;
use crate::size::bytes;

/// Asks the admin port and prints.
pub fn run(args: &SegmentsArgs) -> Outcome {
    let mut rows = admin::status(&connect::admin(&args.admin)?)?.segments;
    if let Some(part) = &args.name {
        let all = rows.len();
        rows.retain(|row| row.name.contains(part.as_str()));
        if rows.is_empty() && !args.json {
            return output::line(format!("no name of the {all} segments has {part:?} in it"));
        }
    }
    sort(&mut rows, args.sort);
    match args.json {
        true => output::json(&rows),
        false => output::line(text(&rows)),
    }
}

/// Names upwards, numbers from the largest; ties by name.
fn sort(rows: &mut [Segment], order: SegmentOrder) {
    let share = |row: &Segment| row.used_bytes as f64 / row.capacity_bytes.max(1) as f64;
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    match order {
        SegmentOrder::Name => {}
        SegmentOrder::Used => rows.sort_by_key(|row| std::cmp::Reverse(row.used_bytes)),
        SegmentOrder::Size => rows.sort_by_key(|row| std::cmp::Reverse(row.capacity_bytes)),
        SegmentOrder::Use => rows.sort_by(|a, b| share(b).total_cmp(&share(a))),
        SegmentOrder::Status => rows.sort_by(|a, b| a.status.cmp(&b.status)),
    }
}

fn text(rows: &[Segment]) -> String {
    if rows.is_empty() {
        return "no segments".to_owned();
    }
    let mut table = output::table(&["segment", "endpoint", "client", "protocol", "status", "used", "size", "use"], 5);
    for row in rows {
        let told = |text: &Option<String>| text.as_deref().map_or_else(|| "-".to_owned(), output::shown);
        table.add_row([
            output::shown(&row.name),
            told(&row.endpoint),
            told(&row.client),
            told(&row.protocol),
            told(&row.status),
            bytes(row.used_bytes),
            bytes(row.capacity_bytes),
            percent(row.used_bytes, row.capacity_bytes),
        ]);
    }
    table.trim_fmt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fullest_comes_first_when_asked() {
        let row = |name: &str, used_bytes, capacity_bytes| Segment {
            name: name.to_owned(),
            used_bytes,
            capacity_bytes,
            ..Segment::default()
        };
        let mut rows = [row("b", 5, 100), row("a", 8, 10), row("c", 8, 1000)];
        let mut order = |by| {
            sort(&mut rows, by);
            rows.iter().map(|row| row.name.as_str()).collect::<String>()
        };
        assert_eq!(order(SegmentOrder::Name), "abc");
        assert_eq!(order(SegmentOrder::Used), "acb");
        assert_eq!(order(SegmentOrder::Size), "cba");
        assert_eq!(order(SegmentOrder::Use), "abc");
        assert!(text(&rows).lines().nth(1).is_some_and(|line| line.ends_with("80.0 %")), "{}", text(&rows));
    }
}
