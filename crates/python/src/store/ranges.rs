//! Reads of ranges of objects.

use std::sync::{Arc, Weak};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use yb_client::RangesSnapshot;

use super::{Store, slices};
use crate::convert::{Key, Unsigned};
use crate::last_error::Failures;
use crate::live::Live;
use crate::ranges::{PerRange, RangesCall};

/// What the pool said of some keys at one time, for `get_into_ranges_from_snapshot`. It belongs to the store that made it.
#[pyclass(module = "mooncake.store", frozen)]
pub(crate) struct RangedReadSnapshot {
    /// Whose it is, and what was said; nothing of a store that is not set up.
    taken: Option<(Weak<Live>, RangesSnapshot)>,
}

impl RangedReadSnapshot {
    /// What was said, if this client took it.
    fn of(&self, live: &Arc<Live>) -> Option<&RangesSnapshot> {
        let (owner, snapshot) = self.taken.as_ref()?;
        std::ptr::eq(owner.as_ptr(), Arc::as_ptr(live)).then_some(snapshot)
    }
}

#[pymethods]
impl Store {
    /// Reads ranges of objects into registered memory, all in one transfer. For buffer i, key j and range k:
    /// `all_sizes[i][j][k]` bytes of object `all_keys[i][j]` from byte `all_src_offsets[i][j][k]` on go to
    /// `buffer_ptrs[i] + all_dst_offsets[i][j][k]`. The answer has that shape: bytes, or a code: -704 missing; -600 for a
    /// range outside the object, memory that is not registered or reaches over the end of its registration, or lists whose
    /// lengths differ.
    fn get_into_ranges(
        &self,
        py: Python<'_>,
        buffer_ptrs: Vec<Unsigned>,
        all_keys: Vec<Vec<Key>>,
        all_dst_offsets: PerRange<Unsigned>,
        all_src_offsets: PerRange<Unsigned>,
        all_sizes: PerRange<Unsigned>,
    ) -> PerRange<i64> {
        let call = RangesCall {
            buffers: buffer_ptrs,
            keys: all_keys,
            destinations: all_dst_offsets,
            sources: all_src_offsets,
            sizes: all_sizes,
        };
        self.with(py, call.refused(), |live, last| {
            call.run(live.backend(), last, |items| live.backend().batch_get_ranges(items))
        })
    }

    /// Looks keys up for `get_into_ranges_from_snapshot`: one request now instead of one with each read. A key that is
    /// not there is told by the reads.
    fn prepare_get_into_ranges_snapshot(&self, py: Python<'_>, keys: Vec<Key>) -> RangedReadSnapshot {
        let taken = self.live().map(|live| {
            let snapshot = py.detach(|| live.client().ranges_snapshot(&slices(&keys)));
            (Arc::downgrade(&live), snapshot)
        });
        RangedReadSnapshot { taken }
    }

    /// As `get_into_ranges` for keys of a snapshot, without a request to the master until half of the read lease is over.
    /// -704: not there when the snapshot was made; -600 also: not in the snapshot. `ValueError` for the snapshot of
    /// another store.
    #[allow(clippy::too_many_arguments, reason = "the arguments are the peer's")]
    fn get_into_ranges_from_snapshot(
        &self,
        py: Python<'_>,
        snapshot: Option<PyRef<'_, RangedReadSnapshot>>,
        buffer_ptrs: Vec<Unsigned>,
        all_keys: Vec<Vec<Key>>,
        all_dst_offsets: PerRange<Unsigned>,
        all_src_offsets: PerRange<Unsigned>,
        all_sizes: PerRange<Unsigned>,
    ) -> PyResult<PerRange<i64>> {
        let call = RangesCall {
            buffers: buffer_ptrs,
            keys: all_keys,
            destinations: all_dst_offsets,
            sources: all_src_offsets,
            sizes: all_sizes,
        };
        let Some(live) = self.live() else { return Ok(call.refused()) };
        let taken = snapshot.as_ref().and_then(|snapshot| snapshot.of(&live));
        let taken = taken.ok_or_else(|| PyValueError::new_err("Ranged-read snapshot belongs to another Store"))?;
        Ok(py.detach(|| {
            Failures::of(|last| call.run(live.backend(), last, |items| live.client().batch_get_ranges_of(taken, items)))
        }))
    }
}
