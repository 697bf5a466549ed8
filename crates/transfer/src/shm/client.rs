//! Transfers by copying from and to mapped memory of an owner on this host.

use std::sync::Arc;

use yb_mem::CopyHint;

use crate::segment::Segment;
use crate::shm::PIECE;
use crate::shm::neighbours::Neighbours;
use crate::shm::owner::{Owner, View};
use crate::transport::{Job, Limits, Transport};
use crate::{Opcode, TransferErrorKind, TransportKind};

/// Transfers by copying from and to mapped memory.
pub(crate) struct ShmTransport {
    neighbours: Arc<Neighbours>,
}

impl ShmTransport {
    pub(crate) fn new(neighbours: Arc<Neighbours>) -> Self {
        ShmTransport { neighbours }
    }

    fn copy(&self, job: &mut Job<'_>, hint: CopyHint, limits: &Limits<'_>) {
        let Some(owner) = self.neighbours.owner(job.segment, limits) else {
            return job.fail(TransferErrorKind::PeerGone, "its socket closed before the copy");
        };
        let view = match owner.view(job.remote, job.len(), limits) {
            Ok(Some(view)) => view,
            Ok(None) => return job.fail(TransferErrorKind::RemoteRefused, "the region was released"),
            Err(error) => return lost(job, &owner, &error, limits),
        };
        if let Some(kind) = copy_pieces(job, &view, hint, limits) {
            return job.fail(kind, "between two pieces");
        }
        confirm(job, &owner, &view, limits);
    }
}

/// The copy counts only if the owner still had the region when it ended.
fn confirm(job: &mut Job<'_>, owner: &Owner, used: &Arc<View>, limits: &Limits<'_>) {
    if job.op == Opcode::Write && owner.is_gone_now() {
        return job.fail(TransferErrorKind::PeerGone, "its process ended during the write");
    }
    if owner.is_unchanged() {
        job.outcome = Some(Ok(()));
        return;
    }
    match owner.view(job.remote, job.len(), limits) {
        Ok(Some(view)) if Arc::ptr_eq(&view, used) => job.outcome = Some(Ok(())),
        Ok(_) => job.fail(TransferErrorKind::RemoteRefused, "the region was released during the copy"),
        Err(error) => lost(job, owner, &error, limits),
    }
}

/// The owner did not say what it has now: it has gone, or the call has no time left.
fn lost(job: &mut Job<'_>, owner: &Owner, error: &std::io::Error, limits: &Limits<'_>) {
    owner.mark_gone();
    match limits.over() {
        Some(kind) => job.fail(kind, "while asking the owner what it has registered"),
        None => job.fail(TransferErrorKind::PeerGone, error),
    }
}

fn copy_pieces(job: &mut Job<'_>, view: &View, hint: CopyHint, limits: &Limits<'_>) -> Option<TransferErrorKind> {
    let invalid = |_| TransferErrorKind::InvalidRequest;
    let piece = |job: &mut Job<'_>, at: usize, len: usize| -> Result<(), TransferErrorKind> {
        let offset = (job.remote - view.entry.address) as usize + at;
        let theirs = view.memory.span().and_then(|span| span.slice(offset, len)).map_err(invalid)?;
        let ours = job.local.slice(at, len).map_err(invalid)?;
        match job.op {
            Opcode::Read => job.copy(ours, theirs, hint),
            Opcode::Write => job.copy(theirs, ours, hint),
        }
        .map_err(invalid)
    };
    let mut at = 0;
    while at < job.local.len() {
        if let Some(kind) = limits.over() {
            return Some(kind);
        }
        let len = PIECE.min(job.local.len() - at);
        if let Err(kind) = piece(job, at, len) {
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
        let Some(owner) = self.neighbours.owner(segment, limits) else { return false };
        match owner.view(remote, len, limits) {
            Ok(view) => {
                self.neighbours.watch.populate(owner.newly_populated());
                view.is_some()
            }
            Err(_) => {
                owner.mark_gone();
                false
            }
        }
    }

    fn is_immediate(&self, segment: &Segment, remote: u64, len: u64) -> bool {
        segment.shm.owner().is_some_and(|owner| owner.knows_view(remote, len))
    }

    fn run(&self, jobs: &mut [Job<'_>], limits: &Limits<'_>) {
        let hint = CopyHint::for_total(jobs.iter().map(Job::len).sum());
        for job in jobs {
            self.copy(job, hint, limits);
        }
    }

    fn stop(&self) {
        self.neighbours.watch.stop();
    }
}
