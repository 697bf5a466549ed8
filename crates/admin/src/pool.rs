//! What the admin server asks of the master.

use std::collections::BTreeMap;

use serde::Serialize;
use yb_types::{ClientId, ErrorCode, ReplicaDescriptor, Segment, SegmentStatus};

/// Where a listing of keys goes on; opaque to the reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cursor(pub u64);

/// Some keys of a listing.
#[derive(Clone, Debug, Default)]
pub struct KeyPage {
    /// Any bytes, in no order. A page may be empty although more follow.
    pub keys: Vec<Vec<u8>>,
    /// Where to go on; `None` at the end.
    pub next: Option<Cursor>,
}

/// A mounted segment.
#[derive(Clone, Debug)]
pub struct SegmentRow {
    /// As mounted.
    pub segment: Segment,
    /// Its owner.
    pub client: ClientId,
    /// Where it stands.
    pub status: SegmentStatus,
    /// Its owner does not ping, or nobody answers for it: `SUSPECT` (read, takes nothing) or `OFFLINE` (not offered).
    pub silent: Option<&'static str>,
    /// Bytes allocated.
    pub used: u64,
}

impl SegmentRow {
    /// Where it stands, for people: that its owner is not heard of, else the peer's word.
    pub fn word(&self) -> &'static str {
        self.silent.unwrap_or_else(|| status_name(self.status))
    }
}

/// A client that pings.
#[derive(Clone, Debug, Serialize)]
pub struct ClientRow {
    /// Its id as text.
    pub id: String,
    /// Host under which its segments are reached; unknown of a client without any.
    pub host: Option<String>,
    /// Version that a node of this project said; the peer's clients say none.
    pub version: Option<String>,
    /// Segments it owns.
    pub segments: usize,
    /// Milliseconds since its last ping.
    pub silent_ms: u64,
}

/// How often a kind of call came.
#[derive(Clone, Debug, Serialize)]
pub struct Operation {
    /// Its name.
    pub name: String,
    /// Requests since the start.
    pub requests: u64,
    /// Of these, refused or failed.
    pub failures: u64,
}

/// Numbers for the status page.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Overview {
    /// Version of this program.
    pub version: String,
    /// Seconds since the start.
    pub uptime_s: u64,
    /// Addresses clients use, with their generation of the wire.
    pub listeners: Vec<String>,
    /// Objects.
    pub keys: u64,
    /// Bytes allocated.
    pub used_bytes: u64,
    /// Bytes mounted.
    pub capacity_bytes: u64,
    /// Connections open.
    pub connections: u64,
    /// Objects evicted since the start.
    pub evicted_keys: u64,
    /// Bytes evicted since the start.
    pub evicted_bytes: u64,
    /// Gets, by key.
    pub gets: u64,
    /// Of these, those that found a readable replica.
    pub get_hits: u64,
    /// Keys asked for by existence calls.
    pub exist_asked: u64,
    /// Of these, those that are there.
    pub exist_found: u64,
    /// Memory of this process.
    pub memory_bytes: u64,
    /// Of it, what came with objects, divided by their number.
    pub bytes_per_key: u64,
    /// Puts refused, by reason.
    pub refusals: BTreeMap<String, u64>,
    /// Keys not found, by reason.
    pub misses: BTreeMap<String, u64>,
    /// Nodes of this project, by version.
    pub versions: BTreeMap<String, u64>,
    /// Calls by the generation of the wire that their port speaks.
    pub generations: BTreeMap<String, u64>,
    /// Calls by kind.
    pub operations: Vec<Operation>,
}

/// The master as the admin server sees it. Every method answers at once; none takes a lock over the whole pool.
pub trait Pool: Send + Sync + 'static {
    /// Every metric, in the Prometheus text format.
    fn metrics(&self) -> String;
    /// The line of `/metrics/summary`.
    fn summary(&self) -> String;
    /// Numbers for the status page.
    fn overview(&self) -> Overview;
    /// Keys of a tenant (empty: the default one) from a cursor on, about `limit` of them.
    ///
    /// # Errors
    /// A tenant that cannot be or is not known.
    fn keys(&self, tenant: &[u8], from: Cursor, limit: usize) -> Result<KeyPage, ErrorCode>;
    /// Clients that ping, in the order of their ids.
    fn clients(&self) -> Vec<ClientRow>;
    /// All mounted segments.
    fn segments(&self) -> Vec<SegmentRow>;
    /// The readable replicas of a key of a tenant (empty: the default one); no lease is granted and nothing is counted.
    ///
    /// # Errors
    /// As of the lookup: OBJECT_NOT_FOUND, REPLICA_IS_NOT_READY; a tenant that cannot be or is not known.
    fn replicas(&self, tenant: &[u8], key: &[u8]) -> Result<Vec<ReplicaDescriptor>, ErrorCode>;
    /// Removes every object that may be removed, of one tenant or of all; the number of them. May take seconds.
    ///
    /// # Errors
    /// A tenant that cannot be or is not known.
    fn remove_all(&self, tenant: Option<&[u8]>, force: bool) -> Result<u64, ErrorCode>;
}

/// The peer's word for a segment status.
pub fn status_name(status: SegmentStatus) -> &'static str {
    match status {
        SegmentStatus::OK => "OK",
        SegmentStatus::DRAINING => "DRAINING",
        SegmentStatus::DRAINED => "DRAINED",
        SegmentStatus::GRACEFULLY_UNMOUNTING => "GRACEFULLY_UNMOUNTING",
        SegmentStatus::UNMOUNTING => "UNMOUNTING",
        _ => "UNDEFINED",
    }
}
