//! Lines as the peer logs them, on standard error: `I1129 15:03:39.274273 4711 transfer_engine_bench.rs:1] text`.

/// The log.
pub(crate) struct Log;

impl Log {
    pub(crate) fn info(text: &str) {
        write('I', text);
    }

    pub(crate) fn warning(text: &str) {
        write('W', text);
    }

    pub(crate) fn error(text: &str) {
        write('E', text);
    }
}

fn write(severity: char, text: &str) {
    let time = yb_transfer::timestamp(yb_env::epoch_millis());
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    yb_env::complain!("{}", line(severity, &time, thread, text));
}

/// `time` is `YYYY-mm-dd HH:MM:SS.uuuuuu`.
fn line(severity: char, time: &str, thread: i32, text: &str) -> String {
    let (date, clock) = time.split_once(' ').unwrap_or_default();
    let day: String = date.chars().skip(5).filter(|c| *c != '-').collect();
    format!("{severity}{day} {clock} {thread} transfer_engine_bench.rs:1] {text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_peers_form() {
        let line = line('I', "2026-11-29 15:03:39.274273", 4711, "text");
        assert_eq!(line, "I1129 15:03:39.274273 4711 transfer_engine_bench.rs:1] text");
    }
}
