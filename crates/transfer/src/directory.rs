//! How the name of a segment becomes the address of its owner's handshake.
//!
//! Without a store the name is the address. With one, the owner's record is looked up, and is only a hint: what counts
//! is what the process at that address says about itself.

use std::sync::Arc;

use yb_metadata::{Keys, MetadataStore, RpcMeta, StoreError};

use crate::metadata::{Protocol, SegmentDesc};
use crate::segment::{endpoint_fault, split_endpoint};
use crate::{TransferError, TransferErrorKind};

/// Where names are looked up.
#[derive(Clone, Debug)]
pub(crate) enum Directory {
    /// Names are `host:port`.
    Handshake,
    /// Names stand in a store.
    Store(Arc<dyn MetadataStore>, Keys),
}

/// Where the owner of a segment answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A process.
    Process(HandshakeAddress),
    /// Nobody: a segment of files, which readers open themselves.
    Files(Box<SegmentDesc>),
}

/// Host and port of a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HandshakeAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl std::fmt::Display for HandshakeAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (host, port) = (&self.host, self.port);
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl Directory {
    /// A name that no engine of another directory has, to find engines of this process by.
    pub(crate) fn scoped(&self, name: &str) -> Arc<str> {
        match self {
            Directory::Handshake => name.into(),
            Directory::Store(store, keys) => format!("{} {}", store.address(), keys.segment(name)).into(),
        }
    }

    /// Whether a segment may have that name.
    ///
    /// # Errors
    /// [`TransferErrorKind::InvalidRequest`].
    pub(crate) fn check(&self, name: &str) -> Result<(), TransferError> {
        let wrong = |why: &str| Err(TransferError::new(TransferErrorKind::InvalidRequest, name, why));
        match self {
            Directory::Handshake => endpoint_fault(name).map_or(Ok(()), wrong),
            _ if name.is_empty() => wrong("a segment has a name"),
            _ if name.chars().any(char::is_control) => wrong("a segment's name has no control characters"),
            _ => Ok(()),
        }
    }

    /// Looks a name up.
    ///
    /// # Errors
    /// [`TransferErrorKind::Unreachable`] when the store does not know it, or does not answer.
    pub(crate) fn locate(&self, name: &str) -> Result<Place, TransferError> {
        let failed = |kind, detail: String| TransferError::new(kind, name, detail);
        let Directory::Store(store, keys) = self else {
            let (host, port) = split_endpoint(name)
                .ok_or_else(|| failed(TransferErrorKind::InvalidRequest, "an endpoint is host:port".to_owned()))?;
            return Ok(Place::Process(HandshakeAddress { host: host.to_owned(), port }));
        };
        let lost = |error: StoreError| failed(TransferErrorKind::Unreachable, error.to_string());
        if let Some(record) = store.get(&keys.rpc_meta(name)).map_err(lost)? {
            let found = RpcMeta::parse(&record).ok_or_else(|| {
                failed(TransferErrorKind::Protocol, format!("its address record in {} makes no sense", store.address()))
            })?;
            return Ok(Place::Process(HandshakeAddress { host: found.host, port: found.port }));
        }
        match self.stored(name)? {
            Some(desc) if desc.protocols == [Protocol::Nvmeof] => Ok(Place::Files(Box::new(desc))),
            _ => {
                Err(failed(TransferErrorKind::Unreachable, format!("{} has no address record of it", store.address())))
            }
        }
    }

    /// The description that the store has.
    ///
    /// # Errors
    /// [`TransferErrorKind::Unreachable`] when the store does not answer; [`TransferErrorKind::Protocol`].
    pub(crate) fn stored(&self, name: &str) -> Result<Option<SegmentDesc>, TransferError> {
        let Directory::Store(store, keys) = self else { return Ok(None) };
        let found = store.get(&keys.segment(name));
        let found = found.map_err(|error| TransferError::new(TransferErrorKind::Unreachable, name, error))?;
        let desc = found.map(|text| SegmentDesc::parse(&text)).transpose();
        desc.map_err(|error| TransferError::new(TransferErrorKind::Protocol, name, error))
    }
}
