//! What the HTTP metadata server does with a request (pure).
//!
//! Texts and status codes are the peer's. Beyond it, a record may belong to an instance: then it goes away when the
//! instance is silent for the time it named, and a newer instance replaces it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use yb_types::MonotonicTime;

/// Bounds of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most records (`MC_METADATA_MAX_KEYS`).
    pub keys: usize,
    /// Most bytes of one record (`MC_METADATA_MAX_BODY_BYTES`).
    pub body: u64,
    /// Most bytes of all records with their keys (`MC_METADATA_MAX_TOTAL_BYTES`).
    pub total: u64,
    /// An address record that exists may be written again with the same bytes, as with the peer's 0.3.14.
    pub unchanged: bool,
    /// An address record may be replaced by anybody, as with the peer's server in Go.
    pub replace: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { keys: 65_536, body: 64 << 20, total: 1 << 30, unchanged: false, replace: false }
    }
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// HTTP status.
    pub status: u16,
    /// Text, or the value asked for.
    pub body: Cow<'static, [u8]>,
}

impl Reply {
    /// An answer with a fixed text.
    pub const fn text(status: u16, text: &'static str) -> Self {
        Reply { status, body: Cow::Borrowed(text.as_bytes()) }
    }
}

/// Who asks: nobody in particular, or one life of one engine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Caller<'a> {
    /// Its name.
    pub instance: Option<&'a str>,
    /// How long its records stay without a word from it.
    pub ttl: Duration,
}

/// Longest time that an instance may ask for.
const MAX_TTL: Duration = Duration::from_secs(86_400);

#[derive(Clone, Debug)]
struct Entry {
    value: Vec<u8>,
    instance: Option<String>,
}

#[derive(Clone, Debug)]
struct Instance {
    ends: MonotonicTime,
    keys: BTreeSet<String>,
}

/// All records.
#[derive(Clone, Debug)]
pub struct Table {
    limits: Limits,
    entries: BTreeMap<String, Entry>,
    instances: BTreeMap<String, Instance>,
    bytes: u64,
    /// No instance ends before.
    quiet_until: MonotonicTime,
}

impl Table {
    /// An empty table.
    pub fn new(limits: Limits) -> Self {
        Table {
            limits,
            entries: BTreeMap::new(),
            instances: BTreeMap::new(),
            bytes: 0,
            quiet_until: MonotonicTime(u64::MAX),
        }
    }

    /// Its bounds.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value of a key.
    pub fn get(&mut self, key: &str, now: MonotonicTime) -> Reply {
        self.expire(now);
        match self.entries.get(key) {
            Some(entry) => Reply { status: 200, body: Cow::Owned(entry.value.clone()) },
            None => Reply::text(404, "metadata not found"),
        }
    }

    /// Sets a key.
    pub fn put(&mut self, key: &str, value: &[u8], caller: Caller<'_>, now: MonotonicTime) -> Reply {
        self.expire(now);
        if value.len() as u64 > self.limits.body {
            return Reply::text(413, "request body too large");
        }
        let old = self.entries.get(key);
        if let Some(old) = old.filter(|_| key.contains("rpc_meta")) {
            if self.limits.unchanged && old.value == value && caller.instance.is_none() {
                return Reply::text(200, "metadata unchanged");
            }
            if !self.limits.replace && caller.instance.is_none() {
                return Reply::text(400, "Duplicate rpc_meta key not allowed");
            }
        }
        let old_size = old.map_or(0, |old| size(key, &old.value));
        if old.is_none() && self.entries.len() >= self.limits.keys {
            return Reply::text(507, "metadata key budget exhausted");
        }
        let bytes = self.bytes - old_size + size(key, value);
        if bytes > self.limits.total {
            return Reply::text(507, "metadata size budget exhausted");
        }
        self.remove(key);
        self.bytes = bytes;
        let instance = caller.instance.map(str::to_owned);
        if let Some(instance) = &instance {
            self.touch(instance, caller.ttl, now).insert(key.to_owned());
        }
        self.entries.insert(key.to_owned(), Entry { value: value.to_vec(), instance });
        Reply::text(200, "metadata updated")
    }

    /// Removes a key. An instance removes only what is its own.
    pub fn delete(&mut self, key: &str, caller: Caller<'_>, now: MonotonicTime) -> Reply {
        self.expire(now);
        let foreign = |entry: &Entry| caller.instance.is_some() && entry.instance.as_deref() != caller.instance;
        if self.entries.get(key).is_none_or(foreign) {
            return Reply::text(404, "metadata not found");
        }
        self.remove(key);
        Reply::text(200, "metadata deleted")
    }

    /// An instance says that it lives.
    pub fn renew(&mut self, caller: Caller<'_>, now: MonotonicTime) -> Reply {
        self.expire(now);
        let Some(instance) = caller.instance else { return Reply::text(400, "an instance is required") };
        if !self.instances.contains_key(instance) {
            return Reply::text(404, "instance not found");
        }
        self.touch(instance, caller.ttl, now);
        Reply::text(200, "instance renewed")
    }

    /// An answer for a request without a key.
    pub const fn no_key() -> Reply {
        Reply::text(400, "metadata key is required")
    }

    fn touch(&mut self, instance: &str, ttl: Duration, now: MonotonicTime) -> &mut BTreeSet<String> {
        let ends = now + ttl.clamp(Duration::from_secs(1), MAX_TTL);
        self.quiet_until = self.quiet_until.min(ends);
        let state =
            self.instances.entry(instance.to_owned()).or_insert_with(|| Instance { ends, keys: BTreeSet::new() });
        state.ends = ends;
        &mut state.keys
    }

    /// Takes a record out, and its instance when it has no other.
    fn remove(&mut self, key: &str) {
        let Some(entry) = self.entries.remove(key) else { return };
        self.bytes -= size(key, &entry.value);
        let Some(name) = entry.instance else { return };
        if let Some(instance) = self.instances.get_mut(&name) {
            instance.keys.remove(key);
            if instance.keys.is_empty() {
                self.instances.remove(&name);
            }
        }
    }

    fn expire(&mut self, now: MonotonicTime) {
        if now < self.quiet_until {
            return;
        }
        let over: Vec<String> =
            self.instances.iter().filter(|(_, instance)| instance.ends <= now).map(|(name, _)| name.clone()).collect();
        for name in over {
            for key in self.instances.remove(&name).map(|instance| instance.keys).unwrap_or_default() {
                self.remove(&key);
            }
        }
        let next = self.instances.values().map(|instance| instance.ends).min();
        self.quiet_until = next.unwrap_or(MonotonicTime(u64::MAX));
    }
}

fn size(key: &str, value: &[u8]) -> u64 {
    (key.len() + value.len()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: MonotonicTime = MonotonicTime(1);

    fn engine(name: &str) -> Caller<'_> {
        Caller { instance: Some(name), ttl: Duration::from_secs(10) }
    }

    fn words(reply: &Reply) -> (u16, &str) {
        (reply.status, std::str::from_utf8(&reply.body).unwrap())
    }

    #[test]
    fn address_records_of_nobody_are_not_replaced_and_others_are() {
        let mut table = Table::new(Limits::default());
        assert_eq!(words(&table.put("mooncake/rpc_meta/z", b"{}", Caller::default(), T0)), (200, "metadata updated"));
        let again = table.put("mooncake/rpc_meta/z", b"{}", Caller::default(), T0);
        assert_eq!(words(&again), (400, "Duplicate rpc_meta key not allowed"));
        table.limits.unchanged = true;
        assert_eq!(words(&table.put("mooncake/rpc_meta/z", b"{}", Caller::default(), T0)), (200, "metadata unchanged"));
        assert_eq!(table.put("mooncake/rpc_meta/z", b"{1}", Caller::default(), T0).status, 400);
        table.limits.replace = true;
        assert_eq!(table.put("mooncake/rpc_meta/z", b"{1}", Caller::default(), T0).status, 200);
    }

    #[test]
    fn the_newest_instance_wins_and_the_older_one_cannot_remove_its_record() {
        let mut table = Table::new(Limits::default());
        table.put("rpc_meta/z", b"old", engine("a"), T0);
        assert_eq!(table.put("rpc_meta/z", b"new", engine("b"), T0).status, 200);
        assert_eq!(table.renew(engine("a"), T0).status, 404, "it learns that it lost its name");
        assert_eq!(table.delete("rpc_meta/z", engine("a"), T0).status, 404);
        assert_eq!(table.get("rpc_meta/z", T0).body, Cow::Borrowed(&b"new"[..]));
        assert_eq!(table.delete("rpc_meta/z", engine("b"), T0).status, 200);
        assert!(table.is_empty() && table.instances.is_empty() && table.bytes == 0);
    }

    #[test]
    fn records_of_a_silent_instance_go_away_and_leave_nothing() {
        let mut table = Table::new(Limits::default());
        table.put("other", b"stays", Caller::default(), T0);
        for life in 0..100_u64 {
            let now = T0 + Duration::from_secs(100 * life);
            let name = format!("life {life}");
            table.put(&format!("rpc_meta/{life}"), b"x", engine(&name), now);
            table.put(&format!("ram/{life}"), b"y", engine(&name), now);
            assert_eq!(table.renew(engine(&name), now + Duration::from_secs(9)).status, 200);
            assert_eq!(table.get(&format!("ram/{life}"), now + Duration::from_secs(18)).status, 200);
            assert_eq!(table.get(&format!("ram/{life}"), now + Duration::from_secs(19)).status, 404);
        }
        assert_eq!((table.len(), table.instances.len(), table.bytes), (1, 0, 10));
    }

    #[test]
    fn budgets_hold_and_what_is_refused_changes_nothing() {
        let mut table = Table::new(Limits { keys: 2, body: 4, total: 12, ..Limits::default() });
        assert_eq!(words(&table.put("a", b"12345", Caller::default(), T0)), (413, "request body too large"));
        assert_eq!(table.put("a", b"1234", Caller::default(), T0).status, 200);
        assert_eq!(table.put("b", b"1234", Caller::default(), T0).status, 200);
        assert_eq!(words(&table.put("c", b"", Caller::default(), T0)), (507, "metadata key budget exhausted"));
        assert_eq!(table.put("b", b"12", Caller::default(), T0).status, 200, "a replaced value gives its bytes back");
        table.limits.keys = 3;
        assert_eq!(words(&table.put("c", b"1234", Caller::default(), T0)), (507, "metadata size budget exhausted"));
        assert_eq!(table.get("b", T0).body, Cow::Borrowed(&b"12"[..]));
        assert_eq!(table.bytes, 8);
    }
}
