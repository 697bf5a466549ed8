//! The peer's side: mapping an owner's memory, and copying.

use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rustix::event::{PollFd, PollFlags, Timespec};
use yb_mem::{ControlPage, CopyHint, Mapping, POPULATE_PART, PeerView, peer_credentials, recv_with_fds};
use yb_types::ClientId;

use crate::metadata::ShmDesc;
use crate::segment::Segment;
use crate::settings::EngineSettings;
use crate::shm::watch::Watch;
use crate::shm::wire::{self, ENTRY_LEN, Entry, LIST_HEAD, ListHead};
use crate::stats::EngineCounters;
use crate::transport::{Job, Limits, Transport};
use crate::{Opcode, TransferErrorKind, TransportKind};

/// How long an owner may take to answer on the socket.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Between two pieces of this size the deadline and the cancel token are looked at.
const PIECE: usize = 16 << 20;

/// A mapped region.
pub(crate) struct View {
    entry: Entry,
    memory: PeerView,
    /// Set once its page tables are to be filled.
    populating: AtomicBool,
}

impl View {
    /// Whether `entry` offers what is mapped here. Whether it is populated may change.
    fn is_of(&self, entry: &Entry, file: &OwnedFd) -> bool {
        self.entry.address == entry.address
            && self.entry.len == entry.len
            && self.entry.offset == entry.offset
            && self.memory.is_of(file)
    }

    /// Fills the page tables for a part; false when there is no more to fill, or it cannot be done.
    pub(crate) fn populate(&self, offset: usize) -> bool {
        (offset as u64) < self.entry.len && self.memory.populate(offset, POPULATE_PART).is_ok()
    }
}

/// The regions as they were when the counter stood so.
struct Views {
    counter: u64,
    sorted: Vec<Arc<View>>,
    /// Views that the owner has populated since the last list.
    populated: Vec<Arc<View>>,
}

impl Views {
    /// Maps what is offered, but for what is mapped already.
    fn map(counter: u64, offered: Vec<(Entry, OwnedFd)>, before: &[Arc<View>]) -> io::Result<Self> {
        let mut sorted = Vec::with_capacity(offered.len());
        let mut populated = Vec::new();
        for (entry, file) in offered {
            let view = match before.iter().find(|view| view.is_of(&entry, &file)) {
                Some(view) => Arc::clone(view),
                None => {
                    let memory = Mapping::of_peer(&file, entry.offset, entry.len).map_err(io::Error::other)?;
                    Arc::new(View { entry, memory, populating: AtomicBool::new(false) })
                }
            };
            if entry.populated && !view.populating.swap(true, Ordering::Relaxed) {
                populated.push(Arc::clone(&view));
            }
            sorted.push(view);
        }
        sorted.sort_by_key(|view: &Arc<View>| view.entry.address);
        Ok(Views { counter, sorted, populated })
    }

    fn find(&self, remote: u64, len: u64) -> Option<&Arc<View>> {
        let end = remote.checked_add(len)?;
        let after = self.sorted.partition_point(|view| view.entry.address <= remote);
        let view = after.checked_sub(1).and_then(|i| self.sorted.get(i))?;
        (end <= view.entry.address + view.entry.len).then_some(view)
    }
}

/// An owner's memory, mapped here. The socket closes when the last user is done, which tells the owner so.
pub(crate) struct Mapped {
    socket: UnixStream,
    page: ControlPage,
    views: RwLock<Views>,
    refreshing: Mutex<()>,
    gone: AtomicBool,
    /// Whether the views name some that the owner has populated.
    news: AtomicBool,
}

impl Mapped {
    /// Connects, checks who is there, and maps what is offered.
    fn connect(desc: &ShmDesc, client: ClientId) -> io::Result<Self> {
        let address = SocketAddr::from_abstract_name(&desc.socket)?;
        let mut socket = UnixStream::connect_addr(&address)?;
        if !peer_credentials(&socket)?.is_same_user() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the owner runs under another user"));
        }
        socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        socket.set_write_timeout(Some(ANSWER_TIMEOUT))?;
        socket.write_all(&wire::encode_hello(client))?;
        let list = receive_list(&socket)?;
        let views = Views::map(list.counter, list.offered, &[])?;
        let news = AtomicBool::new(!views.populated.is_empty());
        let page = ControlPage::of_peer(list.page).map_err(io::Error::other)?;
        let (views, gone) = (RwLock::new(views), AtomicBool::new(false));
        Ok(Mapped { socket, page, views, refreshing: Mutex::new(()), gone, news })
    }

    pub(crate) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    pub(crate) fn mark_gone(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// Asks the kernel whether the socket is closed, ahead of the watching thread.
    fn is_gone_now(&self) -> bool {
        let mut polled = [PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::RDHUP)];
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let closed = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
        self.is_gone()
            || (rustix::event::poll(&mut polled, Some(&zero)).is_ok() && polled[0].revents().intersects(closed))
    }

    /// The view that holds a range now; `None` when no mapped region does.
    fn view(&self, remote: u64, len: u64) -> io::Result<Option<Arc<View>>> {
        {
            let views = self.views.read();
            if views.counter == self.page.counter() {
                return Ok(views.find(remote, len).cloned());
            }
        }
        self.refresh()?;
        Ok(self.views.read().find(remote, len).cloned())
    }

    /// Whether the range is in a view that is known to be the owner's latest, without asking it.
    fn knows(&self, remote: u64, len: u64) -> bool {
        let views = self.views.read();
        views.counter == self.page.counter() && views.find(remote, len).is_some()
    }

    /// Asks for a new list, and keeps the mappings that are still in it.
    fn refresh(&self) -> io::Result<()> {
        let _one_at_a_time = self.refreshing.lock();
        if self.views.read().counter == self.page.counter() {
            return Ok(());
        }
        (&self.socket).write_all(&[wire::AGAIN])?;
        let list = receive_list(&self.socket)?;
        let before = self.views.read().sorted.clone();
        let views = Views::map(list.counter, list.offered, &before)?;
        let news = !views.populated.is_empty();
        *self.views.write() = views;
        self.news.fetch_or(news, Ordering::Release);
        Ok(())
    }

    /// The views whose page tables can be filled without costing memory, each once.
    fn newly_populated(&self) -> Vec<Arc<View>> {
        if !self.news.load(Ordering::Relaxed) || !self.news.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut self.views.write().populated)
    }
}

/// What an owner offers: its control page, and every region with its memory file.
struct List {
    page: OwnedFd,
    counter: u64,
    offered: Vec<(Entry, OwnedFd)>,
}

fn receive_list(socket: &UnixStream) -> io::Result<List> {
    let mut fds = Vec::new();
    let mut head = [0_u8; LIST_HEAD];
    receive_exact(socket, &mut head, &mut fds)?;
    let head = ListHead::decode(&head).map_err(io::Error::other)?;
    let mut bytes = vec![0_u8; head.regions as usize * ENTRY_LEN];
    receive_exact(socket, &mut bytes, &mut fds)?;
    let mut fds = fds.into_iter();
    let missing = || io::Error::new(io::ErrorKind::InvalidData, "descriptors are missing");
    let page = fds.next().ok_or_else(missing)?;
    let entries = bytes.chunks_exact(ENTRY_LEN).map(|bytes| {
        let entry = Entry::decode(bytes).map_err(io::Error::other)?;
        Ok((entry, fds.next().ok_or_else(missing)?))
    });
    Ok(List { page, counter: head.counter, offered: entries.collect::<io::Result<_>>()? })
}

fn receive_exact(socket: &UnixStream, mut bytes: &mut [u8], fds: &mut Vec<OwnedFd>) -> io::Result<()> {
    while !bytes.is_empty() {
        match recv_with_fds(socket, bytes, fds)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            got => bytes = bytes.get_mut(got..).unwrap_or_default(),
        }
    }
    Ok(())
}

/// Where a segment keeps what is mapped of it.
#[derive(Clone, Default)]
pub(crate) struct Slot(Arc<SlotState>);

#[derive(Default)]
struct SlotState {
    mapped: RwLock<Option<Arc<Mapped>>>,
    connecting: Mutex<()>,
    /// One more than the version of the metadata with which mapping was found impossible; 0 = never.
    refused: AtomicU64,
    /// Set when an owner went away: the metadata known of it are stale.
    lost: AtomicBool,
    logged: AtomicBool,
}

impl Slot {
    /// Whether memory of the segment is mapped.
    pub(crate) fn is_mapped(&self) -> bool {
        self.0.mapped.read().is_some()
    }

    /// Whether that range is mapped, as far as can be known without asking its owner.
    fn holds(&self, remote: u64, len: u64) -> bool {
        self.0.mapped.read().as_ref().is_some_and(|mapped| !mapped.is_gone() && mapped.knows(remote, len))
    }

    /// Empties the slot if it still holds this one.
    pub(crate) fn forget(&self, owner: &Arc<Mapped>) {
        let mut mapped = self.0.mapped.write();
        if mapped.as_ref().is_some_and(|held| Arc::ptr_eq(held, owner)) {
            *mapped = None;
            self.0.lost.store(true, Ordering::SeqCst);
        }
    }
}

/// Transfers by copying from and to mapped memory of an owner on this host.
pub(crate) struct ShmTransport {
    settings: EngineSettings,
    boot_id: String,
    counters: Arc<EngineCounters>,
    watch: Watch,
}

impl ShmTransport {
    pub(crate) fn new(settings: EngineSettings, counters: Arc<EngineCounters>) -> Self {
        ShmTransport { settings, boot_id: super::boot_id(), counters, watch: Watch::new() }
    }

    /// What is mapped of the segment; maps it if that was not tried yet.
    fn mapped(&self, segment: &Segment, limits: &Limits<'_>) -> Option<Arc<Mapped>> {
        let slot = &segment.shm.0;
        if let Some(mapped) = slot.mapped.read().as_ref().filter(|mapped| !mapped.is_gone()) {
            return Some(Arc::clone(mapped));
        }
        if slot.refused.load(Ordering::Acquire) == segment.version() + 1 {
            return None;
        }
        let _one_at_a_time = slot.connecting.lock();
        if let Some(mapped) = slot.mapped.read().as_ref().filter(|mapped| !mapped.is_gone()) {
            return Some(Arc::clone(mapped));
        }
        let had_one = slot.mapped.write().take().is_some() | slot.lost.swap(false, Ordering::SeqCst);
        // A gone owner's metadata is stale: whoever answers now is another process.
        let desc = segment.desc(&self.settings, had_one, limits).ok()?;
        let version = segment.version();
        let offered = desc.shm.as_ref().filter(|shm| self.may_map(shm));
        let outcome = offered.map(|shm| self.connect(segment, shm));
        match outcome {
            Some(Ok(mapped)) => return Some(mapped),
            Some(Err(error)) => {
                self.counters.shm_fallbacks.fetch_add(1, Ordering::Relaxed);
                if !slot.logged.swap(true, Ordering::Relaxed) {
                    let endpoint = &*segment.endpoint;
                    tracing::warn!(endpoint, %error, "the peer's memory cannot be mapped; TCP is used");
                }
            }
            None => {}
        }
        slot.refused.store(version + 1, Ordering::Release);
        None
    }

    fn may_map(&self, shm: &ShmDesc) -> bool {
        shm.boot_id == self.boot_id && shm.uid == rustix::process::geteuid().as_raw()
    }

    fn connect(&self, segment: &Segment, shm: &ShmDesc) -> io::Result<Arc<Mapped>> {
        let mapped = Arc::new(Mapped::connect(shm, self.settings.client_id)?);
        *segment.shm.0.mapped.write() = Some(Arc::clone(&mapped));
        if let Err(error) = self.watch.add(&mapped, segment.shm.clone()) {
            segment.shm.forget(&mapped);
            return Err(error);
        }
        Ok(mapped)
    }

    fn copy(&self, job: &mut Job<'_>, hint: CopyHint, limits: &Limits<'_>) {
        let Some(mapped) = self.mapped(job.segment, limits) else {
            return job.fail(TransferErrorKind::PeerGone, "its socket closed before the copy");
        };
        let view = match mapped.view(job.remote, job.local.len() as u64) {
            Ok(Some(view)) => view,
            Ok(None) => return job.fail(TransferErrorKind::RemoteRefused, "the region was released"),
            Err(error) => return job.fail(TransferErrorKind::PeerGone, error),
        };
        if let Some(kind) = copy_pieces(job, &view, hint, limits) {
            return job.fail(kind, "between two pieces");
        }
        self.confirm(job, &mapped, &view);
    }

    /// The copy counts only if the owner still had the region when it ended.
    fn confirm(&self, job: &mut Job<'_>, mapped: &Mapped, used: &Arc<View>) {
        if job.op == Opcode::Write && mapped.is_gone_now() {
            return job.fail(TransferErrorKind::PeerGone, "its process ended during the write");
        }
        let unchanged = mapped.views.read().counter == mapped.page.counter();
        let still = || mapped.view(job.remote, job.local.len() as u64);
        match if unchanged { Ok(Some(Arc::clone(used))) } else { still() } {
            Ok(Some(view)) if Arc::ptr_eq(&view, used) => job.outcome = Some(Ok(())),
            Ok(_) => job.fail(TransferErrorKind::RemoteRefused, "the region was released during the copy"),
            Err(error) => job.fail(TransferErrorKind::PeerGone, error),
        }
    }
}

fn copy_pieces(job: &Job<'_>, view: &View, hint: CopyHint, limits: &Limits<'_>) -> Option<TransferErrorKind> {
    let invalid = |_| TransferErrorKind::InvalidRequest;
    let piece = |at: usize, len: usize| -> Result<(), TransferErrorKind> {
        let offset = (job.remote - view.entry.address) as usize + at;
        let theirs = view.memory.span().and_then(|span| span.slice(offset, len)).map_err(invalid)?;
        let ours = job.local.slice(at, len).map_err(invalid)?;
        match job.op {
            Opcode::Read => yb_mem::copy(ours, theirs, hint),
            Opcode::Write => yb_mem::copy(theirs, ours, hint),
        }
        .map_err(invalid)
    };
    let mut at = 0;
    while at < job.local.len() {
        if let Some(kind) = limits.over() {
            return Some(kind);
        }
        let len = PIECE.min(job.local.len() - at);
        if let Err(kind) = piece(at, len) {
            return Some(kind);
        }
        at += len;
    }
    None
}

impl Transport for ShmTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::Shm
    }

    fn reaches(&self, segment: &Segment, remote: u64, len: u64, limits: &Limits<'_>) -> bool {
        let Some(mapped) = self.mapped(segment, limits) else { return false };
        match mapped.view(remote, len) {
            Ok(view) => {
                self.watch.populate(mapped.newly_populated());
                view.is_some()
            }
            Err(_) => {
                mapped.mark_gone();
                false
            }
        }
    }

    fn is_immediate(&self, segment: &Segment, remote: u64, len: u64) -> bool {
        segment.shm.holds(remote, len)
    }

    fn run(&self, jobs: &mut [Job<'_>], limits: &Limits<'_>) {
        let hint = CopyHint::for_total(jobs.iter().map(|job| job.local.len() as u64).sum());
        for job in jobs {
            self.copy(job, hint, limits);
        }
    }

    fn stop(&self) {
        self.watch.stop();
    }
}
