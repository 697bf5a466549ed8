//! What a command writes to its standard output.
//!
//! A reader that stops early (`yuebing ls | head`) is not an error: the command ends quietly.

use std::io::{self, ErrorKind, Write};

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;

use crate::failure::{Exit, Failure, Outcome};

/// Writes bytes as they are.
pub fn bytes(data: &[u8]) -> Outcome {
    let mut out = io::stdout().lock();
    quiet_pipe(out.write_all(data).and_then(|()| out.flush()))
}

/// Writes a text and a line end.
pub fn line(text: impl AsRef<str>) -> Outcome {
    let mut data = text.as_ref().as_bytes().to_vec();
    data.push(b'\n');
    bytes(&data)
}

/// Writes a value as one JSON text and a line end.
pub fn json(value: &impl Serialize) -> Outcome {
    let mut data = serde_json::to_vec(value).map_err(|e| Failure::failed(format!("cannot write JSON: {e}")))?;
    data.push(b'\n');
    bytes(&data)
}

/// A reader that went away ends the command with success and no word.
pub fn quiet_pipe(result: io::Result<()>) -> Outcome {
    match result {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Err(Failure::new(Exit::Done, "")),
        Err(error) => Err(Failure::failed(format!("cannot write to standard output: {error}"))),
    }
}

/// A table with a header, columns from `numbers_from` on aligned to the right.
pub fn table(header: &[&str], numbers_from: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
    for column in numbers_from..header.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    for column in 0..header.len() {
        if let Some(column) = table.column_mut(column) {
            column.set_padding((0, 2));
        }
    }
    table
}

/// Two columns: names and values.
pub fn pairs(rows: &[(&str, String)]) -> String {
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    rows.iter().map(|(name, value)| format!("{name:width$}  {value}")).collect::<Vec<_>>().join("\n")
}

/// A key for people: printable as it is, other bytes as `\xNN`.
pub fn key_text(key: &[u8]) -> String {
    match std::str::from_utf8(key) {
        Ok(text) if !text.chars().any(char::is_control) => text.to_owned(),
        _ => key.escape_ascii().to_string(),
    }
}

/// A name that somebody else chose, for people: what would garble a terminal or make a row of its own is escaped.
pub fn shown(name: &str) -> String {
    key_text(name.as_bytes())
}

/// Microseconds with a fitting unit.
pub fn micros(us: f64) -> String {
    match us {
        us if us < 1_000.0 => format!("{us:.1} us"),
        us if us < 1_000_000.0 => format!("{:.2} ms", us / 1e3),
        us => format!("{:.2} s", us / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_would_garble_a_terminal_are_escaped() {
        assert_eq!(key_text(b"model/7"), "model/7");
        assert_eq!(key_text("块".as_bytes()), "块");
        assert_eq!(key_text(b"a\nb\xff"), "a\\nb\\xff");
        assert_eq!(shown("a\u{1b}[2J\u{9b}"), "a\\x1b[2J\\xc2\\x9b");
    }

    #[test]
    fn a_reader_that_left_is_no_error() {
        let left = quiet_pipe(Err(io::Error::from(ErrorKind::BrokenPipe))).unwrap_err();
        assert_eq!((left.exit, left.to_string().as_str()), (Exit::Done, ""));
        assert_eq!(quiet_pipe(Err(io::Error::from(ErrorKind::StorageFull))).unwrap_err().exit, Exit::Failed);
    }

    #[test]
    fn tables_and_units() {
        let mut table = table(&["segment", "used"], 1);
        table.add_row(["a", "12"]);
        let text = table.to_string();
        assert!(text.contains("segment") && text.contains("  12"), "{text}");
        assert_eq!(micros(12.34), "12.3 us");
        assert_eq!(micros(12_340.0), "12.34 ms");
        assert_eq!(pairs(&[("a", "1".into()), ("bbb", "2".into())]), "a    1\nbbb  2");
    }
}
