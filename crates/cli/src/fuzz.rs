//! Fuzz targets of the parsers; `cargo test` runs them as property tests, `cargo bolero test` fuzzes them.

use bolero::check;

use crate::size::Size;
use crate::{admin, http};

#[test]
fn http_answers() {
    check!().with_iterations(20_000).for_each(|input: &[u8]| {
        for head in [&b""[..], b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"] {
            let raw = [head, input].concat();
            if let Some(answer) = http::parse(&raw) {
                assert!(answer.body.len() <= raw.len());
            }
        }
    });
}

#[test]
fn metrics_pages() {
    check!().with_iterations(20_000).for_each(|input: &[u8]| {
        let text = String::from_utf8_lossy(input);
        admin::from_metrics("h:1", &text);
        let series = format!("segment_total_capacity_bytes{{segment=\"{text}\"}} 5\n");
        assert!(admin::from_metrics("h:1", &series).status.segments.len() <= 1 + text.lines().count());
    });
}

#[test]
fn sizes() {
    check!().with_iterations(20_000).for_each(|input: &[u8]| {
        let text = String::from_utf8_lossy(input);
        let _ = text.parse::<Size>();
        let _ = format!("7{text}").parse::<Size>();
    });
}
