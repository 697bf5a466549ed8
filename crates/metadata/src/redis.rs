//! redis, with one connection that is made again when it breaks.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};

use parking_lot::Mutex;
use yb_env::Clock;
use yb_types::MonotonicTime;

use crate::MetadataStore;
use crate::error::{StoreError, StoreErrorKind};
use crate::etcd::without_newline;
use crate::lease::{Lease, Renewal};
use crate::resp::{Reply, command};
use crate::settings::StoreSettings;

/// Client of a redis server. Calls of several threads wait for each other.
#[derive(Debug)]
pub struct RedisStore {
    host: String,
    port: u16,
    settings: StoreSettings,
    address: String,
    clock: Clock,
    connection: Mutex<Option<TcpStream>>,
    /// The keys that each of our leases holds.
    leases: Mutex<BTreeMap<String, BTreeSet<String>>>,
}

impl RedisStore {
    /// A client of the server at this address. Nothing is connected yet.
    pub fn new(host: &str, port: u16, settings: &StoreSettings) -> Self {
        RedisStore {
            host: host.to_owned(),
            port,
            settings: settings.clone(),
            address: if host.contains(':') {
                format!("redis://[{host}]:{port}")
            } else {
                format!("redis://{host}:{port}")
            },
            clock: Clock::real(),
            connection: Mutex::new(None),
            leases: Mutex::default(),
        }
    }

    fn error(&self, kind: StoreErrorKind, detail: impl std::fmt::Display) -> StoreError {
        StoreError::new(kind, &self.address, detail)
    }

    fn unreachable(&self, error: &io::Error) -> StoreError {
        let kind = match error.kind() {
            io::ErrorKind::InvalidData => StoreErrorKind::Protocol,
            _ => StoreErrorKind::Unreachable,
        };
        self.error(kind, error)
    }

    /// One command and its answer. A connection that was kept and has broken since is replaced once.
    fn call(&self, parts: &[&[u8]]) -> Result<Reply, StoreError> {
        let by = self.clock.now() + self.settings.timeout;
        let mut kept = self.connection.lock();
        let old = kept.take();
        let had_one = old.is_some();
        let mut stream = match old {
            Some(stream) => stream,
            None => self.open(by)?,
        };
        let mut answer = self.exchange(&mut stream, parts, by);
        if had_one && answer.as_ref().is_err_and(|error| error.kind() != io::ErrorKind::InvalidData) {
            stream = self.open(by)?;
            answer = self.exchange(&mut stream, parts, by);
        }
        let answer = answer.map_err(|error| self.unreachable(&error))?;
        *kept = Some(stream);
        drop(kept);
        match answer {
            Reply::Error(text) => Err(self.refusal(&text)),
            answer => Ok(answer),
        }
    }

    fn refusal(&self, text: &str) -> StoreError {
        let kind = match text.split(' ').next() {
            Some("NOAUTH" | "WRONGPASS" | "NOPERM") => StoreErrorKind::Unauthorized,
            Some("OOM") => StoreErrorKind::Full,
            _ if text.contains("AUTH") || text.contains("invalid password") => StoreErrorKind::Unauthorized,
            _ => StoreErrorKind::Refused,
        };
        self.error(kind, text)
    }

    /// Connects, and says who we are and which database we mean.
    fn open(&self, by: MonotonicTime) -> Result<TcpStream, StoreError> {
        let mut stream = self.connect(by).map_err(|error| self.unreachable(&error))?;
        let mut greetings: Vec<Vec<&[u8]>> = Vec::new();
        let database = self.settings.redis_database.to_string();
        if let Some(password) = &self.settings.redis_password {
            let user = self.settings.redis_user.as_deref().map(str::as_bytes);
            greetings.push([Some(&b"AUTH"[..]), user, Some(password.as_bytes())].into_iter().flatten().collect());
        }
        if self.settings.redis_database > 0 {
            greetings.push(vec![b"SELECT", database.as_bytes()]);
        }
        for parts in greetings {
            match self.exchange(&mut stream, &parts, by).map_err(|error| self.unreachable(&error))? {
                Reply::Error(text) => return Err(self.refusal(&text)),
                _ => continue,
            }
        }
        Ok(stream)
    }

    fn connect(&self, by: MonotonicTime) -> io::Result<TcpStream> {
        let mut last = io::Error::from(io::ErrorKind::NotFound);
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            let patience = self.settings.connect_timeout.min(self.left(by)?);
            match TcpStream::connect_timeout(&address, patience) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    return Ok(stream);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn left(&self, by: MonotonicTime) -> io::Result<std::time::Duration> {
        let left = by.since(self.clock.now());
        if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
    }

    fn exchange(&self, stream: &mut TcpStream, parts: &[&[u8]], by: MonotonicTime) -> io::Result<Reply> {
        stream.set_write_timeout(Some(self.left(by)?))?;
        stream.write_all(&command(parts))?;
        let mut bytes = Vec::new();
        let mut chunk = [0_u8; 16 << 10];
        loop {
            let parsed = Reply::parse(&bytes, self.settings.max_value);
            match parsed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))? {
                Some((reply, used)) if used == bytes.len() => return Ok(reply),
                Some(_) => return Err(io::ErrorKind::InvalidData.into()),
                None => {}
            }
            stream.set_read_timeout(Some(self.left(by)?))?;
            match stream.read(&mut chunk)? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                got => bytes.extend_from_slice(chunk.get(..got).unwrap_or_default()),
            }
        }
    }

    fn unexpected(&self, reply: &Reply) -> StoreError {
        self.error(StoreErrorKind::Protocol, format!("unexpected answer {reply:?}"))
    }
}

impl MetadataStore for RedisStore {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        match self.call(&[b"GET", key.as_bytes()])? {
            Reply::Bytes(value) => Ok(value.map(without_newline)),
            other => Err(self.unexpected(&other)),
        }
    }

    fn put(&self, key: &str, value: &[u8], lease: Option<&Lease>) -> Result<(), StoreError> {
        let line = [value, b"\n"].concat();
        let seconds = lease.map(|lease| lease.ttl().as_secs().to_string());
        let mut parts: Vec<&[u8]> = vec![b"SET", key.as_bytes(), &line];
        if let Some(seconds) = &seconds {
            parts.extend([&b"EX"[..], seconds.as_bytes()]);
        }
        match self.call(&parts)? {
            Reply::Status(_) => {}
            other => return Err(self.unexpected(&other)),
        }
        if let Some(lease) = lease {
            self.leases.lock().entry(lease.instance().to_owned()).or_default().insert(key.to_owned());
        }
        Ok(())
    }

    fn delete(&self, key: &str) -> Result<bool, StoreError> {
        match self.call(&[b"DEL", key.as_bytes()])? {
            Reply::Number(count) => Ok(count > 0),
            other => Err(self.unexpected(&other)),
        }
    }

    fn renew(&self, lease: &Lease) -> Result<Renewal, StoreError> {
        let keys = self.leases.lock().get(lease.instance()).cloned().unwrap_or_default();
        let seconds = lease.ttl().as_secs().to_string();
        for key in keys {
            if self.call(&[b"EXPIRE", key.as_bytes(), seconds.as_bytes()])? != Reply::Number(1) {
                return Ok(Renewal::Lost);
            }
        }
        Ok(Renewal::Kept)
    }

    fn end(&self, lease: &Lease) -> Result<(), StoreError> {
        self.leases.lock().remove(lease.instance());
        Ok(())
    }

    fn address(&self) -> &str {
        &self.address
    }
}
