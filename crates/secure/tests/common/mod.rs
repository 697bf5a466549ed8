//! Certificates, an echo behind [`Security`], and settings in short.
#![allow(clippy::unwrap_used, dead_code, reason = "helpers of tests, not every file uses all")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use socket2::{Domain, Socket, Type};
use tempfile::TempDir;
use yb_secure::{Secret, SecureError, Security, SecuritySettings, SecurityStats};

pub const SECRET: &str = "a secret that nobody sees";
pub const OTHER_SECRET: &str = "a secret of somebody else";
pub const LIMIT: Duration = Duration::from_secs(20);

/// An authority and one certificate of it, as files.
pub struct Certificates {
    folder: TempDir,
}

impl Certificates {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        yb_secure::write_certificates(folder.path(), &["127.0.0.1".to_owned()]).unwrap();
        Certificates { folder }
    }

    fn path(&self, name: &str) -> Option<PathBuf> {
        Some(self.folder.path().join(name))
    }
}

#[derive(Default)]
pub struct Builder(SecuritySettings);

pub fn settings() -> Builder {
    Builder::default()
}

impl Builder {
    pub fn secret(mut self, secret: &str) -> Self {
        self.0.secret = Some(Secret::parse(secret, "the test").unwrap());
        self
    }

    pub fn ca(mut self, certificates: &Certificates) -> Self {
        self.0.tls_ca = certificates.path("ca.pem");
        self
    }

    pub fn tls(mut self, certificates: &Certificates) -> Self {
        self = self.ca(certificates);
        self.0.tls_cert = certificates.path("cert.pem");
        self.0.tls_key = certificates.path("key.pem");
        self
    }

    pub fn mutual(mut self) -> Self {
        self.0.tls_mutual = true;
        self
    }

    pub fn done(self) -> SecuritySettings {
        self.0
    }
}

/// A server that sends back what it gets.
pub struct Echo {
    pub address: SocketAddr,
    security: Arc<Security>,
}

impl Echo {
    pub fn start(settings: &SecuritySettings) -> Self {
        let security = Security::open(settings).unwrap().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let judge = Arc::clone(&security);
        let accept = move || {
            while let Ok((socket, peer)) = listener.accept() {
                judge.admit("test", socket.into(), peer, |admitted| {
                    let Some(admitted) = admitted else { return };
                    yb_env::spawn_thread("echo", move || echo(admitted.socket)).unwrap();
                });
            }
        };
        yb_env::spawn_thread("accept", accept).unwrap();
        Echo { address, security }
    }

    pub fn stats(&self) -> SecurityStats {
        self.security.stats()
    }
}

fn echo(mut socket: Socket) {
    socket.set_nonblocking(false).unwrap();
    let mut buffer = vec![0; 64 << 10];
    while let Ok(got) = socket.read(&mut buffer) {
        if got == 0 || socket.write_all(&buffer[..got]).is_err() {
            return;
        }
    }
}

/// Connects and secures.
pub fn dial(client: &Security, to: SocketAddr) -> Result<Socket, SecureError> {
    let socket = Socket::new(Domain::for_address(to), Type::STREAM, None).unwrap();
    socket.connect(&to.into()).unwrap();
    let socket = client.dial(socket, to, LIMIT).unwrap().wait(LIMIT)?;
    socket.set_nonblocking(false).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    Ok(socket)
}

/// Waits until something holds.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let clock = yb_env::Clock::real();
    let end = clock.now() + LIMIT;
    while !holds() {
        assert!(clock.now() < end, "{what}: not within {LIMIT:?}");
        yb_env::sleep(Duration::from_millis(20));
    }
}
