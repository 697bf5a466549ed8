//! Objects in memory that the caller names by address.

use pyo3::prelude::*;
use yb_client::Duplicates;

use super::{Store, multi_ranges, one, single_ranges, slices, wanted};
use crate::convert::{Key, Unsigned};
use crate::last_error::INVALID;
use crate::live::{Ranges, Writing};
use crate::replicate_config::ReplicateConfig;

impl Store {
    fn write_from(&self, py: Python<'_>, key: &Key, parts: Ranges, writing: Writing<'_>) -> i64 {
        self.with(py, INVALID, |live, last| {
            if parts.iter().all(|(_, bytes)| *bytes == 0) && !live.allows_empty() {
                return 0;
            }
            if writing.config.prefer_alloc_in_same_node {
                return last.refuse("prefer_alloc_in_same_node works with the multi-buffer calls only");
            }
            // SAFETY: the caller of a zero-copy method promises that the ranges are memory during the call.
            one(unsafe { live.put_from(last, &[&key.0], &[parts], writing) })
        })
    }

    fn write_many_from(
        &self,
        py: Python<'_>,
        keys: &[Key],
        ranges: Option<Vec<Ranges>>,
        writing: Writing<'_>,
    ) -> Vec<i64> {
        let refused = vec![INVALID; keys.len()];
        let Some(ranges) = ranges else { return refused };
        self.with(py, refused, |live, last| {
            if writing.config.prefer_alloc_in_same_node {
                let number = last.refuse("prefer_alloc_in_same_node works with the multi-buffer calls only");
                return vec![number; keys.len()];
            }
            // SAFETY: the caller of a zero-copy method promises that the ranges are memory during the call.
            unsafe { live.put_from(last, &slices(keys), &ranges, writing) }
        })
    }
}

#[pymethods]
impl Store {
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
        let writing = Writing::put(wanted(config.as_ref()), Duplicates::LastWins);
        self.write_from(py, &key, vec![(buffer_ptr.0, size.0)], writing)
    }

    /// As `put_from`, in the place of what is there (see `upsert`).
    #[pyo3(signature = (key, buffer_ptr, size, config=None))]
    fn upsert_from(
        &self,
        py: Python<'_>,
        key: Key,
        buffer_ptr: Unsigned,
        size: Unsigned,
        config: Option<ReplicateConfig>,
    ) -> i64 {
        let writing = Writing::upsert(wanted(config.as_ref()), Duplicates::LastWins);
        self.write_from(py, &key, vec![(buffer_ptr.0, size.0)], writing)
    }

    /// Stores one object of `metadata_size` bytes from `metadata_buffer_ptr` and after them `size` bytes from
    /// `buffer_ptr`. As `put_from`, a negative code on failure.
    #[pyo3(signature = (key, buffer_ptr, metadata_buffer_ptr, size, metadata_size, config=None))]
    #[allow(clippy::too_many_arguments, reason = "the arguments are the peer's")]
    fn put_from_with_metadata(
        &self,
        py: Python<'_>,
        key: Key,
        buffer_ptr: Unsigned,
        metadata_buffer_ptr: Unsigned,
        size: Unsigned,
        metadata_size: Unsigned,
        config: Option<ReplicateConfig>,
    ) -> i64 {
        let parts = [(metadata_buffer_ptr.0, metadata_size.0), (buffer_ptr.0, size.0)];
        let writing = Writing::put(wanted(config.as_ref()), Duplicates::LastWins);
        self.write_from(py, &key, parts.into_iter().filter(|(_, bytes)| *bytes > 0).collect(), writing)
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
        let writing = Writing::put(wanted(config.as_ref()), Duplicates::LastWins);
        self.write_many_from(py, &keys, single_ranges(&buffer_ptrs, &sizes), writing)
    }

    /// As `batch_put_from`, in the place of what is there (see `upsert`).
    #[pyo3(signature = (keys, buffer_ptrs, sizes, config=None))]
    fn batch_upsert_from(
        &self,
        py: Python<'_>,
        keys: Vec<Key>,
        buffer_ptrs: Vec<Unsigned>,
        sizes: Vec<Unsigned>,
        config: Option<ReplicateConfig>,
    ) -> Vec<i64> {
        let writing = Writing::upsert(wanted(config.as_ref()), Duplicates::LastWins);
        self.write_many_from(py, &keys, single_ranges(&buffer_ptrs, &sizes), writing)
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
            let writing = Writing::put(wanted(config.as_ref()), Duplicates::LastWins);
            // SAFETY: the caller of a zero-copy method promises that the ranges are memory during the call.
            unsafe { live.put_from(last, &slices(&keys), &ranges, writing) }
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
