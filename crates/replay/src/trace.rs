//! The trace format of the FAST'25 paper: one JSON object a line.
//!
//! ```json
//! {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, 2354]}
//! ```
//!
//! A trace may be larger than memory, so it is read line by line. A line that is not a request names itself.

use std::io::{self, BufRead, Read, Write};

use serde::{Deserialize, Serialize};

/// Tokens in one block of the published traces.
pub const TOKENS_PER_BLOCK: u64 = 512;

/// Longest line accepted, in bytes. The longest prompt of the published traces takes about 3 KiB.
pub const MAX_LINE_BYTES: u64 = 16 << 20;

/// One request of a trace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Arrival, in milliseconds since the trace began.
    pub timestamp: u64,
    /// Prompt tokens.
    pub input_length: u64,
    /// Generated tokens.
    pub output_length: u64,
    /// Prefix blocks in order. Equal ids mean: this block and everything before it are the same.
    pub hash_ids: Vec<u64>,
}

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The source failed.
    #[error("line {line}: cannot read the trace: {source}")]
    Io {
        /// Number of the line, from 1.
        line: u64,
        /// What the system said.
        source: io::Error,
    },
    /// The line is not a request.
    #[error(
        "line {line}: not a request of the form \
         {{\"timestamp\": ms, \"input_length\": n, \"output_length\": n, \"hash_ids\": [id, ...]}}: {reason}"
    )]
    Malformed {
        /// Number of the line, from 1.
        line: u64,
        /// What is wrong, with the column.
        reason: String,
    },
    /// The line is longer than [`MAX_LINE_BYTES`].
    #[error("line {line}: longer than {MAX_LINE_BYTES} bytes; is this a trace?")]
    TooLong {
        /// Number of the line, from 1.
        line: u64,
    },
}

/// Reads requests from a source, line by line. Empty lines are skipped; after an error it ends.
#[derive(Debug)]
pub struct TraceReader<R> {
    source: R,
    line: u64,
    buffer: Vec<u8>,
    done: bool,
}

impl<R: BufRead> TraceReader<R> {
    /// A reader at the first line of `source`.
    pub fn new(source: R) -> Self {
        TraceReader { source, line: 0, buffer: Vec::new(), done: false }
    }

    fn next_request(&mut self) -> Result<Option<Request>, TraceError> {
        loop {
            self.line += 1;
            let line = self.line;
            self.buffer.clear();
            let read = (&mut self.source)
                .take(MAX_LINE_BYTES)
                .read_until(b'\n', &mut self.buffer)
                .map_err(|source| TraceError::Io { line, source })?;
            if read == 0 {
                return Ok(None);
            }
            if read as u64 == MAX_LINE_BYTES && self.buffer.last() != Some(&b'\n') {
                return Err(TraceError::TooLong { line });
            }
            let text = self.buffer.trim_ascii();
            if text.is_empty() {
                continue;
            }
            return serde_json::from_slice(text)
                .map(Some)
                .map_err(|e| TraceError::Malformed { line, reason: e.to_string() });
        }
    }
}

impl<R: BufRead> Iterator for TraceReader<R> {
    type Item = Result<Request, TraceError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let next = self.next_request().transpose();
        self.done = !matches!(next, Some(Ok(_)));
        next
    }
}

/// Writes one request as a line.
///
/// # Errors
/// What the sink says.
pub fn write_request(sink: &mut impl Write, request: &Request) -> io::Result<()> {
    serde_json::to_writer(&mut *sink, request)?;
    sink.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &str = r#"{"timestamp": 1, "input_length": 600, "output_length": 2, "hash_ids": [0, 7]}"#;

    fn read(text: &str) -> Vec<Result<Request, String>> {
        TraceReader::new(text.as_bytes()).map(|r| r.map_err(|e| e.to_string())).collect()
    }

    #[test]
    fn lines_and_empty_lines() {
        let all = read(&format!("{GOOD}\n\n  \r\n{GOOD}"));
        assert_eq!(all.len(), 2);
        assert_eq!(all[0].as_ref().unwrap().hash_ids, [0, 7]);
    }

    #[test]
    fn an_error_names_its_line_and_ends_the_trace() {
        let all = read(&format!("{GOOD}\n\n{{\"timestamp\": 4}}\n{GOOD}\n"));
        assert_eq!(all.len(), 2);
        let text = all[1].as_ref().unwrap_err();
        assert!(text.starts_with("line 3: ") && text.contains("input_length"), "{text}");
    }

    #[test]
    fn an_endless_line_is_refused_without_being_kept() {
        let source = io::BufReader::new(io::repeat(b'x'));
        let first = TraceReader::new(source).next().unwrap();
        assert!(matches!(first, Err(TraceError::TooLong { line: 1 })), "{first:?}");
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(
            requests in proptest::collection::vec(
                (any::<u64>(), any::<u64>(), any::<u64>(), proptest::collection::vec(any::<u64>(), 0..9)), 0..9)
        ) {
            let requests: Vec<Request> = requests
                .into_iter()
                .map(|(timestamp, input_length, output_length, hash_ids)| {
                    Request { timestamp, input_length, output_length, hash_ids }
                })
                .collect();
            let mut text = Vec::new();
            for request in &requests {
                write_request(&mut text, request).unwrap();
            }
            let back: Result<Vec<_>, _> = TraceReader::new(&text[..]).collect();
            prop_assert_eq!(back.unwrap(), requests);
        }

        #[test]
        fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let errors = TraceReader::new(&bytes[..]).filter(Result::is_err).count();
            prop_assert!(errors <= 1);
        }
    }
}
