//! Transfers from and to allocations of an owner's application, copied by the kernel.
//!
//! The owner cannot hand such memory over as a file, but where it may be debugged by us, the kernel copies between the two
//! processes: one copy, no socket. Every piece is copied with a seat of the control page taken, so an owner that releases a
//! region waits for the pieces under way and nothing is written to memory that has another use by then.

use std::io;
use std::sync::Arc;

use rustix::io::Errno;
use yb_mem::PeerProcess;

use crate::segment::Segment;
use crate::shm::PIECE;
use crate::shm::neighbours::Neighbours;
use crate::shm::owner::Owner;
use crate::transport::{Job, Limits, Transport};
use crate::{Opcode, TransferErrorKind, TransportKind};

/// Transfers through the kernel.
pub(crate) struct ProcessVmTransport {
    neighbours: Arc<Neighbours>,
}

impl ProcessVmTransport {
    pub(crate) fn new(neighbours: Arc<Neighbours>) -> Self {
        ProcessVmTransport { neighbours }
    }

    fn copy(&self, job: &mut Job<'_>, limits: &Limits<'_>) {
        let Some(owner) = self.neighbours.owner(job.segment, limits) else {
            return job.fail(TransferErrorKind::PeerGone, "its socket closed before the copy");
        };
        let Ok(process) = owner.process() else {
            return job.fail(TransferErrorKind::Unreachable, "the kernel does not let us copy");
        };
        while job.done < job.len() {
            let step = match limits.over() {
                Some(kind) => Err((kind, "between two pieces".to_owned())),
                None => piece(job, &owner, process, limits),
            };
            match step {
                Ok(bytes) => job.done += bytes as u64,
                Err((kind, why)) => return job.fail(kind, why),
            }
        }
        if job.op == Opcode::Write && owner.is_gone_now() {
            return job.fail(TransferErrorKind::PeerGone, "its process ended during the write");
        }
        job.outcome = Some(Ok(()));
    }
}

type Failure = (TransferErrorKind, String);

fn piece(job: &Job<'_>, owner: &Owner, process: &PeerProcess, limits: &Limits<'_>) -> Result<usize, Failure> {
    let pass = owner.enter(job.remote, job.len(), limits).map_err(|error| {
        owner.mark_gone();
        (limits.over().unwrap_or(TransferErrorKind::PeerGone), error.to_string())
    })?;
    let Some(_pass) = pass else {
        return Err((TransferErrorKind::RemoteRefused, "the region was released".to_owned()));
    };
    // The process number is the owner's as long as its socket is open.
    if owner.is_gone_now() {
        return Err((TransferErrorKind::PeerGone, "its process has ended".to_owned()));
    }
    let at = job.done as usize;
    let part = job.local.slice(at, PIECE.min(job.local.len() - at));
    let part = part.map_err(|refused| (TransferErrorKind::InvalidRequest, refused.to_string()))?;
    let remote = job.remote + job.done;
    let moved = match job.op {
        Opcode::Read => process.read(remote, part),
        Opcode::Write => process.write(remote, part),
    };
    moved.map_err(|error| {
        if error.kind() == io::ErrorKind::PermissionDenied && owner.bar() {
            let endpoint = &*job.segment.endpoint;
            tracing::warn!(endpoint, "the kernel allows another process than ours to copy: TCP is used from now on");
        }
        refused(&error)
    })
}

/// A process that is gone is gone; other refusals leave the way over a socket.
fn refused(error: &io::Error) -> Failure {
    let gone = error.raw_os_error() == Some(Errno::SRCH.raw_os_error());
    let kind = if gone { TransferErrorKind::PeerGone } else { TransferErrorKind::ConnectionLost };
    (kind, format!("process_vm: {error}"))
}

impl Transport for ProcessVmTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::ProcessVm
    }

    fn reaches(&self, segment: &Segment, remote: u64, len: u64, limits: &Limits<'_>) -> bool {
        let Some(owner) = self.neighbours.owner(segment, limits) else { return false };
        if !owner.is_copied_by_kernel() {
            return false;
        }
        owner
            .enter(remote, len, limits)
            .unwrap_or_else(|_| {
                owner.mark_gone();
                None
            })
            .is_some()
    }

    fn is_immediate(&self, segment: &Segment, remote: u64, len: u64) -> bool {
        segment.shm.owner().is_some_and(|owner| owner.knows_unmapped(remote, len))
    }

    fn run(&self, jobs: &mut [Job<'_>], limits: &Limits<'_>) {
        for job in jobs {
            self.copy(job, limits);
        }
    }
}
