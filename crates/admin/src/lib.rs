//! Admin HTTP of the master: metrics, health, listings, and a status page for people; and the HTTP metadata server of
//! the Transfer Engine, [`MetadataServer`].
//!
//! Scrapes and listings of a large pool must not delay a request of a client, nor need memory in proportion to the
//! pool. So the server runs on a thread of its own, asks the pool only through [`Pool`], and writes key lists page by
//! page while the reader takes them.
//!
//! Paths, shapes and error bodies are those of the peer's admin server; `docs/admin.md` lists the differences. Every
//! endpoint is a row of [`endpoints`]: the router, the OpenAPI document and its test are made from that table.
#![forbid(unsafe_code)]

mod access;
mod answer;
mod control;
mod desk;
mod door;
mod endpoint;
mod handlers;
mod jobs;
mod metadata;
mod openapi;
mod places;
mod pool;
mod query;
mod refusals;
mod server;
mod tenants;
mod token;

pub use access::WriteRules;
pub use control::{ChangeReport, ChangeRow, Control, ControlError};
pub use desk::Parts;
pub use endpoint::{Access, Endpoint, Parameter};
pub use handlers::endpoints;
pub use jobs::{DrainOrder, DrainRow, Jobs};
pub use metadata::{MetadataLedger, MetadataOptions, MetadataServer};
pub use openapi::openapi;
pub use places::DoorCounts;
pub use pool::{ClientRow, Cursor, KeyPage, Operation, Overview, Pool, SegmentRow, status_name};
pub use query::{Query, Window};
pub use server::{Admin, AdminError, AdminOptions};
pub use tenants::{TenantRow, Tenants};
