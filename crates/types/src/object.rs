//! What a writer asks for an object.

use std::borrow::Cow;

use yb_pack::Pack;

use crate::generation::{V0_3_10_POST1, V0_3_11, V0_3_12, V0_3_13, V0_3_14};

/// What the bytes of an object are. Kept and shown; no effect on placement. Unknown numbers are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Pack)]
#[pack(transparent)]
pub struct ObjectDataType(pub u8);

impl ObjectDataType {
    /// Not told.
    pub const UNKNOWN: ObjectDataType = ObjectDataType(0);
    /// KV-cache blocks.
    pub const KVCACHE: ObjectDataType = ObjectDataType(1);
    /// A tensor.
    pub const TENSOR: ObjectDataType = ObjectDataType(2);
    /// Model weights.
    pub const WEIGHT: ObjectDataType = ObjectDataType(3);
    /// A sample.
    pub const SAMPLE: ObjectDataType = ObjectDataType(4);
    /// Activations.
    pub const ACTIVATION: ObjectDataType = ObjectDataType(5);
    /// Gradients.
    pub const GRADIENT: ObjectDataType = ObjectDataType(6);
    /// Optimizer state.
    pub const OPTIMIZER_STATE: ObjectDataType = ObjectDataType(7);
    /// Metadata.
    pub const METADATA: ObjectDataType = ObjectDataType(8);
    /// Anything else.
    pub const GENERAL: ObjectDataType = ObjectDataType(9);
}

/// What a put does to the soft pin of its object. Unknown numbers are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Pack)]
#[pack(transparent)]
pub struct SoftPinAction(pub u8);

impl SoftPinAction {
    /// Leave it as it is.
    pub const PRESERVE: SoftPinAction = SoftPinAction(0);
    /// Set it.
    pub const ENABLE: SoftPinAction = SoftPinAction(1);
    /// Take it away.
    pub const DISABLE: SoftPinAction = SoftPinAction(2);
}

/// The `with_soft_pin` of generations before 0.3.13: true asks for a pin, false leaves it as it is.
impl From<bool> for SoftPinAction {
    fn from(with_soft_pin: bool) -> Self {
        if with_soft_pin { SoftPinAction::ENABLE } else { SoftPinAction::PRESERVE }
    }
}

impl From<SoftPinAction> for bool {
    fn from(action: SoftPinAction) -> Self {
        action == SoftPinAction::ENABLE
    }
}

/// How and where the replicas of an object are to be placed.
#[derive(Clone, Debug, PartialEq, Eq, Pack)]
pub struct ReplicateConfig {
    /// Memory replicas wanted.
    pub replica_num: u64,
    /// NVMe-oF replicas wanted.
    #[pack(since = V0_3_11)]
    pub nof_replica_num: u64,
    /// Distributed-filesystem replicas wanted.
    #[pack(since = V0_3_13)]
    pub dfs_replica_num: u64,
    /// What happens to the soft pin. Before 0.3.13 this was a bool `with_soft_pin`.
    #[pack(was(bool, V0_3_13))]
    pub soft_pin_action: SoftPinAction,
    /// How long the soft pin lasts, in milliseconds; only with `ENABLE`.
    #[pack(since = V0_3_13)]
    pub soft_pin_ttl_ms: Option<u64>,
    /// Never evict.
    #[pack(since = V0_3_10_POST1)]
    pub with_hard_pin: bool,
    /// Segment names to try first, in order.
    pub preferred_segments: Vec<String>,
    /// Deprecated single form of `preferred_segments`.
    pub preferred_segment: String,
    /// NVMe-oF segment names to try first.
    #[pack(since = V0_3_11)]
    pub preferred_nof_segments: Vec<String>,
    /// All keys of the call into one segment.
    pub prefer_alloc_in_same_node: bool,
    /// What the bytes are.
    #[pack(since = V0_3_11)]
    pub data_type: ObjectDataType,
    /// Host of the writer, empty = unknown.
    #[pack(since = V0_3_12)]
    pub host_id: String,
    /// One group per key of the call.
    #[pack(since = V0_3_12)]
    pub group_ids: Option<Vec<String>>,
    /// 0.3.14: one session per key of the call (compatible member 1).
    #[pack(since = V0_3_14, compatible = 1)]
    pub session_ids: Option<Vec<String>>,
    /// 0.3.14: NICs preferred for the whole call (compatible member 2).
    #[pack(since = V0_3_14, compatible = 2)]
    pub preferred_hca_names: Option<Vec<String>>,
    /// 0.3.14: NICs preferred per key (compatible member 3).
    #[pack(since = V0_3_14, compatible = 3)]
    pub per_key_preferred_hca_names: Option<Vec<Vec<String>>>,
    /// 0.3.14: residency affinity per key (compatible member 4).
    #[pack(since = V0_3_14, compatible = 4)]
    pub residency_affinity_ids: Option<Vec<String>>,
}

impl ReplicateConfig {
    /// The configuration for some of the `all` keys of a call, named by their `indexes`: settings given per key follow
    /// their keys.
    pub fn only(&self, indexes: &[usize], all: usize) -> Cow<'_, ReplicateConfig> {
        fn kept<T: Clone>(list: &Option<Vec<T>>, indexes: &[usize], all: usize) -> Option<Vec<T>> {
            match list {
                Some(list) if list.len() == all => {
                    Some(indexes.iter().filter_map(|index| list.get(*index).cloned()).collect())
                }
                other => other.clone(),
            }
        }
        let per_key = self.group_ids.is_some()
            || self.session_ids.is_some()
            || self.per_key_preferred_hca_names.is_some()
            || self.residency_affinity_ids.is_some();
        if !per_key || indexes.len() == all {
            return Cow::Borrowed(self);
        }
        Cow::Owned(ReplicateConfig {
            group_ids: kept(&self.group_ids, indexes, all),
            session_ids: kept(&self.session_ids, indexes, all),
            per_key_preferred_hca_names: kept(&self.per_key_preferred_hca_names, indexes, all),
            residency_affinity_ids: kept(&self.residency_affinity_ids, indexes, all),
            ..self.clone()
        })
    }
}

impl Default for ReplicateConfig {
    fn default() -> Self {
        ReplicateConfig {
            replica_num: 1,
            nof_replica_num: 0,
            dfs_replica_num: 0,
            soft_pin_action: SoftPinAction::PRESERVE,
            soft_pin_ttl_ms: None,
            with_hard_pin: false,
            preferred_segments: Vec::new(),
            preferred_segment: String::new(),
            preferred_nof_segments: Vec::new(),
            prefer_alloc_in_same_node: false,
            data_type: ObjectDataType::UNKNOWN,
            host_id: String::new(),
            group_ids: None,
            session_ids: None,
            preferred_hca_names: None,
            per_key_preferred_hca_names: None,
            residency_affinity_ids: None,
        }
    }
}

impl ReplicateConfig {
    /// Makes it the configuration of some of the `of` keys of a call, those at `indices`: lists that have one entry per
    /// key keep the entries of these.
    pub fn keep(&mut self, indices: &[usize], of: usize) {
        fn cut<T: Clone>(list: &mut Option<Vec<T>>, indices: &[usize], of: usize) {
            if let Some(all) = list.as_mut().filter(|all| all.len() == of && of != indices.len()) {
                *all = indices.iter().filter_map(|index| all.get(*index).cloned()).collect();
            }
        }
        cut(&mut self.group_ids, indices, of);
        cut(&mut self.session_ids, indices, of);
        cut(&mut self.per_key_preferred_hca_names, indices, of);
        cut(&mut self.residency_affinity_ids, indices, of);
    }
}

/// Key and checksum of an object whose bytes have all arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq, Pack)]
#[pack(unwrapped_before = V0_3_13)]
pub struct ObjectMeta {
    /// The key; any bytes, not necessarily UTF-8.
    pub key: Vec<u8>,
    /// CRC-64/ECMA-182 of the whole object, if the writer computed it.
    #[pack(since = V0_3_13)]
    pub object_checksum: Option<u64>,
}
