//! Sessions: one reservation, or one lookup, for many transfers of parts of an object.
//!
//! The problem: an engine moves a model's layers one by one, and cannot pay a request to the master for each.
//!
//! Sessions belong to the client and are named by their key. Invariants: a put session writes nothing after its space may
//! have been given to others; what it publishes has no byte of an older object; a get session reads one object from its
//! start to its end, or says that it is over.

mod coverage;
mod get;
mod put;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use get::GetSession;
use put::PutSession;

/// The sessions of one client.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    puts: Mutex<HashMap<Vec<u8>, Arc<PutSession>>>,
    gets: Mutex<HashMap<Vec<u8>, GetSession>>,
}
