//! Start of a session, and liveness.

use yb_pack::Pack;
use yb_types::ClientStatus;

/// Answer to a ping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
pub struct PingResponse {
    /// View of a highly available master; 0 without.
    pub view_version_id: i64,
    /// Whether the client must mount its segments again.
    pub client_status: ClientStatus,
}

/// How objects are persisted on a shared filesystem.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pack)]
pub struct GetStorageConfigResponse<'a> {
    /// Directory; empty = no persistence. The text after the last `/` is the sub-directory.
    pub fsdir: &'a str,
    /// Whether files are evicted.
    pub enable_disk_eviction: bool,
    /// Bytes that may be used.
    pub quota_bytes: u64,
}
