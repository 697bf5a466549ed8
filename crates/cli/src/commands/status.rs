//! `yuebing status`: what the master knows, at a glance.

use crate::admin;
use crate::args::StatusArgs;
use crate::connect;
use crate::failure::Outcome;
use crate::output;
use crate::size::bytes;

/// Asks the admin port and prints.
pub fn run(args: &StatusArgs) -> Outcome {
    let status = admin::status(&connect::admin(&args.admin)?)?;
    if args.json {
        return output::json(&status);
    }
    output::line(text(&status))
}

fn text(status: &admin::Status) -> String {
    let mut rows = vec![
        ("admin", format!("http://{}", status.admin)),
        ("keys", keys(status)),
        ("clients", status.clients.to_string()),
        ("memory", share(status.used_bytes, status.capacity_bytes)),
        ("segments", status.segments.len().to_string()),
    ];
    if status.evicted_keys > 0 {
        rows.push(("evicted", format!("{} keys, {}", status.evicted_keys, bytes(status.evicted_bytes))));
    }
    let mut text = output::pairs(&rows);
    if !status.segments.is_empty() {
        let mut table = output::table(&["segment", "status", "used", "size", "use"], 2);
        for segment in &status.segments {
            table.add_row([
                output::shown(&segment.name),
                segment.status.clone().unwrap_or_else(|| "-".to_owned()),
                bytes(segment.used_bytes),
                bytes(segment.capacity_bytes),
                percent(segment.used_bytes, segment.capacity_bytes),
            ]);
        }
        text.push_str("\n\n");
        text.push_str(&table.trim_fmt());
    }
    text
}

fn keys(status: &admin::Status) -> String {
    match status.soft_pinned_keys {
        0 => status.keys.to_string(),
        pinned => format!("{} ({pinned} pinned softly)", status.keys),
    }
}

fn share(used: u64, capacity: u64) -> String {
    format!("{} of {} ({})", bytes(used), bytes(capacity), percent(used, capacity))
}

/// A share for people.
pub fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_for_people() {
        let segment = admin::Segment {
            name: "127.0.0.1:15001".into(),
            status: Some("OK".into()),
            used_bytes: 1 << 20,
            capacity_bytes: 1 << 22,
            ..admin::Segment::default()
        };
        let status = admin::Status {
            admin: "127.0.0.1:9003".into(),
            keys: 3,
            clients: 1,
            used_bytes: 1 << 20,
            capacity_bytes: 1 << 22,
            segments: vec![segment],
            ..admin::Status::default()
        };
        let text = text(&status);
        assert!(text.contains("memory    1 MiB of 4 MiB (25.0 %)"), "{text}");
        assert!(text.lines().any(|l| l.starts_with("127.0.0.1:15001") && l.ends_with("25.0 %")), "{text}");
        assert!(!text.contains("evicted"));
    }
}
