//! A segment of a peer, as this engine sees it: how to reach it, and what it said about itself.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use yb_types::MonotonicTime;

use crate::directory::{Directory, HandshakeAddress, Place};
use crate::engine::Shared;
use crate::file::FileSet;
use crate::handshake::client::{Timing, exchange, kind_of};
use crate::handshake::frame::MessageType;
use crate::metadata::{Protocol, SegmentDesc, ShmDesc};
use crate::settings::EngineSettings;
use crate::shm::neighbours::Slot;
use crate::tcp::lanes::{LaneStats, Lanes};
use crate::transport::Limits;
use crate::{TransferError, TransferErrorKind};

/// After a peer did not answer in time, calls fail at once for this long.
const COOL_DOWN: Duration = Duration::from_secs(1);

/// Longest description that is read, though strangers may send us less: a million buffers fit.
const MAX_DESC: u64 = 128 << 20;

/// An open segment. Clones name the same one; an engine gives out one per endpoint.
#[derive(Clone)]
pub struct SegmentHandle(pub(crate) Arc<Segment>);

impl SegmentHandle {
    /// `host:port` of the owner's handshake, its name in the metadata store, or the name of a segment of files.
    pub fn endpoint(&self) -> &str {
        &self.0.endpoint
    }

    /// True when the owner is this process.
    pub fn is_local(&self) -> bool {
        self.0.in_process.strong_count() > 0
    }
}

impl SegmentHandle {
    /// How bytes reach the owner, as text for people: what is known now, nothing is asked.
    pub fn path(&self) -> String {
        if self.is_local() {
            return "local".to_owned();
        }
        if let Some(owner) = self.0.shm.owner() {
            return match owner.process() {
                Ok(process) if owner.is_copied_by_kernel() => format!("shm, process_vm (process {})", process.pid()),
                Ok(_) => "shm, other memory over tcp (the kernel allows another process to copy)".to_owned(),
                Err(reason) => format!("shm, other memory over tcp ({reason})"),
            };
        }
        let known = self.0.metadata.try_lock().and_then(|metadata| metadata.known.clone());
        let tcp = known.and_then(|known| known.address).map(|address| {
            let version = if address.version_2 { 2 } else { 1 };
            format!("tcp {}:{} version {version}", address.host, address.port)
        });
        let tcp = tcp.unwrap_or_else(|| "not asked yet".to_owned());
        self.0.shm.reason().map_or(tcp.clone(), |reason| format!("{tcp} ({reason})"))
    }
}

impl SegmentHandle {
    /// The TCP connections to the owner.
    pub fn lanes(&self) -> LaneStats {
        self.0.lanes.stats()
    }
}

impl fmt::Debug for SegmentHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SegmentHandle").field(&self.0.endpoint).finish()
    }
}

impl Deref for SegmentHandle {
    type Target = Segment;
    fn deref(&self) -> &Segment {
        &self.0
    }
}

/// Where a peer's data port is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PeerAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// Whether the peer confirms writes.
    pub(crate) version_2: bool,
}

/// What the peer said, and what follows from it.
#[derive(Clone)]
struct Known {
    desc: Arc<SegmentDesc>,
    /// `None` when the peer has no TCP data port.
    address: Option<Arc<PeerAddress>>,
    handshake: Arc<HandshakeAddress>,
    asked: MonotonicTime,
}

#[derive(Default)]
struct Metadata {
    known: Option<Known>,
    /// What shared memory the peer offered last, remembered when the rest is forgotten.
    offers: Option<Option<ShmDesc>>,
    /// Until when the peer is left alone, and why.
    resting: Option<(MonotonicTime, String)>,
}

/// The state behind a [`SegmentHandle`].
pub struct Segment {
    pub(crate) endpoint: Arc<str>,
    pub(crate) in_process: Weak<Shared>,
    /// Set when that engine ends, or loses the name.
    pub(crate) left: Option<Arc<AtomicBool>>,
    pub(crate) lanes: Lanes,
    metadata: Mutex<Metadata>,
    version: AtomicU64,
    pub(crate) shm: Slot,
    logged_version_1: AtomicBool,
    files: OnceLock<FileSet>,
    directory: Directory,
}

/// Splits `host:port`; brackets around an IPv6 host are taken off.
pub(crate) fn split_endpoint(endpoint: &str) -> Option<(&str, u16)> {
    let (host, port) = endpoint.rsplit_once(':')?;
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    Some((host, port.parse().ok()?)).filter(|(host, _)| !host.is_empty())
}

/// What is wrong with the address of a process; `None` when one can connect to it.
pub(crate) fn endpoint_fault(endpoint: &str) -> Option<&'static str> {
    let Some((host, port)) = endpoint.rsplit_once(':') else { return Some("an endpoint is host:port") };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let address = bare.unwrap_or(host);
    let odd = |c: char| !(c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%'));
    if address.is_empty() {
        Some("an endpoint is host:port, and this one has no host")
    } else if address.contains(odd) {
        Some("the host has characters that no host name has")
    } else if bare.is_none() && host.contains(':') {
        Some("an IPv6 address stands in brackets: [address]:port")
    } else if address.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_unspecified()) {
        Some("the host means any address: nobody can connect to it")
    } else {
        match port.parse::<u16>() {
            Ok(0) => Some("nobody can connect to port 0"),
            Ok(_) => None,
            Err(_) => Some("the port is no number from 1 to 65535"),
        }
    }
}

impl Segment {
    pub(crate) fn new(endpoint: Arc<str>, in_process: Weak<Shared>, directory: Directory) -> Self {
        Segment {
            endpoint,
            in_process,
            left: None,
            lanes: Lanes::default(),
            metadata: Mutex::new(Metadata::default()),
            version: AtomicU64::new(0),
            shm: Slot::default(),
            logged_version_1: AtomicBool::new(false),
            files: OnceLock::new(),
            directory,
        }
    }

    /// A segment of files, which no process owns.
    pub(crate) fn of_files(name: Arc<str>, files: FileSet) -> Self {
        Segment { files: OnceLock::from(files), ..Segment::new(name, Weak::new(), Directory::Handshake) }
    }

    /// Whether its owner is an engine of this process.
    pub(crate) fn is_in_process(&self) -> bool {
        self.in_process.strong_count() > 0
    }

    /// Whether the engine of this process behind it has ended, or lost the name: whoever opens it anew reaches another one.
    pub(crate) fn is_left(&self) -> bool {
        self.left.as_ref().is_some_and(|left| left.load(Ordering::Acquire))
    }

    /// The files behind the segment, if it is one of files.
    pub(crate) fn files(&self) -> Option<&FileSet> {
        self.files.get()
    }

    /// Closes connections that were idle for too long, and says whether anything is left open.
    pub(crate) fn prune(&self, now: MonotonicTime, idle_timeout: Duration) -> bool {
        self.lanes.prune(now, idle_timeout) || self.shm.owner().is_some()
    }

    pub(crate) fn error(&self, kind: TransferErrorKind, detail: impl fmt::Display) -> TransferError {
        TransferError::new(kind, Arc::clone(&self.endpoint), detail)
    }

    /// Grows when the peer offers other shared memory than before.
    pub(crate) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// What the peer says about itself, cached unless `refresh`.
    pub(crate) fn desc(
        &self,
        settings: &EngineSettings,
        refresh: bool,
        limits: &Limits<'_>,
    ) -> Result<Arc<SegmentDesc>, TransferError> {
        self.known(settings, refresh, limits).map(|known| known.desc)
    }

    /// Where the peer's data port is, cached unless `refresh`.
    pub(crate) fn address(
        &self,
        settings: &EngineSettings,
        refresh: bool,
        limits: &Limits<'_>,
    ) -> Result<Arc<PeerAddress>, TransferError> {
        let address = self.known(settings, refresh, limits)?.address;
        address.ok_or_else(|| self.error(TransferErrorKind::Protocol, "the peer has no TCP data port"))
    }

    /// Where the owner's handshake is, cached unless `refresh`. Without a store nobody is asked.
    pub(crate) fn handshake(
        &self,
        settings: &EngineSettings,
        refresh: bool,
        limits: &Limits<'_>,
    ) -> Result<Arc<HandshakeAddress>, TransferError> {
        if !self.is_named() {
            return self.locate().map(Arc::new);
        }
        self.known(settings, refresh, limits).map(|known| known.handshake)
    }

    /// Whether the owner is found through a store.
    pub(crate) fn is_named(&self) -> bool {
        matches!(self.directory, Directory::Store(..))
    }

    fn locate(&self) -> Result<HandshakeAddress, TransferError> {
        match self.directory.locate(&self.endpoint)? {
            Place::Process(address) => Ok(address),
            Place::Files(_) => Err(self.error(TransferErrorKind::InvalidRequest, "it is a segment of files now")),
        }
    }

    /// True when the peer said that it has no data port and speaks RDMA: then TCP is no way to it.
    pub(crate) fn is_without_tcp(&self) -> bool {
        let metadata = self.metadata.try_lock();
        let known = metadata.as_ref().and_then(|metadata| metadata.known.as_ref());
        known.is_some_and(|known| known.address.is_none() && known.desc.speaks(Protocol::Rdma))
    }

    /// Whether the peer's data port is another one now, as far as it answers.
    pub(crate) fn has_moved_from(&self, address: &PeerAddress, settings: &EngineSettings, limits: &Limits<'_>) -> bool {
        let known = |refresh| self.address(settings, refresh, limits).is_ok_and(|now| *now != *address);
        known(false) || known(true)
    }

    fn known(&self, settings: &EngineSettings, refresh: bool, limits: &Limits<'_>) -> Result<Known, TransferError> {
        // Others that need the same answer wait for the one who asks.
        let patience = limits.deadline.since(limits.clock.now());
        let Some(mut metadata) = self.metadata.try_lock_for(patience) else {
            return Err(self.error(TransferErrorKind::TimedOut, "while another call asks for the peer's metadata"));
        };
        let started = limits.clock.now();
        let old = |known: &Known| settings.metadata_max_age.is_some_and(|age| started.since(known.asked) >= age);
        let fallback = match &metadata.known {
            Some(known) if !refresh && !old(known) => return Ok(known.clone()),
            // What is only old is better than nothing, unless nothing may be kept at all.
            Some(known) if !refresh && settings.metadata_max_age > Some(Duration::ZERO) => Some(known.clone()),
            _ => None,
        };
        if let Some((until, why)) = metadata.resting.as_ref().filter(|(until, _)| *until > started) {
            let left = until.since(started).as_millis();
            return Err(self.error(TransferErrorKind::Unreachable, format!("{why} (next try in {left} ms)")));
        }
        match self.ask(settings, limits) {
            Ok(known) => {
                if metadata.offers.as_ref() != Some(&known.desc.shm) {
                    self.version.fetch_add(1, Ordering::AcqRel);
                }
                metadata.offers = Some(known.desc.shm.clone());
                metadata.known = Some(known.clone());
                metadata.resting = None;
                Ok(known)
            }
            Err(error) => {
                if let Some(known) = fallback {
                    let known = Known { asked: started, ..known };
                    metadata.known = Some(known.clone());
                    return Ok(known);
                }
                let slow = limits.clock.now().since(started) > COOL_DOWN / 4;
                let resting = slow.then(|| (limits.clock.now() + COOL_DOWN, error.to_string()));
                metadata.known = None;
                metadata.resting = resting;
                Err(error)
            }
        }
    }

    fn ask(&self, settings: &EngineSettings, limits: &Limits<'_>) -> Result<Known, TransferError> {
        let place = self.locate()?;
        let max_length = settings.handshake_max_length.max(MAX_DESC);
        let timing = Timing { max_length, ..Timing::of(settings) };
        let now = limits.clock.now();
        // Half of what is left at most: the other peers of the batch are asked after this one.
        let patience = (settings.connect_timeout + settings.handshake_timeout).min(limits.deadline.since(now) / 2);
        let answer_by = now + patience;
        let limits = &Limits { deadline: limits.deadline.min(answer_by), ..*limits };
        let own = SegmentDesc::tcp("");
        let own = own.to_json(&crate::metadata::timestamp(yb_env::epoch_millis()));
        let reply =
            exchange(&place.host, place.port, MessageType::Metadata, &own, &timing, limits).map_err(|error| {
                let kind = match error.kind() {
                    std::io::ErrorKind::InvalidData => TransferErrorKind::Protocol,
                    _ if limits.over() == Some(TransferErrorKind::Cancelled) => TransferErrorKind::Cancelled,
                    _ => kind_of(&error),
                };
                self.error(kind, format!("asking {place} for its metadata: {error}"))
            })?;
        let desc = self.identify(&place, &reply)?;
        if desc.unreadable_buffers > 0 {
            let (segment, count) = (&*self.endpoint, desc.unreadable_buffers);
            tracing::warn!(segment, count, "buffers that make no sense are left out of the segment");
        }
        Ok(Known {
            address: self.data_address(&desc, &place, settings).map(Arc::new),
            desc: Arc::new(desc),
            handshake: Arc::new(place),
            asked: now,
        })
    }

    /// The description of the process that answered, if it is the one we look for. A record in a store is only a hint:
    /// another process may have the port by now.
    fn identify(&self, place: &HandshakeAddress, reply: &[u8]) -> Result<SegmentDesc, TransferError> {
        if self.is_named() && reply.starts_with(b"null") {
            // The peer's engines leave it to the store to describe them; that one of them answers is all they say.
            let missing = || self.error(TransferErrorKind::Unreachable, "the store has no description of it");
            return self.directory.stored(&self.endpoint)?.ok_or_else(missing);
        }
        let desc = SegmentDesc::parse(reply).map_err(|error| self.error(TransferErrorKind::Protocol, error))?;
        if self.is_named() && desc.name != *self.endpoint {
            let stale = format!("its record is stale: {:?} answers at {place}", desc.name);
            return Err(self.error(TransferErrorKind::Unreachable, stale));
        }
        Ok(desc)
    }

    fn data_address(
        &self,
        desc: &SegmentDesc,
        place: &HandshakeAddress,
        settings: &EngineSettings,
    ) -> Option<PeerAddress> {
        if desc.data_port == 0 {
            return None;
        }
        let version_2 = desc.data_version >= 2 && !settings.version_1_only;
        if !version_2 && !self.logged_version_1.swap(true, Ordering::Relaxed) {
            let endpoint = &*self.endpoint;
            tracing::warn!(endpoint, "the data wire is version 1: the peer does not confirm writes");
        }
        // A peer that was told to say "any address" means the one where its handshake answers.
        let any = |host: &String| host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_unspecified());
        let host = desc.data_host.clone().filter(|host| !any(host)).unwrap_or_else(|| place.host.clone());
        Some(PeerAddress { host, port: desc.data_port, version_2 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_split() {
        assert_eq!(split_endpoint("127.0.0.1:15000"), Some(("127.0.0.1", 15_000)));
        assert_eq!(split_endpoint("[::1]:1"), Some(("::1", 1)));
        for bad in ["", "host", "host:", ":1", "host:70000", "[]:1"] {
            assert_eq!(split_endpoint(bad), None, "{bad}");
        }
    }

    #[test]
    fn each_fault_of_an_endpoint_has_its_name() {
        for good in ["127.0.0.1:1", "[::1]:65535", "[fe80::1%eth0]:7", "node-a.example_b:12001"] {
            assert_eq!(endpoint_fault(good), None, "{good}");
        }
        let faults = [
            ("host", "host:port"),
            (":1", "no host"),
            ("a b:1", "characters"),
            ("a/b:1", "characters"),
            ("a\0:1", "characters"),
            ("b\u{fc}cher:1", "characters"),
            ("::1:1", "brackets"),
            ("0.0.0.0:1", "any address"),
            ("[::]:1", "any address"),
            ("host:0", "port 0"),
            ("host:", "no number"),
            ("host:65536", "no number"),
            ("host:+1x", "no number"),
        ];
        for (bad, why) in faults {
            assert!(endpoint_fault(bad).is_some_and(|fault| fault.contains(why)), "{bad}: {:?}", endpoint_fault(bad));
        }
    }
}
