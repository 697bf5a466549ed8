//! Shared memory between processes of one host.
//!
//! The owner of memfd segments hands their descriptors to peers of the same user over a UNIX socket; the peer maps them
//! and copies by itself. The socket stays open: its end tells each side that the other is gone.

pub(crate) mod client;
pub(crate) mod server;
mod watch;
pub(crate) mod wire;

/// The boot id of this host; empty where it cannot be read, and then nothing is shared.
pub(crate) fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}
