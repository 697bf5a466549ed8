//! The metadata server: exchanges recorded with the peer's servers, limits, leases, and our own client.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::Value;
use yb_admin::{MetadataOptions, MetadataServer};
use yb_env::{Clock, Rng};
use yb_metadata::{HttpStore, Lease, MetadataStore, Renewal, StoreErrorKind, StoreSettings};

fn options() -> MetadataOptions {
    MetadataOptions::from_env("127.0.0.1:0", |_| None)
}

fn client(server: &MetadataServer, token: Option<&str>) -> HttpStore {
    let settings = StoreSettings { http_token: token.map(str::to_owned), ..StoreSettings::default() };
    HttpStore::new(&format!("http://{}/metadata", server.address()), &settings).unwrap()
}

/// Status line, headers and body.
fn exchange(server: &MetadataServer, line: &str, headers: &[&str], body: &[u8]) -> (String, String, Vec<u8>) {
    let mut socket = TcpStream::connect(server.address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let head = format!("{line}\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n", body.len());
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    socket.write_all(&[head.as_bytes(), headers.as_bytes(), b"\r\n", body].concat()).unwrap();
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let (status, headers) = head.split_once("\r\n").unwrap();
    (status.to_owned(), headers.to_ascii_lowercase(), answer[end + 4..].to_vec())
}

fn vectors() -> Vec<Value> {
    include_str!("fixtures/http-metadata.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn recorded_exchanges_are_answered_as_the_peers_servers_answer() {
    let mut played = 0;
    let open = MetadataServer::start(options()).unwrap();
    let guarded = MetadataServer::start(MetadataOptions { token: Some("tok123".to_owned()), ..options() }).unwrap();
    for vector in vectors() {
        let text = |name: &str| vector[name].as_str().unwrap_or_default();
        let server = if text("desc").contains("token set") { &guarded } else { &open };
        let line = match text("method") {
            "" => text("request_line").to_owned(),
            method if text("key").is_empty() => format!("{method} /metadata HTTP/1.1"),
            method => format!("{method} /metadata?key={} HTTP/1.1", text("key").replace('/', "%2F")),
        };
        let headers: Vec<&str> =
            vector["request_headers"].as_array().into_iter().flatten().map(|h| h.as_str().unwrap()).collect();
        let body = format!("{}{}", text("request_body"), text("body"));
        if vector["id"] == "http-12" {
            // Recorded beside another engine's life, whose record stood then; the lives are played one after the other.
            exchange(server, &line.replace("GET", "PUT"), &[], text("reply_body").as_bytes());
        }
        let (status, headers, body) = exchange(server, &line, &headers, body.as_bytes());
        match vector["status"].as_u64() {
            Some(code) => assert!(status.starts_with(&format!("HTTP/1.1 {code} ")), "{}: {status}", vector["id"]),
            None => assert_eq!(status, text("status_line"), "{}", vector["id"]),
        }
        assert_eq!(String::from_utf8(body).unwrap(), text("reply_body"), "{}", vector["id"]);
        assert!(headers.contains("content-type: application/json; charset=utf-8"), "{headers}");
        played += 1;
    }
    assert_eq!(played, 40);
}

#[test]
fn limits_are_told_with_the_peers_words() {
    let lookup = |name: &str| match name {
        "MC_METADATA_MAX_BODY_BYTES" => Some("1000".to_owned()),
        "MC_METADATA_MAX_KEYS" => Some("2".to_owned()),
        "MC_METADATA_MAX_TOTAL_BYTES" => Some("1500".to_owned()),
        _ => None,
    };
    let server = MetadataServer::start(MetadataOptions::from_env("127.0.0.1:0", lookup)).unwrap();
    let put = |key: &str, len: usize| {
        let (status, _, body) = exchange(&server, &format!("PUT /metadata?key={key} HTTP/1.1"), &[], &vec![b'x'; len]);
        (status.split(' ').nth(1).unwrap().parse::<u16>().unwrap(), String::from_utf8(body).unwrap())
    };
    assert_eq!(put("a", 1001), (413, "request body too large".to_owned()));
    assert_eq!(put("a", 1000).0, 200);
    assert_eq!(put("b", 1000), (507, "metadata size budget exhausted".to_owned()));
    assert_eq!(put("b", 1).0, 200);
    assert_eq!(put("c", 1), (507, "metadata key budget exhausted".to_owned()));
    assert_eq!(server.records(), 2);
    let (status, _, body) = exchange(&server, "GET /elsewhere HTTP/1.1", &[], b"");
    assert_eq!((status.as_str(), body.as_slice()), ("HTTP/1.1 404 Not Found", &b"404: Not Found"[..]));
}

#[test]
fn large_descriptions_pass() {
    let server = MetadataServer::start(options()).unwrap();
    let store = client(&server, None);
    let value = vec![b'v'; 20 << 20];
    store.put("mooncake/ram/big", &value, None).unwrap();
    assert_eq!(store.get("mooncake/ram/big").unwrap().unwrap(), value);
}

#[test]
fn records_end_with_their_engine_and_the_newest_engine_has_the_name() {
    let clock = Clock::manual();
    let server = MetadataServer::start(MetadataOptions { clock: clock.clone(), ..options() }).unwrap();
    let mut rng = Rng::seeded(1);
    for _ in 0..100 {
        // Each is killed: none says that it ends.
        let (store, lease) = (client(&server, None), Lease::new(Duration::from_secs(30), &mut rng));
        store.put("mooncake/rpc_meta/n", b"{}", Some(&lease)).unwrap();
        store.put(&format!("mooncake/ram/{}", lease.instance()), b"{}", Some(&lease)).unwrap();
        assert_eq!(store.renew(&lease).unwrap(), Renewal::Kept);
        clock.advance(Duration::from_secs(20));
    }
    assert!(server.records() <= 3, "{}", server.records());
    clock.advance(Duration::from_secs(31));
    let (store, lease) = (client(&server, None), Lease::new(Duration::from_secs(30), &mut rng));
    assert_eq!(store.get("mooncake/rpc_meta/n").unwrap(), None);
    assert_eq!(server.records(), 0);
    store.put("mooncake/rpc_meta/n", b"{}", Some(&lease)).unwrap();
    let younger = Lease::new(Duration::from_secs(30), &mut rng);
    client(&server, None).put("mooncake/rpc_meta/n", b"{2}", Some(&younger)).unwrap();
    assert_eq!(store.renew(&lease).unwrap(), Renewal::Lost);
    store.withdraw("mooncake/rpc_meta/n", b"{}", &lease).unwrap();
    assert_eq!(store.get("mooncake/rpc_meta/n").unwrap().unwrap(), b"{2}");
    // The peer's engines, which have no instance, are told what the peer's server tells them.
    let refused = store.put("mooncake/rpc_meta/n", b"{3}", None).unwrap_err();
    assert_eq!(refused.kind(), StoreErrorKind::Duplicate);
}

#[test]
fn a_token_is_asked_for_where_one_is_set() {
    let server = MetadataServer::start(MetadataOptions { token: Some("s3".to_owned()), ..options() }).unwrap();
    client(&server, Some("s3")).put("k", b"v", None).unwrap();
    for wrong in [None, Some("s"), Some("s4"), Some("s33")] {
        assert_eq!(client(&server, wrong).get("k").unwrap_err().kind(), StoreErrorKind::Unauthorized, "{wrong:?}");
    }
    assert!(!format!("{:?}", MetadataOptions { token: Some("s3".to_owned()), ..options() }).contains("s3"));
}

#[test]
fn a_server_that_does_not_answer_costs_a_bounded_time() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let settings = StoreSettings { timeout: Duration::from_millis(200), ..StoreSettings::default() };
    let store = HttpStore::new(&format!("http://{}/metadata", silent.local_addr().unwrap()), &settings).unwrap();
    let clock = Clock::real();
    let started = clock.now();
    assert_eq!(store.get("k").unwrap_err().kind(), StoreErrorKind::Unreachable);
    assert!(clock.now().since(started) < Duration::from_secs(5));
    drop(silent);
    assert_eq!(store.get("k").unwrap_err().kind(), StoreErrorKind::Unreachable);
}
