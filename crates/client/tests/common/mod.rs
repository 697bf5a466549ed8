//! Pools for the tests of this crate.
#![allow(dead_code, reason = "each test file uses its part")]

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use yb_client::{CallLimits, Client, ClientConfig};
use yb_env::Clock;
use yb_types::ReplicateConfig;

pub const MIB: u64 = 1 << 20;

/// A port that nobody listens on now.
pub fn free_port() -> u16 {
    yb_env::free_port().unwrap()
}

/// Asks `done` until it says yes; panics after thirty seconds.
pub fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let clock = Clock::real();
    let end = clock.now() + Duration::from_secs(30);
    while !done() {
        assert!(clock.now() < end, "not within thirty seconds: {what}");
        yb_env::sleep(Duration::from_millis(10));
    }
}

/// Ends the process with the test.
pub struct Process(pub Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Mooncake's own master, where its package is installed (see [`wheel_binary`]); else one line says that it is skipped. The
/// proofs that must not be skipped are those of `tests/peer`.
pub fn wheel_master(flags: &[&str]) -> Option<(Process, String)> {
    let Some(binary) = wheel_binary("mooncake_master") else {
        eprintln!("skipped: neither YB_PEER_VENVS nor target/peer has the peer's v0.3.13.post1");
        return None;
    };
    let (port, metrics) = (free_port(), free_port());
    let child = Command::new(binary)
        .args([format!("--rpc_port={port}"), format!("--metrics_port={metrics}"), "--rpc_address=127.0.0.1".into()])
        .args(flags)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let master = Process(child);
    let address = format!("127.0.0.1:{port}");
    wait_until("the peer's master listens", || std::net::TcpStream::connect(&address).is_ok());
    Some((master, address))
}

/// A program in the peer's package, as `tests/peer` installs it or `YB_PEER_VENVS` names it.
pub fn wheel_binary(name: &str) -> Option<PathBuf> {
    let made = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/peer");
    let environments = std::env::var_os("YB_PEER_VENVS").map_or(made, PathBuf::from);
    let lib = environments.join("v0.3.13.post1/lib");
    let pythons = std::fs::read_dir(lib).ok()?.flatten();
    pythons.map(|python| python.path().join("site-packages/mooncake").join(name)).find(|path| path.exists())
}

/// A configuration for tests on this machine.
pub fn config(master: &str) -> ClientConfig {
    ClientConfig {
        local_hostname: "127.0.0.1".into(),
        master_address: master.into(),
        ping_interval: Duration::from_millis(200),
        ..ClientConfig::default()
    }
}

/// A client that lends memory.
pub fn node(master: &str, bytes: u64) -> Client {
    Client::connect(ClientConfig { global_segment_size: bytes, ..config(master) }).unwrap()
}

/// A client that lends none.
pub fn requester(master: &str) -> Client {
    Client::connect(config(master)).unwrap()
}

/// Whether one of up to five calls takes less than `limit`: a busy machine may hold up some.
pub fn one_is_quick(limit: Duration, mut call: impl FnMut()) -> bool {
    let clock = Clock::real();
    (0..5).any(|_| {
        let before = clock.now();
        call();
        clock.now().since(before) < limit
    })
}

/// Shorter calls, for tests that wait for them to fail.
pub fn short() -> CallLimits {
    CallLimits { base: Duration::from_millis(600), ..CallLimits::default() }
}

/// Waits for a future.
pub fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    struct Bell(std::thread::Thread);
    impl std::task::Wake for Bell {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::task::Waker::from(std::sync::Arc::new(Bell(std::thread::current())));
    let mut context = std::task::Context::from_waker(&waker);
    loop {
        match std::pin::Pin::new(&mut future).poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

/// Bytes that differ by seed and place.
pub fn bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = yb_env::Rng::seeded(seed);
    let mut made = Vec::with_capacity(len + 8);
    while made.len() < len {
        made.extend_from_slice(&rng.next_u64().to_le_bytes());
    }
    made.truncate(len);
    made
}

/// One replica, anywhere.
pub fn plain() -> ReplicateConfig {
    ReplicateConfig::default()
}

/// `n` replicas, anywhere.
pub fn replicas(n: u64) -> ReplicateConfig {
    ReplicateConfig { replica_num: n, ..ReplicateConfig::default() }
}

/// One replica, on this node if it has room.
pub fn on(node: &Client) -> ReplicateConfig {
    ReplicateConfig { preferred_segments: vec![node.hostname().into()], ..ReplicateConfig::default() }
}

/// A node of the peer as a process of its own.
pub fn wheel_node(master: &str, size: &str) -> Option<Process> {
    let binary = wheel_binary("mooncake_client")?;
    let mut command = Command::new(binary);
    command.args(["--host=127.0.0.1", "--metadata_server=P2PHANDSHAKE", "--protocol=tcp"]).args([
        format!("--master_server_address={master}"),
        format!("--port={}", free_port()),
        format!("--global_segment_size={size}"),
    ]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    Some(Process(child))
}
