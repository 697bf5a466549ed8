//! The Python class around a client.
//!
//! Invariants: a call on a store that is not set up, or closed, answers like any other failure, in the shape of the
//! call; the interpreter is released around everything that can wait.

use std::sync::{Arc, LazyLock};

use parking_lot::RwLock;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyTuple};
use smallvec::smallvec;
use yb_client::{Client, Duplicates, Error, GetItem, Health, LocalBuffer, Parts, PutItem};
use yb_types::ReplicateConfig as Wanted;

use crate::convert::{Key, Text, Unsigned};
use crate::descriptors::ReplicaDescriptor;
use crate::handle::BufferHandle;
use crate::live::{INVALID, LastError, Live, Ranges};
use crate::memory::{Value, unwritten_bytes};
use crate::replicate_config::ReplicateConfig;
use crate::setup::SetupArguments;

static DEFAULT_CONFIG: LazyLock<Wanted> = LazyLock::new(Wanted::default);

/// One store: nothing at first, a client of a pool after `setup`.
#[pyclass(subclass, frozen, module = "mooncake._native")]
#[derive(Default)]
pub(crate) struct Store {
    live: RwLock<Option<Arc<Live>>>,
    last: LastError,
}

impl Store {
    /// The client, if there is one.
    fn live(&self) -> Option<Arc<Live>> {
        let live = self.live.read().clone();
        if live.is_none() {
            self.last.set("the store is not set up, or closed");
        }
        live
    }

    /// Runs `call` without the interpreter; `otherwise` when there is no client.
    fn with<T: Send>(&self, py: Python<'_>, otherwise: T, call: impl Send + FnOnce(&Live, &LastError) -> T) -> T {
        match self.live() {
            Some(live) => py.detach(|| call(&live, &self.last)),
            None => otherwise,
        }
    }
}

fn wanted(config: Option<&ReplicateConfig>) -> &Wanted {
    config.map_or(&DEFAULT_CONFIG, ReplicateConfig::wanted)
}

fn slices(keys: &[Key]) -> Vec<&[u8]> {
    keys.iter().map(AsRef::as_ref).collect()
}

/// One range for each object; `None` when the lists differ in length.
fn single_ranges(addresses: &[Unsigned], sizes: &[Unsigned]) -> Option<Vec<Ranges>> {
    let pair = |(address, size): (&Unsigned, &Unsigned)| vec![(address.0, size.0)];
    (addresses.len() == sizes.len()).then(|| addresses.iter().zip(sizes).map(pair).collect())
}

/// Several ranges for each object; `None` when the lists differ in length anywhere.
fn multi_ranges(addresses: &[Vec<Unsigned>], sizes: &[Vec<Unsigned>]) -> Option<Vec<Ranges>> {
    if addresses.len() != sizes.len() {
        return None;
    }
    let each = |(addresses, sizes): (&Vec<Unsigned>, &Vec<Unsigned>)| {
        let pairs = Unsigned::list(addresses).zip(Unsigned::list(sizes)).collect();
        (addresses.len() == sizes.len()).then_some(pairs)
    };
    addresses.iter().zip(sizes).map(each).collect()
}

/// The answer of a call that looks a key up: no object has the empty key, and asking for it is no mistake for the peer.
fn looked_up<T>(key: &[u8], answer: Result<T, Error>) -> Result<T, Error> {
    if key.is_empty() { Err(Error::NotFound) } else { answer }
}

/// 1 or 0 for what is there, else a code.
fn existence(last: &LastError, key: &Key, answer: Result<bool, Error>) -> i64 {
    match looked_up(&key.0, answer) {
        Err(Error::NotFound) => 0,
        answer => last.number(answer, i64::from),
    }
}

/// The one number of a batch of one.
fn one(numbers: Vec<i64>) -> i64 {
    numbers.first().copied().unwrap_or(INVALID)
}

#[pymethods]
impl Store {
    #[new]
    fn new() -> Self {
        Store::default()
    }

    /// Sets the client up from checked arguments; drops a client that was set up before. 0, or a code.
    fn _setup(&self, py: Python<'_>, arguments: SetupArguments) -> i64 {
        crate::logs::start();
        py.detach(|| {
            if let Some(old) = self.live.write().take() {
                old.client().close();
            }
            let allow_empty = arguments.allow_empty;
            match Client::connect(arguments.into_config()) {
                Ok(client) => {
                    *self.live.write() = Some(Arc::new(Live::new(client, allow_empty)));
                    0
                }
                Err(error) => {
                    tracing::error!(%error, "setup failed");
                    self.last.refuse(error.to_string())
                }
            }
        })
    }

    /// Keeps why a setup was refused before any client was made.
    fn _refuse_setup(&self, text: &str) {
        crate::logs::start();
        tracing::error!(reason = text, "setup refused");
        self.last.set(text);
    }

    /// Leaves the pool: unmounts what was lent, ends the client's threads. Always 0; may be called again.
    fn close(&self, py: Python<'_>) -> i64 {
        let live = self.live.write().take();
        if let Some(live) = live {
            py.detach(|| live.client().close());
        }
        0
    }

    /// Lets the client go without ending it: in a child process made by fork its sockets and its segment are the
    /// parent's, and its threads are not there. The store is as if never set up.
    fn _forget(&self) {
        // A thread of the parent may have held the lock; then nobody in the child can use the store either.
        if let Some(mut live) = self.live.try_write() {
            std::mem::forget(live.take());
        }
    }

    /// The last failure of any call on this store, in words; empty before the first. Not in the peer.
    fn last_error(&self) -> String {
        self.last.get()
    }

    /// 0: healthy; 1: not set up, or closed; 2: the master does not answer.
    fn health_check(&self, py: Python<'_>) -> i64 {
        self.with(py, 1, |live, _| match live.client().health() {
            Health::Healthy => 0,
            _ => 2,
        })
    }

    /// `host:port`: the name of this client and of the segment it lends; `""` when not set up.
    fn get_hostname(&self) -> String {
        self.live().map_or(String::new(), |live| live.client().hostname().to_owned())
    }

    /// Stores `value`, anything contiguous with the buffer protocol (its bytes, whatever the items are); a strided
    /// one is gathered first. 0 also when the key is there already, whose bytes stay. -600: empty key or value; -200: no
    /// room; other codes as in the documentation.
    #[pyo3(signature = (key, value, config=None))]
    fn put(
        &self,
        py: Python<'_>,
        key: Key,
        value: &Bound<'_, PyAny>,
        config: Option<ReplicateConfig>,
    ) -> PyResult<i64> {
        let value = Value::of(value)?;
        let bytes = value.bytes();
        Ok(self.with(py, INVALID, |live, last| {
            if bytes.is_empty() && !live.allows_empty() {
                return last.refuse("a value of no bytes (YB_ALLOW_EMPTY=1 allows it)");
            }
            let item = PutItem::new(&key.0, bytes);
            one(live.put(last, &[item], wanted(config.as_ref()), Duplicates::FirstWins))
        }))
    }

    /// Stores the parts, one after the other, as one object. A part is bytes-like with one dimension and items of one
    /// byte, else `RuntimeError`. No bytes at all: 0, and nothing is stored. Otherwise as `put`.
    #[pyo3(signature = (key, *parts, config=None))]
    fn put_parts(
        &self,
        py: Python<'_>,
        key: Key,
        parts: &Bound<'_, PyTuple>,
        config: Option<ReplicateConfig>,
    ) -> PyResult<i64> {
        let parts: Vec<Value> = parts.iter().map(|part| Value::part(&part)).collect::<PyResult<_>>()?;
        let bytes: Vec<&[u8]> = parts.iter().map(Value::bytes).filter(|part| !part.is_empty()).collect();
        Ok(self.with(py, INVALID, |live, last| {
            if bytes.is_empty() && !live.allows_empty() {
                return 0;
            }
            let from: Parts<'_> = bytes.iter().map(|part| LocalBuffer::source(part)).collect();
            one(live.put(last, &[PutItem { key: &key.0, from }], wanted(config.as_ref()), Duplicates::FirstWins))
        }))
    }

    /// Stores many values. 0, or the first code that is not; the other keys are stored. Of a repeated key the first
    /// value counts. -600 when the lists differ in length.
    #[pyo3(signature = (keys, values, config=None))]
    fn put_batch(
        &self,
        py: Python<'_>,
        keys: Vec<Key>,
        values: Vec<Bound<'_, PyAny>>,
        config: Option<ReplicateConfig>,
    ) -> PyResult<i64> {
        let values: Vec<Value> = values.iter().map(Value::of).collect::<PyResult<_>>()?;
        let bytes: Vec<&[u8]> = values.iter().map(Value::bytes).collect();
        Ok(self.with(py, INVALID, |live, last| {
            if keys.len() != bytes.len() {
                return last.refuse(format!("{} keys, {} values", keys.len(), bytes.len()));
            }
            if !live.allows_empty() && bytes.iter().any(|value| value.is_empty()) {
                return last.refuse("a value of no bytes (YB_ALLOW_EMPTY=1 allows it)");
            }
            let items: Vec<PutItem<'_>> = keys.iter().zip(&bytes).map(|(k, v)| PutItem::new(&k.0, v)).collect();
            let numbers = live.put(last, &items, wanted(config.as_ref()), Duplicates::FirstWins);
            numbers.into_iter().find(|number| *number != 0).unwrap_or(0)
        }))
    }

    /// The object's bytes; `b""` when it is missing or cannot be read (`last_error` tells which).
    #[pyo3(signature = (key, /))]
    fn get<'py>(&self, py: Python<'py>, key: Key) -> PyResult<Bound<'py, PyBytes>> {
        let lookup = self.with(py, None, |live, last| last.note(live.client().query(&key.0)));
        let Some((lookup, size)) = lookup.and_then(|found| found.size().map(|size| (found, size))) else {
            return Ok(PyBytes::new(py, b""));
        };
        // Straight into the object that is handed out: its size is known, and nobody else has seen it yet.
        let (bytes, memory) = unwritten_bytes(py, size)?;
        let read = self.with(py, None, |live, last| {
            last.note(live.client().get_known(GetItem { key: &key.0, into: smallvec![memory.lend()] }, lookup))
        });
        Ok(match read {
            Some(read) if read == size => bytes,
            // It was replaced by a shorter one in between.
            Some(read) => PyBytes::new(py, bytes.as_bytes().get(..read as usize).unwrap_or_default()),
            None => PyBytes::new(py, b""),
        })
    }

    /// Each object's bytes, `b""` for those that are missing or cannot be read.
    #[pyo3(signature = (keys, /))]
    fn get_batch<'py>(&self, py: Python<'py>, keys: Vec<Key>) -> Vec<Bound<'py, PyBytes>> {
        let found = self.with(py, Vec::new(), |live, last| {
            let answers = live.client().batch_get(&slices(&keys)).into_iter();
            answers.map(|answer| last.note(answer).unwrap_or_default()).collect::<Vec<_>>()
        });
        let mut found = found.into_iter();
        keys.iter().map(|_| PyBytes::new(py, &found.next().unwrap_or_default())).collect()
    }

    /// The object in memory of its own, or None when it is missing or cannot be read.
    #[pyo3(signature = (key, /))]
    fn get_buffer(&self, py: Python<'_>, key: Key) -> Option<BufferHandle> {
        let answer = self.with(py, None, |live, last| last.note(live.client().get(&key.0)));
        answer.map(BufferHandle::new)
    }

    /// As `get_buffer` for many keys.
    #[pyo3(signature = (keys, /))]
    fn batch_get_buffer(&self, py: Python<'_>, keys: Vec<Key>) -> Vec<Option<BufferHandle>> {
        let found = self.with(py, Vec::new(), |live, last| {
            let answers = live.client().batch_get(&slices(&keys)).into_iter();
            answers.map(|answer| last.note(answer)).collect::<Vec<_>>()
        });
        let mut found = found.into_iter();
        keys.iter().map(|_| found.next().flatten().map(BufferHandle::new)).collect()
    }

    /// Stores `size` bytes from `buffer_ptr` without a copy in this process. As `put`; size 0: 0, and nothing is stored.
    /// A null address, or a range that reaches over the end of the registered memory it starts in: -600.
    #[pyo3(signature = (key, buffer_ptr, size, config=None))]
    fn put_from(
        &self,
        py: Python<'_>,
        key: Key,
        buffer_ptr: Unsigned,
        size: Unsigned,
        config: Option<ReplicateConfig>,
    ) -> i64 {
        self.with(py, INVALID, |live, last| {
            if size.0 == 0 && !live.allows_empty() {
                return 0;
            }
            if wanted(config.as_ref()).prefer_alloc_in_same_node {
                return last.refuse("prefer_alloc_in_same_node works with the multi-buffer calls only");
            }
            let ranges = [vec![(buffer_ptr.0, size.0)]];
            // SAFETY: the caller of a zero-copy method promises that the range is memory during the call.
            one(unsafe { live.put_from(last, &[&key.0], &ranges, wanted(config.as_ref()), Duplicates::LastWins) })
        })
    }

    /// Stores many objects without a copy in this process: for each 0 or a code. Size 0: -600. Of a repeated key the
    /// last range counts. Lists of different lengths: -600 for each key.
    #[pyo3(signature = (keys, buffer_ptrs, sizes, config=None))]
    fn batch_put_from(
        &self,
        py: Python<'_>,
        keys: Vec<Key>,
        buffer_ptrs: Vec<Unsigned>,
        sizes: Vec<Unsigned>,
        config: Option<ReplicateConfig>,
    ) -> Vec<i64> {
        let refused = vec![INVALID; keys.len()];
        let Some(ranges) = single_ranges(&buffer_ptrs, &sizes) else { return refused };
        self.with(py, refused, |live, last| {
            if wanted(config.as_ref()).prefer_alloc_in_same_node {
                let number = last.refuse("prefer_alloc_in_same_node works with the multi-buffer calls only");
                return vec![number; keys.len()];
            }
            // SAFETY: the caller of a zero-copy method promises that the ranges are memory during the call.
            unsafe { live.put_from(last, &slices(&keys), &ranges, wanted(config.as_ref()), Duplicates::LastWins) }
        })
    }

    /// Stores many objects, each gathered from several ranges: for each 0 or a code. Otherwise as `batch_put_from`.
    #[pyo3(signature = (keys, all_buffer_ptrs, all_sizes, config=None))]
    fn batch_put_from_multi_buffers(
        &self,
        py: Python<'_>,
        keys: Vec<Key>,
        all_buffer_ptrs: Vec<Vec<Unsigned>>,
        all_sizes: Vec<Vec<Unsigned>>,
        config: Option<ReplicateConfig>,
    ) -> Vec<i64> {
        let refused = vec![INVALID; keys.len()];
        let Some(ranges) = multi_ranges(&all_buffer_ptrs, &all_sizes) else { return refused };
        self.with(py, refused, |live, last| {
            // SAFETY: the caller of a zero-copy method promises that the ranges are memory during the call.
            unsafe { live.put_from(last, &slices(&keys), &ranges, wanted(config.as_ref()), Duplicates::LastWins) }
        })
    }

    /// Reads an object into `buffer_ptr`, which has room for `size` bytes: bytes of the object, or a code: -704 missing,
    /// -600 when it does not fit.
    fn get_into(&self, py: Python<'_>, key: Key, buffer_ptr: Unsigned, size: Unsigned) -> i64 {
        self.with(py, INVALID, |live, last| {
            let ranges = [vec![(buffer_ptr.0, size.0)]];
            // SAFETY: the caller of a zero-copy method promises that the range is memory during the call.
            one(unsafe { live.get_into(last, &[&key.0], &ranges) })
        })
    }

    /// Reads many objects: for each its bytes or a code. Lists of different lengths: -600 for each key.
    fn batch_get_into(
        &self,
        py: Python<'_>,
        keys: Vec<Key>,
        buffer_ptrs: Vec<Unsigned>,
        sizes: Vec<Unsigned>,
    ) -> Vec<i64> {
        let refused = vec![INVALID; keys.len()];
        let Some(ranges) = single_ranges(&buffer_ptrs, &sizes) else { return refused };
        self.with(py, refused, |live, last| {
            // SAFETY: the caller of a zero-copy method promises that the ranges are memory during the call.
            unsafe { live.get_into(last, &slices(&keys), &ranges) }
        })
    }

    /// Reads many objects, each scattered over several ranges in their order: for each its bytes or a code.
    #[pyo3(signature = (keys, all_buffer_ptrs, all_sizes, prefer_alloc_in_same_node=false))]
    fn batch_get_into_multi_buffers(
        &self,
        py: Python<'_>,
        keys: Vec<Key>,
        all_buffer_ptrs: Vec<Vec<Unsigned>>,
        all_sizes: Vec<Vec<Unsigned>>,
        prefer_alloc_in_same_node: bool,
    ) -> Vec<i64> {
        // A hint for the peer's scheduling; every batch is one transfer here.
        let _ = prefer_alloc_in_same_node;
        let refused = vec![INVALID; keys.len()];
        let Some(ranges) = multi_ranges(&all_buffer_ptrs, &all_sizes) else { return refused };
        self.with(py, refused, |live, last| {
            // SAFETY: the caller of a zero-copy method promises that the ranges are memory during the call.
            unsafe { live.get_into(last, &slices(&keys), &ranges) }
        })
    }

    /// 1: there is an object; 0: there is none; negative: it could not be found out. Takes a read lease.
    #[pyo3(signature = (key, /))]
    fn is_exist(&self, py: Python<'_>, key: Key) -> i64 {
        self.with(py, INVALID, |live, last| existence(last, &key, live.client().exists(&key.0)))
    }

    /// As `is_exist` for many keys.
    fn batch_is_exist(&self, py: Python<'_>, keys: Vec<Key>) -> Vec<i64> {
        self.with(py, vec![INVALID; keys.len()], |live, last| {
            let answers = live.client().batch_exists(&slices(&keys)).into_iter();
            answers.zip(&keys).map(|(answer, key)| existence(last, key, answer)).collect()
        })
    }

    /// Bytes of an object, or a code: -704 missing, -703 still being written.
    #[pyo3(signature = (key, /))]
    fn get_size(&self, py: Python<'_>, key: Key) -> i64 {
        self.with(py, INVALID, |live, last| {
            last.number(looked_up(&key.0, live.client().size(&key.0)), |bytes| bytes as i64)
        })
    }

    /// Removes an object: 0, or a code: -704 missing, -706 read a short time ago. `force` removes it all the same.
    #[pyo3(signature = (key, force=false))]
    fn remove(&self, py: Python<'_>, key: Key, force: bool) -> i64 {
        self.with(py, INVALID, |live, last| last.number(looked_up(&key.0, live.client().remove(&key.0, force)), |()| 0))
    }

    /// Removes many objects: for each 0 or a code, as `remove`. `force` removes those with a read lease too.
    #[pyo3(signature = (keys, force=false))]
    fn batch_remove(&self, py: Python<'_>, keys: Vec<Key>, force: bool) -> Vec<i64> {
        self.with(py, vec![INVALID; keys.len()], |live, last| {
            let answers = live.client().batch_remove(&slices(&keys), force).into_iter();
            answers.zip(&keys).map(|(answer, key)| last.number(looked_up(&key.0, answer), |()| 0)).collect()
        })
    }

    /// Removes the objects whose key the pattern matches: how many, or a code; -600: the pattern cannot be read.
    #[pyo3(signature = (regex_pattern, force=false))]
    fn remove_by_regex(&self, py: Python<'_>, regex_pattern: Text, force: bool) -> i64 {
        self.with(py, INVALID, |live, last| {
            last.number(live.client().remove_by_regex(&regex_pattern.0, force), |removed| removed as i64)
        })
    }

    /// Removes every object: how many, or a code. Those with a read lease stay unless `force`.
    #[pyo3(signature = (force=false))]
    fn remove_all(&self, py: Python<'_>, force: bool) -> i64 {
        self.with(py, INVALID, |live, last| last.number(live.client().remove_all(force), |removed| removed as i64))
    }

    /// The replicas of an object; empty when it is missing. Takes a read lease.
    fn get_replica_desc(&self, py: Python<'_>, key: Key) -> Vec<ReplicaDescriptor> {
        let found = self.with(py, None, |live, last| last.note(live.client().query(&key.0)));
        found.map_or(Vec::new(), |lookup| lookup.replicas.into_iter().map(ReplicaDescriptor).collect())
    }

    /// Key to replicas for the keys that are there.
    fn batch_get_replica_desc<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let plain: Vec<Key> = keys.iter().map(|key| key.extract()).collect::<PyResult<_>>()?;
        let found = self.with(py, Vec::new(), |live, _| live.client().batch_query(&slices(&plain)));
        let replicas = PyDict::new(py);
        for (key, lookup) in keys.iter().zip(found) {
            if let Ok(lookup) = lookup {
                let list: Vec<ReplicaDescriptor> = lookup.replicas.into_iter().map(ReplicaDescriptor).collect();
                replicas.set_item(key, list)?;
            }
        }
        Ok(replicas)
    }

    /// Registers memory for the zero-copy calls: 0, or -600 for null, no bytes, or memory that is registered already.
    /// It must stay allocated until `unregister_buffer` or `close`.
    fn register_buffer(&self, py: Python<'_>, buffer_ptr: Unsigned, size: Unsigned) -> i64 {
        // SAFETY: the caller promises that the memory stays until it is unregistered.
        self.with(py, INVALID, |live, last| unsafe { live.register(last, buffer_ptr.0, size.0) })
    }

    /// Takes registered memory back: 0, or -600 when no registered memory starts at this address.
    fn unregister_buffer(&self, py: Python<'_>, buffer_ptr: Unsigned) -> i64 {
        self.with(py, INVALID, |live, last| live.unregister(last, buffer_ptr.0))
    }
}
