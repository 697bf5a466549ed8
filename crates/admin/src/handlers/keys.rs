//! Keys: where they are, lists of them, removal.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::{Method, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use bytes::Bytes;
use futures_util::stream::unfold;
use serde_json::{Map, Value, json};
use yb_types::{ErrorCode, ReplicaDescriptor, ReplicaKind};

use crate::answer::{answer, answer_with, refusal, refusal_saying, text};
use crate::desk::Desk;
use crate::endpoint::{Endpoint, Parameter, TENANT, TEXT};
use crate::pool::{Cursor, KeyPage, Pool};
use crate::query::Query;

/// Keys asked of the pool at once.
const PAGE: usize = 4096;
/// Most keys of one answer of a paged list.
const MAX_PAGE: u64 = 10_000;

const ONE: &[Parameter] = &[Parameter::required("key", "string", "The key, percent-encoded."), TENANT];
const SEVERAL: &[Parameter] = &[
    Parameter::optional(
        "keys",
        "string",
        "Keys with commas between them; a key that holds a comma does not fit in here.",
    ),
    Parameter::optional("key", "string", "One whole key, commas included; may be repeated."),
    TENANT,
];
const LIST: &[Parameter] = &[
    Parameter::optional("after", "string", "`next` of the page before."),
    Parameter::optional("limit", "integer", "About how many keys, 1 to 10000; 1000 if absent."),
    TENANT,
];
const REMOVE: &[Parameter] = &[
    Parameter::optional("force", "boolean", "Also what is leased: `true` or `1`."),
    Parameter::optional("tenant_id", "string", "Only this tenant; absent: all."),
];

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::read("/query_key", "Memory replicas of a key. Grants no lease and counts nothing.", get(query_key))
            .parameters(ONE)
            .codes(&[(404, "No such key, or it is being written")]),
        Endpoint::read("/batch_query_keys", "Replicas of several keys.", get(batch_query_keys))
            .parameters(SEVERAL)
            .codes(&[(400, "No keys given")]),
        Endpoint::read("/get_all_keys", "All keys of a tenant, a line each, streamed.", get(all_keys))
            .parameters(&[TENANT])
            .answers(TEXT),
        Endpoint::read(
            "/api/v1/keys",
            "Keys by page; bytes that are not UTF-8, and %, are percent-encoded.",
            get(page),
        )
        .parameters(LIST)
        .codes(&[(400, "Bad parameter"), (404, "No such tenant")]),
        Endpoint::write(
            Method::POST,
            "/api/v1/remove_all",
            "Remove every object that may be removed.",
            post(remove_all),
        )
        .parameters(REMOVE)
        .codes(&[
            (400, "Bad tenant_id, or an unknown parameter"),
            (404, "No such tenant"),
            (409, "A tenant_id other than `default` while multi-tenancy is off"),
        ]),
    ]
}

fn tenant_of(query: &Query) -> &[u8] {
    query.bytes("tenant_id").unwrap_or_default()
}

async fn page(State(desk): State<Desk>, RawQuery(raw): RawQuery) -> Response {
    let query = Query::parse(raw.as_deref().unwrap_or(""));
    let (after, limit) = match (query.number("after"), query.number("limit")) {
        (Ok(after), Ok(limit)) => (after.unwrap_or(0), limit.unwrap_or(1000).clamp(1, MAX_PAGE)),
        (Err(message), _) | (_, Err(message)) => return refusal_saying(ErrorCode::INVALID_PARAMS, &message),
    };
    let limit = usize::try_from(limit).unwrap_or(PAGE);
    match desk.pool.keys(tenant_of(&query), Cursor(after), limit) {
        Ok(page) => {
            let keys: Vec<String> = page.keys.iter().map(|key| encoded(key)).collect();
            answer(json!({"keys": keys, "next": page.next.map(|cursor| cursor.0.to_string())}))
        }
        Err(code) => refusal(code),
    }
}

/// A key as text from which the query's decoder makes the same bytes.
fn encoded(key: &[u8]) -> String {
    let mut out = String::with_capacity(key.len());
    for chunk in key.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '%' => out.push_str("%25"),
                c if c.is_control() => {
                    let _ = c.encode_utf8(&mut [0; 4]).bytes().try_for_each(|byte| write!(out, "%{byte:02X}"));
                }
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn memory_values(replicas: &[ReplicaDescriptor]) -> Vec<Value> {
    let buffers = replicas.iter().filter_map(ReplicaDescriptor::memory);
    buffers
        .map(|buffer| {
            json!({
                "size_": buffer.size, "buffer_address_": buffer.buffer_address, "protocol_": buffer.protocol,
                "transport_endpoint_": buffer.transport_endpoint,
            })
        })
        .collect()
}

async fn query_key(State(desk): State<Desk>, RawQuery(raw): RawQuery) -> Response {
    let query = Query::parse(raw.as_deref().unwrap_or(""));
    match desk.pool.replicas(tenant_of(&query), query.bytes("key").unwrap_or_default()) {
        Ok(replicas) => answer(json!({"success": true, "data": memory_values(&replicas)})),
        Err(code) => refusal(code),
    }
}

async fn batch_query_keys(State(desk): State<Desk>, RawQuery(raw): RawQuery) -> Response {
    let query = Query::parse(raw.as_deref().unwrap_or(""));
    let listed = query.bytes("keys").filter(|list| !list.is_empty());
    let listed = listed.into_iter().flat_map(|list| list.split(|byte| *byte == b','));
    let keys: Vec<&[u8]> = listed.chain(query.all("key")).collect();
    if keys.is_empty() {
        let body = json!({"success": false, "error": "No keys provided. Use ?keys=key1,key2,..."});
        return answer_with(StatusCode::BAD_REQUEST, body);
    }
    let tenant = tenant_of(&query);
    let item = |key: &&[u8]| (String::from_utf8_lossy(key).into_owned(), batch_item(&*desk.pool, tenant, key));
    let data: Map<String, Value> = keys.iter().map(item).collect();
    answer(json!({"success": true, "data": data}))
}

fn batch_item(pool: &dyn Pool, tenant: &[u8], key: &[u8]) -> Value {
    let replicas = match pool.replicas(tenant, key) {
        Ok(replicas) => replicas,
        Err(code) => {
            return json!({
                "ok": false, "error": code.name().unwrap_or("UNKNOWN"), "values": null, "disk_values": null,
                "local_disk_values": null, "nof_values": null,
            });
        }
    };
    let mut lists: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
    for replica in &replicas {
        match &replica.kind {
            ReplicaKind::Disk(disk) => lists
                .entry("disk_values")
                .or_default()
                .push(json!({"file_path": disk.file_path, "object_size": disk.object_size})),
            ReplicaKind::LocalDisk(disk) => lists.entry("local_disk_values").or_default().push(json!({
                "client_id": disk.client_id.to_string(), "object_size": disk.object_size,
                "transport_endpoint": disk.transport_endpoint,
            })),
            _ => {}
        }
    }
    json!({
        "ok": true, "error": null, "values": memory_values(&replicas), "disk_values": lists.get("disk_values"),
        "local_disk_values": lists.get("local_disk_values"), "nof_values": null,
    })
}

/// Page by page while the reader takes them, so that memory does not grow with the pool.
async fn all_keys(State(desk): State<Desk>, RawQuery(raw): RawQuery) -> Response {
    let tenant = tenant_of(&Query::parse(raw.as_deref().unwrap_or(""))).to_vec();
    let pages = unfold(Some(Cursor::default()), move |from| {
        let (desk, tenant) = (desk.clone(), tenant.clone());
        async move {
            let page = desk.pool.keys(&tenant, from?, PAGE).unwrap_or_default();
            // Other requests get their turn between two pages.
            tokio::task::yield_now().await;
            Some((Ok::<_, Infallible>(Bytes::from(lines(&page))), page.next))
        }
    });
    text(Body::from_stream(pages))
}

fn lines(page: &KeyPage) -> Vec<u8> {
    let mut body = Vec::with_capacity(page.keys.iter().map(|key| key.len() + 1).sum());
    for key in &page.keys {
        body.extend_from_slice(key);
        body.push(b'\n');
    }
    body
}

/// On a thread of its own: other requests are answered meanwhile.
async fn remove_all(State(desk): State<Desk>, RawQuery(raw): RawQuery) -> Response {
    let query = Query::parse(raw.as_deref().unwrap_or(""));
    if let Some(name) = query.unknown(&["force", "tenant_id"]) {
        let message = format!("no parameter {name:?} here; there are force and tenant_id. Nothing was removed");
        return refusal_saying(ErrorCode::INVALID_PARAMS, &message);
    }
    let (force, tenant) = (query.flag("force"), query.bytes("tenant_id").map(<[u8]>::to_vec));
    let removal = tokio::task::spawn_blocking(move || desk.pool.remove_all(tenant.as_deref(), force));
    match removal.await {
        Ok(Ok(removed)) => answer(json!({"success": true, "removed_count": removed})),
        Ok(Err(code)) => refusal(code),
        Err(_) => refusal(ErrorCode::INTERNAL_ERROR),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_survives_the_way_through_text() {
        for key in [&b"plain"[..], "é/+ &%".as_bytes(), b"\xff\x00\n%41", b""] {
            let query = Query::parse(&format!("key={}", encoded(key).replace('&', "%26")));
            assert_eq!(query.bytes("key"), Some(key));
        }
    }
}
