//! Memory on GPUs of processes on one host: the GPU copies by itself, from allocation to allocation.
//!
//! An owner publishes a handle for the allocation behind each region; a peer opens it once and keeps it open. A handle says
//! nothing of whether the region is still registered, so the owner is asked before a call and after it.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use yb_cuda::{Driver, ImportedMemory, IpcHandle};

use crate::device::Gpus;
use crate::metadata::SegmentDesc;
use crate::segment::Segment;
use crate::settings::EngineSettings;
use crate::transport::{Job, Limits, Transport};
use crate::{Access, Opcode, RegionInfo, RegistryError, TransferErrorKind, TransportKind};

/// Our entry in the description of a segment.
const EXTRA: &str = "cuda";
/// Most allocations of others that are kept open.
const KEPT: usize = 256;

/// A region on a GPU, and the allocation that it lies in.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Offer {
    address: u64,
    len: u64,
    /// The allocation.
    base: u64,
    size: u64,
    handle: IpcHandle,
    /// Its GPU, by place on the bus.
    gpu: String,
}

impl Offer {
    fn to_json(&self) -> Value {
        json!([self.address, self.len, self.base, self.size, self.handle.to_string(), self.gpu])
    }

    fn parse(value: &Value) -> Option<Self> {
        let number = |index: usize| value.get(index)?.as_u64();
        let text = |index: usize| value.get(index)?.as_str();
        let handle = text(4)?.parse().ok()?;
        let offer = Offer {
            address: number(0)?,
            len: number(1)?,
            base: number(2)?,
            size: number(3)?,
            handle,
            gpu: text(5)?.to_owned(),
        };
        let end = offer.address.checked_add(offer.len)?;
        let fits = offer.len > 0 && offer.base <= offer.address && end - offer.base <= offer.size;
        fits.then_some(offer)
    }

    fn covers(&self, address: u64, len: u64) -> bool {
        address.checked_add(len).is_some_and(|end| self.address <= address && end - self.address <= self.len)
    }
}

/// Allocations of others, by owner and handle.
type Imports = BTreeMap<(Arc<str>, IpcHandle), Arc<ImportedMemory>>;

/// Copies by handles.
pub(crate) struct IpcTransport {
    gpus: Arc<Gpus>,
    settings: EngineSettings,
    boot_id: String,
    own: Mutex<BTreeMap<u64, Offer>>,
    /// What is open.
    open: Mutex<Imports>,
}

impl IpcTransport {
    pub(crate) fn new(gpus: Arc<Gpus>, settings: &EngineSettings) -> Self {
        let (own, open) = (Mutex::default(), Mutex::default());
        IpcTransport { gpus, settings: settings.clone(), boot_id: crate::shm::boot_id(), own, open }
    }

    /// What the owner of a segment offers on this host.
    fn offers(&self, segment: &Segment, refresh: bool, limits: &Limits<'_>) -> Vec<Offer> {
        let Ok(desc) = segment.desc(&self.settings, refresh, limits) else { return Vec::new() };
        let Some(own) = desc.extras.get(EXTRA) else { return Vec::new() };
        if own.get("boot").and_then(Value::as_str) != Some(&*self.boot_id) {
            return Vec::new();
        }
        let list = own.get("buffers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        list.iter().filter_map(Offer::parse).collect()
    }

    /// The allocation behind an offer, opened if it is not open yet.
    fn import(&self, segment: &Segment, offer: &Offer, driver: &Arc<Driver>) -> Result<Arc<ImportedMemory>, String> {
        let key = (Arc::clone(&segment.endpoint), offer.handle);
        let mut open = self.open.lock();
        if let Some(known) = open.get(&key) {
            return Ok(Arc::clone(known));
        }
        let gpus = driver.gpus().map_err(|error| error.to_string())?;
        let same = gpus.iter().find(|gpu| gpu.bus_id == offer.gpu).map_or(0, |gpu| gpu.ordinal);
        let imported = driver.import(same, offer.handle, offer.size).map_err(|error| error.to_string())?;
        let imported = Arc::new(imported);
        if open.len() >= KEPT {
            open.retain(|_, memory| Arc::strong_count(memory) > 1);
        }
        open.insert(key, Arc::clone(&imported));
        Ok(imported)
    }

    /// Closes what the owner does not offer any more.
    fn forget(&self, segment: &Segment, offers: &[Offer]) {
        let gone = |(owner, handle): &(Arc<str>, IpcHandle)| {
            *owner == segment.endpoint && !offers.iter().any(|offer| offer.handle == *handle)
        };
        self.open.lock().retain(|key, _| !gone(key));
    }

    fn copy(&self, job: &Job<'_>, offers: &[Offer], limits: &Limits<'_>) -> Result<(), (TransferErrorKind, String)> {
        if let Some(kind) = limits.over() {
            return Err((kind, "before the copy".to_owned()));
        }
        let offer = offers.iter().find(|offer| offer.covers(job.remote, job.len()));
        let offer = offer.ok_or((TransferErrorKind::RemoteRefused, "the region was released".to_owned()))?;
        // Any failure here leaves the way over a socket.
        let lost = |why: String| (TransferErrorKind::ConnectionLost, why);
        let driver = self.gpus.driver().ok_or_else(|| lost(super::no_driver().to_string()))?;
        let memory = self.import(job.segment, offer, &driver).map_err(lost)?;
        let remote = memory.span().slice((job.remote - offer.base) as usize, job.local.len());
        let remote = remote.map_err(|error| (TransferErrorKind::InvalidRequest, error.to_string()))?;
        let (target, source) = match job.op {
            Opcode::Read => (job.local, remote),
            Opcode::Write => (remote, job.local),
        };
        let copied = driver.scope(memory.ordinal(), |scope| scope.copy(target, source)).and_then(|copied| copied);
        copied.map_err(|error| lost(error.to_string()))
    }

    /// The jobs of one owner.
    fn run_with(&self, jobs: &mut [Job<'_>], limits: &Limits<'_>) {
        let Some(segment) = jobs.first().map(|job| job.segment) else { return };
        let before = self.offers(segment, true, limits);
        self.forget(segment, &before);
        let results: Vec<_> = jobs.iter().map(|job| self.copy(job, &before, limits)).collect();
        let after = self.offers(segment, true, limits);
        for (job, result) in jobs.iter_mut().zip(results) {
            let still = || after.iter().any(|offer| offer.covers(job.remote, job.len()));
            match result {
                Ok(()) if still() => job.outcome = Some(Ok(())),
                Ok(()) => job.fail(TransferErrorKind::RemoteRefused, "the region was released during the copy"),
                Err((kind, detail)) => job.fail(kind, detail),
            }
        }
    }
}

impl Transport for IpcTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::CudaIpc
    }

    fn takes_devices(&self) -> bool {
        true
    }

    fn reaches(&self, segment: &Segment, remote: u64, len: u64, limits: &Limits<'_>) -> bool {
        let is_peer = segment.files().is_none() && !segment.is_in_process();
        is_peer
            && self.gpus.known().is_some()
            && self.offers(segment, false, limits).iter().any(|offer| offer.covers(remote, len))
    }

    fn run(&self, jobs: &mut [Job<'_>], limits: &Limits<'_>) {
        jobs.sort_by(|a, b| a.segment.endpoint.cmp(&b.segment.endpoint));
        for jobs in jobs.chunk_by_mut(|a, b| a.segment.endpoint == b.segment.endpoint) {
            self.run_with(jobs, limits);
        }
    }

    fn region_added(&self, region: &RegionInfo) -> Result<(), RegistryError> {
        if !region.on_device || region.access != Access::Remote {
            return Ok(());
        }
        let Some(driver) = self.gpus.driver() else { return Ok(()) };
        let offer = || {
            let (base, size) = driver.allocation(region.address)?;
            let handle = driver.export(base)?;
            let ordinal = driver.locate(base).unwrap_or(0);
            let gpu = driver.gpus()?.into_iter().find(|gpu| gpu.ordinal == ordinal);
            let gpu = gpu.map(|gpu| gpu.bus_id).unwrap_or_default();
            Ok::<_, yb_cuda::CudaError>(Offer { address: region.address, len: region.len, base, size, handle, gpu })
        };
        match offer() {
            Ok(offer) => drop(self.own.lock().insert(region.address, offer)),
            Err(error) => tracing::info!(%error, "memory on a GPU has no handle; peers on this host use other ways"),
        }
        Ok(())
    }

    fn region_removed(&self, address: u64) {
        self.own.lock().remove(&address);
    }

    fn describe(&self, desc: &mut SegmentDesc) {
        let own = self.own.lock();
        if own.is_empty() {
            return;
        }
        // Readers of the peer's form find the handle beside the range.
        for buffer in &mut desc.buffers {
            if let Some(offer) = own.get(&buffer.address) {
                buffer.shm_name = Some(offer.handle.to_string());
            }
        }
        let buffers: Vec<Value> = own.values().map(Offer::to_json).collect();
        desc.extras.insert(EXTRA.to_owned(), json!({"boot": self.boot_id, "buffers": buffers}));
    }

    fn stop(&self) {
        self.open.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offers_come_back_and_nonsense_is_no_offer() {
        let handle: IpcHandle = "0F".repeat(64).parse().unwrap();
        let offer = Offer { address: 8192, len: 100, base: 4096, size: 5000, handle, gpu: "0000:3b:00.0".to_owned() };
        assert_eq!(Offer::parse(&offer.to_json()), Some(offer.clone()));
        for bad in [
            Offer { len: 0, ..offer.clone() },
            Offer { len: 1000, ..offer.clone() },
            Offer { base: 8193, ..offer.clone() },
            Offer { len: u64::MAX, ..offer.clone() },
        ] {
            assert_eq!(Offer::parse(&bad.to_json()), None, "{bad:?}");
        }
        assert_eq!(Offer::parse(&json!([1, 2])), None);
        assert!(
            offer.covers(8192, 100) && !offer.covers(8192, 101) && !offer.covers(8191, 1) && !offer.covers(u64::MAX, 2)
        );
    }
}
