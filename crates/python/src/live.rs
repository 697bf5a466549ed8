//! The operations of a store that is set up, in the peer's numbers.
//!
//! Nothing here knows Python: the caller has released the interpreter and hands over plain memory.

use std::borrow::Cow;
use std::sync::Arc;

use parking_lot::Mutex;
use yb_client::{Client, Duplicates, Error, ForeignMemory, Fragment, GetItem, LocalBuffer, Parts, PutItem, RangesItem};
use yb_daemon::Daemon;
use yb_dummy::Dummy;
use yb_types::ReplicateConfig;

use crate::backend::Backend;
use crate::engine::EngineLive;
use crate::last_error::{Failures, INVALID, NO_KEY};
use crate::setup::Made;

/// The memory of one object: ranges that the caller named by address and length.
pub(crate) type Ranges = Vec<(u64, u64)>;

/// How the objects of a call are written.
#[derive(Clone, Copy)]
pub(crate) struct Writing<'c> {
    /// Replicas.
    pub(crate) config: &'c ReplicateConfig,
    /// Which of several values of one key counts.
    pub(crate) repeated: Duplicates,
    /// Whether an object that is there is replaced.
    pub(crate) replaces: bool,
}

impl<'c> Writing<'c> {
    /// Objects that are there stay.
    pub(crate) fn put(config: &'c ReplicateConfig, repeated: Duplicates) -> Self {
        Writing { config, repeated, replaces: false }
    }

    /// Objects that are there are replaced.
    pub(crate) fn upsert(config: &'c ReplicateConfig, repeated: Duplicates) -> Self {
        Writing { config, repeated, replaces: true }
    }
}

/// A client and what the Python face keeps beside it.
pub(crate) struct Live {
    client: Client,
    /// Does the work in the client's place, which is closed then.
    dummy: Option<Dummy>,
    allow_empty: bool,
    /// Serves dummy clients with the client.
    daemon: Mutex<Option<Daemon>>,
    /// The engine that the client uses with others; it must not end before the client.
    _engine: Option<Arc<EngineLive>>,
}

impl Live {
    /// What a setup made.
    pub(crate) fn new(made: Made) -> Self {
        let Made { client, engine, daemon, allow_empty } = made;
        Live { client, dummy: None, allow_empty, daemon: Mutex::new(daemon), _engine: engine }
    }

    /// A dummy client that does the work; `closed` answers what it cannot do.
    pub(crate) fn attached(dummy: Dummy, closed: Client) -> Self {
        let dummy = Some(dummy);
        Live { client: closed, dummy, allow_empty: false, daemon: Mutex::default(), _engine: None }
    }

    /// Leaves the pool, or the daemon. Dummy clients that are served are sent away first.
    pub(crate) fn close(&self) {
        drop(self.daemon.lock().take());
        self.backend().close();
    }

    /// Who does the work.
    pub(crate) fn backend(&self) -> Backend<'_> {
        self.dummy.as_ref().map_or(Backend::Client(&self.client), Backend::Dummy)
    }

    /// The dummy client, if there is one.
    pub(crate) fn dummy(&self) -> Option<&Dummy> {
        self.dummy.as_ref()
    }

    /// The client; closed when a dummy does the work.
    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Whether a value of no bytes may be stored.
    pub(crate) fn allows_empty(&self) -> bool {
        self.allow_empty
    }

    /// Stores values that lie in Rust memory; one number for each.
    pub(crate) fn put(&self, last: &Failures, items: &[PutItem<'_>], writing: Writing<'_>) -> Vec<i64> {
        if writing.config.prefer_alloc_in_same_node {
            return vec![last.refuse("prefer_alloc_in_same_node works with the multi-buffer calls only"); items.len()];
        }
        self.write(last, items, writing)
    }

    fn write(&self, last: &Failures, items: &[PutItem<'_>], writing: Writing<'_>) -> Vec<i64> {
        let Writing { config, repeated, replaces } = writing;
        if replaces {
            let answers = self.backend().batch_upsert_items(items, config, repeated);
            let answers = answers.into_iter().zip(items);
            return answers.map(|(answer, item)| last.number(item.key, answer, |()| 0)).collect();
        }
        let answers = self.backend().batch_put_items(items, config, repeated);
        answers.into_iter().zip(items).map(|(answer, item)| last.number(item.key, answer, |_| 0)).collect()
    }

    /// Stores objects from memory named by address. What cannot work is answered without asking the pool.
    ///
    /// # Safety
    /// As [`Live::get_into`].
    pub(crate) unsafe fn put_from(
        &self,
        last: &Failures,
        keys: &[&[u8]],
        memory: &[Ranges],
        writing: Writing<'_>,
    ) -> Vec<i64> {
        // SAFETY: passed on.
        let prepared = unsafe { self.prepare(last, keys, memory, !self.allow_empty) };
        let mut indexes = Vec::with_capacity(keys.len());
        let mut items = Vec::with_capacity(keys.len());
        let mut numbers = vec![0; keys.len()];
        for (index, (key, object)) in keys.iter().zip(prepared).enumerate() {
            match object {
                Ok(parts) => {
                    indexes.push(index);
                    items.push(PutItem { key, from: parts });
                }
                Err(number) => numbers[index] = number,
            }
        }
        let config = only(writing.config, &indexes, keys.len());
        let written = self.write(last, &items, Writing { config: &config, ..writing });
        for (index, number) in indexes.into_iter().zip(written) {
            numbers[index] = number;
        }
        numbers
    }

    /// Reads objects into memory named by address; one number for each: bytes, or a code.
    ///
    /// # Safety
    /// Every range must be readable and writable memory until the call returns: the zero-copy methods ask that of
    /// their callers. Null ranges and those that reach over the end of registered memory are refused.
    pub(crate) unsafe fn get_into(&self, last: &Failures, keys: &[&[u8]], memory: &[Ranges]) -> Vec<i64> {
        // SAFETY: passed on.
        let prepared = unsafe { self.prepare(last, keys, memory, false) };
        let mut indexes = Vec::with_capacity(keys.len());
        let mut items = Vec::with_capacity(keys.len());
        let mut numbers = vec![0; keys.len()];
        for (index, (key, object)) in keys.iter().zip(prepared).enumerate() {
            match object {
                Ok(parts) => {
                    indexes.push(index);
                    items.push(GetItem { key, into: parts });
                }
                Err(number) => numbers[index] = number,
            }
        }
        for (index, answer) in indexes.into_iter().zip(self.backend().batch_get_items(items)) {
            let answer = if keys[index].is_empty() { Err(Error::NotFound) } else { answer };
            numbers[index] = last.number(keys[index], answer, |bytes| bytes as i64);
        }
        numbers
    }

    /// Moves ranges of objects with open sessions, from or to memory named by address; one number for each key: bytes, or
    /// a code. Ranges: memory of each, and their first bytes in the object.
    ///
    /// # Safety
    /// As [`Live::get_into`].
    pub(crate) unsafe fn in_session(
        &self,
        last: &Failures,
        keys: &[&[u8]],
        (memory, offsets): (&[Ranges], &[Vec<u64>]),
        act: impl FnOnce(Vec<RangesItem<'_>>) -> Vec<Result<u64, Error>>,
    ) -> Vec<i64> {
        if offsets.len() != keys.len() {
            return vec![last.refuse(format!("{} keys, offsets for {}", keys.len(), offsets.len())); keys.len()];
        }
        // SAFETY: passed on.
        let prepared = unsafe { self.prepare(last, keys, memory, false) };
        let mut indexes = Vec::with_capacity(keys.len());
        let mut items = Vec::with_capacity(keys.len());
        let mut numbers = vec![INVALID; keys.len()];
        for (index, ((key, object), offsets)) in keys.iter().zip(prepared).zip(offsets).enumerate() {
            match object {
                Ok(parts) if parts.len() == offsets.len() => {
                    let ranges = parts.into_iter().zip(offsets);
                    let fragments = ranges.map(|(memory, at)| Fragment { offset: *at, memory }).collect();
                    indexes.push(index);
                    items.push(RangesItem { key, fragments });
                }
                Ok(parts) => {
                    numbers[index] = last.refuse(format!("{} buffers, {} offsets", parts.len(), offsets.len()));
                }
                Err(number) => numbers[index] = number,
            }
        }
        for (index, answer) in indexes.into_iter().zip(act(items)) {
            numbers[index] = last.number(keys[index], answer, |bytes| bytes as i64);
        }
        numbers
    }

    /// Checked memory of each object, or its number. What is registered stays so while the parts live.
    ///
    /// # Safety
    /// As [`Live::get_into`].
    unsafe fn prepare<'m>(
        &self,
        last: &Failures,
        keys: &[&[u8]],
        memory: &[Ranges],
        refuse_empty: bool,
    ) -> Vec<Result<Parts<'m>, i64>> {
        if keys.len() != memory.len() {
            let number = last.refuse(format!("{} keys, memory for {}", keys.len(), memory.len()));
            return keys.iter().map(|_| Err(number)).collect();
        }
        let parts = |(key, ranges): (&&[u8], &Ranges)| {
            // SAFETY: passed on.
            let lent = ranges.iter().map(|(address, len)| unsafe { self.lend(*address, *len) });
            let parts: Parts<'m> = lent.collect::<Result<_, Error>>().map_err(|error| last.code(key, error))?;
            if refuse_empty && parts.iter().all(LocalBuffer::is_empty) {
                return Err(last.refuse("an object of no bytes (YB_ALLOW_EMPTY=1 allows it)"));
            }
            Ok(parts)
        };
        keys.iter().zip(memory).map(parts).collect()
    }

    /// Memory of the caller for one call: refused when it is null, or starts in registered memory and reaches over its
    /// end; memory that was never registered is taken on the caller's word.
    ///
    /// # Safety
    /// As [`Live::get_into`].
    unsafe fn lend<'m>(&self, address: u64, len: u64) -> Result<LocalBuffer<'m>, Error> {
        if address == 0 {
            return Err(Error::Invalid("a null address".into()));
        }
        // SAFETY: passed on.
        self.backend().lend(unsafe { ForeignMemory::new(address, len) })
    }

    /// Whether a zero-copy call may use this memory: not null, not over the end of registered memory it starts in.
    pub(crate) fn check(&self, last: &Failures, address: u64, len: u64) -> bool {
        // SAFETY: the memory is not used.
        let lent = unsafe { self.lend(address, len) };
        last.note(NO_KEY, lent).is_some()
    }

    /// Registers memory for transfers. 0, or a code.
    ///
    /// # Safety
    /// The memory must stay mapped, readable and writable until it is unregistered or the store is closed.
    pub(crate) unsafe fn register(&self, last: &Failures, address: u64, len: u64) -> i64 {
        // SAFETY: passed on.
        let memory = unsafe { ForeignMemory::new(address, len) };
        last.number(NO_KEY, self.backend().register_buffer(memory), |()| 0)
    }

    /// Takes registered memory back when no call uses it any more. 0, or a code.
    pub(crate) fn unregister(&self, last: &Failures, address: u64) -> i64 {
        last.number(NO_KEY, self.backend().unregister_buffer(address), |()| 0)
    }
}

/// The config for some of the keys: settings given per key follow their keys.
fn only<'c>(config: &'c ReplicateConfig, indexes: &[usize], all: usize) -> Cow<'c, ReplicateConfig> {
    if indexes.len() == all {
        return Cow::Borrowed(config);
    }
    let mut kept = config.clone();
    kept.keep(indexes, all);
    Cow::Owned(kept)
}
