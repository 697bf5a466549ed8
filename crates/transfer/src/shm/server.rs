//! The owner's side of the shared-memory socket, driven by the control thread.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use yb_env::{Clock, Rng};
use yb_mem::{ControlPage, NONCE_LEN, Registry, ShareableRegion, peer_credentials, send_with_fds};
use yb_types::ClientId;

use crate::metadata::ShmDesc;
use crate::shm::wire::{self, ENTRY_LEN, Entry, HELLO_LEN, ListHead};
use crate::stats::EngineCounters;

/// Regions per message: below the limit of descriptors in one.
const REGIONS_PER_MESSAGE: usize = 32;
/// How often to look whether copies of peers have ended.
const COPY_POLL: Duration = Duration::from_micros(100);

/// What the owner offers to peers on this host.
pub(crate) struct ShmPort {
    pub(crate) desc: ShmDesc,
    pub(crate) listener: UnixListener,
    /// Moved whenever the regions change.
    pub(crate) page: ControlPage,
    guests: Mutex<BTreeMap<u64, Guest>>,
    /// Held while copies of older lists are waited for.
    leaving: Mutex<()>,
}

/// A peer that has our memory mapped.
struct Guest {
    writer: ClientId,
    /// Its seat in the control page; out of range when there was none.
    seat: u32,
}

impl ShmPort {
    /// Opens the socket under a random abstract name.
    pub(crate) fn open(mut rng: Rng) -> io::Result<Self> {
        let boot_id = super::boot_id();
        if boot_id.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the host's boot id cannot be read"));
        }
        let socket = format!("yuebing-{:016x}{:016x}", rng.next_u64(), rng.next_u64());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&socket)?)?;
        listener.set_nonblocking(true)?;
        let uid = rustix::process::geteuid().as_raw();
        let mut nonce = [0; NONCE_LEN];
        nonce[..8].copy_from_slice(&rng.next_u64().to_ne_bytes());
        nonce[8..].copy_from_slice(&rng.next_u64().to_ne_bytes());
        Ok(ShmPort {
            desc: ShmDesc { socket, boot_id, uid },
            listener,
            page: ControlPage::create(nonce).map_err(io::Error::other)?,
            guests: Mutex::default(),
            leaving: Mutex::default(),
        })
    }

    /// True when no peer that may be `writer` has our memory mapped; without a writer, when nobody has. A peer that does
    /// not say who it is (an engine that several clients share) may be anybody.
    pub(crate) fn is_quiet(&self, writer: Option<ClientId>) -> bool {
        let guests = self.guests.lock();
        let may_be = |guest: ClientId, writer| guest == writer || guest == ClientId::default();
        writer.map_or(guests.is_empty(), |writer| !guests.values().any(|guest| may_be(guest.writer, writer)))
    }

    /// Takes a new connection if it is of our user.
    pub(crate) fn accept(&self) -> io::Result<Option<Session>> {
        let (stream, _) = self.listener.accept()?;
        let peer = peer_credentials(&stream)?;
        if !peer.is_same_user() {
            return Ok(None);
        }
        stream.set_nonblocking(true)?;
        Ok(Some(Session {
            stream,
            pid: peer.pid,
            seat: u32::MAX,
            welcomed: false,
            dismissed: false,
            hello: [0; HELLO_LEN],
            received: 0,
        }))
    }

    /// Tells peers that the regions changed, and waits until none of them copies through the kernel by an older list;
    /// false after `patience`.
    pub(crate) fn let_copies_end(&self, patience: Duration) -> bool {
        let _one_at_a_time = self.leaving.lock();
        let clock = Clock::real();
        let by = clock.now() + patience;
        // Twice: who came before the last change may count on either side.
        for _ in 0..2 {
            let before = self.page.counter();
            self.page.bump();
            while !self.page.is_empty(before) {
                if clock.now() >= by {
                    return false;
                }
                yb_env::sleep(COPY_POLL);
            }
            if self.page.is_empty(before + 1) {
                return true;
            }
        }
        true
    }

    /// Takes a peer in, and gives it a seat of its own if there is one left.
    fn welcome(&self, token: u64, writer: ClientId) -> u32 {
        let mut guests = self.guests.lock();
        let free = |seat: &u32| guests.values().all(|guest| guest.seat != *seat);
        let seat = (0..ControlPage::SEATS).find(free).unwrap_or(u32::MAX);
        self.page.clear(seat);
        guests.insert(token, Guest { writer, seat });
        seat
    }

    pub(crate) fn forget(&self, token: u64, counters: &EngineCounters) {
        if let Some(guest) = self.guests.lock().remove(&token) {
            // Its threads are gone: the kernel closes a socket after the last of them.
            self.page.clear(guest.seat);
            counters.shm_peers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// One peer.
pub(crate) struct Session {
    pub(crate) stream: UnixStream,
    pid: i32,
    seat: u32,
    /// Set once the peer may have our memory mapped.
    welcomed: bool,
    /// Set after the peer broke a rule: it is told nothing more, and its seat is kept until it has let go.
    dismissed: bool,
    hello: [u8; HELLO_LEN],
    received: usize,
}

impl Session {
    /// True when the peer has said who it is.
    pub(crate) fn is_known(&self) -> bool {
        self.received == HELLO_LEN
    }

    /// Answers what has arrived.
    ///
    /// # Errors
    /// When the connection is to be closed: the peer has gone, or was never let in.
    pub(crate) fn advance(
        &mut self,
        token: u64,
        port: &ShmPort,
        registry: &Registry,
        counters: &EngineCounters,
    ) -> io::Result<()> {
        match self.serve(token, port, registry, counters) {
            Err(error) if self.welcomed && !self.dismissed && error.kind() != io::ErrorKind::UnexpectedEof => {
                tracing::warn!(%error, "a peer that has our memory mapped is told to let go of it");
                self.dismissed = true;
                self.stream.shutdown(std::net::Shutdown::Write)
            }
            other => other,
        }
    }

    fn serve(&mut self, token: u64, port: &ShmPort, registry: &Registry, counters: &EngineCounters) -> io::Result<()> {
        loop {
            if self.dismissed {
                match self.stream.read(&mut [0_u8; 64]) {
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => return Err(error),
                }
                continue;
            }
            if self.is_known() {
                let mut request = [0_u8; 1];
                match self.stream.read(&mut request) {
                    Ok(1) if request == [wire::AGAIN] => self.send_list(port, registry)?,
                    Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) => return Err(error),
                }
                continue;
            }
            match self.stream.read(self.hello.get_mut(self.received..).unwrap_or_default()) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) => self.received += got,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
            if self.is_known() {
                let writer = wire::decode_hello(&self.hello).map_err(io::Error::other)?;
                // Known as a writer before it can map anything.
                self.seat = port.welcome(token, writer);
                self.welcomed = true;
                counters.shm_peers.fetch_add(1, Ordering::Relaxed);
                yb_mem::allow_reader(self.pid);
                self.send_list(port, registry)?;
            }
        }
    }

    /// Sends all regions. The socket's buffer holds any list that the limit allows; a peer that does not read is closed.
    fn send_list(&self, port: &ShmPort, registry: &Registry) -> io::Result<()> {
        let counter = port.page.counter();
        let mut mappable = registry.shareable();
        mappable.truncate(wire::MAX_REGIONS as usize);
        let mut readable = registry.readable();
        readable.truncate(wire::MAX_REGIONS as usize - mappable.len());
        let regions = (mappable.len() + readable.len()) as u32;
        let head = ListHead { regions, seat: self.seat, counter, nonce_address: port.page.nonce_address() };
        send_all(&self.stream, &head.encode(), &[port.page.file()])?;
        for part in mappable.chunks(REGIONS_PER_MESSAGE) {
            let mut bytes = Vec::with_capacity(part.len() * ENTRY_LEN);
            for ShareableRegion { address, len, segment } in part {
                let populated = segment.is_populated();
                let entry = Entry { address: *address, len: *len, offset: 0, mappable: true, populated };
                bytes.extend_from_slice(&entry.encode());
            }
            let files: Vec<_> = part.iter().map(|region| region.segment.file()).collect();
            send_all(&self.stream, &bytes, &files)?;
        }
        let entry = |(address, len)| Entry { address, len, offset: 0, mappable: false, populated: false }.encode();
        let bytes: Vec<u8> = readable.into_iter().flat_map(entry).collect();
        if bytes.is_empty() { Ok(()) } else { send_all(&self.stream, &bytes, &[]) }
    }
}

fn send_all(stream: impl AsFd, bytes: &[u8], fds: &[std::os::fd::BorrowedFd<'_>]) -> io::Result<()> {
    match send_with_fds(stream, bytes, fds)? {
        sent if sent == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}
