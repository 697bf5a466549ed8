//! What callers by address ask of an engine: foreign memory as our side, and what a peer has registered.

use yb_mem::{Access, ForeignMemory, LocalBuffer, Location, RegistryError};
use yb_types::MonotonicTime;

use crate::cxl;
use crate::file::FileSet;
use crate::transport::Limits;
use crate::{Engine, SegmentHandle, TransferError};

/// A range that the owner of a segment has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteRegion {
    /// First address in the owner's process.
    pub address: u64,
    /// Bytes.
    pub len: u64,
}

impl Engine {
    /// Memory of somebody else as our side of a transfer, registered or not; see [`yb_mem::Registry::lend`].
    ///
    /// # Errors
    /// As there.
    pub fn lend(&self, memory: ForeignMemory) -> Result<LocalBuffer<'static>, RegistryError> {
        let shared = self.shared();
        // Of registered memory it is known where it is.
        if let Ok(pin) = shared.registry.pin(memory.address(), memory.len(), Access::Local) {
            return Ok(pin.into());
        }
        let (memory, _) = shared.hardware.gpus.mark(memory, Location::default())?;
        shared.registry.lend(memory)
    }

    /// What the owner of a segment has registered, in its order; asked again if `refresh`, else as last heard. Files and
    /// memory devices, which nobody owns, are one region that begins at 0.
    ///
    /// # Errors
    /// [`crate::TransferErrorKind::Unreachable`], [`crate::TransferErrorKind::Protocol`].
    pub fn remote_regions(
        &self,
        segment: &SegmentHandle,
        refresh: bool,
        deadline: MonotonicTime,
    ) -> Result<Vec<RemoteRegion>, TransferError> {
        let shared = self.shared();
        let device = shared.hardware.device.as_ref().filter(|_| segment.endpoint().starts_with(cxl::SCHEME));
        if let Some(len) = segment.files().map(FileSet::len).or(device.map(|device| device.len())) {
            return Ok(vec![RemoteRegion { address: 0, len }]);
        }
        let limits = Limits { clock: &shared.clock, deadline, cancel: None };
        let desc = segment.desc(&shared.settings, refresh, &limits)?;
        Ok(desc.buffers.iter().map(|buffer| RemoteRegion { address: buffer.address, len: buffer.len }).collect())
    }
}
