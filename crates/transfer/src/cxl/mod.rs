//! A memory device that several processes or hosts map: a transfer is a copy from or to the mapping.
//!
//! Every engine maps the device; a remote address is an offset into it, the same for all. A peer publishes which parts are
//! its registered regions, in the peer's form (`cxl_name`, buffers with an `offset`) and in our own object, which says
//! besides how to tell whether both of us mean the same device.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};
use yb_mem::{Coherence, CopyHint, MemoryDevice};

use crate::metadata::{BufferDesc, CxlDesc, Protocol, SegmentDesc};
use crate::segment::Segment;
use crate::settings::EngineSettings;
use crate::transport::{Job, Limits, Transport};
use crate::{Opcode, TransferErrorKind, TransportKind};

/// The name of the device itself as a segment: any offset in it may be named.
pub(crate) const SCHEME: &str = "cxl://";

/// Our entry in the description of a segment.
const EXTRA: &str = "cxl";

/// Between two pieces of this size the deadline and the cancel token are looked at.
const PIECE: u64 = 16 << 20;

/// The memory device of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CxlSettings {
    /// `/dev/dax0.0`, or any file that stands for a device (`MC_CXL_DEV_PATH`).
    pub path: PathBuf,
    /// Bytes to map; `None` = all it has (`MC_CXL_DEV_SIZE`).
    pub size: Option<u64>,
    /// Whether cache lines must be flushed, because the hosts that share it are not coherent (`YB_CXL_FLUSH=1`).
    pub coherence: Coherence,
    /// Announce the segment as one of protocol "cxl" and nothing else, as an engine of the peer does that was told to use
    /// it. Otherwise it is announced beside what else there is, in a way that only engines of our kind read.
    pub only: bool,
}

impl CxlSettings {
    /// The device at `path`, all of it, coherent.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        CxlSettings { path: path.into(), size: None, coherence: Coherence::Hardware, only: false }
    }
}

/// What a peer says about its part of the device.
struct Offer {
    /// Ranges in the device.
    buffers: Vec<(u64, u64)>,
    /// True when the peer's addresses are always offsets.
    only: bool,
}

impl Offer {
    fn covers(&self, offset: u64, len: u64) -> bool {
        let Some(end) = offset.checked_add(len) else { return false };
        self.buffers.iter().any(|(first, size)| *first <= offset && end - first <= *size)
    }
}

/// Copies from and to a mapped device.
#[derive(Debug)]
pub(crate) struct CxlTransport {
    device: Arc<MemoryDevice>,
    settings: EngineSettings,
    boot_id: String,
    only: bool,
}

impl CxlTransport {
    pub(crate) fn new(device: Arc<MemoryDevice>, settings: &EngineSettings) -> Self {
        let only = settings.cxl.as_ref().is_some_and(|cxl| cxl.only);
        CxlTransport { device, settings: settings.clone(), boot_id: crate::shm::boot_id(), only }
    }

    /// What the segment's owner says about this device; `None` when it has another one, or none.
    fn offer(&self, segment: &Segment, refresh: bool, limits: &Limits<'_>) -> Option<Offer> {
        let desc = match segment.in_process.upgrade() {
            Some(owner) => Arc::new(owner.own_desc()),
            None => segment.desc(&self.settings, refresh, limits).ok()?,
        };
        if let Some(own) = desc.extras.get(EXTRA) {
            return self.own_offer(own, desc.protocols == [Protocol::Cxl]);
        }
        let same = desc.cxl.as_ref().is_some_and(|cxl| Path::new(&cxl.path) == self.device.path());
        let is_cxl = |buffer: &&BufferDesc| desc.protocol_of(buffer) == Protocol::Cxl;
        let buffers = desc.buffers.iter().filter(is_cxl).filter_map(|buffer| Some((buffer.offset?, buffer.len)));
        same.then(|| Offer { buffers: buffers.collect(), only: desc.protocols == [Protocol::Cxl] })
    }

    /// An offer of an engine of our kind. A file is the same only on the same host; devices are told apart by path.
    fn own_offer(&self, own: &Value, only: bool) -> Option<Offer> {
        let pair = |value: &Value| Some((value.get(0)?.as_u64()?, value.get(1)?.as_u64()?));
        let same = match (self.device.file(), own.get("file").and_then(pair)) {
            (Some(file), Some(theirs)) => file == theirs && own.get("boot")?.as_str()? == self.boot_id,
            (None, None) => own.get("path").and_then(Value::as_str).map(Path::new) == Some(self.device.path()),
            _ => false,
        };
        let buffers = own.get("buffers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        same.then(|| Offer { buffers: buffers.iter().filter_map(pair).collect(), only })
    }

    /// Whether the range may be copied.
    fn allows(&self, segment: &Segment, offset: u64, len: u64, limits: &Limits<'_>) -> Result<(), String> {
        let size = self.device.len();
        if offset.checked_add(len).is_none_or(|end| end > size) {
            return Err(format!("{offset}+{len} is outside a device of {size} bytes"));
        }
        if segment.endpoint.starts_with(SCHEME) {
            return Ok(());
        }
        let covered = |refresh| self.offer(segment, refresh, limits).is_some_and(|offer| offer.covers(offset, len));
        if covered(false) || covered(true) {
            return Ok(());
        }
        Err(format!("{offset}+{len} of the device is not inside one of the peer's registered regions"))
    }

    fn copy(&self, job: &Job<'_>, limits: &Limits<'_>) -> Result<(), (TransferErrorKind, String)> {
        self.allows(job.segment, job.remote, job.len(), limits)
            .map_err(|why| (TransferErrorKind::RemoteRefused, why))?;
        let hint = CopyHint::for_total(job.len());
        let mut done = 0;
        while done < job.len() {
            if let Some(kind) = limits.over() {
                return Err((kind, format!("after {done} bytes")));
            }
            let len = PIECE.min(job.len() - done);
            let local = job.local.slice(done as usize, len as usize);
            let copied = local.and_then(|local| match job.op {
                Opcode::Read => self.device.read(job.remote + done, local, hint),
                Opcode::Write => self.device.write(job.remote + done, local, hint),
            });
            copied.map_err(|refused| (TransferErrorKind::InvalidRequest, refused.to_string()))?;
            done += len;
        }
        Ok(())
    }
}

impl Transport for CxlTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::Cxl
    }

    fn reaches(&self, segment: &Segment, remote: u64, len: u64, limits: &Limits<'_>) -> bool {
        if segment.endpoint.starts_with(SCHEME) {
            return true;
        }
        if segment.files().is_some() {
            return false;
        }
        let Some(offer) = self.offer(segment, false, limits) else { return false };
        // Addresses of processes are far above the size of any device: who means one does not wait for a question.
        let may_be_offset = remote.checked_add(len).is_some_and(|end| end <= self.device.len());
        offer.only || offer.covers(remote, len) || (may_be_offset && self.allows(segment, remote, len, limits).is_ok())
    }

    fn run(&self, jobs: &mut [Job<'_>], limits: &Limits<'_>) {
        for job in jobs {
            match self.copy(job, limits) {
                Ok(()) => job.outcome = Some(Ok(())),
                Err((kind, detail)) => job.fail(kind, detail),
            }
        }
    }

    fn describe(&self, desc: &mut SegmentDesc) {
        let offset = |buffer: &BufferDesc| self.device.offset_of(buffer.address, buffer.len);
        let offered: Vec<(u64, u64)> =
            desc.buffers.iter().filter_map(|buffer| Some((offset(buffer)?, buffer.len))).collect();
        let path = self.device.path().to_string_lossy().into_owned();
        let file = self.device.file().map(|(device, inode)| [device, inode]);
        let own = json!({"path": path, "boot": self.boot_id, "file": file, "buffers": offered});
        desc.extras.insert(EXTRA.to_owned(), own);
        if self.only {
            desc.protocols = vec![Protocol::Cxl];
            desc.cxl = Some(CxlDesc { path, base: self.device.address() });
            let buffer =
                |(offset, len): &(u64, u64)| BufferDesc { len: *len, offset: Some(*offset), ..BufferDesc::default() };
            desc.buffers = offered.iter().map(buffer).collect();
        }
    }
}
