//! Tenants: name spaces with a quota each.
//!
//! A tenant is a name that an operator registered with a quota of memory. Inside the catalog it is a small number, so
//! that a key of a tenant costs no byte more than a key without. Names that nobody registered leave no trace.
//!
//! Invariants:
//! - what an account is charged is the sum over its objects of size times memory replicas, at every moment when no call
//!   holds a shard;
//! - a number is given to another name only when no object has it, and not at once: see [`REST`](registry);
//! - while multi-tenancy is off there is one tenant, and no ledger.

mod account;
mod clear;
mod evict;
mod name;
mod order;
mod registry;
mod shares;

pub use clear::ClearCursor;
pub use name::is_valid_tenant_name;
pub use registry::{PolicyRefusal, TenantQuota, TenantSums, Tenants};

pub(crate) use account::{Charge, QuotaMiss};
pub(crate) use order::TenantOrder;
