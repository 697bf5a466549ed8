//! From pieces of objects to one transfer batch.

use std::time::Duration;

use smallvec::SmallVec;
use yb_env::Clock;
use yb_mem::Crc64;
use yb_transfer::{
    BatchOutcome, Engine, LocalBuffer, Opcode, Request, RequestOptions, SegmentHandle, TransferError, TransferErrorKind,
};
use yb_types::{BufferDescriptor, MonotonicTime, SegmentAddress};

use crate::deadline::Deadline;
use crate::memory::Piece;
use crate::suspects::{Failing, Leave, Suspects};
use crate::{Error, TransferFailure};

/// One transfer batch in the making. Each request belongs to the object with some index in the caller's list.
pub(crate) struct Mover<'a> {
    op: Opcode,
    engine: &'a Engine,
    requests: Vec<Request<'a>>,
    owners: SmallVec<[u32; 4]>,
    segment: Option<SegmentHandle>,
    /// Who failed before.
    suspects: Option<(&'a Suspects, &'a Clock)>,
    /// Suspects that this batch asks all the same.
    tried: SmallVec<[String; 1]>,
    /// Objects whose peer is left alone.
    barred: SmallVec<[(u32, TransferError); 1]>,
    failed: SmallVec<[(u32, TransferError); 1]>,
}

/// What became of a batch.
pub(crate) struct Moved {
    pub(crate) op: Opcode,
    /// The failures, each with the index of its object.
    pub(crate) failed: SmallVec<[(u32, TransferError); 1]>,
    /// Failures of peers that nothing was known against, one of each.
    pub(crate) news: SmallVec<[TransferError; 1]>,
    /// What the master is to hear of peers, one of each: who is gone, and who does not take what is written, tried or left
    /// alone by this batch.
    pub(crate) reports: SmallVec<[(Failing, TransferError); 1]>,
    /// Checksums of the objects that were added to be summed, in that order; `None` where the bytes did not all arrive or
    /// lie on a device.
    pub(crate) sums: SmallVec<[(u32, Option<Crc64>); 1]>,
}

impl<'a> Mover<'a> {
    pub(crate) fn new(op: Opcode, engine: &'a Engine, capacity: usize) -> Self {
        let requests = Vec::with_capacity(capacity);
        Mover {
            op,
            engine,
            requests,
            owners: SmallVec::with_capacity(capacity),
            segment: None,
            suspects: None,
            tried: SmallVec::new(),
            barred: SmallVec::new(),
            failed: SmallVec::new(),
        }
    }

    /// Leaves peers alone that have just failed.
    pub(crate) fn minding(mut self, suspects: &'a Suspects, clock: &'a Clock) -> Self {
        self.suspects = Some((suspects, clock));
        self
    }

    /// Adds the pieces of object `owner`, to or from the range at `remote`.
    pub(crate) fn add(&mut self, owner: u32, pieces: impl IntoIterator<Item = Piece<'a>>, remote: &BufferDescriptor) {
        self.add_as(Owner::plain(owner), pieces, remote);
    }

    /// As [`Mover::add`], with the checksum of the pieces, one after the other, if it is wanted: once for each owner.
    pub(crate) fn add_as(
        &mut self,
        owner: Owner,
        pieces: impl IntoIterator<Item = Piece<'a>>,
        remote: &BufferDescriptor,
    ) {
        let Owner { index: owner, summed, patience } = owner;
        if let Err(error) = self.ask(&remote.transport_endpoint) {
            return self.barred.push((owner, error));
        }
        let segment = match self.open(&remote.transport_endpoint) {
            Ok(segment) => segment,
            Err(error) => return self.failed.push((owner, error)),
        };
        for piece in pieces {
            let address = SegmentAddress(remote.buffer_address.wrapping_add(piece.offset));
            let local = LocalBuffer::span_of(piece.span);
            let request = Request::new(self.op, local, segment.clone(), address).summed(summed);
            self.requests.push(match patience {
                Some(_) => request.with(RequestOptions { patience, ..RequestOptions::default() }),
                None => request,
            });
            self.owners.push(owner);
        }
    }

    /// Whether a peer may be asked: one answer for a whole batch.
    fn ask(&mut self, endpoint: &str) -> Result<(), TransferError> {
        let Some((suspects, clock)) = self.suspects.filter(|(suspects, _)| suspects.any()) else { return Ok(()) };
        if self.tried.iter().any(|tried| tried == endpoint) {
            return Ok(());
        }
        match suspects.ask(endpoint, clock.now()) {
            Leave::Free => Ok(()),
            Leave::Trial => {
                self.tried.push(endpoint.to_owned());
                Ok(())
            }
            Leave::Barred(barred) => Err(TransferError::new(TransferErrorKind::Unreachable, endpoint, barred)),
        }
    }

    /// Neighbours in a batch are often on the same node: the last handle is kept.
    fn open(&mut self, endpoint: &str) -> Result<SegmentHandle, TransferError> {
        if let Some(open) = self.segment.as_ref().filter(|open| open.endpoint() == endpoint) {
            return Ok(open.clone());
        }
        let opened = self.engine.open_segment(endpoint)?;
        self.segment = Some(opened.clone());
        Ok(opened)
    }

    /// Moves everything; returns when nothing is in flight. What it shows of the peers is noted.
    pub(crate) fn run(self, until: MonotonicTime) -> Moved {
        let mut failed = self.failed;
        let mut sums = SmallVec::new();
        if !self.requests.is_empty() {
            let outcome: BatchOutcome = self.engine.transfer_sync(&self.requests, until);
            sums = sums_of(&self.requests, &self.owners, &outcome);
            if !outcome.is_ok() {
                let results = self.owners.iter().zip(outcome.results());
                failed.extend(results.filter_map(|(owner, result)| Some((*owner, result.as_ref().err()?.clone()))));
            }
        }
        let (mut news, mut reports) = (SmallVec::new(), SmallVec::new());
        if let Some((suspects, clock)) = self.suspects {
            for endpoint in
                self.tried.iter().filter(|tried| failed.iter().all(|(_, error)| error.endpoint() != **tried))
            {
                if suspects.answered(endpoint) {
                    tracing::info!(endpoint, "a peer answers again");
                }
            }
            let is_late = |owner: u32| {
                let own = self.requests.iter().zip(&self.owners).filter(|(_, of)| **of == owner);
                self.op == Opcode::Read && own.into_iter().any(|(request, _)| request.options.patience.is_some())
            };
            news = note_failures(suspects, &failed, is_late, clock.now());
            // A read does not ask the master for another place: who is left alone by it is told by the next write.
            let barred = self.barred.iter().filter(|_| self.op == Opcode::Write);
            for (_, error) in failed.iter().chain(barred) {
                let how = failing(error).filter(|how| *how == Failing::Gone || self.op == Opcode::Write);
                if let Some(how) = how.filter(|_| suspects.report(error.endpoint(), clock.now())) {
                    reports.push((how, error.clone()));
                }
            }
        }
        failed.extend(self.barred);
        Moved { op: self.op, failed, news, reports, sums }
    }
}

/// Whose pieces are added.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Owner {
    /// Index of the object.
    pub(crate) index: u32,
    /// Whether their checksum is wanted.
    pub(crate) summed: bool,
    /// When nothing moves for so long they are given up: there is another place for them.
    pub(crate) patience: Option<Duration>,
}

impl Owner {
    /// An object whose checksum is not wanted and that has no other place.
    pub(crate) fn plain(index: u32) -> Self {
        Owner { index, summed: false, patience: None }
    }
}

/// The checksums of objects from those of their pieces.
fn sums_of(requests: &[Request<'_>], owners: &[u32], outcome: &BatchOutcome) -> SmallVec<[(u32, Option<Crc64>); 1]> {
    let mut sums: SmallVec<[(u32, Option<Crc64>); 1]> = SmallVec::new();
    let summed = requests.iter().zip(owners).enumerate().filter(|(_, (request, _))| request.is_summed);
    for (at, (_, owner)) in summed {
        let piece = outcome.sum(at);
        match sums.last_mut().filter(|(last, _)| last == owner) {
            Some((_, sum)) => *sum = sum.zip(piece).map(|(sum, piece)| sum.then(piece)),
            None => sums.push((*owner, piece)),
        }
    }
    sums
}

/// Whether the failure says something about the peer rather than about the request.
pub(crate) fn is_peers_fault(error: &TransferError) -> bool {
    use TransferErrorKind as K;
    matches!(error.kind(), K::Unreachable | K::ConnectionLost | K::PeerGone | K::TimedOut | K::Protocol)
}

/// Whether no byte of the failed transfer can arrive at the peer any more: nobody took it, or its process is gone.
pub(crate) fn leaves_nothing_in_flight(error: &TransferError) -> bool {
    matches!(error.kind(), TransferErrorKind::Unreachable | TransferErrorKind::PeerGone)
}

/// How the peer failed, if the failure is its fault.
pub(crate) fn failing(error: &TransferError) -> Option<Failing> {
    use TransferErrorKind as K;
    match error.kind() {
        K::Unreachable | K::ConnectionLost | K::PeerGone => Some(Failing::Gone),
        K::TimedOut | K::Protocol => Some(Failing::Slow),
        _ => None,
    }
}

/// Remembers the peers of failed transfers, each once: those that are news.
fn note_failures(
    suspects: &Suspects,
    failed: &[(u32, TransferError)],
    is_late: impl Fn(u32) -> bool,
    now: MonotonicTime,
) -> SmallVec<[TransferError; 1]> {
    let mut noted: SmallVec<[&str; 4]> = SmallVec::new();
    let mut news = SmallVec::new();
    for (owner, error) in failed {
        let how = match failing(error) {
            Some(Failing::Slow) if error.kind() == TransferErrorKind::TimedOut && is_late(*owner) => {
                Some(Failing::Late)
            }
            how => how,
        };
        let Some(how) = how.filter(|_| !noted.contains(&error.endpoint())) else { continue };
        noted.push(error.endpoint());
        if suspects.failed(error.endpoint(), how, &error.to_string(), now) {
            news.push(error.clone());
        }
    }
    news
}

/// The caller's form of a failed transfer.
pub(crate) fn failure(error: &TransferError, op: Opcode, deadline: &Deadline, now: MonotonicTime) -> Error {
    use TransferErrorKind as K;
    let stage = match (error.kind(), op) {
        (K::Unreachable, _) => "connect",
        (K::TimedOut, _) => "deadline",
        (_, Opcode::Read) => "read",
        (_, Opcode::Write) => "write",
    };
    Error::Transfer(Box::new(TransferFailure {
        peer: error.endpoint().to_owned(),
        stage: stage.to_owned(),
        reason: error.to_string(),
        elapsed: deadline.elapsed(now),
        retryable: error.is_retryable() || error.kind() == K::RemoteRefused,
    }))
}
