//! Registration of the caller's memory.

use std::time::Duration;

use yb_transfer::{Access, ForeignMemory, LocalBuffer, Location};

use crate::ClassicEngine;
use crate::status::{ClassicError, StatusCode};

/// The location of memory whose place is not known.
pub const ANY_LOCATION: &str = "*";

/// How long transfers that still use a region may hold up its release.
const PATIENCE: Duration = Duration::from_secs(10);

/// A range of memory of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferEntry {
    /// First address.
    pub address: u64,
    /// Bytes.
    pub len: u64,
}

impl BufferEntry {
    fn end(&self) -> Result<u64, ClassicError> {
        let end = self.address.checked_add(self.len).filter(|_| self.address > 0 && self.len > 0);
        end.ok_or_else(|| {
            let detail = format!("{:#x}+{} is not a range of memory", self.address, self.len);
            ClassicError::new(StatusCode::InvalidArgument, detail)
        })
    }
}

impl ClassicEngine {
    /// Registers memory: peers may read and write it if `remote`, and devices learn of it. `location` is `cpu:N`,
    /// `cuda:N` or `*` for unknown.
    ///
    /// # Errors
    /// `InvalidArgument` for no memory, `AddressOverlapped` for a range that shares bytes with a registered one, or a
    /// device's.
    ///
    /// # Safety
    /// The range must stay mapped, readable and writable until it was unregistered successfully or the engine was shut
    /// down, and no Rust reference to its bytes may live while transfers use it.
    pub unsafe fn register_memory(&self, entry: BufferEntry, location: &str, remote: bool) -> Result<(), ClassicError> {
        let _one = self.0.registering.lock();
        // SAFETY: the caller's promise.
        unsafe { self.register_one(entry, location, remote) }
    }

    /// Registers all ranges, or none.
    ///
    /// # Errors
    /// As [`ClassicEngine::register_memory`], also when two of the ranges overlap.
    ///
    /// # Safety
    /// As [`ClassicEngine::register_memory`], for every range.
    pub unsafe fn register_memory_batch(&self, entries: &[BufferEntry], location: &str) -> Result<(), ClassicError> {
        apart(entries)?;
        let _one = self.0.registering.lock();
        self.0.engine.publish_together(|| {
            for (done, entry) in entries.iter().enumerate() {
                // SAFETY: the caller's promise.
                if let Err(error) = unsafe { self.register_one(*entry, location, true) } {
                    for entry in entries.iter().take(done) {
                        let _ = self.0.engine.unregister(entry.address, PATIENCE);
                    }
                    return Err(error);
                }
            }
            Ok(())
        })
    }

    /// # Safety
    /// As [`ClassicEngine::register_memory`].
    unsafe fn register_one(&self, entry: BufferEntry, location: &str, remote: bool) -> Result<(), ClassicError> {
        entry.end()?;
        let access = if remote { Access::Remote } else { Access::Local };
        // SAFETY: the caller's promise.
        let memory = unsafe { ForeignMemory::new(entry.address, entry.len) };
        Ok(self.0.engine.register_memory_at(memory, access, Location::from(location))?)
    }

    /// Releases the region that starts at `address`. When this succeeds nobody uses it any more through this engine.
    ///
    /// # Errors
    /// `AddressNotRegistered`; `BatchBusy` when transfers still use it after ten seconds: it takes no new ones then, and
    /// the call may be repeated.
    pub fn unregister_memory(&self, address: u64) -> Result<(), ClassicError> {
        Ok(self.0.engine.unregister(address, PATIENCE)?)
    }

    /// Releases all regions that start at the addresses; one that fails does not stop the others.
    ///
    /// # Errors
    /// The first failure.
    pub fn unregister_memory_batch(&self, addresses: &[u64]) -> Result<(), ClassicError> {
        self.0.engine.publish_together(|| {
            let mut first = Ok(());
            for address in addresses {
                first = first.and(self.unregister_memory(*address));
            }
            first
        })
    }

    /// Whether the range shares bytes with registered memory.
    pub fn overlaps(&self, entry: BufferEntry) -> bool {
        let Ok(end) = entry.end() else { return false };
        self.0.engine.regions().iter().any(|region| region.address < end && entry.address < region.address + region.len)
    }

    /// The caller's memory as our side of a transfer.
    ///
    /// # Safety
    /// The range must stay mapped, readable and writable as long as the buffer lives.
    pub(crate) unsafe fn lend(&self, entry: BufferEntry) -> Result<LocalBuffer<'static>, ClassicError> {
        // SAFETY: the caller's promise.
        Ok(self.0.engine.lend(unsafe { ForeignMemory::new(entry.address, entry.len) })?)
    }
}

/// That no two of the ranges share bytes.
fn apart(entries: &[BufferEntry]) -> Result<(), ClassicError> {
    let mut sorted: Vec<(u64, u64)> = Vec::with_capacity(entries.len());
    for entry in entries {
        sorted.push((entry.address, entry.end()?));
    }
    sorted.sort_unstable();
    let overlap = sorted.windows(2).find(|pair| matches!(pair, [(_, end), (next, _)] if next < end));
    overlap.map_or(Ok(()), |pair| {
        let first = pair.first().copied().unwrap_or_default().0;
        let detail = format!("two ranges of the list overlap, the first starts at {first:#x}");
        Err(ClassicError::new(StatusCode::AddressOverlapped, detail))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_that_overlap_are_found() {
        let entry = |address, len| BufferEntry { address, len };
        assert!(apart(&[entry(100, 10), entry(50, 50), entry(110, 1)]).is_ok());
        assert_eq!(apart(&[entry(100, 10), entry(50, 51)]).unwrap_err().negated(), -7);
        assert_eq!(apart(&[entry(100, 10), entry(100, 10)]).unwrap_err().negated(), -7);
        assert_eq!(apart(&[entry(100, 0)]).unwrap_err().negated(), -1);
        assert_eq!(apart(&[entry(u64::MAX, 2)]).unwrap_err().negated(), -1);
    }
}
