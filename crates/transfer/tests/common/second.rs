//! A second process of a test: the same program, running one of its tests as a body that obeys orders by line.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// The process, killed when dropped. It prints its answers on lines of their own.
pub struct Second {
    process: Child,
    orders: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Second {
    /// Starts the test `body` of this program with a variable that tells it that it is the second process. `before` are
    /// words before the program on its command line.
    pub fn start(before: &[&str], body: &str, (name, value): (&str, &str)) -> Self {
        let program = std::env::current_exe().unwrap();
        let words: Vec<&str> = before.iter().copied().chain([program.to_str().unwrap()]).collect();
        let mut process = Command::new(words[0])
            .args(&words[1..])
            .args(["--exact", body, "--nocapture", "--test-threads=1"])
            .env(name, value)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = process.stdin.take().unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap());
        Second { process, orders, lines }
    }

    /// The words of the next line that begins so.
    pub fn answer(&mut self, start: &str) -> Vec<String> {
        loop {
            let mut line = String::new();
            assert!(self.lines.read_line(&mut line).unwrap() > 0, "the second process ended");
            if line.starts_with(start) {
                return line.split_whitespace().map(str::to_owned).collect();
            }
        }
    }

    /// Gives an order and waits for its answer.
    pub fn order(&mut self, order: &str, answer: &str) -> Vec<String> {
        writeln!(self.orders, "{order}").unwrap();
        self.answer(answer)
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Second {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
