//! What an engine is called, where it looks up others, and the records it keeps of itself.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use yb_env::Clock;
use yb_metadata::{Keys, MetadataStore};

use crate::directory::{Directory, HandshakeAddress, Place};
use crate::metadata::BufferDesc;
use crate::publish::{Identity, Publisher};
use crate::serving::{Serving, StartError};
use crate::settings::EngineSettings;
use crate::{FilePart, TransferError, TransferErrorKind};

/// The names around one engine.
pub(crate) struct Naming {
    pub(crate) directory: Directory,
    /// Ours; empty when we serve nobody.
    pub(crate) name: Arc<str>,
    pub(crate) publisher: Option<Arc<Publisher>>,
    /// Nobody finds us under the name any more: it is another's, or we have ended.
    pub(crate) left: Arc<AtomicBool>,
}

impl Naming {
    /// Nothing is published yet.
    ///
    /// # Errors
    /// [`StartError::NoName`] when we serve peers that look in a store, and have no name there.
    pub(crate) fn new(
        store: Option<Arc<dyn MetadataStore>>,
        name: Option<String>,
        serving: Option<&Serving>,
        settings: &EngineSettings,
        clock: &Clock,
    ) -> Result<Self, StartError> {
        let left: Arc<AtomicBool> = Arc::default();
        let Some(store) = store else {
            let name = serving.map(|serving| Arc::clone(&serving.endpoint)).unwrap_or_default();
            return Ok(Naming { directory: Directory::Handshake, name, publisher: None, left });
        };
        let keys = Keys::new(&settings.metadata_cluster);
        let directory = Directory::Store(Arc::clone(&store), keys.clone());
        let Some(serving) = serving else {
            return Ok(Naming { directory, name: Arc::default(), publisher: None, left });
        };
        let name: Arc<str> = name.unwrap_or_default().into();
        directory.check(&name).map_err(|_| StartError::NoName)?;
        let port = serving.endpoint.rsplit_once(':').and_then(|(_, port)| port.parse().ok()).unwrap_or(0);
        let address = HandshakeAddress { host: serving.host.clone(), port };
        let identity = Identity { name: Arc::clone(&name), address, lost: Arc::clone(&left) };
        let publisher = Publisher::new((store, keys), identity, settings, clock.clone());
        Ok(Naming { directory, name, publisher: Some(Arc::new(publisher)), left })
    }

    /// What we have registered has changed: the store is told, and has heard it when this returns, unless it is slow.
    pub(crate) fn changed(&self) {
        if let Some(publisher) = &self.publisher {
            publisher.changed();
        }
    }

    /// The name by which engines of this process find each other.
    pub(crate) fn scoped(&self, serving: &Serving) -> Arc<str> {
        if self.publisher.is_some() { self.directory.scoped(&self.name) } else { Arc::clone(&serving.endpoint) }
    }

    /// The files of a segment in the store, at the paths under which this engine sees them; `None` for a segment of
    /// memory.
    ///
    /// # Errors
    /// [`TransferErrorKind::InvalidRequest`] when the store has no path for our name.
    pub(crate) fn files(&self, name: &str) -> Result<Option<Vec<FilePart>>, TransferError> {
        let name = name.trim_start_matches('/');
        if !matches!(self.directory, Directory::Store(..)) || !name.contains('/') || name.contains("://") {
            return Ok(None);
        }
        let Place::Files(desc) = self.directory.locate(name)? else { return Ok(None) };
        let part = |buffer: &BufferDesc| {
            let path = buffer.file.as_ref()?.local_paths.get(&*self.name)?;
            Some(FilePart { path: path.into(), len: Some(buffer.len) })
        };
        let parts: Option<Vec<FilePart>> = desc.buffers.iter().map(part).collect();
        let no_path = || format!("the store has no local path of it for {:?}", self.name);
        parts.map(Some).ok_or_else(|| TransferError::new(TransferErrorKind::InvalidRequest, name, no_path()))
    }
}
