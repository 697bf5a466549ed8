//! The master's state machine: objects, replicas, leases, segments, placement, eviction.
//!
//! **Problem.** Clients ask a few questions, very often: where are these keys, make room for these, they are written now.
//! Every answer must be cheap, and none may ever lead a reader to other bytes than those of the key it asked for.
//!
//! **Shape.** Pure: the caller brings time and randomness, and gets answers through a callback and [`Effects`] to carry
//! out. Keys are spread over 1024 shards, each under its own lock; no call holds two. A batch is the interface.
//!
//! **Invariants**
//! - An object is readable only after its `PutEnd`, and then never changes; a new write is a new [`Generation`].
//! - Bytes that somebody may still read (a lease) or write (a put that was given up) are not handed out again.
//! - A lease moves forward only. Eviction never takes what is leased or hard-pinned.
//! - No request looks at more than the keys it names, except listings and patterns, which say so.
//!
//! `docs/catalog.md` has the picture. [`Generation`]: yb_types::Generation
#![forbid(unsafe_code)]

mod catalog;
mod check;
mod clients;
mod contention;
mod copies;
mod copy;
mod cuts;
mod deferred;
mod departed;
mod directory;
mod ecmascript;
mod effects;
mod entry;
mod evict;
mod extras;
mod frees;
mod groups;
mod holdings;
mod key;
mod leaving;
mod list;
mod listing;
mod live;
mod lookup;
mod mount;
mod naming;
mod overtaken;
mod pattern;
mod placement;
mod placing;
mod plan;
mod planted;
mod publish;
mod put;
mod quarantine;
mod reclaim;
mod remove;
mod repair;
mod room;
mod segment;
mod segments;
mod settings;
mod shard;
mod shares;
mod slab;
mod stand_in;
mod standing;
mod stats;
mod strategies;
mod suspects;
mod sync;
mod table;
mod tenants;
mod tiers;
mod upkeep;
mod upsert;
mod vacancy;
mod view;
mod why;

pub use catalog::{Caller, Catalog};
pub use clients::ClientReport;
pub use contention::WaitClock;
pub use copies::{CopyKind, CopyLease};
pub use copy::{CopyCall, CopyEnd, CopyTarget, CopyView};
pub use departed::Absence;
pub use directory::{Adopting, Keeper, LoggedSegment, Order, Published, Roster, SyncCall, Told, Whereabouts};
pub use effects::{Effects, MountRefusal, PutRefusal, Quiesce, SegmentGone, UnmountCause};
pub use holdings::{Held, Holding, HoldingsCursor};
pub use key::{SHARDS, Tenant};
pub use listing::ListCursor;
pub use lookup::Probe;
pub use pattern::{KeyPattern, KeyWalk};
pub use placement::{PlacementPolicy, PlacementRequest, PlacementView, Random, SegmentGroup};
pub use plan::{DynamicCall, DynamicPlan, Elsewhere, NoPlan, Source};
pub use planted::Fault;
#[cfg(feature = "planted")]
pub use planted::plant;
pub use publish::Quiet;
pub use put::PutCall;
pub use quarantine::{ReplicaName, ReplicaPlace};
pub use reclaim::{EvictionGoal, Reclaimed};
pub use remove::{Force, Removal};
pub use repair::{Loss, Repair};
pub use segment::{MountedSegment, Reach};
pub use settings::{AllocationStrategy, BadSettings, CatalogSettings, TierSettings};
pub use stats::Stats;
pub use strategies::{Balanced, FreeRatioFirst, LocalFirst, RandomPlacement, SsdFreeRatioFirst};
pub use suspects::HeldBack;
pub use tenants::{ClearCursor, PolicyRefusal, TenantQuota, TenantSums, Tenants, is_valid_tenant_name};
pub use tiers::{Errand, Offloaded, PromotionCall};
pub use vacancy::Vacancy;
pub use view::{DiskView, ObjectView, ReplicaView};
pub use why::{Hindrance, NodeName, Usage};
pub use yb_alloc::{Alignment, Cutting};
pub use yb_evict::{PolicyKind, UnknownPolicy};
