//! Who does the work of a store: a client of a pool, or a dummy client of this host's daemon.
//!
//! The calls that both have, under one name. Calls that only a client has go to [`Live::client`](crate::live::Live::client),
//! which answers as closed when the store is a dummy.

use yb_client::{
    Client, Duplicates, Error, ForeignMemory, GetItem, Health, LocalBuffer, Lookup, ProbePolicy, PutItem, PutOutcome,
    RangesItem, Result,
};
use yb_dummy::{Dummy, Found};
use yb_types::{
    BufferDescriptor, MemoryDescriptor, MonotonicTime, ReplicaDescriptor, ReplicaId, ReplicaKind, ReplicaStatus,
    ReplicateConfig,
};

/// One of the two.
#[derive(Clone, Copy)]
pub(crate) enum Backend<'l> {
    /// A client of its own.
    Client(&'l Client),
    /// A dummy client.
    Dummy(&'l Dummy),
}

/// Calls that both have, with the same arguments and answers.
macro_rules! both {
    ($($(#[$doc:meta])* fn $name:ident $(<$k:ident>)? ($($arg:ident: $ty:ty),*) -> $answer:ty;)*) => {$(
        $(#[$doc])*
        pub(crate) fn $name $(<$k: AsRef<[u8]>>)? (self, $($arg: $ty),*) -> $answer {
            match self {
                Backend::Client(client) => client.$name($($arg),*),
                Backend::Dummy(dummy) => dummy.$name($($arg),*),
            }
        }
    )*};
}

/// An object whose size is known and whose bytes are next.
pub(crate) enum Sized {
    /// Where they are.
    Lookup(Lookup, u64),
    /// They have arrived in memory shared with the daemon.
    Found(Found),
}

impl Sized {
    /// Bytes of the object.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Sized::Lookup(_, size) => *size,
            Sized::Found(found) => found.size(),
        }
    }
}

impl Backend<'_> {
    both! {
        /// The bytes of an object.
        fn get<K>(key: K) -> Result<Vec<u8>>;
        /// The bytes of objects.
        fn batch_get<K>(keys: &[K]) -> Vec<Result<Vec<u8>>>;
        /// Whether an object can be read.
        fn exists<K>(key: K) -> Result<bool>;
        /// Whether objects can be read.
        fn batch_exists<K>(keys: &[K]) -> Vec<Result<bool>>;
        /// Whether objects can be read, with leases as the policy says.
        fn batch_probe<K>(keys: &[K], policy: ProbePolicy) -> Vec<Result<bool>>;
        /// Bytes of an object.
        fn size<K>(key: K) -> Result<u64>;
        /// Removes an object.
        fn remove<K>(key: K, force: bool) -> Result<()>;
        /// Removes objects.
        fn batch_remove<K>(keys: &[K], force: bool) -> Vec<Result<()>>;
        /// Removes objects by pattern; how many.
        fn remove_by_regex(pattern: &str, force: bool) -> Result<u64>;
        /// Removes every object; how many.
        fn remove_all(force: bool) -> Result<u64>;
        /// Replaces objects.
        fn batch_upsert_items(items: &[PutItem<'_>], config: &ReplicateConfig, repeated: Duplicates) -> Vec<Result<()>>;
        /// Memory of the caller for one call, registered or not.
        fn lend(memory: ForeignMemory) -> Result<LocalBuffer<'static>>;
        /// Ends a registration.
        fn unregister_buffer(address: u64) -> Result<()>;
        /// How it stands.
        fn health() -> Health;
        /// Leaves the pool, or the daemon.
        fn close() -> ();
    }

    /// Writes objects; those that are there stay.
    pub(crate) fn batch_put_items(
        self,
        items: &[PutItem<'_>],
        config: &ReplicateConfig,
        repeated: Duplicates,
    ) -> Vec<Result<PutOutcome>> {
        match self {
            Backend::Client(client) => client.batch_put_items(items, config, repeated),
            Backend::Dummy(dummy) => {
                let answers = dummy.batch_put_items(items, config, repeated).into_iter();
                answers.map(|answer| answer.map(|()| PutOutcome::Stored)).collect()
            }
        }
    }

    /// Reads objects into parts of any memory.
    pub(crate) fn batch_get_items<'a>(self, items: impl IntoIterator<Item = GetItem<'a>>) -> Vec<Result<u64>> {
        match self {
            Backend::Client(client) => client.batch_get_items(items),
            Backend::Dummy(dummy) => dummy.batch_get_items(items),
        }
    }

    /// Reads ranges of objects.
    pub(crate) fn batch_get_ranges(self, items: Vec<RangesItem<'_>>) -> Vec<Vec<Result<u64>>> {
        match self {
            Backend::Client(client) => client.batch_get_ranges(items),
            Backend::Dummy(dummy) => dummy.batch_get_ranges(&items),
        }
    }

    /// What is known of objects before they are read; of a dummy their sizes only.
    pub(crate) fn batch_query<K: AsRef<[u8]>>(self, keys: &[K]) -> Vec<Result<Lookup>> {
        match self {
            Backend::Client(client) => client.batch_query(keys),
            Backend::Dummy(dummy) => keys.iter().map(|key| dummy.size(key).map(of_size)).collect(),
        }
    }

    /// Reads objects that were looked up.
    pub(crate) fn batch_get_known<'a>(
        self,
        items: impl IntoIterator<Item = (GetItem<'a>, Lookup)>,
    ) -> Vec<Result<u64>> {
        match self {
            Backend::Client(client) => client.batch_get_known(items),
            Backend::Dummy(dummy) => dummy.batch_get_items(items.into_iter().map(|(item, _)| item)),
        }
    }

    /// Reads ranges of objects that were looked up.
    pub(crate) fn batch_get_ranges_known<'a>(
        self,
        items: impl IntoIterator<Item = (RangesItem<'a>, Lookup)>,
    ) -> Vec<Vec<Result<u64>>> {
        match self {
            Backend::Client(client) => client.batch_get_ranges_known(items),
            Backend::Dummy(dummy) => {
                let items: Vec<RangesItem<'a>> = items.into_iter().map(|(item, _)| item).collect();
                dummy.batch_get_ranges(&items)
            }
        }
    }

    /// The first half of a read into memory that is made once the size is known.
    pub(crate) fn find(self, key: &[u8]) -> Result<Sized> {
        match self {
            Backend::Client(client) => {
                let lookup = client.query(key)?;
                let size = lookup.size().ok_or(Error::NoReadableReplica)?;
                Ok(Sized::Lookup(lookup, size))
            }
            Backend::Dummy(dummy) => dummy.find(key).map(Sized::Found),
        }
    }

    /// The second half.
    pub(crate) fn read_found(self, item: GetItem<'_>, found: Sized) -> Result<u64> {
        match (self, found) {
            (_, Sized::Found(found)) => found.read(&item.into),
            (Backend::Client(client), Sized::Lookup(lookup, _)) => client.get_known(item, lookup),
            (Backend::Dummy(_), Sized::Lookup(..)) => Err(Error::Closed),
        }
    }

    /// Registered memory from `address` on to its end; of a dummy, shared memory.
    pub(crate) fn local_rest(self, address: u64) -> Result<LocalBuffer<'static>> {
        let dummy = match self {
            Backend::Client(client) => return client.local_rest(address),
            Backend::Dummy(dummy) => dummy,
        };
        let len = dummy.shared_rest(address)?;
        // SAFETY: the range lies in shared memory of this process, which the caller of a zero-copy method promises to keep
        // until the call returns.
        Ok(unsafe { ForeignMemory::new(address, len) }.into())
    }

    /// Registers memory for calls by address; a dummy takes only memory that is shared with its daemon.
    pub(crate) fn register_buffer(self, memory: ForeignMemory) -> Result<()> {
        match self {
            Backend::Client(client) => client.register_buffer(memory),
            Backend::Dummy(dummy) => dummy.register_buffer(memory.address(), memory.len()),
        }
    }

    /// `host:port`: the name of the client; empty for a dummy, as in the peer.
    pub(crate) fn hostname(self) -> String {
        match self {
            Backend::Client(client) => client.hostname().to_owned(),
            Backend::Dummy(_) => String::new(),
        }
    }
}

/// All that a daemon tells of an object before it is read.
fn of_size(size: u64) -> Lookup {
    let buffer = BufferDescriptor {
        size,
        buffer_address: 0,
        protocol: String::new(),
        transport_endpoint: String::new(),
        locality: None,
    };
    let kind = ReplicaKind::Memory(MemoryDescriptor { buffer });
    let replica = ReplicaDescriptor { id: ReplicaId(0), kind, status: ReplicaStatus::COMPLETE };
    Lookup { replicas: vec![replica], lease: std::time::Duration::ZERO, lease_ends: MonotonicTime(0), checksum: None }
}
