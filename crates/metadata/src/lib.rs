//! Metadata stores of the Transfer Engine: where engines leave their address and what they have registered, by name.
//!
//! A store is three operations on texts, [`MetadataStore`]; the peer's connection strings choose one
//! ([`connect`]). Keys and documents are the peer's. A record may belong to a [`Lease`]: it goes away by itself when its
//! owner no longer renews it, where the store can do that.
#![forbid(unsafe_code)]

mod address;
mod error;
mod etcd;
mod http;
mod keys;
mod lease;
mod memory;
mod redis;
mod resp;
mod rpc_meta;
mod settings;
mod table;

use std::fmt;
use std::sync::Arc;

pub use address::StoreAddress;
pub use error::{StoreError, StoreErrorKind};
pub use etcd::EtcdStore;
pub use http::{HttpStore, INSTANCE_HEADER, LEASE_HEADER};
pub use keys::Keys;
pub use lease::{Lease, Renewal};
pub use memory::MemoryStore;
pub use redis::RedisStore;
pub use rpc_meta::RpcMeta;
pub use settings::StoreSettings;
pub use table::{Caller, Limits, Reply, Table};

/// A place where engines leave records. Values are texts without a newline at the end; stores that keep one add and
/// take it off. All calls block, within the store's time limits.
pub trait MetadataStore: Send + Sync + fmt::Debug {
    /// The value of a key; `None` when there is none.
    ///
    /// # Errors
    /// [`StoreError`].
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Sets a key. With a lease, the record goes away when the lease ends, where the store can do that.
    ///
    /// # Errors
    /// [`StoreErrorKind::Duplicate`] where the store does not replace this key; others.
    fn put(&self, key: &str, value: &[u8], lease: Option<&Lease>) -> Result<(), StoreError>;

    /// Removes a key, and says whether it was there.
    ///
    /// # Errors
    /// [`StoreError`].
    fn delete(&self, key: &str) -> Result<bool, StoreError>;

    /// Keeps the records of a lease for another time of its length.
    ///
    /// # Errors
    /// [`StoreError`]; the records may still be there.
    fn renew(&self, lease: &Lease) -> Result<Renewal, StoreError> {
        let _ = lease;
        Ok(Renewal::Unknown)
    }

    /// Removes a record that we wrote, unless somebody else has written it since.
    ///
    /// # Errors
    /// [`StoreError`].
    fn withdraw(&self, key: &str, last: &[u8], lease: &Lease) -> Result<(), StoreError> {
        let _ = lease;
        if self.get(key)?.as_deref() == Some(last) {
            self.delete(key)?;
        }
        Ok(())
    }

    /// Ends a lease; what is left of its records goes away.
    ///
    /// # Errors
    /// [`StoreError`].
    fn end(&self, lease: &Lease) -> Result<(), StoreError> {
        let _ = lease;
        Ok(())
    }

    /// The connection string, without secrets: for messages, and to tell stores apart.
    fn address(&self) -> &str;
}

/// The store that a connection string of the peer names, with the settings of the environment; `None` for
/// `P2PHANDSHAKE`, where engines are their own store. Nothing is connected yet.
///
/// # Errors
/// [`StoreErrorKind::BadAddress`] for a text that names no store.
pub fn connect(address: &str) -> Result<Option<Arc<dyn MetadataStore>>, StoreError> {
    connect_with(address, &StoreSettings::from_env(|name| std::env::var(name).ok())?)
}

/// As [`connect`], with given settings.
///
/// # Errors
/// As [`connect`].
pub fn connect_with(address: &str, settings: &StoreSettings) -> Result<Option<Arc<dyn MetadataStore>>, StoreError> {
    Ok(match StoreAddress::parse(address)? {
        StoreAddress::Handshake => None,
        StoreAddress::Http(endpoint) => Some(Arc::new(HttpStore::new(&endpoint, settings)?)),
        StoreAddress::Etcd(endpoints) => Some(Arc::new(EtcdStore::new(&endpoints, settings)?)),
        StoreAddress::Redis(host, port) => Some(Arc::new(RedisStore::new(&host, port, settings))),
    })
}
