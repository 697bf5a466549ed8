//! The transport inside one process: no socket, one copy.

use yb_mem::{Access, CopyHint};

use crate::segment::Segment;
use crate::transport::{Job, Limits, Transport};
use crate::{Opcode, TransferErrorKind, TransportKind};

#[derive(Debug)]
pub(crate) struct LocalTransport;

impl Transport for LocalTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::Local
    }

    fn reaches(&self, segment: &Segment, _remote: u64, _len: u64, _limits: &Limits<'_>) -> bool {
        segment.in_process.strong_count() > 0
    }

    fn is_immediate(&self, segment: &Segment, _remote: u64, _len: u64) -> bool {
        segment.in_process.strong_count() > 0
    }

    fn run(&self, jobs: &mut [Job<'_>], limits: &Limits<'_>) {
        let hint = CopyHint::for_total(jobs.iter().map(|job| job.local.len() as u64).sum());
        for job in jobs {
            if let Some(kind) = limits.over() {
                job.fail(kind, "before the copy");
                continue;
            }
            copy_one(job, hint);
        }
    }
}

fn copy_one(job: &mut Job<'_>, hint: CopyHint) {
    let Some(owner) = job.segment.in_process.upgrade() else {
        return job.fail(TransferErrorKind::PeerGone, "the engine of this process was shut down");
    };
    let pin = match owner.registry.pin(job.remote, job.local.len() as u64, Access::Remote) {
        Ok(pin) => pin,
        Err(refused) => return job.fail(TransferErrorKind::RemoteRefused, refused),
    };
    let copied = match job.op {
        Opcode::Read => yb_mem::copy(job.local, pin.span(), hint),
        Opcode::Write => yb_mem::copy(pin.span(), job.local, hint),
    };
    match copied {
        Ok(()) => job.outcome = Some(Ok(())),
        Err(refused) => job.fail(TransferErrorKind::InvalidRequest, refused),
    }
}
