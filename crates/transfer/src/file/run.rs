//! The operations of one call: what is left to do, what is under way, what came of it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::io::Errno;
use yb_mem::{CopyHint, Span};
use yb_uring::{DiskOp, DiskWork, Way};

use crate::file::fixed::{Fixable, FixedRegions};
use crate::file::lane::{BOUNCE_BUFFERS, BOUNCE_SLOT};
use crate::file::open::{FileSet, OpenPart};
use crate::file::plan::{BOUNCE, Extent, Mode, Piece, plan};
use crate::transport::{CancelToken, Limits};
use crate::{Opcode, TransferErrorKind};

/// Why a task failed.
pub(crate) type Failure = (TransferErrorKind, String);

/// One range to move.
pub(crate) struct Task<'a> {
    way: Way,
    files: &'a FileSet,
    local: Span<'a>,
    /// Pieces that are not done.
    left: usize,
    failure: Option<Failure>,
}

/// An operation under way.
struct Flying {
    task: usize,
    piece: Piece,
    buffer: Option<usize>,
}

/// All operations of a call.
pub(crate) struct Run<'a> {
    limits: Limits<'a>,
    tasks: Vec<Task<'a>>,
    /// Pieces past the page cache. Those through it wait until these are done: the two must not meet in a page.
    direct: VecDeque<(usize, Piece)>,
    cached: VecDeque<(usize, Piece)>,
    flying: Vec<Option<Flying>>,
    free: Vec<usize>,
    /// Operations past the page cache that are under way.
    direct_flying: usize,
    bounce: Span<'a>,
    free_buffers: Vec<usize>,
    stopped: Option<TransferErrorKind>,
    fixed: &'a FixedRegions,
    regions: &'a [Fixable],
    /// Bytes that went past the page cache.
    pub(crate) direct_bytes: u64,
    /// Those of them that were asked for with fixed memory.
    pub(crate) fixed_bytes: u64,
}

impl<'a> Run<'a> {
    /// Nothing to do yet. `bounce` is the memory of the bounce buffers.
    pub(crate) fn new(limits: Limits<'a>, bounce: Span<'a>, fixed: &'a FixedRegions, regions: &'a [Fixable]) -> Self {
        Run {
            limits,
            tasks: Vec::new(),
            direct: VecDeque::new(),
            cached: VecDeque::new(),
            flying: Vec::new(),
            free: Vec::new(),
            direct_flying: 0,
            bounce,
            free_buffers: (0..BOUNCE_BUFFERS).collect(),
            stopped: None,
            fixed,
            regions,
            direct_bytes: 0,
            fixed_bytes: 0,
        }
    }

    /// Adds a task, which gets the next index.
    pub(crate) fn add(&mut self, op: Opcode, files: &'a FileSet, offset: u64, local: Span<'a>) {
        let way = match op {
            Opcode::Read => Way::Read,
            Opcode::Write => Way::Write,
        };
        let index = self.tasks.len();
        let mut task = Task { way, files, local, left: 0, failure: None };
        match task.pieces(offset) {
            Ok(pieces) => {
                task.left = pieces.len();
                for piece in pieces {
                    let queue = if piece.mode == Mode::Cached { &mut self.cached } else { &mut self.direct };
                    queue.push_back((index, piece));
                }
            }
            Err(failure) => task.failure = Some(failure),
        }
        self.tasks.push(task);
    }

    /// Without a ring: one operation after the other.
    pub(crate) fn drive_plainly(&mut self) {
        while !self.stop() {
            let Some(operation) = self.next() else { break };
            let result = match operation.way {
                Way::Read => yb_mem::read_at(operation.file, operation.span, operation.offset),
                Way::Write => yb_mem::write_at(operation.file, operation.span, operation.offset),
            };
            self.done(operation.tag, result);
        }
    }

    /// What came of each task. Durable writes are flushed first.
    pub(crate) fn finish(mut self) -> Vec<Result<(), Failure>> {
        self.flush();
        let stopped = self.stopped;
        let outcome = |task: Task<'_>| match (task.failure, task.left) {
            (Some(failure), _) => Err(failure),
            (None, 0) => Ok(()),
            (None, left) => {
                let kind = stopped.unwrap_or(TransferErrorKind::Storage);
                Err((kind, format!("with {left} pieces of the range not moved")))
            }
        };
        self.tasks.into_iter().map(outcome).collect()
    }

    /// Asks the devices to keep what was written.
    fn flush(&mut self) {
        let mut synced: Vec<(*const OpenPart, Option<String>)> = Vec::new();
        for task in &mut self.tasks {
            if task.way == Way::Read || !task.files.is_durable() || task.failure.is_some() || task.left > 0 {
                continue;
            }
            for part in task.files.parts() {
                let known = synced.iter().find(|(synced, _)| std::ptr::eq(*synced, part));
                let result = match known {
                    Some((_, result)) => result.clone(),
                    None => {
                        let result = rustix::fs::fdatasync(part.cached()).err().map(|error| error.to_string());
                        synced.push((part, result.clone()));
                        result
                    }
                };
                if let Some(error) = result {
                    let detail = format!("making {} durable: {error}", part.path().display());
                    task.failure = Some((TransferErrorKind::Storage, detail));
                }
            }
        }
    }

    /// The operation for a piece; an error when the piece makes no sense.
    fn operation(&mut self, index: usize, mut piece: Piece) -> Option<DiskOp<'a>> {
        let task = self.tasks.get(index)?;
        let part = task.files.part(piece.extent.part)?;
        let local = task.local.slice(piece.extent.local as usize, piece.extent.len as usize).ok()?;
        let direct = part.direct().map(|(file, _)| file.as_fd());
        let mut buffer = None;
        let (file, span, offset, slot) = match (piece.mode, direct) {
            (Mode::Direct, Some(file)) => {
                let slot = self.fixed.slot(self.regions, local.address(), piece.extent.len);
                self.fixed_bytes += if slot.is_some() { piece.extent.len } else { 0 };
                (file, local, piece.extent.offset, slot)
            }
            (Mode::Bounced { lead, trail }, Some(file)) => {
                let place = self.free_buffers.pop()?;
                buffer = Some(place);
                let len = lead + piece.extent.len + trail;
                let span = self.bounce.slice(place * BOUNCE as usize, len as usize).ok()?;
                if task.way == Way::Write {
                    yb_mem::copy(span, local, CopyHint::Cached).ok()?;
                }
                (file, span, piece.extent.offset - lead, Some(BOUNCE_SLOT))
            }
            _ => {
                piece.mode = Mode::Cached;
                (part.cached().as_fd(), local, piece.extent.offset, None)
            }
        };
        let way = task.way;
        self.direct_flying += usize::from(piece.mode != Mode::Cached);
        let flying = Some(Flying { task: index, piece, buffer });
        let tag = match self.free.pop() {
            Some(tag) => {
                *self.flying.get_mut(tag)? = flying;
                tag
            }
            None => {
                self.flying.push(flying);
                self.flying.len() - 1
            }
        };
        Some(DiskOp { tag: tag as u64, way, file, span, offset, slot })
    }

    /// Bytes of the piece that an operation moved.
    fn moved(&self, flying: &Flying, bytes: u64) -> u64 {
        let Some(task) = self.tasks.get(flying.task) else { return 0 };
        let Mode::Bounced { lead, .. } = flying.piece.mode else { return bytes.min(flying.piece.extent.len) };
        let got = bytes.saturating_sub(lead).min(flying.piece.extent.len);
        let (Way::Read, Some(place)) = (task.way, flying.buffer) else { return got };
        let copied = self.bounce.slice(place * BOUNCE as usize + lead as usize, got as usize).and_then(|from| {
            let to = task.local.slice(flying.piece.extent.local as usize, got as usize)?;
            yb_mem::copy(to, from, CopyHint::Cached)
        });
        if copied.is_ok() { got } else { 0 }
    }

    fn succeeded(&mut self, flying: &Flying, bytes: u64) {
        let moved = self.moved(flying, bytes);
        let Piece { extent, mode } = flying.piece;
        if mode != Mode::Cached {
            self.direct_bytes += moved;
        }
        let Some(task) = self.tasks.get_mut(flying.task) else { return };
        if moved == extent.len {
            task.left = task.left.saturating_sub(1);
        } else if moved > 0 || mode != Mode::Cached {
            // The rest is tried through the page cache, which takes any length and knows best where the file ends.
            let rest = Extent {
                offset: extent.offset + moved,
                len: extent.len - moved,
                local: extent.local + moved,
                ..extent
            };
            self.cached.push_back((flying.task, Piece { extent: rest, mode: Mode::Cached }));
        } else {
            let path = task.files.part(extent.part).map(|part| part.path().display().to_string()).unwrap_or_default();
            task.failure = Some(match task.way {
                Way::Read => {
                    (TransferErrorKind::EndOfFile, format!("{path} ends at {}, before the range does", extent.offset))
                }
                Way::Write => (TransferErrorKind::Storage, format!("{path} takes no bytes at {}", extent.offset)),
            });
        }
    }

    fn failed(&mut self, flying: &Flying, error: &io::Error) {
        let Piece { extent, mode } = flying.piece;
        let Some(task) = self.tasks.get_mut(flying.task) else { return };
        let Some(part) = task.files.part(extent.part) else { return };
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::INTR | Errno::AGAIN) => {
                let queue = if mode == Mode::Cached { &mut self.cached } else { &mut self.direct };
                queue.push_front((flying.task, flying.piece));
            }
            Some(Errno::INVAL) if mode != Mode::Cached => {
                part.give_up_direct();
                self.cached.push_back((flying.task, Piece { extent, mode: Mode::Cached }));
            }
            Some(Errno::CANCELED) if self.stopped.is_some() => {}
            _ => {
                let what = if task.way == Way::Read { "reading" } else { "writing" };
                let path = part.path().display();
                let detail = format!("{what} {} bytes at {} of {path}: {error}", extent.len, extent.offset);
                task.failure = Some((TransferErrorKind::Storage, detail));
            }
        }
    }
}

impl Task<'_> {
    fn pieces(&self, offset: u64) -> Result<Vec<Piece>, Failure> {
        let write = self.way == Way::Write;
        let len = self.local.len() as u64;
        let extents = self.files.extents(offset, len).ok_or_else(|| {
            let size = self.files.len();
            (TransferErrorKind::RemoteRefused, format!("{offset}+{len} is outside a segment of {size} bytes"))
        })?;
        let mut pieces = Vec::new();
        for extent in extents {
            let Some(part) = self.files.part(extent.part) else { continue };
            if write && !part.is_writable() {
                let detail = format!("{} was opened for reading only", part.path().display());
                return Err((TransferErrorKind::RemoteRefused, detail));
            }
            let alignment = part.direct().map(|(_, alignment)| *alignment);
            pieces.extend(plan(write, extent, self.local.address() + extent.local, alignment));
        }
        Ok(pieces)
    }
}

impl<'a> DiskWork<'a> for Run<'a> {
    fn next(&mut self) -> Option<DiskOp<'a>> {
        loop {
            let from_cached = self.direct.is_empty();
            if from_cached && self.direct_flying > 0 {
                return None;
            }
            let queue = if from_cached { &self.cached } else { &self.direct };
            let (index, piece) = *queue.front()?;
            let failed = self.tasks.get(index).is_none_or(|task| task.failure.is_some());
            // A piece that finds no buffer free waits for one of this call's own.
            if !failed && matches!(piece.mode, Mode::Bounced { .. }) && self.free_buffers.is_empty() {
                return None;
            }
            if from_cached {
                self.cached.pop_front()
            } else {
                self.direct.pop_front()
            };
            if failed {
                continue;
            }
            match self.operation(index, piece) {
                Some(operation) => return Some(operation),
                None => {
                    if let Some(task) = self.tasks.get_mut(index) {
                        task.failure =
                            Some((TransferErrorKind::InvalidRequest, "the range is inconsistent".to_owned()));
                    }
                }
            }
        }
    }

    fn done(&mut self, tag: u64, result: io::Result<usize>) {
        let Some(flying) = self.flying.get_mut(tag as usize).and_then(Option::take) else { return };
        self.free.push(tag as usize);
        self.direct_flying -= usize::from(flying.piece.mode != Mode::Cached);
        match result {
            Ok(bytes) => self.succeeded(&flying, bytes as u64),
            Err(error) => self.failed(&flying, &error),
        }
        self.free_buffers.extend(flying.buffer);
    }

    fn stop(&mut self) -> bool {
        self.stopped = self.stopped.or_else(|| self.limits.over());
        self.stopped.is_some()
    }

    fn patience(&self) -> Duration {
        self.limits.deadline.since(self.limits.clock.now())
    }

    fn wake(&self) -> Option<BorrowedFd<'a>> {
        self.limits.cancel.and_then(CancelToken::wake)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{FilePart, FileSettings};
    use yb_env::Clock;

    const LEN: usize = 3 << 20;

    /// Runs by hand what a read of a whole file wants, and says what came of it.
    fn played(play: impl FnOnce(&mut Run<'_>, &CancelToken)) -> Result<(), Failure> {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(LEN as u64).unwrap();
        let part = FilePart { path: file.path().to_owned(), len: None };
        let settings = FileSettings { direct: false, ..FileSettings::default() };
        let files = FileSet::open("file://t", &[part], settings).unwrap();
        let (clock, token, fixed) = (Clock::manual(), CancelToken::new(), FixedRegions::default());
        let limits = Limits { clock: &clock, deadline: clock.now() + Duration::from_secs(9), cancel: Some(&token) };
        let (mut memory, mut bounce) = (vec![1; LEN], vec![0; BOUNCE_BUFFERS * BOUNCE as usize]);
        let mut run = Run::new(limits, Span::destination(&mut bounce), &fixed, &[]);
        run.add(Opcode::Read, &files, 0, Span::destination(&mut memory));
        play(&mut run, &token);
        run.finish().remove(0)
    }

    fn error(errno: Errno) -> io::Result<usize> {
        Err(io::Error::from_raw_os_error(errno.raw_os_error()))
    }

    #[test]
    fn short_and_interrupted_operations_go_on_where_they_stopped() {
        let done = played(|run, _| {
            let first = run.next().unwrap();
            run.done(first.tag, Ok(1000));
            let mut rest = vec![];
            while let Some(operation) = run.next() {
                rest.push((operation.offset, operation.span.len()));
                let interrupted = rest.len() == 1;
                run.done(operation.tag, if interrupted { error(Errno::INTR) } else { Ok(operation.span.len()) });
            }
            let block = 1 << 20;
            assert_eq!(
                rest,
                [(block, block as usize), (block, block as usize), (2 * block, block as usize), (1000, 1_047_576)]
            );
        });
        assert_eq!(done, Ok(()));
    }

    #[test]
    fn a_failed_device_and_the_end_of_the_file_are_told_apart_and_stop_the_rest() {
        let failed = |result: fn() -> io::Result<usize>| {
            let outcome = played(|run, _| {
                let first = run.next().unwrap();
                run.done(first.tag, result());
                assert!(run.next().is_none(), "a failed task asks for nothing more");
            });
            outcome.unwrap_err()
        };
        let (kind, text) = failed(|| error(Errno::IO));
        assert!(kind == TransferErrorKind::Storage && text.contains("reading 1048576 bytes at 0"), "{text}");
        assert_eq!(failed(|| Ok(0)).0, TransferErrorKind::EndOfFile);
    }

    #[test]
    fn a_pulled_token_ends_the_task_as_cancelled() {
        let outcome = played(|run, token| {
            let first = run.next().unwrap();
            assert!(!run.stop());
            token.cancel();
            assert!(run.stop());
            run.done(first.tag, error(Errno::CANCELED));
        });
        assert_eq!(outcome.unwrap_err().0, TransferErrorKind::Cancelled);
    }
}
