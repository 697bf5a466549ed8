//! Shared memory between processes of one host.
//!
//! The owner of memfd segments hands their descriptors to peers of the same user over a UNIX socket; the peer maps them
//! and copies by itself. The socket stays open: its end tells each side that the other is gone.

pub(crate) mod client;
pub(crate) mod neighbours;
mod owner;
pub(crate) mod process_vm;
pub(crate) mod server;
mod socket;
mod watch;
pub(crate) mod wire;

/// Between two pieces of this size the deadline and the cancel token are looked at.
const PIECE: usize = 16 << 20;

/// The boot id of this host; empty where it cannot be read, and then nothing is shared.
pub(crate) fn boot_id() -> String {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}
