//! Sessions: one reservation or one lookup for many transfers, as an engine that moves layer by layer needs it.

use pyo3::prelude::*;

use super::{Store, looked_up, multi_ranges, slices, wanted};
use crate::convert::{Key, Unsigned};
use crate::last_error::INVALID;
use crate::live::Live;
use crate::replicate_config::ReplicateConfig;

#[pymethods]
impl Store {
    /// Opens put sessions: reserves `sizes[i]` bytes for `keys[i]`, to be written range by range. For each 0 or a code:
    /// -705 there is an object; -600 a session is open, no bytes, or lists of different lengths; -200 no room. A session
    /// that is not ended within five minutes is given up.
    #[pyo3(signature = (keys, sizes, config=None))]
    fn batch_put_session_start(
        &self,
        py: Python<'_>,
        keys: Vec<Key>,
        sizes: Vec<Unsigned>,
        config: Option<ReplicateConfig>,
    ) -> Vec<i64> {
        self.with(py, vec![INVALID; keys.len()], |live, last| {
            let sizes: Vec<u64> = Unsigned::list(&sizes).collect();
            let answers = live.client().put_session_start(&slices(&keys), &sizes, wanted(config.as_ref()));
            answers.into_iter().zip(&keys).map(|(answer, key)| last.number(&key.0, answer, |()| 0)).collect()
        })
    }

    /// Writes ranges of objects with open put sessions, all in one transfer: `all_sizes[i][j]` bytes from
    /// `all_buffer_ptrs[i][j]` to byte `all_dst_offsets[i][j]` of object `keys[i]`. For each key its bytes, or a code:
    /// -600 no open session, a range outside the object, null, or lists of different lengths; -800 not moved.
    fn batch_put_from_multi_buffer_ranges(
        &self,
        py: Python<'_>,
        keys: Vec<Key>,
        all_buffer_ptrs: Vec<Vec<Unsigned>>,
        all_sizes: Vec<Vec<Unsigned>>,
        all_dst_offsets: Vec<Vec<Unsigned>>,
    ) -> Vec<i64> {
        let refused = vec![INVALID; keys.len()];
        let Some(ranges) = multi_ranges(&all_buffer_ptrs, &all_sizes) else { return refused };
        let offsets = numbers(&all_dst_offsets);
        self.with(py, refused, |live, last| {
            // SAFETY: the caller of a zero-copy method promises that the ranges are memory during the call.
            unsafe {
                live.in_session(last, &slices(&keys), (&ranges, &offsets), |items| {
                    live.client().put_session_write(&items)
                })
            }
        })
    }

    /// Ends put sessions: the objects become readable, with zeros where nothing was written. For each key 0 or a code:
    /// -600 no open session; -800 something that was to be written is not there, and the object is given up.
    fn batch_put_session_end(&self, py: Python<'_>, keys: Vec<Key>) -> Vec<i64> {
        self.with(py, vec![INVALID; keys.len()], |live, last| {
            let answers = live.client().put_session_end(&slices(&keys)).into_iter();
            answers.zip(&keys).map(|(answer, key)| last.number(&key.0, answer, |()| 0)).collect()
        })
    }

    /// Gives put sessions up: nothing of them becomes readable. For each key 0 or a code: -600 no open session.
    fn batch_put_session_revoke(&self, py: Python<'_>, keys: Vec<Key>) -> Vec<i64> {
        self.with(py, vec![INVALID; keys.len()], |live, last| {
            let answers = live.client().put_session_revoke(&slices(&keys)).into_iter();
            answers.zip(&keys).map(|(answer, key)| last.number(&key.0, answer, |()| 0)).collect()
        })
    }

    /// Opens get sessions: looks objects up once for many reads. For each key 0 or a code: -704 missing, -702 not in
    /// memory. A key that is started twice has to be ended twice.
    fn batch_get_session_start(&self, py: Python<'_>, keys: Vec<Key>) -> Vec<i64> {
        self.with(py, vec![INVALID; keys.len()], |live, last| {
            let answers = live.client().get_session_start(&slices(&keys)).into_iter();
            answers.zip(&keys).map(|(answer, key)| last.number(&key.0, looked_up(&key.0, answer), |()| 0)).collect()
        })
    }

    /// Reads ranges of objects with open get sessions, all in one transfer: `all_sizes[i][j]` bytes from byte
    /// `all_src_offsets[i][j]` of object `keys[i]` to `all_buffer_ptrs[i][j]`. For each key its bytes, or a code: -600 no
    /// open session, a range outside the object, null, or lists of different lengths; -707 the object was replaced or
    /// removed, and the session has ended; -800 not moved.
    fn batch_get_into_multi_buffer_ranges(
        &self,
        py: Python<'_>,
        keys: Vec<Key>,
        all_buffer_ptrs: Vec<Vec<Unsigned>>,
        all_sizes: Vec<Vec<Unsigned>>,
        all_src_offsets: Vec<Vec<Unsigned>>,
    ) -> Vec<i64> {
        let refused = vec![INVALID; keys.len()];
        let Some(ranges) = multi_ranges(&all_buffer_ptrs, &all_sizes) else { return refused };
        let offsets = numbers(&all_src_offsets);
        self.with(py, refused, |live: &Live, last| {
            // SAFETY: the caller of a zero-copy method promises that the ranges are memory during the call.
            unsafe {
                live.in_session(last, &slices(&keys), (&ranges, &offsets), |items| {
                    live.client().get_session_read(items)
                })
            }
        })
    }

    /// Ends get sessions: 0; -1 when the store is not set up. A key without a session is no mistake.
    fn batch_get_session_end(&self, py: Python<'_>, keys: Vec<Key>) -> i64 {
        self.with(py, -1, |live, _| {
            live.client().get_session_end(&slices(&keys));
            0
        })
    }
}

fn numbers(lists: &[Vec<Unsigned>]) -> Vec<Vec<u64>> {
    lists.iter().map(|list| Unsigned::list(list).collect()).collect()
}
