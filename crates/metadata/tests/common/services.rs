//! Stores as processes of their own, on free ports, with folders of their own; ended with the test.

#![allow(dead_code, clippy::unwrap_used, reason = "test code; every program uses its own part")]

use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use yb_env::Clock;

/// A running store.
pub struct Service {
    process: Child,
    command: Command,
    pub port: u16,
    _folder: tempfile::TempDir,
}

pub fn free_port() -> u16 {
    yb_env::free_port().unwrap()
}

/// Says once why a test is left out; with `CI=true` it fails instead.
pub fn skip(what: &str) {
    assert!(std::env::var("CI").as_deref() != Ok("true"), "{what} is missing");
    eprintln!("skipped: {what} is missing");
}

fn installed(program: &str) -> Option<PathBuf> {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&paths).map(|folder| folder.join(program)).find(|path| path.exists());
    if found.is_none() {
        skip(&format!("{program} (apt-get install etcd-server redis-server)"));
    }
    found
}

/// Waits until `holds`.
pub fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let clock = Clock::real();
    let until = clock.now() + Duration::from_secs(30);
    while !holds() {
        assert!(clock.now() < until, "not in time: {what}");
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

impl Service {
    fn start(mut command: Command, port: u16, folder: tempfile::TempDir) -> Service {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().unwrap();
        let service = Service { process, command, port, _folder: folder };
        service.ready();
        service
    }

    fn ready(&self) {
        eventually("the store listens", || TcpStream::connect(("127.0.0.1", self.port)).is_ok());
    }

    /// etcd, one member.
    pub fn etcd() -> Option<Service> {
        let program = installed("etcd")?;
        let (folder, port, peers) = (tempfile::tempdir().unwrap(), free_port(), free_port());
        let (clients, peers) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{peers}"));
        let mut command = Command::new(program);
        command.arg("--data-dir").arg(folder.path());
        command.args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients]);
        command.args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers]);
        command.args(["--initial-cluster", &format!("default={peers}"), "--unsafe-no-fsync"]);
        // A short election, because no lease is shorter than that.
        command.args(["--heartbeat-interval", "50", "--election-timeout", "500", "--max-request-bytes", "8388608"]);
        Some(Service::start(command, port, folder))
    }

    /// redis without persistence.
    pub fn redis(password: Option<&str>) -> Option<Service> {
        let program = installed("redis-server")?;
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let mut command = Command::new(program);
        command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.arg("--dir").arg(folder.path());
        if let Some(password) = password {
            command.args(["--requirepass", password]);
        }
        Some(Service::start(command, port, folder))
    }

    /// The HTTP server of a wheel of the peer.
    pub fn peer_http(version: &str) -> Option<Service> {
        let python = peer_python(version)?;
        let (folder, port) = (tempfile::tempdir().unwrap(), free_port());
        let mut command = Command::new(python);
        command.args(["-m", "mooncake.http_metadata_server", "--host", "127.0.0.1", "--port", &port.to_string()]);
        Some(Service::start(command, port, folder))
    }

    /// Kills it and starts it again at the same port.
    pub fn restart(&mut self) {
        self.kill();
        self.process = self.command.spawn().unwrap();
        self.ready();
    }

    fn kill(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The interpreter of an environment with the peer's wheel.
pub fn peer_python(version: &str) -> Option<PathBuf> {
    let root = std::env::var_os("YB_PEER_VENVS");
    let python = root.map(|root| Path::new(&root).join(version).join("bin/python")).filter(|python| python.exists());
    if python.is_none() {
        skip(&format!("a folder {version} in YB_PEER_VENVS"));
    }
    python
}
