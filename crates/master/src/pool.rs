//! The master as its admin server sees it.

use std::collections::HashMap;
use std::sync::Arc;

use yb_admin::{ClientRow, Cursor, KeyPage, Overview, Pool, SegmentRow};
use yb_catalog::{Force, ListCursor};
use yb_types::{ClientId, ErrorCode, ReplicaDescriptor};

use crate::handlers::descriptors;
use crate::metrics::{ProcessMemory, bytes_per_key, whole_summary, write_page};
use crate::shared::Shared;

pub(crate) struct MasterPool(pub(crate) Arc<Shared>);

impl Pool for MasterPool {
    fn metrics(&self) -> String {
        write_page(&self.0)
    }

    fn summary(&self) -> String {
        whole_summary(&self.0)
    }

    fn overview(&self) -> Overview {
        let shared = &self.0;
        let (stats, server) = (shared.catalog.stats(), shared.server_counts());
        let memory = ProcessMemory::now();
        Overview {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            uptime_s: shared.clock.now().since(shared.started).as_secs(),
            listeners: shared.listeners.get().cloned().unwrap_or_default(),
            keys: stats.keys,
            used_bytes: stats.allocated_bytes,
            capacity_bytes: stats.capacity_bytes,
            connections: server.connections_accepted.saturating_sub(server.connections_closed),
            evicted_keys: stats.evicted_keys,
            evicted_bytes: stats.evicted_bytes,
            memory_bytes: memory.resident,
            bytes_per_key: bytes_per_key(shared, stats.keys, &memory),
            versions: shared.nodes.versions(),
            ..shared.metrics.overview()
        }
    }

    fn keys(&self, tenant: &[u8], from: Cursor, limit: usize) -> Result<KeyPage, ErrorCode> {
        let tenant = self.0.catalog.tenants().reader(tenant)?;
        let mut keys = Vec::new();
        let from = ListCursor::from_u64(from.0);
        let next = self.0.catalog.list(tenant, from, limit, |view| keys.push(view.key().to_vec()));
        Ok(KeyPage { keys, next: next.map(|cursor| Cursor(cursor.to_u64())) })
    }

    fn clients(&self) -> Vec<ClientRow> {
        client_rows(&self.0)
    }

    fn segments(&self) -> Vec<SegmentRow> {
        let segments = self.0.catalog.segments();
        let rows = segments.iter().map(|segment| SegmentRow {
            segment: segment.info().clone(),
            client: segment.owner(),
            status: segment.status(),
            used: segment.used().0,
        });
        rows.collect()
    }

    fn replicas(&self, tenant: &[u8], key: &[u8]) -> Result<Vec<ReplicaDescriptor>, ErrorCode> {
        let tenant = self.0.catalog.tenants().reader(tenant)?;
        let mut found = Err(ErrorCode::OBJECT_NOT_FOUND);
        self.0.catalog.peek(tenant, [key], |_, answer| {
            found = answer.map(|view| descriptors(&view));
        });
        found
    }

    fn remove_all(&self, tenant: Option<&[u8]>, force: bool) -> Result<u64, ErrorCode> {
        let tenants = self.0.catalog.tenants();
        // Without tenants every name means the whole pool, which nobody who writes one can mean.
        if !tenants.is_multi() && tenant.is_some_and(|name| !name.is_empty() && name != b"default") {
            return Err(ErrorCode::UNAVAILABLE_IN_CURRENT_MODE);
        }
        let tenant = tenant.map(|name| tenants.reader(name)).transpose()?;
        Ok(self.0.catalog.remove_all(tenant, Force::from(force), self.0.clock.now()))
    }
}

fn client_rows(shared: &Shared) -> Vec<ClientRow> {
    let now = shared.clock.now();
    let mut owned: HashMap<ClientId, usize> = HashMap::new();
    for segment in shared.catalog.segments() {
        *owned.entry(segment.owner()).or_default() += 1;
    }
    let rows = shared.catalog.clients().into_iter().map(|client| ClientRow {
        id: client.id.to_string(),
        version: shared.nodes.version(client.id),
        segments: owned.get(&client.id).copied().unwrap_or(0),
        silent_ms: u64::try_from(now.since(client.last_seen).as_millis()).unwrap_or(u64::MAX),
    });
    let mut rows: Vec<ClientRow> = rows.collect();
    rows.sort_by(|a, b| a.id.cmp(&b.id));
    rows
}
