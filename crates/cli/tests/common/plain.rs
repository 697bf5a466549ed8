//! Processes of the program under test.
#![allow(dead_code, reason = "each test file uses a part")]

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use yb_env::Clock;

/// How long a test waits for what must happen.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// One that ends with its owner.
pub struct Process(pub Child);

impl Process {
    pub fn start(arguments: &[String]) -> Process {
        let mut command = Command::new(env!("CARGO_BIN_EXE_yuebing"));
        Process(command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A port that is free now.
pub fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Asks again and again.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let clock = Clock::real();
    let end = clock.now() + PATIENCE;
    while !done() {
        assert!(clock.now() < end, "not within {PATIENCE:?}: {what}");
        yb_env::sleep(Duration::from_millis(20));
    }
}
