//! The store's C API, `include/store_c.h`.
//!
//! A handle names a [`Store`], which has a client from setup on. Functions answer the client's codes, -600 without a
//! client, and -1 for a handle that names nothing.

mod arguments;
mod keys;
mod lifecycle;
mod memory;
mod objects;

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use yb_client::{Client, Error};

pub use arguments::ReplicateConfig;
pub use keys::{
    mooncake_store_batch_is_exist, mooncake_store_get_size, mooncake_store_is_exist, mooncake_store_remove,
    mooncake_store_remove_all, mooncake_store_remove_by_regex,
};
pub use lifecycle::{
    mooncake_store_create, mooncake_store_destroy, mooncake_store_get_hostname, mooncake_store_health_check,
    mooncake_store_init_all, mooncake_store_last_error, mooncake_store_setup,
};
pub use memory::{mooncake_store_register_buffer, mooncake_store_unregister_buffer};
pub use objects::{
    mooncake_store_batch_get_into, mooncake_store_batch_put_from, mooncake_store_get_into, mooncake_store_put,
    mooncake_store_put_from,
};

use crate::handles::guarded;
use crate::table::Table;

/// Stores by handle.
static STORES: Table<Arc<Store>> = Table::new();

/// A store, set up or not.
#[derive(Default)]
struct Store {
    live: RwLock<Option<Live>>,
    /// The last failure in words.
    last: Mutex<String>,
}

/// What a store has from setup on.
#[derive(Clone)]
struct Live {
    client: Client,
    /// Whether an object of no bytes may be stored.
    allow_empty: bool,
}

impl Store {
    fn live(&self) -> Result<Live, Error> {
        self.live.read().clone().ok_or(Error::Invalid("the store is not set up".into()))
    }

    /// Keeps the words of a failure and gives its number.
    fn refuse(&self, error: &Error) -> i64 {
        // A miss is an ordinary answer and has to stay cheap.
        if *error != Error::NotFound {
            tracing::warn!("{error}");
            *self.last.lock() = error.to_string();
        }
        i64::from(error.code().0)
    }
}

/// Runs the body of a function on a store.
fn on_store(handle: *mut c_void, call: impl FnOnce(&Store) -> i64) -> i64 {
    guarded(-1, || match STORES.get(handle) {
        Ok(store) => call(&store),
        Err(what) => {
            tracing::warn!("the store is {what}");
            -1
        }
    })
}

/// Runs the body of a function on a store that is set up.
fn on_client(handle: *mut c_void, call: impl FnOnce(&Live) -> Result<i64, Error>) -> i64 {
    on_store(handle, |store| store.live().and_then(|live| call(&live)).unwrap_or_else(|error| store.refuse(&error)))
}

/// A number as a function with an `int` gives it. Codes fit.
fn int(number: i64) -> c_int {
    c_int::try_from(number).unwrap_or(if number < 0 { c_int::MIN } else { c_int::MAX })
}
