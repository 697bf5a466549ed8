//! Replicas: where they are, and having them copied, moved and cleared.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use yb_client::{Error, Task};
use yb_types::Uuid;

use super::{Store, slices};
use crate::convert::{Key, Text, Unsigned};
use crate::descriptors::ReplicaDescriptor;
use crate::enums::{TaskStatus, TaskType};
use crate::last_error::{Failures, INVALID, NO_KEY};

/// Two halves of an id.
type Id = (u64, u64);

/// What is known of a task.
#[pyclass(module = "mooncake.store", get_all, frozen)]
#[derive(Clone)]
pub(crate) struct QueryTaskResponse {
    /// Id of the task: two numbers.
    id: Id,
    /// What it does.
    r#type: TaskType,
    /// Where it stands.
    status: TaskStatus,
    /// When it was made, in milliseconds since 1970.
    created_at_ms_epoch: i64,
    /// When it changed last, in milliseconds since 1970.
    last_updated_at_ms_epoch: i64,
    /// Who does it: two numbers.
    assigned_client: Id,
    /// Why it ended.
    message: String,
}

#[pymethods]
impl QueryTaskResponse {
    fn __repr__(&self) -> String {
        format!(
            "<QueryTaskResponse id={} type={} status={} message={}>",
            Uuid { first: self.id.0, second: self.id.1 },
            self.r#type.label(),
            self.status.label(),
            self.message
        )
    }
}

impl From<Task> for QueryTaskResponse {
    fn from(task: Task) -> Self {
        QueryTaskResponse {
            id: (task.id.first, task.id.second),
            r#type: TaskType(u32::try_from(task.kind.0).unwrap_or(u32::MAX)),
            status: TaskStatus(u32::try_from(task.status.0).unwrap_or(u32::MAX)),
            created_at_ms_epoch: task.created_ms,
            last_updated_at_ms_epoch: task.updated_ms,
            assigned_client: (task.client.0.first, task.client.0.second),
            message: task.message,
        }
    }
}

/// An id with 0, or no id with a code.
fn id_or_code(last: &Failures, key: &Key, answer: Result<Uuid, Error>) -> (Id, i64) {
    match answer {
        Ok(id) => ((id.first, id.second), 0),
        Err(error) => ((0, 0), last.code(&key.0, error)),
    }
}

#[pymethods]
impl Store {
    /// The replicas of an object; empty when it is missing. Takes a read lease.
    fn get_replica_desc(&self, py: Python<'_>, key: Key) -> Vec<ReplicaDescriptor> {
        let found = self.with(py, None, |live, last| last.note(&key.0, live.client().query(&key.0)));
        found.map_or(Vec::new(), |lookup| lookup.replicas.into_iter().map(ReplicaDescriptor).collect())
    }

    /// Key to replicas for the keys that are there.
    fn batch_get_replica_desc<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyDict>> {
        let plain: Vec<Key> = keys.iter().map(|key| key.extract()).collect::<PyResult<_>>()?;
        let found = self.with(py, Vec::new(), |live, last| {
            let answers = live.client().batch_query(&slices(&plain)).into_iter().zip(&plain);
            answers.map(|(answer, key)| last.note(&key.0, answer)).collect::<Vec<_>>()
        });
        let replicas = PyDict::new(py);
        for (key, lookup) in keys.iter().zip(found) {
            if let Some(lookup) = lookup {
                let list: Vec<ReplicaDescriptor> = lookup.replicas.into_iter().map(ReplicaDescriptor).collect();
                replicas.set_item(key, list)?;
            }
        }
        Ok(replicas)
    }

    /// Asks for replicas of an object on the segments `targets`: `((id, id), 0)`, or `((0, 0), code)`: -704 missing,
    /// -600 a segment that is not there, -1401 too many tasks wait. The task is done by the owner of a replica; see
    /// `query_task`.
    fn create_copy_task(&self, py: Python<'_>, key: Key, targets: Vec<Text>) -> (Id, i64) {
        self.with(py, ((0, 0), INVALID), |live, last| {
            let targets: Vec<&str> = targets.iter().map(|target| target.0.as_str()).collect();
            if targets.is_empty() {
                return ((0, 0), last.refuse("a copy needs a target"));
            }
            id_or_code(last, &key, live.client().create_copy_task(&key.0, &targets))
        })
    }

    /// Asks for the replica of an object on segment `source` to go to segment `target`. As `create_copy_task`.
    fn create_move_task(&self, py: Python<'_>, key: Key, source: Text, target: Text) -> (Id, i64) {
        self.with(py, ((0, 0), INVALID), |live, last| {
            id_or_code(last, &key, live.client().create_move_task(&key.0, &source.0, &target.0))
        })
    }

    /// What is known of a task: `(QueryTaskResponse, 0)`, or `(None, code)`: -1400 no such task.
    fn query_task(&self, py: Python<'_>, task_id: Vec<Unsigned>) -> PyResult<(Option<QueryTaskResponse>, i64)> {
        let [first, second] = task_id.as_slice() else {
            return Err(PyTypeError::new_err("a task's id is a tuple of two ints"));
        };
        let id = Uuid { first: first.0, second: second.0 };
        Ok(self.with(py, (None, INVALID), |live, last| match live.client().query_task(id) {
            Ok(task) => (Some(QueryTaskResponse::from(task)), 0),
            Err(error) => (None, last.code(NO_KEY, error)),
        }))
    }

    /// Clears the replicas that this client wrote, on the segment `segment_name` or (`""`) on all: the keys that were
    /// cleared. Objects that somebody read a short time ago, of other writers, and that are missing are left out.
    #[pyo3(signature = (keys, segment_name=Text::default()), text_signature = "($self, keys, segment_name='')")]
    fn batch_replica_clear<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Bound<'py, PyAny>>,
        segment_name: Text,
    ) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let plain: Vec<Key> = keys.iter().map(|key| key.extract()).collect::<PyResult<_>>()?;
        let cleared = self.with(py, None, |live, last| {
            last.note(NO_KEY, live.client().clear_replicas(&slices(&plain), &segment_name.0))
        });
        // In the caller's own words, each as often as it was cleared.
        let mut cleared = cleared.unwrap_or_default();
        let mut was_cleared = |key: &Key| {
            let place = cleared.iter().position(|cleared| *cleared == key.0);
            place.map(|place| cleared.swap_remove(place)).is_some()
        };
        Ok(keys.into_iter().zip(&plain).filter(|(_, key)| was_cleared(key)).map(|(object, _)| object).collect())
    }
}
