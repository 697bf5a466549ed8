//! The rails of the test machine.

use std::process::Command;

/// Plugs a rail in or out.
pub fn set_rail(rail: usize, up: bool) {
    let state = if up { "up" } else { "down" };
    let status = Command::new("ip").args(["link", "set", &format!("sw{rail}"), state]).status().unwrap();
    assert!(status.success(), "ip link set sw{rail} {state}");
}

/// Leaves a rail plugged in, whatever becomes of the test.
pub struct RailGuard(pub usize);

impl Drop for RailGuard {
    fn drop(&mut self) {
        set_rail(self.0, true);
    }
}
