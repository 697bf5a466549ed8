//! A history as text: two lines for a call, so that the begin of one that killed its client is known.
//!
//! ```text
//! > NUMBER NANOSECONDS CALL KEY [WRITE COPIES]
//! < NUMBER NANOSECONDS OUTCOME [DETAIL]
//! ```

use std::collections::BTreeMap;

use yb_types::MonotonicTime;

use crate::operation::{Call, Key, Operation, Outcome, Write};

/// A line that is none of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// From 1.
    pub number: usize,
    /// It.
    pub line: String,
}

impl std::fmt::Display for BadLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "line {} is none of a history: {:?}", self.number, self.line)
    }
}

impl std::error::Error for BadLine {}

/// The line of a call that begins, with its end of line.
pub fn begin_line(number: u64, at: MonotonicTime, key: Key, call: Call) -> String {
    let (at, key, name) = (at.0, key.0, call.name());
    match call.write() {
        Some(write) => format!("> {number} {at} {name} {key} {} {}\n", write.0, call.copies()),
        None => format!("> {number} {at} {name} {key}\n"),
    }
}

/// The line of a call that was answered, with its end of line.
pub fn end_line(number: u64, at: MonotonicTime, outcome: &Outcome) -> String {
    let detail = match outcome {
        Outcome::Read(write) => return format!("< {number} {} read {}\n", at.0, write.0),
        Outcome::Wrong(what) => what.replace('\n', " "),
        _ => return format!("< {number} {} {}\n", at.0, outcome.name().replace('\n', " ")),
    };
    format!("< {number} {} wrong {detail}\n", at.0)
}

/// The calls of one client. A last line that was not finished is left out: its writer was killed.
///
/// # Errors
/// The first line that cannot be read.
pub fn parse(client: u32, text: &str) -> Result<Vec<Operation>, BadLine> {
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    let mut calls: BTreeMap<u64, Operation> = BTreeMap::new();
    for (index, line) in whole.lines().enumerate() {
        let bad = || BadLine { number: index + 1, line: line.to_owned() };
        let (mark, rest) = line.split_once(' ').ok_or_else(bad)?;
        let (number, rest) = rest.split_once(' ').ok_or_else(bad)?;
        let (at, rest) = rest.split_once(' ').ok_or_else(bad)?;
        let number: u64 = number.parse().map_err(|_| bad())?;
        let at = MonotonicTime(at.parse().map_err(|_| bad())?);
        match mark {
            ">" => {
                let (key, call) = parse_call(rest).ok_or_else(bad)?;
                calls.insert(number, Operation { client, key, call, started: at, ended: None });
            }
            "<" => {
                let outcome = parse_outcome(rest).ok_or_else(bad)?;
                calls.get_mut(&number).ok_or_else(bad)?.ended = Some((at, outcome));
            }
            _ => return Err(bad()),
        }
    }
    Ok(calls.into_values().collect())
}

fn parse_call(text: &str) -> Option<(Key, Call)> {
    let mut words = text.split(' ');
    let (name, key) = (words.next()?, Key(words.next()?.parse().ok()?));
    let mut written = || Some((Write(words.next()?.parse().ok()?), words.next()?.parse().ok()?));
    let call = match name {
        "put" => written().map(|(write, copies)| Call::Put { write, copies })?,
        "upsert" => written().map(|(write, copies)| Call::Upsert { write, copies })?,
        "get" => Call::Get,
        "exists" => Call::Exists,
        "remove" => Call::Remove,
        _ => return None,
    };
    Some((key, call))
}

fn parse_outcome(text: &str) -> Option<Outcome> {
    let (name, detail) = text.split_once(' ').unwrap_or((text, ""));
    Some(match name {
        "stored" => Outcome::Stored,
        "exists" => Outcome::Exists,
        "accepted" => Outcome::Accepted,
        "read" => Outcome::Read(Write(detail.parse().ok()?)),
        "present" => Outcome::Present,
        "absent" => Outcome::Absent,
        "removed" => Outcome::Removed,
        "refused" => Outcome::Refused(detail.into()),
        "failed" => Outcome::Failed(detail.into()),
        "wrong" => Outcome::Wrong(detail.into()),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let calls = [
            (Call::Put { write: Write(7), copies: 2 }, Some(Outcome::Stored)),
            (Call::Upsert { write: Write(8), copies: 1 }, Some(Outcome::Refused("busy".into()))),
            (Call::Get, Some(Outcome::Read(Write(7)))),
            (Call::Get, Some(Outcome::Wrong("differs at 3".into()))),
            (Call::Exists, Some(Outcome::Failed("master unreachable".into()))),
            (Call::Remove, None),
        ];
        let mut text = String::new();
        let mut wanted = Vec::new();
        for (number, (call, outcome)) in (0..).zip(calls) {
            let (started, end) = (MonotonicTime(number * 10), MonotonicTime(number * 10 + 5));
            text += &begin_line(number, started, Key(3), call);
            text += &outcome.as_ref().map(|outcome| end_line(number, end, outcome)).unwrap_or_default();
            let ended = outcome.map(|outcome| (end, outcome));
            wanted.push(Operation { client: 4, key: Key(3), call, started, ended });
        }
        assert_eq!(parse(4, &text).as_ref(), Ok(&wanted));
        // Its writer was killed in the middle of a line.
        assert_eq!(parse(4, &format!("{text}< 5 9")).as_ref(), Ok(&wanted));
        assert_eq!(parse(4, "> 1 2 get 3\n< 1 3 nonsense\n").unwrap_err().number, 2);
        assert_eq!(parse(4, "< 1 3 absent\n").unwrap_err().number, 1);
    }
}
