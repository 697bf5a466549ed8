//! Keys: what is there, where, and its removal.

use pyo3::prelude::*;
use pyo3::types::PyDict;
use yb_client::Error;

use super::{Store, looked_up, slices};
use crate::convert::{Key, Text};
use crate::descriptors::ReplicaDescriptor;
use crate::live::{INVALID, LastError};

/// 1 or 0 for what is there, else a code.
fn existence(last: &LastError, key: &Key, answer: Result<bool, Error>) -> i64 {
    match looked_up(&key.0, answer) {
        Err(Error::NotFound) => 0,
        answer => last.number(answer, i64::from),
    }
}

#[pymethods]
impl Store {
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
}
