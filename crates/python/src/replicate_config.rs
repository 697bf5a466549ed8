//! How and where the replicas of an object are to be placed, as Python callers say it.

use pyo3::prelude::*;
use yb_types::ReplicateConfig as Wanted;

use crate::convert::{Text, Unsigned, truth};
use crate::enums::{ObjectDataType, SoftPinAction};

/// How many replicas an object gets and where.
///
/// Attributes are copied: assign a whole list, changing the list that was read changes nothing. A value of a wrong type
/// is a `TypeError`. The config is taken by value at each call.
#[pyclass(module = "mooncake.store", from_py_object)]
#[derive(Clone, Debug, Default)]
pub(crate) struct ReplicateConfig {
    wanted: Wanted,
}

impl ReplicateConfig {
    /// The same for the client.
    pub(crate) fn wanted(&self) -> &Wanted {
        &self.wanted
    }
}

fn texts(list: Vec<Text>) -> Vec<String> {
    list.into_iter().map(|text| text.0).collect()
}

#[pymethods]
impl ReplicateConfig {
    #[new]
    fn new() -> Self {
        ReplicateConfig::default()
    }

    /// Memory replicas wanted (1). Best effort: fewer segments give fewer replicas.
    #[getter]
    fn replica_num(&self) -> u64 {
        self.wanted.replica_num
    }

    #[setter]
    fn set_replica_num(&mut self, value: Unsigned) {
        self.wanted.replica_num = value.0;
    }

    /// NVMe-oF replicas wanted (0).
    #[getter]
    fn nof_replica_num(&self) -> u64 {
        self.wanted.nof_replica_num
    }

    #[setter]
    fn set_nof_replica_num(&mut self, value: Unsigned) {
        self.wanted.nof_replica_num = value.0;
    }

    /// Replicas wanted on a distributed file system (0).
    #[getter]
    fn dfs_replica_num(&self) -> u64 {
        self.wanted.dfs_replica_num
    }

    #[setter]
    fn set_dfs_replica_num(&mut self, value: Unsigned) {
        self.wanted.dfs_replica_num = value.0;
    }

    /// What the put does to the soft pin (`SoftPinAction.PRESERVE`).
    #[getter]
    fn soft_pin_action(&self) -> SoftPinAction {
        SoftPinAction(self.wanted.soft_pin_action.0.into())
    }

    #[setter]
    fn set_soft_pin_action(&mut self, value: SoftPinAction) {
        self.wanted.soft_pin_action = yb_types::SoftPinAction(value.0 as u8);
    }

    /// Milliseconds a soft pin lasts; `None`: as the master is set. Only with `SoftPinAction.ENABLE`.
    #[getter]
    fn soft_pin_ttl_ms(&self) -> Option<u64> {
        self.wanted.soft_pin_ttl_ms
    }

    #[setter]
    fn set_soft_pin_ttl_ms(&mut self, value: Option<Unsigned>) {
        self.wanted.soft_pin_ttl_ms = value.map(|ms| ms.0);
    }

    /// Never evict (False).
    #[getter]
    fn with_hard_pin(&self) -> bool {
        self.wanted.with_hard_pin
    }

    #[setter]
    fn set_with_hard_pin(&mut self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.wanted.with_hard_pin = truth(value)?;
        Ok(())
    }

    /// Names of segments to try first, in order; unknown names are ignored.
    #[getter]
    fn preferred_segments(&self) -> Vec<String> {
        self.wanted.preferred_segments.clone()
    }

    #[setter]
    fn set_preferred_segments(&mut self, value: Vec<Text>) {
        self.wanted.preferred_segments = texts(value);
    }

    /// Names of NVMe-oF segments to try first.
    #[getter]
    fn preferred_nof_segments(&self) -> Vec<String> {
        self.wanted.preferred_nof_segments.clone()
    }

    #[setter]
    fn set_preferred_nof_segments(&mut self, value: Vec<Text>) {
        self.wanted.preferred_nof_segments = texts(value);
    }

    /// One segment to try first; the older form of `preferred_segments`.
    #[getter]
    fn preferred_segment(&self) -> &str {
        &self.wanted.preferred_segment
    }

    #[setter]
    fn set_preferred_segment(&mut self, value: Text) {
        self.wanted.preferred_segment = value.0;
    }

    /// All keys of a multi-buffer call into one segment (False).
    #[getter]
    fn prefer_alloc_in_same_node(&self) -> bool {
        self.wanted.prefer_alloc_in_same_node
    }

    #[setter]
    fn set_prefer_alloc_in_same_node(&mut self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.wanted.prefer_alloc_in_same_node = truth(value)?;
        Ok(())
    }

    /// What the bytes are (`ObjectDataType.UNKNOWN`).
    #[getter]
    fn data_type(&self) -> ObjectDataType {
        ObjectDataType(self.wanted.data_type.0.into())
    }

    #[setter]
    fn set_data_type(&mut self, value: ObjectDataType) {
        self.wanted.data_type = yb_types::ObjectDataType(value.0 as u8);
    }

    /// `None`, or one group for each key of the call; `""`: no group.
    #[getter]
    fn group_ids(&self) -> Option<Vec<String>> {
        self.wanted.group_ids.clone()
    }

    #[setter]
    fn set_group_ids(&mut self, value: Option<Vec<Text>>) {
        self.wanted.group_ids = value.map(texts);
    }

    /// `None`, or one session for each key of the call, of at most 256 bytes; the master's events name it.
    #[getter]
    fn session_ids(&self) -> Option<Vec<String>> {
        self.wanted.session_ids.clone()
    }

    #[setter]
    fn set_session_ids(&mut self, value: Option<Vec<Text>>) {
        self.wanted.session_ids = value.map(texts);
    }

    /// `None`, or one id for each key of the call: objects of managed weights with the same id stay together.
    #[getter]
    fn residency_affinity_ids(&self) -> Option<Vec<String>> {
        self.wanted.residency_affinity_ids.clone()
    }

    #[setter]
    fn set_residency_affinity_ids(&mut self, value: Option<Vec<Text>>) {
        self.wanted.residency_affinity_ids = value.map(texts);
    }

    /// `None`, or names of RDMA devices that the memory should be near.
    #[getter]
    fn preferred_hca_names(&self) -> Option<Vec<String>> {
        self.wanted.preferred_hca_names.clone()
    }

    #[setter]
    fn set_preferred_hca_names(&mut self, value: Option<Vec<Text>>) {
        self.wanted.preferred_hca_names = value.map(texts);
    }

    /// As `preferred_hca_names`, one list for each key of the call.
    #[getter]
    fn per_key_preferred_hca_names(&self) -> Option<Vec<Vec<String>>> {
        self.wanted.per_key_preferred_hca_names.clone()
    }

    #[setter]
    fn set_per_key_preferred_hca_names(&mut self, value: Option<Vec<Vec<Text>>>) {
        self.wanted.per_key_preferred_hca_names = value.map(|lists| lists.into_iter().map(texts).collect());
    }

    fn __repr__(&self) -> String {
        format!("<{}>", self.__str__())
    }

    fn __str__(&self) -> String {
        let wanted = &self.wanted;
        let mut text = format!(
            "ReplicateConfig: {{ replica_num: {}, nof_replica_num: {}, dfs_replica_num: {}, soft_pin_action: {}",
            wanted.replica_num,
            wanted.nof_replica_num,
            wanted.dfs_replica_num,
            self.soft_pin_action().label(),
        );
        let ttl = wanted.soft_pin_ttl_ms.map_or("default".to_owned(), |ms| ms.to_string());
        text += &format!(", soft_pin_ttl_ms: {ttl}, with_hard_pin: {}", u8::from(wanted.with_hard_pin));
        text += &format!(", preferred_segments: [{}]", wanted.preferred_segments.join(", "));
        if !wanted.preferred_segment.is_empty() {
            text += &format!(", preferred_segment (deprecated): {}", wanted.preferred_segment);
        }
        text += &format!(", preferred_nof_segments: [{}]", wanted.preferred_nof_segments.join(", "));
        text += &format!(", prefer_alloc_in_same_node: {}", u8::from(wanted.prefer_alloc_in_same_node));
        text += &format!(", data_type: {}", self.data_type().label());
        if let Some(groups) = &wanted.group_ids {
            text += &format!(", group_ids: [{}]", groups.join(", "));
        }
        if let Some(affinities) = &wanted.residency_affinity_ids {
            text += &format!(", residency_affinity_ids: [{}]", affinities.join(", "));
        }
        text + " }"
    }
}
