//! The turn loop's half that talks to the kernel.

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::time::Duration;

use io_uring::types::{Fd, Fixed, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};

use crate::pool::{Buffer, Pool};

/// The one buffer group.
const GROUP: u16 = 0;
/// Turns, of at most [`DRAIN_WAIT`] each, that a dropped reactor waits for its operations.
const DRAIN_TURNS: usize = 100;
const DRAIN_WAIT: Duration = Duration::from_millis(20);

/// Sockets that may be in the kernel's table of files.
const LISTED: u32 = 4096;
/// Empties a place of the table.
const NO_FILE: RawFd = -1;

const RECEIVE: u64 = 1 << 32;
const SEND: u64 = 2 << 32;
const BELL: u64 = 3 << 32;
const CANCEL: u64 = 4 << 32;
const KIND: u64 = !0 << 32;

/// Sizes of a reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReactorSettings {
    /// Submission queue entries, a power of two. More operations in one turn cost a second system call.
    pub entries: u32,
    /// Provided buffers, a power of two up to 32768.
    pub buffers: u16,
    /// Bytes of each.
    pub buffer_bytes: u32,
}

impl Default for ReactorSettings {
    fn default() -> Self {
        ReactorSettings { entries: 1024, buffers: 256, buffer_bytes: 16 << 10 }
    }
}

/// How long a turn waits, and for what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// The longest wait for a first completion; `None`: for ever.
    pub timeout: Option<Duration>,
    /// More than 1: that many completions, not counting those of the turn's own sends, are waited for, but no longer than
    /// `gather_for`; then one is enough. A kernel that cannot do this (before 6.12) takes 1 for it.
    pub gather: u32,
    /// See there.
    pub gather_for: Duration,
}

impl Patience {
    /// Waits for one completion, at most so long.
    pub fn at_most(timeout: Option<Duration>) -> Self {
        Patience { timeout, gather: 1, gather_for: Duration::ZERO }
    }
}

/// Something that happened. Keys are those of [`Reactor::attach`].
#[derive(Debug)]
pub enum Completion {
    /// A descriptor given to [`Reactor::watch`] became readable.
    Rang,
    /// Bytes came; see [`Reactor::bytes`], then [`Reactor::recycle`].
    Received {
        /// The socket.
        key: u32,
        /// Where the bytes are.
        buffer: Buffer,
    },
    /// The peer sends nothing more.
    Ended {
        /// The socket.
        key: u32,
    },
    /// Receiving failed; the socket is of no more use.
    Failed {
        /// The socket.
        key: u32,
        /// Why.
        error: io::Error,
    },
    /// A send is over; fewer bytes than given may have been taken.
    Sent {
        /// The socket.
        key: u32,
        /// The vector that was sent.
        bytes: Vec<u8>,
        /// Bytes taken.
        result: io::Result<usize>,
    },
    /// All operations of a detached socket have completed, it is closed and its key is free.
    Released {
        /// The key.
        key: u32,
    },
}

struct Entry {
    socket: OwnedFd,
    /// The kernel has the socket in its table of files, under the entry's key.
    listed: bool,
    /// A receive is in the kernel.
    receiving: bool,
    /// A cancel for it is under way.
    cancelling: bool,
    /// The user wants bytes.
    wanted: bool,
    sending: Option<Vec<u8>>,
    leaving: bool,
}

/// One io_uring instance with its sockets. Belongs to the thread that made it.
pub struct Reactor {
    /// Dropped by hand: before the memory that the kernel knows of.
    ring: ManuallyDrop<IoUring>,
    pool: ManuallyDrop<Pool>,
    entries: Vec<Option<Entry>>,
    bells: Vec<OwnedFd>,
    ready: VecDeque<(u64, i32, u32)>,
    released: Vec<u32>,
    /// Sends since the last turn. Nearly all of them complete while they are submitted.
    new_sends: usize,
    /// The kernel can wait for many completions for a while, and then for one.
    can_gather: bool,
    /// Places in the kernel's table of files: a send of a socket in it needs no look-up of its descriptor.
    listable: u32,
    /// The kernel binds the ring to one thread.
    _one_thread: std::marker::PhantomData<*const ()>,
}

impl Reactor {
    /// Sets up a ring for the calling thread.
    ///
    /// # Errors
    /// The operating system's; see [`crate::probe`].
    pub fn new(settings: &ReactorSettings) -> io::Result<Self> {
        let ring = IoUring::builder()
            .dontfork()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_defer_taskrun()
            .setup_submit_all()
            .setup_cqsize(settings.entries.saturating_mul(4))
            .build(settings.entries)?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel's io_uring lacks timeouts or NODROP"));
        }
        let listable = if ring.submitter().register_files_sparse(LISTED).is_ok() { LISTED } else { 0 };
        let can_gather = ring.params().is_feature_min_timeout();
        let pool = Pool::register(&ring, GROUP, settings.buffers, settings.buffer_bytes)?;
        Ok(Reactor {
            ring: ManuallyDrop::new(ring),
            pool: ManuallyDrop::new(pool),
            entries: Vec::new(),
            bells: Vec::new(),
            ready: VecDeque::new(),
            released: Vec::new(),
            new_sends: 0,
            can_gather,
            listable,
            _one_thread: std::marker::PhantomData,
        })
    }

    /// Reports [`Completion::Rang`] whenever `bell` (an eventfd) becomes readable. The user reads it empty.
    ///
    /// # Errors
    /// When the kernel takes no more submissions.
    pub fn watch(&mut self, bell: OwnedFd) -> io::Result<()> {
        let fd = bell.as_raw_fd();
        self.bells.push(bell);
        self.poll_bell(self.bells.len() - 1, fd)
    }

    /// Takes a connected socket under a free key and starts to receive.
    ///
    /// # Errors
    /// When the key is taken, or the kernel takes no more submissions.
    pub fn attach(&mut self, key: u32, socket: OwnedFd) -> io::Result<()> {
        let index = key as usize;
        if self.entries.len() <= index {
            self.entries.resize_with(index + 1, || None);
        }
        if self.entries[index].is_some() {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "the key is in use"));
        }
        let place = Some(key).filter(|key| *key < self.listable);
        let listed =
            place.is_some_and(|key| self.ring.submitter().register_files_update(key, &[socket.as_raw_fd()]).is_ok());
        let (receiving, cancelling, leaving) = (false, false, false);
        let entry = Entry { socket, listed, receiving, cancelling, wanted: true, sending: None, leaving };
        self.entries[index] = Some(entry);
        self.arm(key)
    }

    /// Stops or goes on receiving. Bytes that the kernel has taken already still come.
    ///
    /// # Errors
    /// When the kernel takes no more submissions.
    pub fn receive(&mut self, key: u32, wanted: bool) -> io::Result<()> {
        let Some(entry) = self.entry(key) else { return Ok(()) };
        entry.wanted = wanted;
        match (wanted, entry.receiving) {
            (true, false) => self.arm(key),
            (false, true) => self.cancel_receive(key),
            _ => Ok(()),
        }
    }

    /// Sends `bytes` from index `from` on; at most one send of a socket may be under way.
    ///
    /// # Errors
    /// When one is, or the key is unknown, or the kernel takes no more submissions.
    pub fn send(&mut self, key: u32, bytes: Vec<u8>, from: usize) -> io::Result<()> {
        let Some(entry) = self.entry(key).filter(|entry| entry.sending.is_none() && !entry.leaving) else {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "a send is under way, or no such socket"));
        };
        let rest = bytes.get(from..).unwrap_or_default();
        let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
        let send = match entry.listed {
            true => opcode::Send::new(Fixed(key), rest.as_ptr(), length),
            false => opcode::Send::new(Fd(entry.socket.as_raw_fd()), rest.as_ptr(), length),
        };
        let send = send.flags(libc::MSG_NOSIGNAL).build().user_data(SEND | u64::from(key));
        entry.sending = Some(bytes);
        self.new_sends += 1;
        // SAFETY: the bytes are on the heap of a vector that stays in `sending`, untouched, until this operation's completion;
        // the socket stays open as long. A reactor that is dropped waits for it, or leaks the vector.
        unsafe { self.push(&send) }
    }

    /// True while a send of this socket is under way.
    pub fn is_sending(&self, key: u32) -> bool {
        self.entries.get(key as usize).and_then(Option::as_ref).is_some_and(|entry| entry.sending.is_some())
    }

    /// Closes a socket. Its key is free after [`Completion::Released`]; no other completion of it comes before.
    pub fn detach(&mut self, key: u32) {
        let Some(entry) = self.entry(key).filter(|entry| !entry.leaving) else { return };
        entry.leaving = true;
        entry.wanted = false;
        let receiving = entry.receiving;
        // Makes a send that waits for room fail. An error says that the peer is gone already.
        let _ = rustix::net::shutdown(&entry.socket, rustix::net::Shutdown::Both);
        if receiving {
            // Without room for the cancel, the shutdown alone ends the receive.
            let _ = self.cancel_receive(key);
        }
        self.release_if_idle(key);
    }

    /// Submits all that was asked for and waits, see [`Patience`].
    ///
    /// # Errors
    /// The operating system's, except for interruptions.
    pub fn turn(&mut self, patience: Patience) -> io::Result<()> {
        let gathers = self.can_gather && patience.gather > 1;
        let want = match patience.gather as usize {
            _ if !self.released.is_empty() => 0,
            // The completions of the new sends come first and are nothing to wake up for.
            gather if gathers => gather + self.new_sends,
            _ => 1,
        };
        self.new_sends = 0;
        let limit = patience.timeout.map(|t| Timespec::new().sec(t.as_secs()).nsec(t.subsec_nanos()));
        let result = match (limit, gathers) {
            (None, false) => self.ring.submit_and_wait(want),
            (limit, _) => {
                let mut args = SubmitArgs::new();
                if gathers {
                    args = args.min_wait_usec(u32::try_from(patience.gather_for.as_micros()).unwrap_or(u32::MAX));
                }
                match &limit {
                    Some(limit) => self.ring.submitter().submit_with_args(want, &args.timespec(limit)),
                    None => self.ring.submitter().submit_with_args(want, &args),
                }
            }
        };
        match result {
            Ok(_) => {}
            Err(error) if matches!(error.raw_os_error(), Some(libc::ETIME | libc::EINTR | libc::EBUSY)) => {}
            Err(error) => return Err(error),
        }
        self.ready.extend(self.ring.completion().map(|entry| (entry.user_data(), entry.result(), entry.flags())));
        Ok(())
    }

    /// The next thing that happened in this turn.
    pub fn next_completion(&mut self) -> Option<Completion> {
        loop {
            if let Some(key) = self.released.pop() {
                return Some(Completion::Released { key });
            }
            let (data, result, flags) = self.ready.pop_front()?;
            let key = (data & !KIND) as u32;
            let completion = match data & KIND {
                RECEIVE => self.received(key, result, flags),
                SEND => self.sent(key, result),
                BELL => {
                    if !cqueue::more(flags)
                        && let Some(fd) = self.bells.get(key as usize).map(AsRawFd::as_raw_fd)
                        && let Err(error) = self.poll_bell(key as usize, fd)
                    {
                        return Some(Completion::Failed { key: u32::MAX, error });
                    }
                    Some(Completion::Rang)
                }
                _ => None,
            };
            if completion.is_some() {
                return completion;
            }
        }
    }

    /// The bytes of a received buffer.
    pub fn bytes(&self, buffer: &Buffer) -> &[u8] {
        self.pool.bytes(buffer)
    }

    /// Gives a received buffer back.
    pub fn recycle(&mut self, buffer: Buffer) {
        self.pool.recycle(buffer);
    }

    fn received(&mut self, key: u32, result: i32, flags: u32) -> Option<Completion> {
        let taken = cqueue::buffer_select(flags).and_then(|id| self.pool.take(id, u32::try_from(result).unwrap_or(0)));
        let entry = self.entry(key)?;
        if !cqueue::more(flags) {
            entry.receiving = false;
            entry.cancelling = false;
        }
        if entry.leaving {
            taken.into_iter().for_each(|buffer| self.pool.recycle(buffer));
            self.release_if_idle(key);
            return None;
        }
        let (wanted, receiving) = (entry.wanted, entry.receiving);
        let over = matches!(-result, 0) || (result < 0 && !matches!(-result, libc::ENOBUFS | libc::ECANCELED));
        if wanted
            && !receiving
            && !over
            && let Err(error) = self.arm(key)
        {
            return Some(Completion::Failed { key, error });
        }
        match taken {
            Some(buffer) if result > 0 => Some(Completion::Received { key, buffer }),
            taken => {
                taken.into_iter().for_each(|buffer| self.pool.recycle(buffer));
                match -result {
                    0 => Some(Completion::Ended { key }),
                    libc::ENOBUFS | libc::ECANCELED => None,
                    code => Some(Completion::Failed { key, error: io::Error::from_raw_os_error(code) }),
                }
            }
        }
    }

    fn sent(&mut self, key: u32, result: i32) -> Option<Completion> {
        let entry = self.entry(key)?;
        let bytes = entry.sending.take()?;
        if entry.leaving {
            self.release_if_idle(key);
            return None;
        }
        let result = usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
        Some(Completion::Sent { key, bytes, result })
    }

    fn release_if_idle(&mut self, key: u32) {
        let idle = |entry: &mut Entry| entry.leaving && !entry.receiving && entry.sending.is_none();
        let place = self.entries.get_mut(key as usize);
        if let Some(entry) = place.and_then(|place| place.take_if(|entry| idle(entry))) {
            // The table holds the socket open otherwise.
            if entry.listed && self.ring.submitter().register_files_update(key, &[NO_FILE]).is_err() {
                // Without the call to take it out nothing in this ring works any more; the worker will see that.
                self.listable = 0;
            }
            self.released.push(key);
        }
    }

    fn entry(&mut self, key: u32) -> Option<&mut Entry> {
        self.entries.get_mut(key as usize)?.as_mut()
    }

    fn arm(&mut self, key: u32) -> io::Result<()> {
        let Some(entry) = self.entry(key) else { return Ok(()) };
        entry.receiving = true;
        entry.cancelling = false;
        let fd = Fd(entry.socket.as_raw_fd());
        let receive = opcode::RecvMulti::new(fd, GROUP).build().user_data(RECEIVE | u64::from(key));
        // SAFETY: the kernel writes only into the registered pool, which outlives the ring.
        unsafe { self.push(&receive) }
    }

    fn cancel_receive(&mut self, key: u32) -> io::Result<()> {
        let Some(entry) = self.entry(key).filter(|entry| !entry.cancelling) else { return Ok(()) };
        entry.cancelling = true;
        let cancel = opcode::AsyncCancel::new(RECEIVE | u64::from(key)).build().user_data(CANCEL);
        // SAFETY: a cancel refers to no memory.
        unsafe { self.push(&cancel) }
    }

    fn poll_bell(&mut self, index: usize, fd: RawFd) -> io::Result<()> {
        let poll = opcode::PollAdd::new(Fd(fd), libc::POLLIN as u32).multi(true).build();
        // SAFETY: a poll refers to no memory.
        unsafe { self.push(&poll.user_data(BELL | index as u64)) }
    }

    /// # Safety
    /// What the entry points to must stay valid until its completion.
    unsafe fn push(&mut self, entry: &squeue::Entry) -> io::Result<()> {
        // SAFETY: passed on to the caller.
        while unsafe { self.ring.submission().push(entry) }.is_err() {
            self.ring.submit()?;
        }
        Ok(())
    }

    fn busy(&self) -> bool {
        self.entries.iter().flatten().any(|entry| entry.receiving || entry.sending.is_some())
    }
}

impl Drop for Reactor {
    fn drop(&mut self) {
        (0..self.entries.len() as u32).for_each(|key| self.detach(key));
        for _ in 0..DRAIN_TURNS {
            if !self.busy() || self.turn(Patience::at_most(Some(DRAIN_WAIT))).is_err() {
                break;
            }
            while self.next_completion().is_some() {}
        }
        let busy = self.busy();
        // SAFETY: neither field is used again; the ring goes first, so the kernel forgets the pool before it is freed.
        let pool = unsafe {
            ManuallyDrop::drop(&mut self.ring);
            ManuallyDrop::take(&mut self.pool)
        };
        if busy {
            // The kernel did not let go of an operation: its memory must stay.
            pool.leak();
            self.entries.drain(..).flatten().filter_map(|entry| entry.sending).for_each(std::mem::forget);
        }
    }
}

impl std::fmt::Debug for Reactor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reactor").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn small() -> Option<Reactor> {
        let made = Reactor::new(&ReactorSettings { entries: 8, buffers: 4, buffer_bytes: 64 });
        if let Err(error) = &made {
            println!("skipped: no io_uring here ({error})");
        }
        made.ok()
    }

    /// Turns until `found` gives something.
    fn until<T>(reactor: &mut Reactor, mut found: impl FnMut(&mut Reactor, Completion) -> Option<T>) -> T {
        for _ in 0..200 {
            reactor.turn(Patience::at_most(Some(Duration::from_millis(50)))).unwrap();
            while let Some(completion) = reactor.next_completion() {
                if let Some(result) = found(reactor, completion) {
                    return result;
                }
            }
        }
        panic!("it never came");
    }

    /// Sends until the socket takes no more: then a send waits in the kernel.
    fn fill(reactor: &mut Reactor, key: u32) {
        for _ in 0..100 {
            reactor.send(key, vec![7; 64 << 10], 0).unwrap();
            reactor.turn(Patience::at_most(Some(Duration::from_millis(10)))).unwrap();
            while reactor.next_completion().is_some() {}
            if reactor.is_sending(key) {
                return;
            }
        }
        panic!("the socket takes everything");
    }

    #[test]
    fn the_probe_agrees_with_the_reactor() {
        assert_eq!(crate::probe().is_ok(), small().is_some());
    }

    #[test]
    fn more_bytes_than_buffers_all_arrive() {
        let Some(mut reactor) = small() else { return };
        let (near, mut far) = UnixStream::pair().unwrap();
        reactor.attach(5, near.into()).unwrap();
        let sent: Vec<u8> = (0..10_000u32).map(|n| (n % 253) as u8).collect();
        far.write_all(&sent).unwrap();
        drop(far);
        let mut got = Vec::new();
        until(&mut reactor, |reactor, completion| match completion {
            Completion::Received { key: 5, buffer } => {
                got.extend_from_slice(reactor.bytes(&buffer));
                reactor.recycle(buffer);
                None
            }
            Completion::Ended { key: 5 } => Some(()),
            _ => None,
        });
        assert_eq!(got, sent);
    }

    #[test]
    fn a_paused_socket_delivers_nothing_until_it_is_wanted_again() {
        let Some(mut reactor) = small() else { return };
        let (near, mut far) = UnixStream::pair().unwrap();
        reactor.attach(0, near.into()).unwrap();
        reactor.turn(Patience::at_most(Some(Duration::ZERO))).unwrap();
        reactor.receive(0, false).unwrap();
        reactor.turn(Patience::at_most(Some(Duration::from_millis(10)))).unwrap();
        while reactor.next_completion().is_some() {}
        far.write_all(b"later").unwrap();
        for _ in 0..3 {
            reactor.turn(Patience::at_most(Some(Duration::from_millis(5)))).unwrap();
            assert!(reactor.next_completion().is_none());
        }
        reactor.receive(0, true).unwrap();
        let text = until(&mut reactor, |reactor, completion| match completion {
            Completion::Received { buffer, .. } => Some(reactor.bytes(&buffer).to_vec()),
            _ => None,
        });
        assert_eq!(text, b"later");
    }

    #[test]
    fn a_detached_socket_is_released_once_and_its_peer_sees_the_end() {
        let Some(mut reactor) = small() else { return };
        let (near, mut far) = UnixStream::pair().unwrap();
        far.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        reactor.attach(3, near.into()).unwrap();
        reactor.turn(Patience::at_most(Some(Duration::ZERO))).unwrap();
        fill(&mut reactor, 3);
        assert!(reactor.is_sending(3) && reactor.send(3, vec![1], 0).is_err());
        reactor.detach(3);
        until(&mut reactor, |_, completion| match completion {
            Completion::Released { key: 3 } => Some(()),
            other => panic!("{other:?} after the detach"),
        });
        let mut rest = Vec::new();
        far.read_to_end(&mut rest).unwrap();
        assert!(rest.iter().all(|byte| *byte == 7));
        let (again, _far) = UnixStream::pair().unwrap();
        reactor.attach(3, again.into()).unwrap();
    }

    #[test]
    fn a_bell_rings_each_time() {
        let Some(mut reactor) = small() else { return };
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        reactor.watch(bell.try_clone().unwrap()).unwrap();
        for _ in 0..3 {
            rustix::io::write(&bell, &1u64.to_ne_bytes()).unwrap();
            until(&mut reactor, |_, completion| matches!(completion, Completion::Rang).then_some(()));
            rustix::io::read(&bell, &mut [0u8; 8]).unwrap();
        }
    }

    #[test]
    fn dropping_with_operations_under_way_is_fine() {
        let Some(mut reactor) = small() else { return };
        let (near, _far) = UnixStream::pair().unwrap();
        reactor.attach(0, near.into()).unwrap();
        fill(&mut reactor, 0);
        assert!(reactor.busy());
    }
}
