//! The transport inside one process: no socket, one copy.

use std::sync::Arc;

use yb_mem::{Access, CopyHint, MemoryDevice};

use crate::device::Gpus;
use crate::segment::Segment;
use crate::transport::{Job, Limits, Transport};
use crate::{Opcode, TransferErrorKind, TransportKind};

/// Copies between regions of this process.
#[derive(Debug)]
pub(crate) struct LocalTransport {
    /// Where there is a memory device, an address may be an offset in it.
    pub(crate) device: Option<Arc<MemoryDevice>>,
    /// Who copies memory of GPUs.
    pub(crate) gpus: Arc<Gpus>,
}

impl LocalTransport {
    fn holds(&self, segment: &Segment, remote: u64, len: u64) -> bool {
        let Some(device) = &self.device else { return segment.in_process.strong_count() > 0 };
        let may_be_offset = remote.checked_add(len).is_some_and(|end| end <= device.len());
        let owner = segment.in_process.upgrade();
        owner.is_some_and(|owner| !may_be_offset || owner.registry.pin(remote, len, Access::Remote).is_ok())
    }
}

impl Transport for LocalTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::Local
    }

    fn reaches(&self, segment: &Segment, remote: u64, len: u64, _limits: &Limits<'_>) -> bool {
        self.holds(segment, remote, len)
    }

    fn takes_devices(&self) -> bool {
        true
    }

    fn is_immediate(&self, segment: &Segment, remote: u64, len: u64) -> bool {
        self.holds(segment, remote, len)
    }

    fn run(&self, jobs: &mut [Job<'_>], limits: &Limits<'_>) {
        let hint = CopyHint::for_total(jobs.iter().map(|job| job.local.len() as u64).sum());
        for job in jobs {
            if let Some(kind) = limits.over() {
                job.fail(kind, "before the copy");
                continue;
            }
            self.copy(job, hint);
        }
    }
}

impl LocalTransport {
    fn copy(&self, job: &mut Job<'_>, hint: CopyHint) {
        let Some(owner) = job.segment.in_process.upgrade() else {
            return job.fail(TransferErrorKind::PeerGone, "the engine of this process was shut down");
        };
        let pin = match owner.registry.pin(job.remote, job.local.len() as u64, Access::Remote) {
            Ok(pin) => pin,
            Err(refused) => return job.fail(TransferErrorKind::RemoteRefused, refused),
        };
        let (target, source) = match job.op {
            Opcode::Read => (job.local, pin.span()),
            Opcode::Write => (pin.span(), job.local),
        };
        if target.is_on_device() || source.is_on_device() {
            return match self.gpus.copy(target, source) {
                Ok(()) => job.outcome = Some(Ok(())),
                Err(error) => job.fail(TransferErrorKind::Storage, error),
            };
        }
        match job.copy(target, source, hint) {
            Ok(()) => job.outcome = Some(Ok(())),
            Err(refused) => job.fail(TransferErrorKind::InvalidRequest, refused),
        }
    }
}
