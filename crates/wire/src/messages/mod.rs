//! Arguments and results of every function, by noun.
//!
//! A struct named `…Args` holds the arguments of one or more functions with the same list. Texts and keys borrow from
//! the frame; lists of keys and numbers stay in it ([`List`](yb_pack::List)). A member that older generations lack
//! says `since`; what it reads as there is its `default`.

mod common;
mod local;
mod lookup;
mod nof;
mod offload;
mod own;
mod peer;
mod put;
mod remove;
mod segment;
mod session;
mod task;
mod weight;

pub use common::{ClientArgs, ClientKeyArgs, ErrorOr, KeyArgs, KeysArgs, NameArgs, NoArgs, PatternArgs};
pub use local::*;
pub use lookup::{BatchProbeKeyArgs, GetReplicaListResponse, GrantLeasePolicy, LeaseMode};
pub use nof::*;
pub use offload::*;
pub use own::*;
pub use peer::*;
pub use put::*;
pub use remove::*;
pub use segment::*;
pub use session::{GetStorageConfigResponse, PingResponse};
pub use task::*;
pub use weight::*;
