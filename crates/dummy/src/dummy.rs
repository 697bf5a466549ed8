//! The public face: the calls of a store, as [`yb_client::Client`] has them.

use std::sync::Arc;

use yb_client::{
    Duplicates, Error, ForeignMemory, GetItem, Health, LocalBuffer, ProbePolicy, PutItem, RangesItem, Result,
};
use yb_mem::{MemorySegment, SegmentOptions, SharedMemory};
use yb_types::{ClientId, ReplicateConfig};

use crate::config::DummyConfig;
use crate::core::Core;
use crate::get::Found;
use crate::put::{Manner, Writing};

/// A dummy client. Clones are the same client; it leaves its daemon when [`Dummy::close`] is called or the last clone is
/// dropped. Every call may be made from any number of threads.
///
/// Errors are those of the same calls of [`yb_client::Client`], with [`Error::DaemonUnreachable`] where that has an
/// unreachable master.
#[derive(Clone, Debug)]
pub struct Dummy(Arc<Core>);

impl Dummy {
    /// Attaches to a daemon of this host.
    ///
    /// # Errors
    /// [`Error::DaemonUnreachable`]; [`Error::Setup`] with the step that failed, also when the daemon does not take this
    /// user. Nothing is left behind.
    pub fn attach(config: &DummyConfig) -> Result<Dummy> {
        Core::attach(config).map(Dummy)
    }

    /// Stores objects in parts of any memory. What lies in windows of the daemon is not copied here.
    ///
    /// # Errors
    /// Per item.
    pub fn batch_put_items(
        &self,
        items: &[PutItem<'_>],
        config: &ReplicateConfig,
        duplicates: Duplicates,
    ) -> Vec<Result<()>> {
        self.0.write(items, Writing { config, manner: Manner::Put, repeated: duplicates })
    }

    /// Stores objects, each in the place of what is there.
    ///
    /// # Errors
    /// Per item.
    pub fn batch_upsert_items(
        &self,
        items: &[PutItem<'_>],
        config: &ReplicateConfig,
        duplicates: Duplicates,
    ) -> Vec<Result<()>> {
        self.0.write(items, Writing { config, manner: Manner::Upsert, repeated: duplicates })
    }

    /// Reads objects into parts of any memory; bytes of each.
    ///
    /// # Errors
    /// Per item.
    pub fn batch_get_items<'a>(&self, items: impl IntoIterator<Item = GetItem<'a>>) -> Vec<Result<u64>> {
        self.0.read(items)
    }

    /// Reads ranges of objects into any memory; for each range its bytes.
    ///
    /// # Errors
    /// Per range.
    pub fn batch_get_ranges(&self, items: &[RangesItem<'_>]) -> Vec<Vec<Result<u64>>> {
        self.0.read_ranges(items)
    }

    /// Reads an object whose size is not known into shared memory, from where it is copied with [`Found::read`].
    ///
    /// # Errors
    /// As a get.
    pub fn find(&self, key: impl AsRef<[u8]>) -> Result<Found> {
        self.0.find(key.as_ref())
    }

    /// The bytes of an object.
    ///
    /// # Errors
    /// As a get.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        self.0.read_new(&[key.as_ref()]).pop().unwrap_or(Err(Error::Closed))
    }

    /// The bytes of objects.
    ///
    /// # Errors
    /// Per key.
    pub fn batch_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Vec<u8>>> {
        self.0.read_new(&borrow(keys))
    }

    /// Whether an object can be read.
    ///
    /// # Errors
    /// When that cannot be found out.
    pub fn exists(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        self.0.exists(key.as_ref())
    }

    /// Whether objects can be read; which of them get read leases is told by `policy`.
    pub fn batch_probe<K: AsRef<[u8]>>(&self, keys: &[K], policy: ProbePolicy) -> Vec<Result<bool>> {
        self.0.batch_probe(&borrow(keys), policy)
    }

    /// Whether objects can be read: one request.
    ///
    /// # Errors
    /// Per key.
    pub fn batch_exists<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<bool>> {
        self.0.batch_exists(&borrow(keys))
    }

    /// Bytes of an object.
    ///
    /// # Errors
    /// As a lookup.
    pub fn size(&self, key: impl AsRef<[u8]>) -> Result<u64> {
        self.0.size(key.as_ref())
    }

    /// Removes an object. `force` ignores read leases.
    ///
    /// # Errors
    /// As a removal.
    pub fn remove(&self, key: impl AsRef<[u8]>, force: bool) -> Result<()> {
        self.0.remove(key.as_ref(), force)
    }

    /// Removes objects: one request.
    ///
    /// # Errors
    /// Per key.
    pub fn batch_remove<K: AsRef<[u8]>>(&self, keys: &[K], force: bool) -> Vec<Result<()>> {
        self.0.batch_remove(&borrow(keys), force)
    }

    /// Removes the objects whose key matches an ECMAScript pattern anywhere; how many.
    ///
    /// # Errors
    /// As a removal.
    pub fn remove_by_regex(&self, pattern: &str, force: bool) -> Result<u64> {
        self.0.remove_by_regex(pattern, force)
    }

    /// Removes every object; how many.
    ///
    /// # Errors
    /// As a removal.
    pub fn remove_all(&self, force: bool) -> Result<u64> {
        self.0.remove_all(force)
    }

    /// Makes shared memory of `len` bytes, which calls may name by address. It stays until [`Dummy::release_shared`] and
    /// until no window of it is registered.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the system has no memory for it.
    pub fn allocate_shared(&self, len: u64) -> Result<Arc<MemorySegment>> {
        self.0.open()?;
        let made = SharedMemory::of_process().allocate(len, SegmentOptions::default());
        made.map_err(|error| Error::Invalid(format!("{len} bytes of shared memory: {error}").into()))
    }

    /// Bytes of shared memory from `address` on to its end.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is in none.
    pub fn shared_rest(&self, address: u64) -> Result<u64> {
        let segment = SharedMemory::of_process().around(address, 1);
        let segment = segment.ok_or(Error::Invalid("the address lies in no memory shared with the daemon".into()))?;
        Ok(segment.address() + segment.len() - address)
    }

    /// Memory of the caller for one call, shared with the daemon or not: what is not is copied.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what is no range, and for one that starts in shared memory and reaches over its end.
    pub fn lend(&self, memory: ForeignMemory) -> Result<LocalBuffer<'static>> {
        let (address, len) = (memory.address(), memory.len());
        let end = address.checked_add(len).ok_or(Error::Invalid("the range wraps around the address space".into()))?;
        match self.shared_rest(address) {
            Ok(rest) if address + rest < end => {
                Err(Error::Invalid(format!("{address:#x}+{len} reaches over the end of registered memory").into()))
            }
            _ => Ok(memory.into()),
        }
    }

    /// Takes shared memory back; false when none starts there.
    pub fn release_shared(&self, address: u64) -> bool {
        SharedMemory::of_process().release(address).is_some()
    }

    /// Registers a range inside shared memory of this process for calls by address.
    ///
    /// # Errors
    /// [`Error::Refused`] with -1 when it is not inside shared memory; [`Error::Invalid`] when a registration starts there.
    pub fn register_buffer(&self, address: u64, len: u64) -> Result<()> {
        self.0.open()?;
        self.0.register(address, len)
    }

    /// Ends the registration that starts at `address`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when none starts there.
    pub fn unregister_buffer(&self, address: u64) -> Result<()> {
        self.0.unregister(address)
    }

    /// How it stands: [`Health::MasterUnreachable`] while the daemon does not answer.
    pub fn health(&self) -> Health {
        self.0.health()
    }

    /// Random, new with every setup.
    pub fn client_id(&self) -> ClientId {
        self.0.id
    }

    /// `host:port` of the daemon.
    pub fn daemon(&self) -> String {
        self.0.link.address()
    }

    /// Leaves the daemon. Later calls answer [`Error::Closed`]; the second time nothing happens.
    pub fn close(&self) {
        self.0.close();
    }
}

fn borrow<K: AsRef<[u8]>>(keys: &[K]) -> Vec<&[u8]> {
    keys.iter().map(AsRef::as_ref).collect()
}
