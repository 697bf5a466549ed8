//! An owner of memory on this host, as its peer sees it: the socket, the control page, and the regions.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use smallvec::SmallVec;
use yb_mem::{ControlPage, Mapping, POPULATE_PART, Pass, PeerProcess, PeerProcessError, PeerView, peer_credentials};
use yb_types::ClientId;

use crate::metadata::ShmDesc;
use crate::shm::socket::{List, connect, receive_list, send};
use crate::shm::wire::{self, Entry};
use crate::transport::Limits;

/// A mapped region.
pub(crate) struct View {
    pub(crate) entry: Entry,
    pub(crate) memory: PeerView,
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

/// The regions as they were when the counter stood so, ordered by address.
struct Regions {
    counter: u64,
    views: Vec<Arc<View>>,
    /// Those in allocations of the owner's application.
    unmapped: Vec<Entry>,
    /// Views that the owner has populated since the last list.
    populated: Vec<Arc<View>>,
}

impl Regions {
    /// Maps what is offered, but for what is mapped already.
    fn map(list: List, before: &[Arc<View>]) -> io::Result<Self> {
        let mut regions = Regions {
            counter: list.head.counter,
            views: Vec::with_capacity(list.regions.len()),
            unmapped: Vec::new(),
            populated: Vec::new(),
        };
        for (entry, file) in list.regions {
            match file {
                Some(file) => regions.add_view(entry, &file, before)?,
                None => regions.unmapped.push(entry),
            }
        }
        regions.views.sort_by_key(|view| view.entry.address);
        regions.unmapped.sort_by_key(|entry| entry.address);
        Ok(regions)
    }

    fn add_view(&mut self, entry: Entry, file: &OwnedFd, before: &[Arc<View>]) -> io::Result<()> {
        let view = match before.iter().find(|view| view.is_of(&entry, file)) {
            Some(view) => Arc::clone(view),
            None => {
                let memory = Mapping::of_peer(file, entry.offset, entry.len).map_err(io::Error::other)?;
                Arc::new(View { entry, memory, populating: AtomicBool::new(false) })
            }
        };
        if entry.populated && !view.populating.swap(true, Ordering::Relaxed) {
            self.populated.push(Arc::clone(&view));
        }
        self.views.push(view);
        Ok(())
    }

    fn view(&self, remote: u64, len: u64) -> Option<Arc<View>> {
        covering(&self.views, |view| view.entry, remote, len).cloned()
    }

    fn holds_unmapped(&self, remote: u64, len: u64) -> bool {
        covering(&self.unmapped, |entry| *entry, remote, len).is_some()
    }
}

/// The one of `sorted` that holds the whole range.
fn covering<T>(sorted: &[T], entry: impl Fn(&T) -> Entry, remote: u64, len: u64) -> Option<&T> {
    let end = remote.checked_add(len)?;
    let after = sorted.partition_point(|item| entry(item).address <= remote);
    let item = after.checked_sub(1).and_then(|i| sorted.get(i))?;
    let last = entry(item);
    (end <= last.address + last.len).then_some(item)
}

/// An owner's memory, mapped here. The socket closes when the last user is done, which tells the owner so.
pub(crate) struct Owner {
    socket: UnixStream,
    /// Its process, where it has a number here. A child that it forked keeps the socket open after its end.
    life: Option<OwnedFd>,
    page: ControlPage,
    seat: u32,
    /// The owner's process, where the kernel lets us copy from and to it.
    process: Result<PeerProcess, PeerProcessError>,
    /// Set once the kernel takes that back: another peer of the owner is the one it allows.
    barred: AtomicBool,
    regions: RwLock<Regions>,
    refreshing: Mutex<()>,
    gone: AtomicBool,
    /// Whether the regions name some that the owner has populated.
    news: AtomicBool,
}

impl Owner {
    /// Connects, checks who is there, and maps what is offered.
    pub(crate) fn connect(desc: &ShmDesc, client: ClientId, limits: &Limits<'_>) -> io::Result<Self> {
        let socket = connect(&desc.socket, limits)?;
        let credentials = peer_credentials(&socket)?;
        if !credentials.is_same_user() {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the owner runs under another user"));
        }
        let life = Pid::from_raw(credentials.pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        send(&socket, &wire::encode_hello(client))?;
        let (page, list) = receive_list(&socket, limits)?;
        let page = ControlPage::of_peer(page).map_err(io::Error::other)?;
        let process = PeerProcess::of_owner(credentials.pid, &page, list.head.nonce_address);
        let seat = list.head.seat;
        let regions = Regions::map(list, &[])?;
        let news = AtomicBool::new(!regions.populated.is_empty());
        let (regions, gone, barred) = (RwLock::new(regions), AtomicBool::new(false), AtomicBool::new(false));
        Ok(Owner { socket, life, page, seat, process, barred, regions, refreshing: Mutex::new(()), gone, news })
    }

    pub(crate) fn socket(&self) -> &UnixStream {
        &self.socket
    }

    /// The owner's process, or why the kernel does not let us copy from and to it.
    pub(crate) fn process(&self) -> Result<&PeerProcess, &PeerProcessError> {
        self.process.as_ref()
    }

    /// Whether the kernel still lets us copy from and to the owner's process.
    pub(crate) fn is_copied_by_kernel(&self) -> bool {
        self.process.is_ok() && !self.barred.load(Ordering::Relaxed)
    }

    /// The kernel does not let us any more; true for the first who notices.
    pub(crate) fn bar(&self) -> bool {
        !self.barred.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn mark_gone(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// Readable once the owner's process has ended.
    pub(crate) fn life(&self) -> Option<&OwnedFd> {
        self.life.as_ref()
    }

    /// Asks the kernel whether the socket is closed or the process has ended, ahead of the watching thread.
    pub(crate) fn is_gone_now(&self) -> bool {
        let mut polled: SmallVec<[PollFd<'_>; 2]> = SmallVec::new();
        polled.push(PollFd::from_borrowed_fd(self.socket.as_fd(), PollFlags::RDHUP));
        polled.extend(self.life.as_ref().map(|life| PollFd::from_borrowed_fd(life.as_fd(), PollFlags::IN)));
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.is_gone() || rustix::event::poll(&mut polled, Some(&zero)).is_ok_and(|ready| ready > 0)
    }

    /// True when the regions are still those that are known here.
    pub(crate) fn is_unchanged(&self) -> bool {
        self.regions.read().counter == self.page.counter()
    }

    /// Whether the range is in a view that is known to be the owner's latest, without asking it.
    pub(crate) fn knows_view(&self, remote: u64, len: u64) -> bool {
        let regions = self.regions.read();
        regions.counter == self.page.counter() && regions.view(remote, len).is_some()
    }

    /// Whether the kernel copies from and to the range, as far as is known without asking the owner.
    pub(crate) fn knows_unmapped(&self, remote: u64, len: u64) -> bool {
        let regions = self.regions.read();
        self.is_copied_by_kernel() && regions.counter == self.page.counter() && regions.holds_unmapped(remote, len)
    }

    /// The view that holds a range now; `None` when no mapped region does.
    pub(crate) fn view(&self, remote: u64, len: u64, limits: &Limits<'_>) -> io::Result<Option<Arc<View>>> {
        self.current(|regions| regions.view(remote, len), limits)
    }

    /// The right to copy from or to a range in an allocation of the owner's application: as long as it lives, the owner does not finish
    /// the release of the region. `None` when the range is not registered, or no seat was left for us.
    pub(crate) fn enter(&self, remote: u64, len: u64, limits: &Limits<'_>) -> io::Result<Option<Pass<'_>>> {
        loop {
            let listed = |regions: &Regions| regions.holds_unmapped(remote, len).then_some(regions.counter);
            let Some(counter) = self.current(listed, limits)? else { return Ok(None) };
            let Some(pass) = self.page.enter(self.seat, counter) else { return Ok(None) };
            if self.page.counter() == counter {
                return Ok(Some(pass));
            }
            // The owner may wait for whoever is inside: out, and look again.
            drop(pass);
        }
    }

    fn current<T>(&self, look: impl Fn(&Regions) -> T, limits: &Limits<'_>) -> io::Result<T> {
        {
            let regions = self.regions.read();
            if regions.counter == self.page.counter() {
                return Ok(look(&regions));
            }
        }
        self.refresh(limits)?;
        Ok(look(&self.regions.read()))
    }

    /// Asks for a new list, and keeps the mappings that are still in it.
    fn refresh(&self, limits: &Limits<'_>) -> io::Result<()> {
        let patience = limits.deadline.since(limits.clock.now());
        let Some(_one_at_a_time) = self.refreshing.try_lock_for(patience) else {
            return Err(io::ErrorKind::TimedOut.into());
        };
        if self.is_unchanged() {
            return Ok(());
        }
        send(&self.socket, &[wire::AGAIN])?;
        let (_, list) = receive_list(&self.socket, limits)?;
        let before = self.regions.read().views.clone();
        let regions = Regions::map(list, &before)?;
        let news = !regions.populated.is_empty();
        *self.regions.write() = regions;
        self.news.fetch_or(news, Ordering::Release);
        Ok(())
    }

    /// The views whose page tables can be filled without costing memory, each once.
    pub(crate) fn newly_populated(&self) -> Vec<Arc<View>> {
        if !self.news.load(Ordering::Relaxed) || !self.news.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut self.regions.write().populated)
    }
}
