//! The public face: every call as the caller makes it, over the batches of [`crate::ops`].

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;
use yb_env::Clock;
use yb_transfer::{Engine, ForeignMemory, LocalBuffer, MemorySegment, SegmentOptions};
use yb_types::{ClientId, ReplicaDescriptor, ReplicateConfig, SegmentId, Uuid};

use crate::asynchronous::AsyncClient;
use crate::core::Core;
use crate::departure::Departure;
use crate::link::Manner;
use crate::ops::Known;
use crate::ops::{Duplicates, Lookup, ProbePolicy, PutOutcome, RangesItem, RangesSnapshot, Task, Writing};
use crate::page::PageServer;
use crate::{
    ClientBuilder, ClientConfig, Error, GetItem, MemoryRange, MetricsSnapshot, PutItem, Removed, Result, RpcTimes,
};

/// How the client stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The master answers.
    Healthy,
    /// The master does not answer.
    MasterUnreachable,
    /// The client was closed.
    Closed,
}

/// A Store client. Clones are the same client; it closes when [`Client::close`] is called or the last clone is dropped.
///
/// Every call may be made from any number of threads. Keys are bytes. A failure of a whole batch (a dead master, a
/// closed client) is repeated for every key, so the answers always have the length of the keys.
#[derive(Clone, Debug)]
pub struct Client(pub(crate) Arc<Core>);

impl Client {
    /// Collects what a client needs.
    pub fn builder() -> ClientBuilder {
        ClientBuilder::default()
    }

    /// Sets a client up: finds the master, checks its version, starts the Transfer Engine, lends memory if asked to.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a configuration that cannot work, [`Error::MasterUnreachable`], [`Error::Incompatible`],
    /// [`Error::Setup`] with the step that failed. What was done before is undone.
    pub fn connect(config: ClientConfig) -> Result<Client> {
        Core::connect(config, Clock::real(), None).map(Client)
    }

    /// As [`Client::connect`], with another clock: what a client does after minutes can be seen without waiting for it.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_with_clock(config: ClientConfig, clock: Clock) -> Result<Client> {
        Core::connect(config, clock, None).map(Client)
    }

    /// As [`Client::connect`], on an engine that the caller has already: memory that is registered there can be named in
    /// calls of this client, peers reach what the client lends through it, and it goes on when the client closes.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub fn connect_on(engine: Engine, config: ClientConfig) -> Result<Client> {
        Core::connect(config, Clock::real(), Some(engine)).map(Client)
    }

    // Put.

    /// Stores `value` under `key`. An object that is there already stays as it is.
    ///
    /// # Errors
    /// [`Error::Busy`], [`Error::NoSpace`], [`Error::Transfer`], [`Error::MasterUnreachable`], [`Error::Invalid`] for an
    /// empty key. Nothing is readable under `key` then that was not before.
    pub fn put(&self, key: impl AsRef<[u8]>, value: &[u8], config: &ReplicateConfig) -> Result<PutOutcome> {
        self.put_item(PutItem::new(key.as_ref(), value), config)
    }

    /// Stores the parts, one after the other, as one object.
    ///
    /// # Errors
    /// As [`Client::put`].
    pub fn put_parts(&self, key: impl AsRef<[u8]>, parts: &[&[u8]], config: &ReplicateConfig) -> Result<PutOutcome> {
        let from = parts.iter().map(|part| LocalBuffer::source(part)).collect();
        self.put_item(PutItem { key: key.as_ref(), from }, config)
    }

    /// Stores registered memory.
    ///
    /// # Errors
    /// As [`Client::put`]; [`Error::Invalid`] when the range is not inside one registered buffer.
    pub fn put_from(&self, key: impl AsRef<[u8]>, from: MemoryRange, config: &ReplicateConfig) -> Result<PutOutcome> {
        let from = smallvec![self.local(from)?];
        self.put_item(PutItem { key: key.as_ref(), from }, config)
    }

    fn put_item(&self, item: PutItem<'_>, config: &ReplicateConfig) -> Result<PutOutcome> {
        only(self.batch_put_items(&[item], config, Duplicates::FirstWins))
    }

    /// Stores many objects: one request to the master to reserve, one to publish, one transfer batch. Of several items
    /// with one key the first is written.
    ///
    /// # Errors
    /// Per item, as [`Client::put`].
    pub fn batch_put<K, V>(&self, items: &[(K, V)], config: &ReplicateConfig) -> Vec<Result<PutOutcome>>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let items: Vec<PutItem<'_>> =
            items.iter().map(|(key, value)| PutItem::new(key.as_ref(), value.as_ref())).collect();
        self.batch_put_items(&items, config, Duplicates::FirstWins)
    }

    /// Stores many objects from registered memory. Of several items with one key the last is written.
    ///
    /// # Errors
    /// Per item, as [`Client::put_from`].
    pub fn batch_put_from<K: AsRef<[u8]>>(
        &self,
        items: &[(K, MemoryRange)],
        config: &ReplicateConfig,
    ) -> Vec<Result<PutOutcome>> {
        each_local(
            items,
            |range| self.local(range),
            |ready| {
                let ready: Vec<PutItem<'_>> =
                    ready.into_iter().map(|(key, buffer)| PutItem { key, from: smallvec![buffer] }).collect();
                self.batch_put_items(&ready, config, Duplicates::LastWins)
            },
        )
    }

    /// The general form: objects in parts of any memory.
    ///
    /// # Errors
    /// Per item, as [`Client::put`].
    pub fn batch_put_items(
        &self,
        items: &[PutItem<'_>],
        config: &ReplicateConfig,
        duplicates: Duplicates,
    ) -> Vec<Result<PutOutcome>> {
        self.0.write_many(items, Writing { config, duplicates, manner: Manner::Put })
    }

    // Upsert.

    /// Stores `value` under `key`, in the place of what is there. Readers see the old object until the new one is
    /// complete; the old one stays when this fails.
    ///
    /// # Errors
    /// As [`Client::put`]; [`Error::Refused`] with -708 or -714 while the object that is there is copied or moved.
    pub fn upsert(&self, key: impl AsRef<[u8]>, value: &[u8], config: &ReplicateConfig) -> Result<()> {
        only(self.batch_upsert_items(&[PutItem::new(key.as_ref(), value)], config, Duplicates::FirstWins))
    }

    /// Stores many objects, each in the place of what is there. Of several items with one key the first is written.
    ///
    /// # Errors
    /// Per item, as [`Client::upsert`].
    pub fn batch_upsert<K, V>(&self, items: &[(K, V)], config: &ReplicateConfig) -> Vec<Result<()>>
    where
        K: AsRef<[u8]>,
        V: AsRef<[u8]>,
    {
        let items: Vec<PutItem<'_>> =
            items.iter().map(|(key, value)| PutItem::new(key.as_ref(), value.as_ref())).collect();
        self.batch_upsert_items(&items, config, Duplicates::FirstWins)
    }

    /// The general form: objects in parts of any memory.
    ///
    /// # Errors
    /// Per item, as [`Client::upsert`].
    pub fn batch_upsert_items(
        &self,
        items: &[PutItem<'_>],
        config: &ReplicateConfig,
        duplicates: Duplicates,
    ) -> Vec<Result<()>> {
        let answers = self.0.write_many(items, Writing { config, duplicates, manner: Manner::Upsert });
        answers.into_iter().map(|answer| answer.map(|_| ())).collect()
    }

    // Get.

    /// The bytes of an object; empty for an empty object.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Busy`] while its first writer is at it, [`Error::Transfer`] when no replica could be
    /// read, [`Error::LeaseExpired`], [`Error::MasterUnreachable`], [`Error::Invalid`] for an empty key.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Vec<u8>> {
        only(self.0.get_new([key.as_ref()]))
    }

    /// Reads an object into `into` and says how many bytes it has. `into` may be longer.
    ///
    /// # Errors
    /// As [`Client::get`]; [`Error::BufferTooSmall`].
    pub fn get_into(&self, key: impl AsRef<[u8]>, into: &mut [u8]) -> Result<u64> {
        only(self.0.get_many([GetItem::new(key.as_ref(), into)]))
    }

    /// Reads an object into registered memory and says how many bytes it has.
    ///
    /// # Errors
    /// As [`Client::get_into`]; [`Error::Invalid`] when the range is not inside one registered buffer.
    pub fn get_into_range(&self, key: impl AsRef<[u8]>, into: MemoryRange) -> Result<u64> {
        let into = smallvec![self.local(into)?];
        only(self.0.get_many([GetItem { key: key.as_ref(), into }]))
    }

    /// Reads an object that [`Client::query`] found into `into`, without asking the master again while the lease lasts.
    ///
    /// # Errors
    /// As [`Client::get_into`].
    pub fn get_known(&self, item: GetItem<'_>, lookup: Lookup) -> Result<u64> {
        self.0.get_known(item, lookup)
    }

    /// As [`Client::get_known`] for many: one transfer batch.
    ///
    /// # Errors
    /// Per item, as [`Client::get_into`].
    pub fn batch_get_known<'a>(&self, items: impl IntoIterator<Item = (GetItem<'a>, Lookup)>) -> Vec<Result<u64>> {
        self.0.get_many_known(items)
    }

    /// Reads many objects into new memory: one request to the master, one transfer batch.
    ///
    /// # Errors
    /// Per key, as [`Client::get`].
    pub fn batch_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Vec<u8>>> {
        self.0.get_new(keys.iter().map(AsRef::as_ref))
    }

    /// Reads many objects into registered memory.
    ///
    /// # Errors
    /// Per item, as [`Client::get_into_range`].
    pub fn batch_get_into<K: AsRef<[u8]>>(&self, items: &[(K, MemoryRange)]) -> Vec<Result<u64>> {
        each_local(
            items,
            |range| self.local(range),
            |ready| {
                let ready = ready.into_iter().map(|(key, buffer)| GetItem { key, into: smallvec![buffer] });
                self.0.get_many(ready)
            },
        )
    }

    /// The general form: objects into parts of any memory.
    ///
    /// # Errors
    /// Per item, as [`Client::get_into`].
    pub fn batch_get_items<'a>(&self, items: impl IntoIterator<Item = GetItem<'a>>) -> Vec<Result<u64>> {
        self.0.get_many(items)
    }

    // Ranges.

    /// Reads ranges of objects, all in one transfer batch: for each fragment its bytes. The fragments of one item are of
    /// one object; name every key once.
    ///
    /// # Errors
    /// Per fragment, as [`Client::get`]; [`Error::Invalid`] when the object has no such range, which concerns no other
    /// fragment.
    pub fn batch_get_ranges(&self, items: Vec<RangesItem<'_>>) -> Vec<Vec<Result<u64>>> {
        self.0.get_ranges(items.into_iter().map(|item| (item, Known::Nothing)))
    }

    /// As [`Client::batch_get_ranges`] for objects that [`Client::query`] found, without asking the master again while the
    /// leases last.
    ///
    /// # Errors
    /// Per fragment, as [`Client::batch_get_ranges`].
    pub fn batch_get_ranges_known<'a>(
        &self,
        items: impl IntoIterator<Item = (RangesItem<'a>, Lookup)>,
    ) -> Vec<Vec<Result<u64>>> {
        self.0.get_ranges(items.into_iter().map(|(item, lookup)| (item, Known::Before(lookup))))
    }

    /// Looks objects up for [`Client::batch_get_ranges_of`]: one request now instead of one with each read. That a key is
    /// not there is told by the reads.
    pub fn ranges_snapshot<K: AsRef<[u8]>>(&self, keys: &[K]) -> RangesSnapshot {
        self.0.take_snapshot(&borrow(keys))
    }

    /// As [`Client::batch_get_ranges`] for objects of a snapshot.
    ///
    /// # Errors
    /// Per fragment, also [`Error::Invalid`] for a key that is not in the snapshot.
    pub fn batch_get_ranges_of(&self, snapshot: &RangesSnapshot, items: Vec<RangesItem<'_>>) -> Vec<Vec<Result<u64>>> {
        self.0.get_ranges_of(snapshot, items)
    }

    // Sessions.

    /// Opens put sessions: space for objects of these sizes, one per key, which are written range by range.
    ///
    /// # Errors
    /// Per key: [`Error::Refused`] with -705 when there is an object; [`Error::Busy`], [`Error::NoSpace`];
    /// [`Error::Invalid`] for no bytes, a session that is open, lists of different lengths.
    pub fn put_session_start<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
        sizes: &[u64],
        config: &ReplicateConfig,
    ) -> Vec<Result<()>> {
        self.0.put_session_start(&borrow(keys), sizes, config)
    }

    /// Writes ranges of objects with open put sessions, to every replica, in one transfer batch: bytes of each item. A
    /// range may be written again.
    ///
    /// # Errors
    /// Per item: [`Error::Invalid`] without an open session or for a range outside the object; [`Error::Transfer`].
    pub fn put_session_write(&self, items: &[RangesItem<'_>]) -> Vec<Result<u64>> {
        self.0.put_session_write(items)
    }

    /// Ends put sessions, after the writes under way: the objects become readable, with zeros where nothing was written.
    ///
    /// # Errors
    /// Per key: [`Error::Invalid`] without an open session; why a range did not arrive, and the object is given up then.
    pub fn put_session_end<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<()>> {
        self.0.put_session_end(&borrow(keys))
    }

    /// Gives put sessions up, after the writes under way.
    ///
    /// # Errors
    /// Per key: [`Error::Invalid`] without an open session; what the master answered.
    pub fn put_session_revoke<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<()>> {
        self.0.put_session_revoke(&borrow(keys))
    }

    /// Opens get sessions: one lookup for many reads of ranges.
    ///
    /// # Errors
    /// Per key, as [`Client::get`].
    pub fn get_session_start<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<()>> {
        self.0.get_session_start(&borrow(keys))
    }

    /// Reads ranges of objects with open get sessions, all in one transfer batch: bytes of each item.
    ///
    /// # Errors
    /// Per item: [`Error::Invalid`] without an open session or for a range outside the object; [`Error::LeaseExpired`]
    /// when the object was replaced, removed, or not read for longer than its lease: the session has ended then;
    /// [`Error::Transfer`].
    pub fn get_session_read(&self, items: Vec<RangesItem<'_>>) -> Vec<Result<u64>> {
        self.0.get_session_read(items)
    }

    /// Ends get sessions. A key without one is no mistake.
    pub fn get_session_end<K: AsRef<[u8]>>(&self, keys: &[K]) {
        self.0.get_session_end(&borrow(keys));
    }

    // Replicas.

    /// Asks for replicas of an object on the segments of these names. The id of the task, which the owner of a replica
    /// then does.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Refused`] with -600 for a segment that is not there, -1401 when too many tasks wait;
    /// [`Error::MasterUnreachable`].
    pub fn create_copy_task<N: AsRef<[u8]>>(&self, key: impl AsRef<[u8]>, targets: &[N]) -> Result<Uuid> {
        self.0.create_copy_task(key.as_ref(), &borrow(targets))
    }

    /// Asks for a replica of an object to go from one segment to another.
    ///
    /// # Errors
    /// As [`Client::create_copy_task`].
    pub fn create_move_task(&self, key: impl AsRef<[u8]>, source: &str, target: &str) -> Result<Uuid> {
        self.0.create_move_task(key.as_ref(), source.as_bytes(), target.as_bytes())
    }

    /// What is known of a task.
    ///
    /// # Errors
    /// [`Error::Refused`] with -1400 when nothing is; [`Error::MasterUnreachable`].
    pub fn query_task(&self, id: Uuid) -> Result<Task> {
        self.0.query_task(id)
    }

    /// Clears the replicas that this client wrote, on the segment of a name or (empty) on all. The keys that were
    /// cleared: others have a read lease, another writer, or are not there.
    ///
    /// # Errors
    /// [`Error::MasterUnreachable`].
    pub fn clear_replicas<K: AsRef<[u8]>>(&self, keys: &[K], segment: &str) -> Result<Vec<Vec<u8>>> {
        self.0.clear_replicas(&borrow(keys), segment.as_bytes())
    }

    // Keys.

    /// Whether each object can be read, without a read lease but for the keys that `policy` names: one request.
    ///
    /// # Errors
    /// Per key: [`Error::MasterUnreachable`]; [`Error::Rejected`] by a master before 0.3.14; [`Error::Invalid`] for an
    /// empty key, or when the keys are no whole number of groups.
    pub fn batch_probe<K: AsRef<[u8]>>(&self, keys: &[K], policy: ProbePolicy) -> Vec<Result<bool>> {
        self.0.probe(policy, &borrow(keys))
    }

    /// Whether the object can be read.
    ///
    /// # Errors
    /// [`Error::MasterUnreachable`], [`Error::Invalid`] for an empty key.
    pub fn exists(&self, key: impl AsRef<[u8]>) -> Result<bool> {
        only(self.0.exists(&[key.as_ref()]))
    }

    /// Whether each object can be read: one request.
    ///
    /// # Errors
    /// Per key, as [`Client::exists`].
    pub fn batch_exists<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<bool>> {
        self.0.exists(&borrow(keys))
    }

    /// Bytes of an object.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::Busy`], [`Error::MasterUnreachable`], [`Error::Invalid`] for an empty key.
    pub fn size(&self, key: impl AsRef<[u8]>) -> Result<u64> {
        self.query(key)?.size().ok_or(Error::NoReadableReplica)
    }

    /// Where an object can be read. Takes a read lease, as a read does.
    ///
    /// # Errors
    /// As [`Client::size`].
    pub fn query(&self, key: impl AsRef<[u8]>) -> Result<Lookup> {
        only(self.0.query(&[key.as_ref()]))
    }

    /// Where each object can be read: one request.
    ///
    /// # Errors
    /// Per key, as [`Client::size`].
    pub fn batch_query<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Lookup>> {
        self.0.query(&borrow(keys))
    }

    /// The objects whose key matches an ECMAScript pattern anywhere.
    ///
    /// # Errors
    /// [`Error::MasterUnreachable`]; [`Error::Refused`] for a bad pattern.
    pub fn query_by_regex(&self, pattern: &str) -> Result<Vec<(Vec<u8>, Vec<ReplicaDescriptor>)>> {
        self.0.query_by_regex(pattern.as_bytes())
    }

    /// Removes an object. `force` ignores read leases.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Refused`] with -706 while somebody may be reading it; [`Error::MasterUnreachable`].
    pub fn remove(&self, key: impl AsRef<[u8]>, force: bool) -> Result<()> {
        only(self.0.remove(&[key.as_ref()], force))
    }

    /// Removes objects: one request.
    ///
    /// # Errors
    /// Per key, as [`Client::remove`].
    pub fn batch_remove<K: AsRef<[u8]>>(&self, keys: &[K], force: bool) -> Vec<Result<()>> {
        self.0.remove(&borrow(keys), force)
    }

    /// Removes the objects whose key matches an ECMAScript pattern anywhere; how many. Without `force` those with a read
    /// lease stay.
    ///
    /// # Errors
    /// [`Error::MasterUnreachable`]; [`Error::Refused`] for a bad pattern.
    pub fn remove_by_regex(&self, pattern: &str, force: bool) -> Result<u64> {
        self.0.remove_by_regex(pattern.as_bytes(), force)
    }

    /// Removes the objects whose key matches an ECMAScript pattern anywhere, all objects without one; how many went, and how
    /// many stayed and why. Without `force` those with a read lease stay.
    ///
    /// # Errors
    /// As [`Client::remove_by_regex`].
    pub fn remove_matching(&self, pattern: Option<&str>, force: bool) -> Result<Removed> {
        self.0.remove_matching(pattern.map(str::as_bytes), force)
    }

    /// Removes every object; how many. Without `force` those with a read lease stay.
    ///
    /// # Errors
    /// [`Error::MasterUnreachable`].
    pub fn remove_all(&self, force: bool) -> Result<u64> {
        self.0.remove_all(force)
    }

    // Memory.

    /// Lets this process's memory be named by address in calls of this client.
    ///
    /// # Errors
    /// [`Error::Invalid`] when it is no range or overlaps registered memory.
    pub fn register_buffer(&self, memory: ForeignMemory) -> Result<()> {
        self.0.register(memory)
    }

    /// Makes registered memory of `len` bytes, whose address is then good for calls of this client.
    /// It stays until [`Client::unregister_buffer`] and until the last owner lets go.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the system has no memory for it.
    pub fn allocate_buffer(&self, len: u64) -> Result<Arc<MemorySegment>> {
        self.0.allocate(len, SegmentOptions::default())
    }

    /// As [`Client::allocate_buffer`], made as `options` say.
    ///
    /// # Errors
    /// As there.
    pub fn allocate_buffer_with(&self, len: u64, options: SegmentOptions) -> Result<Arc<MemorySegment>> {
        self.0.allocate(len, options)
    }

    /// Ends the registration that starts at `address`. When this succeeds no call uses the memory any more.
    ///
    /// # Errors
    /// [`Error::Invalid`] when none starts there, or calls use it for longer than a call may take.
    pub fn unregister_buffer(&self, address: u64) -> Result<()> {
        self.0.unregister(address)
    }

    /// Memory of the caller as a part of a [`PutItem`] or [`GetItem`], registered or not. Inside one registered buffer it
    /// stays registered while the part lives.
    ///
    /// # Errors
    /// [`Error::Invalid`] for what is no range, for one that starts in registered memory and reaches over its end, and for
    /// memory that is being unregistered.
    pub fn lend(&self, memory: ForeignMemory) -> Result<LocalBuffer<'static>> {
        self.0.lend(memory)
    }

    // Segments.

    /// Makes memory of `size` bytes and lends it to the pool, beside what is lent already.
    ///
    /// # Errors
    /// [`Error::Invalid`] below [`crate::MIN_SEGMENT_BYTES`]; [`Error::Setup`] when there is no memory, or the master
    /// refuses; [`Error::MasterUnreachable`]. Nothing is lent then.
    pub fn mount_segment(&self, size: u64, options: SegmentOptions) -> Result<SegmentId> {
        self.0.mount_new(size, options)
    }

    /// Lends `size` bytes of a file, or of a device that can be mapped, from `offset` (a multiple of the page size) on.
    /// The file must not be made shorter while it is lent.
    ///
    /// # Errors
    /// As [`Client::mount_segment`].
    pub fn mount_file(&self, path: &Path, offset: u64, size: u64) -> Result<SegmentId> {
        self.0.mount_file(path, offset, size)
    }

    /// Lends memory of the caller, which must not be freed before [`Client::unmount_segments`] has given it back or the
    /// client was closed.
    ///
    /// # Errors
    /// As [`Client::mount_segment`]; [`Error::Invalid`] when it overlaps registered memory.
    pub fn mount_memory(&self, memory: ForeignMemory) -> Result<SegmentId> {
        self.0.mount_memory(memory)
    }

    /// Takes segments out of the pool, with the objects that are only there. At once when `grace` is zero, and the memory
    /// is the caller's again when this returns; else the objects can be read for that long, nothing new is put there,
    /// and the memory is given back after it.
    ///
    /// # Errors
    /// The first of [`Error::Refused`] with -101 for a segment that this client does not lend, and
    /// [`Error::MasterUnreachable`], after which the segment stays. The others are taken out all the same.
    pub fn unmount_segments(&self, ids: &[SegmentId], grace: Duration) -> Result<()> {
        self.0.unmount(ids, grace)
    }

    /// Registered memory as a part of a [`PutItem`] or [`GetItem`]; it stays registered while the part lives.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the range is not inside one registered buffer.
    pub fn local(&self, range: MemoryRange) -> Result<LocalBuffer<'static>> {
        self.0.local(range)
    }

    /// Registered memory from `address` to the end of its registration; it stays registered while the buffer lives.
    ///
    /// # Errors
    /// [`Error::Invalid`] when `address` is in no registered buffer.
    pub fn local_rest(&self, address: u64) -> Result<LocalBuffer<'static>> {
        self.0.local_rest(address)
    }

    // The client itself.

    /// How it was set up.
    pub fn config(&self) -> &ClientConfig {
        &self.0.config
    }

    /// How the client stands. A client that lends no memory asks the master now, and waits half a second at most.
    pub fn health(&self) -> Health {
        self.0.health()
    }

    /// What was counted since setup.
    pub fn metrics(&self) -> MetricsSnapshot {
        self.0.counters.snapshot()
    }

    /// How often and how long the master was asked, by function.
    pub fn rpc_times(&self) -> Vec<RpcTimes> {
        self.0.link.times()
    }

    /// Where the client's own HTTP page is; `None` when there is none.
    pub fn page_address(&self) -> Option<SocketAddr> {
        self.0.told.lock().page.as_ref().map(PageServer::address)
    }

    /// What the Transfer Engine counted, per transport.
    pub fn transfer_stats(&self) -> yb_transfer::TransferStats {
        self.0.engine.stats()
    }

    /// Name of this client and of its segments, `host:port`.
    pub fn hostname(&self) -> &str {
        &self.0.hostname
    }

    /// `host:port` at which peers reach this client's memory; `None` when it lends none.
    pub fn endpoint(&self) -> Option<&str> {
        self.0.endpoint()
    }

    /// Random, new with every setup.
    pub fn client_id(&self) -> ClientId {
        self.0.client_id
    }

    /// Objects in the segments of this client, as far as the master has told; nothing is known of a master of the peer.
    pub fn kept_objects(&self) -> u64 {
        self.0.directories.objects()
    }

    /// Bytes lent to the pool.
    pub fn lent_bytes(&self) -> u64 {
        self.0.lent.bytes()
    }

    /// The same client for callers that must not block.
    pub fn asynchronous(&self) -> AsyncClient {
        AsyncClient::new(self.clone())
    }

    /// Has what this client lends moved to others before it ends, as far as `within` allows: what is read first, what has
    /// other replicas not at all. Nothing more is put here from the first moment on, also when this fails. Returns early when
    /// nothing more can be moved, or when `goes_on` says no; follow it with [`Client::close`].
    ///
    /// A master of the peer is not asked: nothing is moved then.
    ///
    /// # Errors
    /// [`Error::MasterUnreachable`] when the master does not answer within half a second; [`Error::Closed`].
    pub fn drain(&self, within: Duration, goes_on: impl FnMut() -> bool) -> Result<Departure> {
        self.0.drain(within, goes_on)
    }

    /// Leaves the pool. Calls under way end, later ones answer [`Error::Closed`]; the second time nothing happens.
    pub fn close(&self) {
        self.0.close();
    }
}

/// The answer of a batch of one.
fn only<T>(answers: Vec<Result<T>>) -> Result<T> {
    answers.into_iter().next().unwrap_or(Err(Error::Closed))
}

fn borrow<K: AsRef<[u8]>>(keys: &[K]) -> Vec<&[u8]> {
    keys.iter().map(AsRef::as_ref).collect()
}

/// Runs a batch over the items whose memory is registered, and gives each of the others its refusal.
fn each_local<'k, K: AsRef<[u8]>, T>(
    items: &'k [(K, MemoryRange)],
    local: impl Fn(MemoryRange) -> Result<LocalBuffer<'static>>,
    batch: impl FnOnce(Vec<(&'k [u8], LocalBuffer<'static>)>) -> Vec<Result<T>>,
) -> Vec<Result<T>> {
    let mut ready = Vec::with_capacity(items.len());
    let mut refused = Vec::new();
    for (index, (key, range)) in items.iter().enumerate() {
        match local(*range) {
            Ok(buffer) => ready.push((key.as_ref(), buffer)),
            Err(error) => refused.push((index, error)),
        }
    }
    let mut answers = batch(ready);
    // In ascending order, each insertion lands where its item was.
    for (index, error) in refused {
        answers.insert(index.min(answers.len()), Err(error));
    }
    answers
}
