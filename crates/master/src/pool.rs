//! The master as its admin server sees it.

use std::collections::HashMap;
use std::sync::Arc;

use yb_admin::{ClientRow, Cursor, KeyPage, Overview, Pool, SegmentRow};
use yb_catalog::{Force, ListCursor, Reach};
use yb_types::{ClientId, ErrorCode, ReplicaDescriptor, Segment};

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
            silent: silent(segment.reach()),
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

/// The host of the endpoint, or of the name where a segment has none.
fn host_of(segment: &Segment) -> String {
    let endpoint = if segment.te_endpoint.is_empty() { &segment.name } else { &segment.te_endpoint };
    let host = match endpoint.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']')) => host,
        _ => endpoint,
    };
    host.trim_matches(['[', ']']).to_owned()
}

/// The word for people where an owner is not heard of.
pub(crate) fn silent(reach: Reach) -> Option<&'static str> {
    match reach {
        Reach::Suspect => Some("SUSPECT"),
        Reach::Offline => Some("OFFLINE"),
        Reach::Online | Reach::Gone => None,
    }
}

fn client_rows(shared: &Shared) -> Vec<ClientRow> {
    let now = shared.clock.now();
    let mut owned: HashMap<ClientId, (usize, String)> = HashMap::new();
    for segment in shared.catalog.segments() {
        let (count, host) = owned.entry(segment.owner()).or_default();
        *count += 1;
        *host = host_of(segment.info());
    }
    let rows = shared.catalog.clients().into_iter().map(|client| ClientRow {
        id: client.id.to_string(),
        version: shared.nodes.version(client.id),
        host: owned.get(&client.id).map(|(_, host)| host.clone()),
        segments: owned.get(&client.id).map_or(0, |(count, _)| *count),
        silent_ms: u64::try_from(now.since(client.last_seen).as_millis()).unwrap_or(u64::MAX),
    });
    let mut rows: Vec<ClientRow> = rows.collect();
    rows.sort_by(|a, b| a.id.cmp(&b.id));
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_of_a_segment_is_that_of_its_endpoint() {
        let host = |name: &str, te_endpoint: &str| {
            host_of(&Segment { name: name.into(), te_endpoint: te_endpoint.into(), ..Segment::default() })
        };
        assert_eq!(host("other", "10.0.0.5:15001"), "10.0.0.5");
        assert_eq!(host("node-7.example:12300", ""), "node-7.example");
        assert_eq!(
            (host("[2001:db8::1]:7", ""), host("2001:db8::1", "")),
            ("2001:db8::1".into(), "2001:db8::1".into())
        );
        assert_eq!((host("node", ""), host("", "")), ("node".into(), String::new()));
    }
}
