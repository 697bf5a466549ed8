//! Keys: what is there, and its removal.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use yb_client::{Error, ProbePolicy};

use super::{Store, looked_up, one, slices};
use crate::convert::{Key, Text, Unsigned, truth};
use crate::last_error::{Failures, INVALID, NO_KEY};

/// 1 or 0 for what is there, else a code.
fn existence(last: &Failures, key: &Key, answer: Result<bool, Error>) -> i64 {
    match looked_up(&key.0, answer) {
        Err(Error::NotFound) => 0,
        answer => last.number(&key.0, answer, i64::from),
    }
}

/// What else an existence check does.
#[pyclass(module = "mooncake.store", from_py_object)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ExistOptions {
    prefetch_to_memory: bool,
}

#[pymethods]
impl ExistOptions {
    #[new]
    fn new() -> Self {
        ExistOptions::default()
    }

    /// Whether an object that is on disk only is to be brought to memory (False).
    #[getter]
    fn prefetch_to_memory(&self) -> bool {
        self.prefetch_to_memory
    }

    #[setter]
    fn set_prefetch_to_memory(&mut self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.prefetch_to_memory = truth(value)?;
        Ok(())
    }

    fn __repr__(&self) -> String {
        let prefetch = if self.prefetch_to_memory { "True" } else { "False" };
        format!("<ExistOptions prefetch_to_memory={prefetch}>")
    }
}

impl Store {
    fn probe(&self, py: Python<'_>, keys: &[Key], policy: ProbePolicy) -> Vec<i64> {
        self.with(py, vec![INVALID; keys.len()], |live, last| {
            let answers = live.backend().batch_probe(&slices(keys), policy).into_iter();
            let refused = |answer: &Result<bool, Error>| matches!(answer, Err(Error::Invalid(_)));
            answers
                .zip(keys)
                .map(|(answer, key)| match policy {
                    // Not for the sake of an empty key.
                    ProbePolicy::LastHitOnly(_) if refused(&answer) => last.number(&key.0, answer, i64::from),
                    _ => existence(last, key, answer),
                })
                .collect()
        })
    }
}

#[pymethods]
impl Store {
    /// 1: there is an object; 0: there is none; negative: it could not be found out. Takes a read lease. The options
    /// change nothing but where the object is afterwards, and nothing yet: disks are not built.
    #[pyo3(signature = (key, options=ExistOptions::default()), text_signature = "($self, key, options=...)")]
    fn is_exist(&self, py: Python<'_>, key: Key, options: ExistOptions) -> i64 {
        let _ = options;
        self.with(py, INVALID, |live, last| existence(last, &key, live.backend().exists(&key.0)))
    }

    /// As `is_exist` for many keys.
    #[pyo3(signature = (keys, options=ExistOptions::default()), text_signature = "($self, keys, options=...)")]
    fn batch_is_exist(&self, py: Python<'_>, keys: Vec<Key>, options: ExistOptions) -> Vec<i64> {
        let _ = options;
        self.with(py, vec![INVALID; keys.len()], |live, last| {
            let answers = live.backend().batch_exists(&slices(&keys)).into_iter();
            answers.zip(&keys).map(|(answer, key)| existence(last, key, answer)).collect()
        })
    }

    /// As `is_exist`, without a read lease: the object may be gone with the next call. -900 under a master before 0.3.14.
    fn probe_key(&self, py: Python<'_>, key: Key) -> i64 {
        let numbers = self.probe(py, &[key], ProbePolicy::None);
        one(numbers)
    }

    /// As `probe_key` for many keys. `policy` "none": no leases; "LastHitOnly": the keys are groups of `candidate_size`,
    /// and the last group that is there as a whole gets read leases. -600 for each key when the keys are no whole number
    /// of groups. `ValueError` for another policy.
    #[pyo3(signature = (keys, policy=Text("none".to_owned()), candidate_size=Unsigned(1)), text_signature = "($self, keys, policy='none', candidate_size=1)")]
    fn batch_probe_key(
        &self,
        py: Python<'_>,
        keys: Vec<Key>,
        policy: Text,
        candidate_size: Unsigned,
    ) -> PyResult<Vec<i64>> {
        let policy = match policy.0.as_str() {
            "none" => ProbePolicy::None,
            "LastHitOnly" => ProbePolicy::LastHitOnly(candidate_size.0),
            other => return Err(PyValueError::new_err(format!("Unknown batch_probe_key policy: {other}"))),
        };
        Ok(self.probe(py, &keys, policy))
    }

    /// Bytes of an object, or a code: -704 missing, -703 still being written.
    #[pyo3(signature = (key, /))]
    fn get_size(&self, py: Python<'_>, key: Key) -> i64 {
        self.with(py, INVALID, |live, last| {
            last.number(&key.0, looked_up(&key.0, live.backend().size(&key.0)), |bytes| bytes as i64)
        })
    }

    /// Removes an object: 0, or a code: -704 missing, -706 read a short time ago. `force` removes it all the same.
    #[pyo3(signature = (key, force=false))]
    fn remove(&self, py: Python<'_>, key: Key, force: bool) -> i64 {
        self.with(py, INVALID, |live, last| {
            last.number(&key.0, looked_up(&key.0, live.backend().remove(&key.0, force)), |()| 0)
        })
    }

    /// Removes many objects: for each 0 or a code, as `remove`. `force` removes those with a read lease too.
    #[pyo3(signature = (keys, force=false))]
    fn batch_remove(&self, py: Python<'_>, keys: Vec<Key>, force: bool) -> Vec<i64> {
        self.with(py, vec![INVALID; keys.len()], |live, last| {
            let answers = live.backend().batch_remove(&slices(&keys), force).into_iter();
            answers.zip(&keys).map(|(answer, key)| last.number(&key.0, looked_up(&key.0, answer), |()| 0)).collect()
        })
    }

    /// Removes the objects whose key the pattern matches: how many, or a code; -600: the pattern cannot be read.
    #[pyo3(signature = (regex_pattern, force=false))]
    fn remove_by_regex(&self, py: Python<'_>, regex_pattern: Text, force: bool) -> i64 {
        self.with(py, INVALID, |live, last| {
            last.number(NO_KEY, live.backend().remove_by_regex(&regex_pattern.0, force), |removed| removed as i64)
        })
    }

    /// Removes every object: how many, or a code. Those with a read lease stay unless `force`.
    #[pyo3(signature = (force=false))]
    fn remove_all(&self, py: Python<'_>, force: bool) -> i64 {
        self.with(py, INVALID, |live, last| {
            last.number(NO_KEY, live.backend().remove_all(force), |removed| removed as i64)
        })
    }
}
