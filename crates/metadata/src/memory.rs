//! A store inside one process, for tests and for engines that meet only there.

use std::time::Duration;

use parking_lot::Mutex;
use yb_env::Clock;

use crate::error::StoreError;
use crate::lease::{Lease, Renewal};
use crate::table::{Caller, Limits, Table};
use crate::{MetadataStore, StoreErrorKind};

/// Keeps records in memory. Every instance is a store of its own.
#[derive(Debug)]
pub struct MemoryStore {
    table: Mutex<Table>,
    clock: Clock,
    address: String,
}

impl MemoryStore {
    /// An empty store. `address` is only for messages.
    pub fn new(address: impl Into<String>, clock: Clock) -> Self {
        MemoryStore { table: Mutex::new(Table::new(Limits::default())), clock, address: address.into() }
    }
}

fn caller(lease: Option<&Lease>) -> Caller<'_> {
    Caller { instance: lease.map(Lease::instance), ttl: lease.map_or(Duration::ZERO, Lease::ttl) }
}

impl MetadataStore for MemoryStore {
    fn get(&self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let reply = self.table.lock().get(key, self.clock.now());
        Ok((reply.status == 200).then(|| reply.body.into_owned()))
    }

    fn put(&self, key: &str, value: &[u8], lease: Option<&Lease>) -> Result<(), StoreError> {
        let reply = self.table.lock().put(key, value, caller(lease), self.clock.now());
        let kind = match reply.status {
            200 => return Ok(()),
            400 => StoreErrorKind::Duplicate,
            _ => StoreErrorKind::Full,
        };
        Err(StoreError::new(kind, &self.address, String::from_utf8_lossy(&reply.body)))
    }

    fn delete(&self, key: &str) -> Result<bool, StoreError> {
        Ok(self.table.lock().delete(key, Caller::default(), self.clock.now()).status == 200)
    }

    fn renew(&self, lease: &Lease) -> Result<Renewal, StoreError> {
        let kept = self.table.lock().renew(caller(Some(lease)), self.clock.now()).status == 200;
        Ok(if kept { Renewal::Kept } else { Renewal::Lost })
    }

    fn address(&self) -> &str {
        &self.address
    }
}
