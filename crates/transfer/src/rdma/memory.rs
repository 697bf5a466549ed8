//! Memory that devices may reach: registered regions, cut into pieces that a device takes, with one key a device.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, RwLock};
use smallvec::SmallVec;
use yb_mem::{RegionInfo, Span};
use yb_verbs::{Hold, MemoryAccess, MemoryRegion};

use super::nic::{Nic, Nics};
use super::settings::RdmaSettings;
use crate::{Access, RegistryError};

/// One key for each device; 0 for a device that does not work.
pub(crate) type Keys = SmallVec<[u32; 4]>;

/// A part of memory that every device took as one.
#[derive(Debug)]
pub(crate) struct Chunk<H: Hold> {
    pub(crate) address: u64,
    pub(crate) len: u64,
    regions: Vec<Option<MemoryRegion<H>>>,
}

impl<H: Hold> Chunk<H> {
    pub(crate) fn lkeys(&self) -> Keys {
        self.regions.iter().map(|region| region.as_ref().map_or(0, MemoryRegion::lkey)).collect()
    }

    pub(crate) fn rkeys(&self) -> Keys {
        self.regions.iter().map(|region| region.as_ref().map_or(0, MemoryRegion::rkey)).collect()
    }
}

/// Where the parts of `len` bytes begin and how long they are.
pub(crate) fn parts(len: u64, longest: u64) -> impl Iterator<Item = (u64, u64)> {
    let longest = longest.max(1);
    (0..len.div_ceil(longest)).map(move |index| (index * longest, longest.min(len - index * longest)))
}

/// Registers memory on every device that works.
///
/// # Errors
/// The first device that refuses.
pub(crate) fn register<H: Hold + Clone>(
    nics: &Nics,
    settings: &RdmaSettings,
    hold: &H,
    access: MemoryAccess,
) -> Result<Vec<Chunk<H>>, String> {
    let span = hold.span();
    let (address, len) = (span.address(), span.len() as u64);
    let limit = nics.list.iter().filter_map(|nic| nic.open.as_ref().ok()).map(|nic| nic.limits.max_mr_size).min();
    let longest = settings.max_mr_size.min(limit.unwrap_or(u64::MAX));
    parts(len, longest)
        .map(|(offset, len)| {
            let regions = nics.list.iter().map(|nic| {
                let Ok(open) = &nic.open else { return Ok(None) };
                MemoryRegion::register(&open.domain, hold.clone(), (offset, len), access).map(Some).map_err(|error| {
                    let advice =
                        if error.errno() == Some(12) { "; raise the limit of locked memory (ulimit -l)" } else { "" };
                    format!("{error}{advice}")
                })
            });
            Ok(Chunk { address: address + offset, len, regions: regions.collect::<Result<_, String>>()? })
        })
        .collect()
}

/// A region with its keys.
#[derive(Debug)]
pub(crate) struct RegisteredRegion {
    pub(crate) info: RegionInfo,
    /// Where it lives: as its owner said, else the node of its first page.
    pub(crate) location: String,
    pub(crate) chunks: Vec<Chunk<RegionInfo>>,
}

/// How long a removal sleeps before it looks whether calls are over; they ring before.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// All registered regions, by first address.
#[derive(Debug, Default)]
pub(crate) struct RegionTable {
    regions: RwLock<BTreeMap<u64, Arc<RegisteredRegion>>>,
    calls: Mutex<()>,
    over: Condvar,
}

impl RegionTable {
    /// Registers a region on every device.
    ///
    /// # Errors
    /// [`RegistryError::Refused`] by a device.
    pub(crate) fn add(&self, region: &RegionInfo, nics: &Nics, settings: &RdmaSettings) -> Result<(), RegistryError> {
        let access = MemoryAccess {
            local_write: true,
            remote: region.access == Access::Remote,
            relaxed_ordering: settings.relaxed_ordering,
        };
        let chunks = register(nics, settings, region, access).map_err(|reason| RegistryError::Refused {
            address: region.address,
            len: region.len,
            reason,
        })?;
        let node = || yb_mem::numa_node(&region.span()).map(|node| format!("cpu:{node}"));
        let found = region.location.is_unknown().then(node).flatten();
        let location = found.unwrap_or_else(|| region.location.to_string());
        let registered = RegisteredRegion { info: region.clone(), location, chunks };
        self.regions.write().insert(region.address, Arc::new(registered));
        Ok(())
    }

    /// Registers a region on a GPU by its dma-buf and where it begins in it. A device that does not take it has no key for
    /// it, and its bytes go another way.
    pub(crate) fn add_device(
        &self,
        region: &RegionInfo,
        nics: &Nics,
        settings: &RdmaSettings,
        buffer: Result<(OwnedFd, u64), String>,
    ) {
        let access = MemoryAccess {
            local_write: true,
            remote: region.access == Access::Remote,
            relaxed_ordering: settings.relaxed_ordering,
        };
        let register = |nic: &Nic| -> Result<MemoryRegion<RegionInfo>, String> {
            let open = nic.open.as_ref().map_err(ToString::to_string)?;
            let (buffer, offset) = buffer.as_ref().map_err(Clone::clone)?;
            let place = (*offset, region.address, region.len);
            MemoryRegion::register_dmabuf(&open.domain, region.clone(), buffer.as_fd(), place, access)
                .map_err(|error| error.to_string())
        };
        let registered = nics.list.iter().map(|nic| {
            register(nic)
                .inspect_err(
                    |reason| tracing::info!(nic = %nic.name, reason, "memory on a GPU is not reached directly"),
                )
                .ok()
        });
        let chunk = Chunk { address: region.address, len: region.len, regions: registered.collect() };
        let location = region.location.to_string();
        let registered = RegisteredRegion { info: region.clone(), location, chunks: vec![chunk] };
        self.regions.write().insert(region.address, Arc::new(registered));
    }

    /// Takes the keys of a region away. Calls that use them for memory which they borrowed are waited for.
    pub(crate) fn remove(&self, address: u64) {
        let Some(removed) = self.regions.write().remove(&address) else { return };
        let mut calls = self.calls.lock();
        while Arc::strong_count(&removed) > 1 {
            self.over.wait_for(&mut calls, LOOK_AGAIN);
        }
        drop(removed);
    }

    /// A call lets its regions go.
    pub(crate) fn release(&self, regions: Vec<Arc<RegisteredRegion>>) {
        drop(regions);
        let _calls = self.calls.lock();
        self.over.notify_all();
    }

    /// The region that starts at `address`.
    pub(crate) fn at(&self, address: u64) -> Option<Arc<RegisteredRegion>> {
        self.regions.read().get(&address).cloned()
    }

    /// The region that holds all of the span.
    pub(crate) fn covering(&self, span: &Span<'_>) -> Option<Arc<RegisteredRegion>> {
        let (first, end) = (span.address(), span.address() + span.len() as u64);
        let regions = self.regions.read();
        let (_, region) = regions.range(..=first).next_back()?;
        (end <= region.info.address + region.info.len).then(|| Arc::clone(region))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_registrations_are_cut() {
        assert_eq!(parts(10, 4).collect::<Vec<_>>(), [(0, 4), (4, 4), (8, 2)]);
        assert_eq!(parts(8, 4).collect::<Vec<_>>(), [(0, 4), (4, 4)]);
        assert_eq!(parts(3, 1 << 40).collect::<Vec<_>>(), [(0, 3)]);
        assert_eq!(parts(0, 4).count(), 0);
    }
}
