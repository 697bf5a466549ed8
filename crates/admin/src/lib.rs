//! Admin HTTP of the master: metrics, health, listings, and a status page for people; and the HTTP metadata server of
//! the Transfer Engine, [`MetadataServer`].
//!
//! Scrapes and listings of a large pool must not delay a request of a client, nor need memory in proportion to the
//! pool. So the server runs on a thread of its own, asks the pool only through [`Pool`], and writes key lists page by
//! page while the reader takes them.
//!
//! Paths, shapes and error bodies are those of the peer's admin server, with these differences: values of the query are
//! always percent-decoded (`+` stays a plus sign); `/query_key` changes nothing (the peer grants a lease); endpoints of
//! features that are not built answer 501 naming the feature.
#![forbid(unsafe_code)]

mod door;
mod handlers;
mod metadata;
mod pool;
mod query;
mod server;

pub use metadata::{MetadataLedger, MetadataOptions, MetadataServer};
pub use pool::{ClientRow, Cursor, KeyPage, Operation, Overview, Pool, SegmentRow, status_name};
pub use query::Query;
pub use server::{Admin, AdminError, AdminOptions};
