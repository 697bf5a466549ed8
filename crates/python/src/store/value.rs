//! Objects as Python values: bytes-like in, `bytes` and handles out.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use smallvec::smallvec;
use yb_client::{Duplicates, Error, GetItem, LocalBuffer, Parts, PutItem};

use super::{Store, one, slices, wanted};
use crate::convert::Key;
use crate::handle::BufferHandle;
use crate::last_error::INVALID;
use crate::live::Writing;
use crate::memory::{Value, unwritten_bytes};
use crate::replicate_config::ReplicateConfig;

/// The bytes of an object that is handed out as `bytes`.
enum Read {
    /// So many, where they were to go.
    InPlace(u64),
    Elsewhere(Vec<u8>),
}

impl Store {
    fn write_one(&self, py: Python<'_>, key: &Key, value: &Value, writing: Writing<'_>) -> PyResult<i64> {
        let bytes = value.bytes();
        Ok(self.with(py, INVALID, |live, last| {
            if bytes.is_empty() && !live.allows_empty() {
                return last.refuse("a value of no bytes (YB_ALLOW_EMPTY=1 allows it)");
            }
            one(live.put(last, &[PutItem::new(&key.0, bytes)], writing))
        }))
    }

    fn write_parts(
        &self,
        py: Python<'_>,
        key: &Key,
        parts: &Bound<'_, PyTuple>,
        writing: Writing<'_>,
    ) -> PyResult<i64> {
        let parts: Vec<Value> = parts.iter().map(|part| Value::part(&part)).collect::<PyResult<_>>()?;
        let bytes: Vec<&[u8]> = parts.iter().map(Value::bytes).filter(|part| !part.is_empty()).collect();
        Ok(self.with(py, INVALID, |live, last| {
            if bytes.is_empty() && !live.allows_empty() {
                return 0;
            }
            let from: Parts<'_> = bytes.iter().map(|part| LocalBuffer::source(part)).collect();
            one(live.put(last, &[PutItem { key: &key.0, from }], writing))
        }))
    }

    fn write_many(
        &self,
        py: Python<'_>,
        keys: &[Key],
        values: &[Bound<'_, PyAny>],
        writing: Writing<'_>,
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
            let numbers = live.put(last, &items, writing);
            numbers.into_iter().find(|number| *number != 0).unwrap_or(0)
        }))
    }
}

#[pymethods]
impl Store {
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
        let writing = Writing::put(wanted(config.as_ref()), Duplicates::FirstWins);
        self.write_one(py, &key, &Value::of(value)?, writing)
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
        let writing = Writing::put(wanted(config.as_ref()), Duplicates::FirstWins);
        self.write_parts(py, &key, parts, writing)
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
        let writing = Writing::put(wanted(config.as_ref()), Duplicates::FirstWins);
        self.write_many(py, &keys, &values, writing)
    }

    /// Stores `value` in the place of what is there; a new key is stored as by `put`. Readers see the old object until
    /// the new one is complete; it stays when this fails. 0, or a code as `put`; -708 or -714 while the object is copied
    /// or moved.
    #[pyo3(signature = (key, value, config=None))]
    fn upsert(
        &self,
        py: Python<'_>,
        key: Key,
        value: &Bound<'_, PyAny>,
        config: Option<ReplicateConfig>,
    ) -> PyResult<i64> {
        let writing = Writing::upsert(wanted(config.as_ref()), Duplicates::FirstWins);
        self.write_one(py, &key, &Value::of(value)?, writing)
    }

    /// As `put_parts`, in the place of what is there.
    #[pyo3(signature = (key, *parts, config=None))]
    fn upsert_parts(
        &self,
        py: Python<'_>,
        key: Key,
        parts: &Bound<'_, PyTuple>,
        config: Option<ReplicateConfig>,
    ) -> PyResult<i64> {
        let writing = Writing::upsert(wanted(config.as_ref()), Duplicates::FirstWins);
        self.write_parts(py, &key, parts, writing)
    }

    /// As `put_batch`, in the place of what is there.
    #[pyo3(signature = (keys, values, config=None))]
    fn upsert_batch(
        &self,
        py: Python<'_>,
        keys: Vec<Key>,
        values: Vec<Bound<'_, PyAny>>,
        config: Option<ReplicateConfig>,
    ) -> PyResult<i64> {
        let writing = Writing::upsert(wanted(config.as_ref()), Duplicates::FirstWins);
        self.write_many(py, &keys, &values, writing)
    }

    /// The object's bytes; `b""` when it is empty, missing, or cannot be read (`last_error` tells which).
    #[pyo3(signature = (key, /))]
    fn get<'py>(&self, py: Python<'py>, key: Key) -> PyResult<Bound<'py, PyBytes>> {
        let Some(found) = self.with(py, None, |live, last| last.note(&key.0, live.backend().find(&key.0))) else {
            return Ok(PyBytes::new(py, b""));
        };
        let size = found.size();
        // Straight into the object that is handed out: its size is known, and nobody else has seen it yet.
        let (bytes, memory) = unwritten_bytes(py, size)?;
        let read = self.with(py, None, |live, last| {
            let item = GetItem { key: &key.0, into: smallvec![memory.lend()] };
            let read = match live.backend().read_found(item, found) {
                // It was replaced by a longer one in between, and the lease on the first has ended.
                Err(Error::BufferTooSmall { .. }) => live.backend().get(&key.0).map(Read::Elsewhere),
                read => read.map(Read::InPlace),
            };
            last.note(&key.0, read)
        });
        Ok(match read {
            Some(Read::InPlace(read)) if read == size => bytes,
            // It was replaced by a shorter one in between.
            Some(Read::InPlace(read)) => PyBytes::new(py, bytes.as_bytes().get(..read as usize).unwrap_or_default()),
            Some(Read::Elsewhere(bytes)) => PyBytes::new(py, &bytes),
            None => PyBytes::new(py, b""),
        })
    }

    /// Each object's bytes, `b""` for those that are missing or cannot be read.
    #[pyo3(signature = (keys, /))]
    fn get_batch<'py>(&self, py: Python<'py>, keys: Vec<Key>) -> Vec<Bound<'py, PyBytes>> {
        let found = self.with(py, Vec::new(), |live, last| {
            let answers = live.backend().batch_get(&slices(&keys)).into_iter();
            answers.zip(&keys).map(|(answer, key)| last.note(&key.0, answer).unwrap_or_default()).collect::<Vec<_>>()
        });
        let mut found = found.into_iter();
        keys.iter().map(|_| PyBytes::new(py, &found.next().unwrap_or_default())).collect()
    }

    /// The object in memory of its own, or None when it is missing or cannot be read.
    #[pyo3(signature = (key, /))]
    fn get_buffer(&self, py: Python<'_>, key: Key) -> Option<BufferHandle> {
        let answer = self.with(py, None, |live, last| last.note(&key.0, live.backend().get(&key.0)));
        answer.map(BufferHandle::new)
    }

    /// As `get_buffer` for many keys.
    #[pyo3(signature = (keys, /))]
    fn batch_get_buffer(&self, py: Python<'_>, keys: Vec<Key>) -> Vec<Option<BufferHandle>> {
        let found = self.with(py, Vec::new(), |live, last| {
            let answers = live.backend().batch_get(&slices(&keys)).into_iter();
            answers.zip(&keys).map(|(answer, key)| last.note(&key.0, answer)).collect::<Vec<_>>()
        });
        let mut found = found.into_iter();
        keys.iter().map(|_| found.next().flatten().map(BufferHandle::new)).collect()
    }
}
