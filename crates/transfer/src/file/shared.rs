//! Files under a name in the metadata store: the peer's segments of protocol "nvmeof".

use std::collections::BTreeMap;

use yb_metadata::{Keys, MetadataStore};

use crate::directory::Directory;
use crate::metadata::{BufferDesc, FileDesc, Protocol, SegmentDesc};
use crate::{Engine, TransferError, TransferErrorKind};

/// A file or block device that several engines see, each at a path of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedFile {
    /// Where it is at its owner.
    pub path: String,
    /// Bytes of it that belong to the segment.
    pub len: u64,
    /// Name of an engine to the path at which that one sees it.
    pub local_paths: BTreeMap<String, String>,
}

impl Engine {
    /// Publishes files, laid end to end, as the segment `name` in the metadata store. Engines open it by name, each at
    /// its own paths. No process serves it, so it stays until [`Engine::withdraw_files`].
    ///
    /// # Errors
    /// [`TransferErrorKind::InvalidRequest`] without a metadata store, for a name without a `/` (such as `nvmeof/seg0`:
    /// that tells segments of files from processes), and for files without bytes;
    /// [`TransferErrorKind::Unreachable`] when the store does not take it.
    pub fn publish_files(&self, name: &str, files: &[SharedFile]) -> Result<(), TransferError> {
        let refused = |why: &str| TransferError::new(TransferErrorKind::InvalidRequest, name, why);
        let (store, keys) = self.store_for(name)?;
        let total = files.iter().try_fold(0_u64, |total, file| total.checked_add(file.len));
        if files.iter().any(|file| file.len == 0) || total.is_none_or(|total| total == 0) {
            return Err(refused("every file of a segment has bytes"));
        }
        let buffers = files.iter().map(|file| BufferDesc {
            len: file.len,
            file: Some(FileDesc { path: file.path.clone(), local_paths: file.local_paths.clone() }),
            ..BufferDesc::default()
        });
        let desc = SegmentDesc {
            name: name.to_owned(),
            protocols: vec![Protocol::Nvmeof],
            buffers: buffers.collect(),
            ..SegmentDesc::default()
        };
        let put = store.put(&keys.segment(name), &desc.to_compact(""), None);
        put.map_err(|error| TransferError::new(TransferErrorKind::Unreachable, name, error))
    }

    /// Takes a segment of files out of the store, and says whether it was there. Who has it open goes on using it.
    ///
    /// # Errors
    /// As [`Engine::publish_files`].
    pub fn withdraw_files(&self, name: &str) -> Result<bool, TransferError> {
        let (store, keys) = self.store_for(name)?;
        let deleted = store.delete(&keys.segment(name));
        deleted.map_err(|error| TransferError::new(TransferErrorKind::Unreachable, name, error))
    }

    fn store_for(&self, name: &str) -> Result<(&dyn MetadataStore, &Keys), TransferError> {
        let refused = |why: &str| TransferError::new(TransferErrorKind::InvalidRequest, name, why);
        if !name.trim_matches('/').contains('/') || name.contains("://") {
            return Err(refused("a segment of files has a name with a /, such as nvmeof/seg0"));
        }
        match &self.shared().naming.directory {
            Directory::Store(store, keys) => Ok((store.as_ref(), keys)),
            Directory::Handshake => Err(refused("there is no metadata store to keep it in")),
        }
    }
}
