//! Reading: where the replicas of an object are, whether it exists, what matches a pattern.
//!
//! A lookup takes its shard's lock for reading and writes nothing but the lease word, which only moves forward.

use regex::bytes::{Regex, RegexBuilder};
use yb_types::{ErrorCode, MonotonicTime};

use crate::catalog::Catalog;
use crate::entry::Entry;
use crate::key::Tenant;
use crate::view::ObjectView;

/// A pattern over keys, found anywhere in the key.
///
/// The peer's patterns are ECMAScript's; of these, look-around and back-references are not understood and refused.
pub struct KeyPattern(Regex);

/// Memory that a compiled pattern may take.
const PATTERN_BYTES: usize = 1 << 20;

impl KeyPattern {
    /// Compiles a pattern.
    ///
    /// # Errors
    /// `INVALID_PARAMS` for a pattern that is wrong, too large, or needs what is not supported.
    pub fn new(pattern: &str) -> Result<Self, ErrorCode> {
        let built = RegexBuilder::new(pattern).unicode(false).size_limit(PATTERN_BYTES).build();
        built.map(KeyPattern).map_err(|_| ErrorCode::INVALID_PARAMS)
    }

    pub(crate) fn matches(&self, entry: &Entry) -> bool {
        self.0.is_match(entry.key.as_slice())
    }
}

/// Whether an existence check protects what it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Probe {
    /// Grants a read lease, as `ExistKey` of the peer does.
    Lease,
    /// Changes nothing (`ProbeKey` of 0.3.14).
    Only,
}

impl Catalog {
    /// Looks up keys and grants a read lease on each that is found. `sink` gets one answer a key, in order, with the
    /// readable replicas; OBJECT_NOT_FOUND, or REPLICA_IS_NOT_READY for a key that is being written.
    pub fn get_replicas<K: AsRef<[u8]>>(
        &self,
        tenant: Tenant,
        keys: impl IntoIterator<Item = K>,
        now: MonotonicTime,
        mut sink: impl FnMut(usize, Result<ObjectView<'_>, ErrorCode>),
    ) {
        let until = now + self.settings.lease_ttl;
        for (at, key) in keys.into_iter().enumerate() {
            self.look(tenant, key.as_ref(), |found| {
                sink(
                    at,
                    found.map(|(entry, view)| {
                        entry.grant(until);
                        view
                    }),
                );
            });
        }
    }

    /// As [`get_replicas`](Self::get_replicas) but without any effect: no lease, no sign of use.
    pub fn peek<K: AsRef<[u8]>>(
        &self,
        tenant: Tenant,
        keys: impl IntoIterator<Item = K>,
        mut sink: impl FnMut(usize, Result<ObjectView<'_>, ErrorCode>),
    ) {
        for (at, key) in keys.into_iter().enumerate() {
            self.look(tenant, key.as_ref(), |found| sink(at, found.map(|(_, view)| view)));
        }
    }

    /// Says for each key, in order, whether it is readable.
    pub fn exist<K: AsRef<[u8]>>(
        &self,
        tenant: Tenant,
        keys: impl IntoIterator<Item = K>,
        probe: Probe,
        now: MonotonicTime,
        mut sink: impl FnMut(usize, bool),
    ) {
        let until = now + self.settings.lease_ttl;
        for (at, key) in keys.into_iter().enumerate() {
            self.look(tenant, key.as_ref(), |found| {
                if let (Ok((entry, _)), Probe::Lease) = (&found, probe) {
                    entry.grant(until);
                }
                sink(at, found.is_ok());
            });
        }
    }

    fn look<R>(
        &self,
        tenant: Tenant,
        key: &[u8],
        then: impl FnOnce(Result<(&Entry, ObjectView<'_>), ErrorCode>) -> R,
    ) -> R {
        let hash = self.hash(tenant, key);
        let state = self.shards[hash.shard].state.read();
        let Some(slot) = state.find(tenant, hash.word, key) else { return then(Err(ErrorCode::OBJECT_NOT_FOUND)) };
        // Loaded under the shard's lock: see the invariants of the segment table.
        let table = self.segments.load();
        let entry = &state.slab[slot];
        then(match ObjectView::readable(entry, &table) {
            Some(view) => Ok((entry, view)),
            None if !entry.is_finished() && ObjectView::whole(entry, &table).replicas().next().is_some() => {
                Err(ErrorCode::REPLICA_IS_NOT_READY)
            }
            // Its segments are gone, and the sweep has not come by yet.
            None => Err(ErrorCode::OBJECT_NOT_FOUND),
        })
    }

    /// Hands out every readable object whose key matches, each with a read lease. Walks over all keys, one shard at a
    /// time: not for a thread that serves requests.
    pub fn get_replicas_by_regex(
        &self,
        tenant: Tenant,
        pattern: &KeyPattern,
        now: MonotonicTime,
        mut sink: impl FnMut(ObjectView<'_>),
    ) {
        let until = now + self.settings.lease_ttl;
        for shard in &self.shards {
            let state = shard.state.read();
            let table = self.segments.load();
            for entry in state.iter().filter(|entry| entry.tenant == tenant && pattern.matches(entry)) {
                if let Some(view) = ObjectView::readable(entry, &table) {
                    entry.grant(until);
                    sink(view);
                }
            }
        }
    }
}
