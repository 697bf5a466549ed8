//! Reads and writes of files: many in flight, none left behind.
//!
//! The kernel is given memory that others own, so the ring is driven by one call that borrows it: [`DiskRing::drive`] asks
//! a [`DiskWork`] for operations, tells it what came of them, and returns only when the kernel has let go of all.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};
use yb_mem::{RegionInfo, Span};

/// Marks what is no operation of the user.
const OURS: u64 = 1 << 63;
const BELL: u64 = OURS | 1;
const CANCEL: u64 = OURS | 2;

/// So long a wait goes on before the cancel descriptor is watched too: most operations are over before.
const FIRST_WAIT: Duration = Duration::from_millis(1);
/// How often [`DiskWork::stop`] is asked at least.
const LONGEST_WAIT: Duration = Duration::from_millis(500);

/// Which way the bytes go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the file into the span.
    Read,
    /// From the span into the file.
    Write,
}

/// One read or write.
#[derive(Clone, Copy, Debug)]
pub struct DiskOp<'a> {
    /// Comes back with the result; the highest bit must not be set.
    pub tag: u64,
    /// Which way.
    pub way: Way,
    /// The file.
    pub file: BorrowedFd<'a>,
    /// The memory. Bytes past 1 GiB are left for another operation.
    pub span: Span<'a>,
    /// First byte in the file.
    pub offset: u64,
    /// The slot of [`DiskRing::fix`] that the memory lies in; one that it does not lie in is ignored.
    pub slot: Option<u16>,
}

/// Who has operations to run.
pub trait DiskWork<'a> {
    /// The next operation to start; `None` when there is none at present.
    fn next(&mut self) -> Option<DiskOp<'a>>;

    /// What came of an operation: bytes moved, which may be fewer than asked for.
    fn done(&mut self, tag: u64, result: io::Result<usize>);

    /// Whether everything is to be given up. Operations under way are then cancelled, and end with `ECANCELED` or as if
    /// nothing had been.
    fn stop(&mut self) -> bool;

    /// How long may be waited before `stop` is to be asked.
    fn patience(&self) -> Duration;

    /// A descriptor that becomes readable when `stop` should be asked.
    fn wake(&self) -> Option<BorrowedFd<'a>>;
}

/// A ring for files. It may be used by one thread after the other.
pub struct DiskRing {
    ring: IoUring,
    depth: usize,
    /// First address and length of what is fixed in each slot.
    slots: Vec<Option<(u64, u64)>>,
}

/// What a call of `drive` has in the kernel.
#[derive(Default)]
struct Flight {
    /// Operations of the user.
    operations: usize,
    /// The watch of the cancel descriptor.
    bell: bool,
    /// Cancels under way.
    cancels: usize,
}

impl Flight {
    fn is_empty(&self) -> bool {
        self.operations == 0 && !self.bell && self.cancels == 0
    }
}

impl DiskRing {
    /// A ring with at most `depth` operations in flight and `slots` slots for fixed memory. Without the latter, if the
    /// kernel does not give them.
    ///
    /// # Errors
    /// The operating system's: containers often forbid io_uring.
    pub fn new(depth: u16, slots: u16) -> io::Result<Self> {
        let depth = depth.clamp(1, 4096);
        // Room for the operations, the bell and the cancels.
        let ring = IoUring::builder().dontfork().setup_clamp().build(u32::from(depth) + 2)?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "this kernel's io_uring lacks timeouts or NODROP"));
        }
        let sparse = slots > 0 && ring.submitter().register_buffers_sparse(u32::from(slots)).is_ok();
        let slots = vec![None; if sparse { usize::from(slots) } else { 0 }];
        Ok(DiskRing { ring, depth: usize::from(depth), slots })
    }

    /// Slots for fixed memory.
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Pins the pages of `span` in a slot, whatever was there before: operations there need no look-up of the pages.
    /// They stay pinned until the slot is emptied or the ring dropped; empty it before the memory is unmapped, or else
    /// operations on what is mapped there later would reach the old pages.
    ///
    /// # Errors
    /// The operating system's, such as the limit of locked memory; the slot is empty then.
    pub fn fix(&mut self, slot: u16, span: Span<'_>) -> io::Result<()> {
        self.pin(slot, span.address(), span.len() as u64)
    }

    /// As [`DiskRing::fix`], for a part of a registered region.
    ///
    /// # Errors
    /// As [`DiskRing::fix`]; `InvalidInput` when the part is not inside the region.
    pub fn fix_region(&mut self, slot: u16, region: &RegionInfo, offset: u64, len: u64) -> io::Result<()> {
        if len == 0 || offset.checked_add(len).is_none_or(|end| end > region.len) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.pin(slot, region.address + offset, len)
    }

    fn pin(&mut self, slot: u16, address: u64, len: u64) -> io::Result<()> {
        let place = self.slots.get_mut(usize::from(slot)).ok_or(io::ErrorKind::InvalidInput)?;
        *place = None;
        let piece = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: len as usize };
        // SAFETY: the range is a span, or was declared to be memory; the kernel refuses what is not mapped. Later it
        // reaches the pages through the references that it takes here, whatever is mapped at the address, and only for
        // operations whose span lies in the range.
        unsafe { self.ring.submitter().register_buffers_update(u32::from(slot), &[piece], None)? };
        *place = Some((address, len));
        Ok(())
    }

    /// Empties a slot.
    pub fn unfix(&mut self, slot: u16) {
        let Some(place) = self.slots.get_mut(usize::from(slot)).filter(|place| place.is_some()) else { return };
        *place = None;
        let nothing = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        // SAFETY: an empty entry refers to no memory. If the call fails, the pages stay pinned and are not used.
        let _ = unsafe { self.ring.submitter().register_buffers_update(u32::from(slot), &[nothing], None) };
    }

    /// Runs all that `work` gives, and returns when nothing is in flight.
    ///
    /// # Errors
    /// The operating system's, when the ring is of no more use; every operation has been told its result also then.
    pub fn drive<'a>(&mut self, work: &mut dyn DiskWork<'a>) -> io::Result<()> {
        let mut drive = Drive { ring: self, flight: Flight::default(), cancelled: false };
        drive.run(work)
        // Dropping `drive` waits for what is left, also when `work` panicked.
    }

    fn covers(&self, slot: u16, span: Span<'_>) -> bool {
        let Some(Some((first, len))) = self.slots.get(usize::from(slot)) else { return false };
        span.address() >= *first && span.address() + span.len() as u64 <= first + len
    }
}

impl std::fmt::Debug for DiskRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DiskRing").field("depth", &self.depth).finish_non_exhaustive()
    }
}

struct Drive<'r> {
    ring: &'r mut DiskRing,
    flight: Flight,
    cancelled: bool,
}

impl Drive<'_> {
    fn run<'a>(&mut self, work: &mut dyn DiskWork<'a>) -> io::Result<()> {
        let mut quiet = false;
        loop {
            if !self.cancelled && work.stop() {
                self.cancelled = true;
                self.cancel_all();
            }
            while !self.cancelled && self.flight.operations < self.ring.depth {
                let Some(operation) = work.next() else { break };
                self.start(&operation);
            }
            if self.flight.operations == 0 {
                return Ok(());
            }
            if quiet && !self.flight.bell && !self.cancelled {
                self.watch(work.wake());
            }
            let limit = if quiet { LONGEST_WAIT } else { FIRST_WAIT };
            let limit = if self.cancelled { limit } else { limit.min(work.patience()) };
            let waited = self.turn(limit);
            quiet = !self.reap(&mut |tag, result| work.done(tag, result));
            waited?;
        }
    }

    fn start(&mut self, operation: &DiskOp<'_>) {
        let fd = Fd(operation.file.as_raw_fd());
        let address = operation.span.address() as *mut u8;
        let length = operation.span.len().min(1 << 30) as u32;
        let slot = operation.slot.filter(|slot| self.ring.covers(*slot, operation.span));
        let may_write = operation.span.is_writable();
        let entry = match (operation.way, slot) {
            // A read into memory that must not be written is asked for no bytes.
            (Way::Read, _) if !may_write => opcode::Read::new(fd, address, 0).offset(operation.offset).build(),
            (Way::Read, Some(slot)) => {
                opcode::ReadFixed::new(fd, address, length, slot).offset(operation.offset).build()
            }
            (Way::Read, None) => opcode::Read::new(fd, address, length).offset(operation.offset).build(),
            (Way::Write, Some(slot)) => {
                opcode::WriteFixed::new(fd, address, length, slot).offset(operation.offset).build()
            }
            (Way::Write, None) => opcode::Write::new(fd, address, length).offset(operation.offset).build(),
        };
        self.flight.operations += 1;
        // SAFETY: span and descriptor live for 'a, which `drive` is inside of, and `drive` does not end before the
        // completion of this entry was seen; what is read into is writable.
        unsafe { self.push(&entry.user_data(operation.tag & !OURS)) }
    }

    fn watch(&mut self, wake: Option<BorrowedFd<'_>>) {
        let Some(wake) = wake else { return };
        let poll = opcode::PollAdd::new(Fd(wake.as_raw_fd()), libc::POLLIN as u32).build().user_data(BELL);
        self.flight.bell = true;
        // SAFETY: a poll refers to no memory.
        unsafe { self.push(&poll) }
    }

    fn cancel_all(&mut self) {
        self.cancel(CancelBuilder::any());
    }

    fn cancel(&mut self, what: CancelBuilder) {
        let cancel = opcode::AsyncCancel2::new(what).build().user_data(CANCEL);
        self.flight.cancels += 1;
        // SAFETY: a cancel refers to no memory.
        unsafe { self.push(&cancel) }
    }

    /// # Safety
    /// What the entry points to must stay valid until its completion.
    unsafe fn push(&mut self, entry: &squeue::Entry) {
        // SAFETY: passed on to the caller.
        while unsafe { self.ring.ring.submission().push(entry) }.is_err() {
            if self.ring.ring.submit().is_err() {
                std::thread::yield_now();
            }
        }
    }

    /// Submits what was pushed and waits for a completion, at most so long.
    fn turn(&mut self, limit: Duration) -> io::Result<()> {
        let limit = Timespec::new().sec(limit.as_secs()).nsec(limit.subsec_nanos());
        match self.ring.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&limit)) {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Takes what has completed; true when something of the user did.
    fn reap(&mut self, done: &mut dyn FnMut(u64, io::Result<usize>)) -> bool {
        let mut any = false;
        loop {
            let Some((data, result)) = self.ring.ring.completion().next().map(|c| (c.user_data(), c.result())) else {
                return any;
            };
            match data {
                BELL => self.flight.bell = false,
                CANCEL => self.flight.cancels = self.flight.cancels.saturating_sub(1),
                tag => {
                    self.flight.operations = self.flight.operations.saturating_sub(1);
                    any = true;
                    done(tag, usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result)));
                }
            }
        }
    }
}

impl Drop for Drive<'_> {
    /// The spans are free for other uses after this, so it must not end before the kernel has let go of them.
    fn drop(&mut self) {
        if self.flight.operations > 0 && !self.cancelled {
            self.cancel_all();
        } else if self.flight.bell {
            self.cancel(CancelBuilder::user_data(BELL));
        }
        while !self.flight.is_empty() {
            if self.turn(LONGEST_WAIT).is_err() {
                std::thread::yield_now();
            }
            self.reap(&mut |_, _| {});
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::AsFd;

    use super::*;

    /// Operations in a list, with what came of them.
    struct List<'a> {
        waiting: Vec<DiskOp<'a>>,
        results: Vec<(u64, io::Result<usize>)>,
        stop: bool,
        wake: Option<BorrowedFd<'a>>,
    }

    impl<'a> List<'a> {
        fn of(waiting: Vec<DiskOp<'a>>) -> Self {
            List { waiting, results: Vec::new(), stop: false, wake: None }
        }
    }

    impl<'a> DiskWork<'a> for List<'a> {
        /// The bell rings when everything was started.
        fn next(&mut self) -> Option<DiskOp<'a>> {
            let next = self.waiting.pop();
            if let (None, Some(bell)) = (&next, self.wake) {
                rustix::io::write(bell, &1_u64.to_ne_bytes()).unwrap();
            }
            next
        }
        fn done(&mut self, tag: u64, result: io::Result<usize>) {
            self.results.push((tag, result));
        }
        fn stop(&mut self) -> bool {
            let rung = self.wake.is_some_and(|fd| rustix::io::read(fd, &mut [0; 8]).is_ok());
            self.stop |= rung;
            self.stop
        }
        fn patience(&self) -> Duration {
            Duration::from_secs(10)
        }
        fn wake(&self) -> Option<BorrowedFd<'a>> {
            self.wake
        }
    }

    fn ring(depth: u16) -> Option<DiskRing> {
        let made = DiskRing::new(depth, 4);
        if let Err(error) = &made {
            println!("skipped: no io_uring here ({error})");
        }
        made.ok()
    }

    #[test]
    fn more_operations_than_depth_all_finish_and_fixed_memory_moves_the_same_bytes() {
        let Some(mut ring) = ring(3) else { return };
        let file = tempfile::tempfile().unwrap();
        let sent: Vec<u8> = (0..40_000_u32).map(|i| (i % 251) as u8).collect();
        let mut got = vec![0; sent.len()];
        for (way, span) in [(Way::Write, Span::source(&sent)), (Way::Read, Span::destination(&mut got))] {
            if ring.slots() > 0 {
                ring.fix(1, span.slice(0, 20_000).unwrap()).unwrap();
            }
            let part = |i: usize| DiskOp {
                tag: i as u64,
                way,
                file: file.as_fd(),
                span: span.slice(i * 1000, 1000).unwrap(),
                offset: i as u64 * 1000,
                slot: Some(if i < 20 { 1 } else { 99 }),
            };
            let mut list = List::of((0..40).map(part).collect());
            ring.drive(&mut list).unwrap();
            assert_eq!(list.results.len(), 40);
            assert!(list.results.iter().all(|(_, result)| matches!(result, Ok(1000))));
            ring.unfix(1);
        }
        assert!(got == sent);
    }

    #[test]
    fn failures_and_ends_are_told_and_read_only_memory_is_not_written() {
        let Some(mut ring) = ring(8) else { return };
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"abc").unwrap();
        let (pipe, _far) = rustix::pipe::pipe().unwrap();
        let mut room = [7; 8];
        let op = |tag, span, offset| DiskOp { tag, way: Way::Read, file: file.as_fd(), span, offset, slot: None };
        let mut other = [1; 4];
        let bytes = [5_u8; 4];
        let mut list = List::of(vec![
            op(0, Span::destination(&mut room), 0),
            op(1, Span::destination(&mut other), 3),
            op(2, Span::source(&bytes), 0),
            DiskOp { way: Way::Write, file: pipe.as_fd(), ..op(3, Span::source(&bytes), 0) },
        ]);
        ring.drive(&mut list).unwrap();
        list.results.sort_by_key(|(tag, _)| *tag);
        let codes: Vec<_> = list.results.iter().map(|(_, r)| r.as_ref().map_err(|e| e.raw_os_error())).collect();
        assert_eq!(codes, [Ok(&3), Ok(&0), Ok(&0), Err(Some(libc::EBADF))]);
        assert_eq!((&room[..3], bytes), (&b"abc"[..], [5; 4]));
    }

    #[test]
    fn a_read_that_would_wait_for_ever_is_cancelled_by_the_bell_and_by_a_panic() {
        let Some(mut ring) = ring(2) else { return };
        let (near, _far) = rustix::pipe::pipe().unwrap();
        let bell = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).unwrap();
        let mut room = [0; 8];
        let span = Span::destination(&mut room);
        let op = DiskOp { tag: 1, way: Way::Read, file: near.as_fd(), span, offset: 0, slot: None };
        let mut list = List { wake: Some(bell.as_fd()), ..List::of(vec![op]) };
        ring.drive(&mut list).unwrap();
        assert!(matches!(&list.results[..], [(1, Err(error))] if error.raw_os_error() == Some(libc::ECANCELED)));

        /// Panics when it is asked whether to go on while a read is under way.
        struct Falls<'a>(Option<DiskOp<'a>>);
        impl<'a> DiskWork<'a> for Falls<'a> {
            fn next(&mut self) -> Option<DiskOp<'a>> {
                self.0.take()
            }
            fn done(&mut self, _: u64, _: io::Result<usize>) {}
            fn stop(&mut self) -> bool {
                assert!(self.0.is_some(), "falls");
                false
            }
            fn patience(&self) -> Duration {
                Duration::from_millis(5)
            }
            fn wake(&self) -> Option<BorrowedFd<'a>> {
                None
            }
        }
        let fell = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ring.drive(&mut Falls(Some(op)))));
        assert!(fell.is_err());
        let file = tempfile::tempfile().unwrap();
        let mut list = List::of(vec![DiskOp { way: Way::Write, file: file.as_fd(), ..op }]);
        ring.drive(&mut list).unwrap();
        assert!(matches!(list.results[..], [(1, Ok(8))]), "the ring is as good as new");
    }
}
