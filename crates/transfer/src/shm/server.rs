//! The owner's side of the shared-memory socket, driven by the control thread.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use yb_env::Rng;
use yb_mem::{ControlPage, Registry, ShareableRegion, peer_credentials, send_with_fds};
use yb_types::ClientId;

use crate::metadata::ShmDesc;
use crate::shm::wire::{self, ENTRY_LEN, Entry, HELLO_LEN, ListHead};
use crate::stats::EngineCounters;

/// Regions per message: below the limit of descriptors in one.
const REGIONS_PER_MESSAGE: usize = 32;

/// What the owner offers to peers on this host.
pub(crate) struct ShmPort {
    pub(crate) desc: ShmDesc,
    pub(crate) listener: UnixListener,
    /// Moved whenever the regions change.
    pub(crate) page: ControlPage,
    /// Who has our memory mapped.
    writers: Mutex<BTreeMap<u64, ClientId>>,
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
        Ok(ShmPort {
            desc: ShmDesc { socket, boot_id, uid },
            listener,
            page: ControlPage::create().map_err(io::Error::other)?,
            writers: Mutex::default(),
        })
    }

    /// True when no peer that says it is `writer` has our memory mapped; without a writer, when nobody has.
    pub(crate) fn is_quiet(&self, writer: Option<ClientId>) -> bool {
        let writers = self.writers.lock();
        writer.map_or(writers.is_empty(), |writer| writers.values().all(|mapped| *mapped != writer))
    }

    /// Takes a new connection if it is of our user.
    pub(crate) fn accept(&self) -> io::Result<Option<Session>> {
        let (stream, _) = self.listener.accept()?;
        if !peer_credentials(&stream)?.is_same_user() {
            return Ok(None);
        }
        stream.set_nonblocking(true)?;
        Ok(Some(Session { stream, hello: [0; HELLO_LEN], received: 0 }))
    }

    pub(crate) fn forget(&self, token: u64, counters: &EngineCounters) {
        if self.writers.lock().remove(&token).is_some() {
            counters.shm_peers.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// One peer.
pub(crate) struct Session {
    pub(crate) stream: UnixStream,
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
    /// When the connection is to be closed.
    pub(crate) fn advance(
        &mut self,
        token: u64,
        port: &ShmPort,
        registry: &Registry,
        counters: &EngineCounters,
    ) -> io::Result<()> {
        loop {
            if self.is_known() {
                let mut request = [0_u8; 1];
                match self.stream.read(&mut request) {
                    Ok(1) if request == [wire::AGAIN] => self.send_list(port, registry)?,
                    Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
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
                port.writers.lock().insert(token, writer);
                counters.shm_peers.fetch_add(1, Ordering::Relaxed);
                self.send_list(port, registry)?;
            }
        }
    }

    /// Sends all regions. The socket's buffer holds any list that the limit allows; a peer that does not read is closed.
    fn send_list(&self, port: &ShmPort, registry: &Registry) -> io::Result<()> {
        let counter = port.page.counter();
        let mut regions = registry.shareable();
        regions.truncate(wire::MAX_REGIONS as usize);
        let head = ListHead { regions: regions.len() as u32, counter };
        send_all(&self.stream, &head.encode(), &[port.page.file()])?;
        for part in regions.chunks(REGIONS_PER_MESSAGE) {
            let mut bytes = Vec::with_capacity(part.len() * ENTRY_LEN);
            for ShareableRegion { address, len, segment } in part {
                let populated = segment.is_populated();
                bytes.extend_from_slice(&Entry { address: *address, len: *len, offset: 0, populated }.encode());
            }
            let files: Vec<_> = part.iter().map(|region| region.segment.file()).collect();
            send_all(&self.stream, &bytes, &files)?;
        }
        Ok(())
    }
}

fn send_all(stream: impl AsFd, bytes: &[u8], fds: &[std::os::fd::BorrowedFd<'_>]) -> io::Result<()> {
    match send_with_fds(stream, bytes, fds)? {
        sent if sent == bytes.len() => Ok(()),
        _ => Err(io::ErrorKind::WriteZero.into()),
    }
}
