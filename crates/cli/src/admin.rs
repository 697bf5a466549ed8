//! What the admin port of a master says: keys, clients, segments and their use.
//!
//! Everything here comes from `/metrics` and `/get_segments_detail`, which the peer's master has too; asking changes
//! nothing in the master, unlike its lookups.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::failure::{Exit, Failure, Outcome};
use crate::http;
use crate::token::{self, Token};

/// A master at a glance.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// Where this was asked, host:port.
    pub admin: String,
    /// Objects.
    pub keys: u64,
    /// Objects pinned softly.
    pub soft_pinned_keys: u64,
    /// Clients whose heartbeat arrives.
    pub clients: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes lent by all segments.
    pub capacity_bytes: u64,
    /// Objects evicted since the master started.
    pub evicted_keys: u64,
    /// Bytes evicted since the master started.
    pub evicted_bytes: u64,
    /// One a segment, by name; of segments with one name one where the master does not tell them apart.
    pub segments: Vec<Segment>,
}

/// A piece of memory lent to the pool.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Segment {
    /// Its name.
    pub name: String,
    /// Its id, if the master says.
    pub id: Option<String>,
    /// Where its owner answers, if the master says.
    pub endpoint: Option<String>,
    /// `OK`, or what keeps new objects away, if the master says.
    pub status: Option<String>,
    /// The client that lends it, if the master says.
    pub client: Option<String>,
    /// How its bytes move, if the master says.
    pub protocol: Option<String>,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes lent.
    pub capacity_bytes: u64,
}

#[derive(Deserialize)]
struct Details {
    segments: Vec<Detail>,
}

#[derive(Deserialize)]
struct Detail {
    segment_name: String,
    size_bytes: u64,
    allocator_used_bytes: u64,
    #[serde(default)]
    segment_id: Option<String>,
    #[serde(default)]
    te_endpoint: Option<String>,
    #[serde(default)]
    status: Option<String>,
    #[serde(default)]
    client_id: Option<String>,
    #[serde(default)]
    protocol: Option<String>,
}

/// Everything that one look at the admin port gives.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// At a glance.
    pub status: Status,
    /// All metrics without labels, by name.
    pub numbers: BTreeMap<String, f64>,
}

/// Asks the admin port.
///
/// # Errors
/// [`Exit::Unreachable`] if nothing answers there.
pub fn status(admin: &str) -> Outcome<Status> {
    Ok(sample(admin)?.status)
}

/// As [`status`], with all metrics.
///
/// # Errors
/// [`Exit::Unreachable`] if nothing answers there.
pub fn sample(admin: &str) -> Outcome<Sample> {
    let metrics = text(admin, "/metrics")?;
    let mut sample = from_metrics(admin, &metrics);
    // Masters without this page still have the numbers above.
    let details = http::get(admin, "/get_segments_detail").ok().filter(|answer| answer.status == 200);
    if let Some(details) = details.and_then(|answer| serde_json::from_slice::<Details>(&answer.body).ok()) {
        sample.status.segments = rows(details, &sample.status.segments);
    }
    Ok(sample)
}

/// A row for each segment: a node that was started again at its port has one beside that of the process before it, as long as
/// the master knows that one. What only the metrics say is taken from the rows that they gave, one a name.
fn rows(details: Details, by_name: &[Segment]) -> Vec<Segment> {
    let row = |detail: Detail| Segment {
        name: detail.segment_name,
        id: detail.segment_id,
        endpoint: detail.te_endpoint,
        status: detail.status,
        client: detail.client_id,
        protocol: detail.protocol,
        used_bytes: detail.allocator_used_bytes,
        capacity_bytes: detail.size_bytes,
    };
    let mut rows: Vec<Segment> = details.segments.into_iter().map(row).collect();
    rows.sort_by(|a, b| (&a.name, &a.id).cmp(&(&b.name, &b.id)));
    // The peer's page shows no use of a segment that is drained; the metrics do.
    for alone in rows.chunk_by_mut(|a, b| a.name == b.name) {
        if let [row] = alone
            && let Some(known) = by_name.iter().find(|known| known.name == row.name)
        {
            row.used_bytes = row.used_bytes.max(known.used_bytes);
        }
    }
    rows
}

/// Asks for, or changes, something whose answer is a JSON object.
///
/// # Errors
/// [`Exit::Unreachable`] if nothing answers there; what the master says if it refuses.
pub fn call(admin: &str, method: &str, path: &str, body: &str) -> Outcome<Value> {
    let (answer, token) = request(admin, method, path, body)?;
    let value: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    if answer.status == 200 {
        return Ok(value);
    }
    let why = match value["error_message"].as_str().filter(|text| !text.is_empty()) {
        Some(why) => why.to_owned(),
        None if answer.status == 404 => "this master has no such page".to_owned(),
        None => String::from_utf8_lossy(&answer.body).trim().to_owned(),
    };
    let hint = match answer.status {
        401 => format!("\n{}", token::hint(token.as_ref())),
        _ => String::new(),
    };
    Err(Failure::failed(format!("http://{admin}{path}: status {}: {why}{hint}", answer.status)))
}

/// Sends one request, with the token of the environment if it is one that may need it. Answers that token too.
///
/// # Errors
/// [`Exit::Unreachable`] if nothing answers there; a token that cannot be had.
pub fn request(admin: &str, method: &str, path: &str, body: &str) -> Outcome<(http::Answer, Option<Token>)> {
    let token = if method == "GET" { None } else { Token::from_env()? };
    let call = http::Call { method, path, body, token: token.as_ref().map(|token| token.text.as_str()) };
    Ok((http::request(admin, &call).map_err(unreachable)?, token))
}

fn unreachable(error: String) -> Failure {
    let hint = "Is this the master's admin port? Name it with --admin host:port.";
    Failure::new(Exit::Unreachable, format!("{error}\n{hint}"))
}

/// All keys of a tenant that has a name, a page at a time.
///
/// # Errors
/// [`Exit::Unreachable`] if nothing answers there; no such tenant; a master of the peer, which lists the default tenant only.
pub fn keys_of(admin: &str, tenant: &str) -> Outcome<Vec<Vec<u8>>> {
    let first = format!("/api/v1/keys?limit=10000&tenant_id={}", http::encode(tenant));
    let mut keys = Vec::new();
    let mut path = first.clone();
    loop {
        let page = call(admin, "GET", &path, "")?;
        let found = page["keys"].as_array().cloned().unwrap_or_default();
        keys.extend(found.iter().filter_map(|key| key.as_str()).map(http::decode));
        match page["next"].as_str() {
            Some(next) => path = format!("{first}&after={}", http::encode(next)),
            None => return Ok(keys),
        }
    }
}

/// All keys of the default tenant, one element a line of the answer.
///
/// # Errors
/// [`Exit::Unreachable`] if nothing answers there.
pub fn keys(admin: &str) -> Outcome<Vec<Vec<u8>>> {
    let body = page(admin, "/get_all_keys")?;
    Ok(body.split(|b| *b == b'\n').filter(|key| !key.is_empty()).map(<[u8]>::to_vec).collect())
}

/// Names of the segments that take new objects.
///
/// # Errors
/// [`Exit::Unreachable`] if nothing answers there.
pub fn segment_names(admin: &str) -> Outcome<Vec<String>> {
    let body = text(admin, "/get_all_segments")?;
    Ok(body.lines().filter(|l| !l.is_empty()).map(str::to_owned).collect())
}

fn text(admin: &str, path: &str) -> Outcome<String> {
    Ok(String::from_utf8_lossy(&page(admin, path)?).into_owned())
}

fn page(admin: &str, path: &str) -> Outcome<Vec<u8>> {
    let answer = http::get(admin, path).map_err(unreachable)?;
    match answer.status {
        200 => Ok(answer.body),
        other => Err(Failure::failed(format!(
            "http://{admin}{path}: status {other}: {}",
            String::from_utf8_lossy(&answer.body).trim()
        ))),
    }
}

pub(crate) fn from_metrics(admin: &str, text: &str) -> Sample {
    let mut plain = BTreeMap::new();
    let mut segments: BTreeMap<String, Segment> = BTreeMap::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let Some((series, value)) = line.rsplit_once(' ') else { continue };
        let Ok(value) = value.parse::<f64>() else { continue };
        let Some((name, labels)) = series.split_once('{') else {
            plain.insert(series.to_owned(), value.max(0.0));
            continue;
        };
        let value = value.max(0.0) as u64;
        let Some(segment) = label(labels, "segment") else { continue };
        let row = || Segment { name: segment.clone(), ..Segment::default() };
        match name {
            "segment_allocated_bytes" => segments.entry(segment.clone()).or_insert_with(row).used_bytes = value,
            "segment_total_capacity_bytes" => {
                segments.entry(segment.clone()).or_insert_with(row).capacity_bytes = value
            }
            _ => {}
        }
    }
    let number = |name: &str| plain.get(name).map_or(0, |value| *value as u64);
    let status = Status {
        admin: admin.to_owned(),
        keys: number("master_key_count"),
        soft_pinned_keys: number("master_soft_pin_key_count"),
        clients: number("master_active_clients"),
        used_bytes: number("master_allocated_bytes"),
        capacity_bytes: number("master_total_capacity_bytes"),
        evicted_keys: number("master_evicted_key_count"),
        evicted_bytes: number("master_evicted_size_bytes"),
        // A segment that left keeps its series in some masters, with nothing in it.
        segments: segments.into_values().filter(|s| s.capacity_bytes > 0).collect(),
    };
    Sample { status, numbers: plain }
}

/// The value of a label in the text between the braces.
fn label(labels: &str, name: &str) -> Option<String> {
    let start = labels.find(&format!("{name}=\""))? + name.len() + 2;
    let mut value = String::new();
    let mut characters = labels.get(start..)?.chars();
    loop {
        match characters.next()? {
            '"' => return Some(value),
            '\\' => value.push(characters.next()?),
            other => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_from_a_metrics_page() {
        let page = "# HELP master_key_count keys\n# TYPE master_key_count gauge\nmaster_key_count 12\n\
                    master_active_clients 2\nmaster_allocated_bytes 4096\nmaster_total_capacity_bytes 1.048576e+06\n\
                    segment_allocated_bytes{segment=\"10.0.0.1:5\"} 4096\n\
                    segment_total_capacity_bytes{segment=\"10.0.0.1:5\"} 1048576\n\
                    segment_total_capacity_bytes{segment=\"gone\"} 0\nbroken\n";
        let sample = from_metrics("h:1", page);
        assert_eq!(sample.numbers.get("master_total_capacity_bytes"), Some(&1_048_576.0));
        let status = sample.status;
        assert_eq!((status.keys, status.clients, status.used_bytes, status.capacity_bytes), (12, 2, 4096, 1 << 20));
        let expected =
            Segment { name: "10.0.0.1:5".into(), used_bytes: 4096, capacity_bytes: 1 << 20, ..Segment::default() };
        assert_eq!(status.segments, [expected]);
    }

    #[test]
    fn segments_of_one_name_have_a_row_each() {
        let of = |id: &str, client: &str, status: &str, size: u64| {
            serde_json::json!({"segment_name": "10.0.0.1:5", "segment_id": id, "client_id": client, "status": status,
                "te_endpoint": "10.0.0.1:9", "size_bytes": size, "allocator_used_bytes": size / 2})
        };
        let page = serde_json::json!({"segments": [of("2-2", "b", "OK", 100), of("1-1", "a", "OFFLINE", 60)]});
        let shown = rows(serde_json::from_value(page).unwrap(), &[]);
        let told = |row: &Segment| (row.client.clone().unwrap(), row.status.clone().unwrap(), row.capacity_bytes);
        let expected = [("a".to_owned(), "OFFLINE".to_owned(), 60), ("b".to_owned(), "OK".to_owned(), 100)];
        assert_eq!(shown.iter().map(told).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn labels_with_quotes() {
        assert_eq!(label(r#"a="1",segment="x\"y"} "#, "segment"), Some("x\"y".to_owned()));
        assert_eq!(label("segment=\"open", "segment"), None);
    }
}
