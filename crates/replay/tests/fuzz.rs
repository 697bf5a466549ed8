//! Fuzz target of the trace parser; `cargo test` runs it as a property test, `cargo bolero test` fuzzes it.

use bolero::check;
use yb_replay::{TraceError, TraceReader};

#[test]
fn traces() {
    check!().with_iterations(20_000).for_each(|input: &[u8]| {
        let mut lines = Vec::new();
        // Random bytes are almost never a request, so the inside of one gets a chance.
        lines.extend_from_slice(b"{\"timestamp\":1,\"input_length\":2,\"output_length\":3,\"hash_ids\":[0");
        lines.extend_from_slice(input);
        for bytes in [input, &lines] {
            let mut errors = 0;
            for request in TraceReader::new(bytes) {
                match request {
                    Ok(request) => assert!(request.hash_ids.len() <= bytes.len()),
                    Err(
                        TraceError::Malformed { line, .. } | TraceError::TooLong { line } | TraceError::Io { line, .. },
                    ) => {
                        errors += 1;
                        assert!(line as usize <= bytes.len() + 1);
                    }
                }
            }
            assert!(errors <= 1, "a trace ends at its first error");
        }
    });
}
