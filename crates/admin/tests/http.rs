//! The endpoints over a real socket, with a pool made of constants.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use yb_admin::{Admin, AdminOptions, ClientRow, Cursor, KeyPage, Overview, Parts, Pool, SegmentRow, WriteRules};
use yb_types::{
    BufferDescriptor, ClientId, ErrorCode, MemoryDescriptor, ReplicaDescriptor, ReplicaId, ReplicaKind, ReplicaStatus,
    Segment, SegmentId, SegmentStatus, Uuid,
};

struct Constants;

const KEYS: u64 = 20_000;

impl Pool for Constants {
    fn metrics(&self) -> String {
        "# TYPE x counter\nx 1\n".to_owned()
    }
    fn summary(&self) -> String {
        "Keys: 1".to_owned()
    }
    fn overview(&self) -> Overview {
        Overview { version: "test".to_owned(), keys: KEYS, ..Overview::default() }
    }
    fn keys(&self, _tenant: &[u8], from: Cursor, limit: usize) -> Result<KeyPage, ErrorCode> {
        let end = KEYS.min(from.0 + limit as u64);
        let keys = (from.0..end).map(|i| format!("key-{i}").into_bytes()).collect();
        Ok(KeyPage { keys, next: (end < KEYS).then_some(Cursor(end)) })
    }
    fn clients(&self) -> Vec<ClientRow> {
        let row = |id: &str| ClientRow {
            id: id.to_owned(),
            host: Some(format!("host-of-{id}")),
            version: None,
            segments: 1,
            silent_ms: 5,
        };
        vec![row("one"), row("two")]
    }
    fn segments(&self) -> Vec<SegmentRow> {
        let segment = Segment {
            id: SegmentId(Uuid { first: 1, second: 2 }),
            name: "<b>host".to_owned(),
            base: 4096,
            size: 1 << 26,
            te_endpoint: "127.0.0.1:1".to_owned(),
            protocol: "tcp".to_owned(),
            ..Segment::default()
        };
        vec![SegmentRow {
            segment,
            client: ClientId::default(),
            status: SegmentStatus::OK,
            silent: None,
            used: 1 << 25,
        }]
    }
    fn replicas(&self, _tenant: &[u8], key: &[u8]) -> Result<Vec<ReplicaDescriptor>, ErrorCode> {
        if key != b"a/b&+\xff" {
            return Err(ErrorCode::OBJECT_NOT_FOUND);
        }
        let buffer = BufferDescriptor { size: 5, protocol: "tcp".to_owned(), ..BufferDescriptor::default() };
        let kind = ReplicaKind::Memory(MemoryDescriptor { buffer });
        Ok(vec![ReplicaDescriptor { id: ReplicaId(1), kind, status: ReplicaStatus::COMPLETE }])
    }
    fn remove_all(&self, tenant: Option<&[u8]>, force: bool) -> Result<u64, ErrorCode> {
        match tenant {
            Some(b"no body") => Err(ErrorCode::TENANT_NOT_REGISTERED),
            _ => Ok(if force { 7 } else { 3 }),
        }
    }
}

fn start() -> Admin {
    let options = AdminOptions { listen: "127.0.0.1:0".to_owned(), max_requests: 4, write: WriteRules::default() };
    Admin::start(&options, Parts::new(Arc::new(Constants))).unwrap()
}

/// Status and body.
fn request(admin: &Admin, line: &str) -> (u16, String) {
    request_at(admin.address(), line, "")
}

/// The same at any address; `headers` end with a line break.
fn request_at(address: std::net::SocketAddr, line: &str, headers: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(address).unwrap();
    write!(socket, "{line} HTTP/1.0\r\n{headers}\r\n").unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

#[test]
fn shapes_of_the_peer() {
    let admin = start();
    assert_eq!(request(&admin, "GET /metrics"), (200, "# TYPE x counter\nx 1\n".to_owned()));
    assert_eq!(request(&admin, "GET /role"), (200, "leader".to_owned()));
    assert_eq!(request(&admin, "GET /nowhere"), (404, "404 Not Found".to_owned()));
    assert_eq!(request(&admin, "POST /metrics"), (404, "404 Not Found".to_owned()));
    assert_eq!(request(&admin, "GET /get_all_segments"), (200, "<b>host\n".to_owned()));
    let (status, body) = request(&admin, "GET /health");
    assert_eq!(status, 200);
    assert!(body.contains("\"status\":\"ok\"") && body.contains("\"service_ready\":true"));
    let (status, body) = request(&admin, "GET /query_key?key=a%2Fb%26+%FF");
    assert_eq!(status, 200);
    assert!(body.contains("\"size_\":5"), "{body}");
    let (status, body) = request(&admin, "GET /query_key?key=other");
    assert_eq!(status, 404);
    assert!(body.contains("\"error_code\":-704") && body.contains("\"error_message\":\"OBJECT_NOT_FOUND\""));
    assert_eq!(request(&admin, "GET /batch_query_keys").0, 400);
    let (_, body) = request(&admin, "GET /batch_query_keys?keys=x,y");
    assert!(body.contains("\"x\":{") && body.contains("\"ok\":false"), "{body}");
    assert_eq!(request(&admin, "GET /query_segment?segment=no").0, 500);
    assert!(request(&admin, "GET /query_segment?segment=%3Cb%3Ehost").1.contains("Used(bytes): 33554432\n"));
    assert!(request(&admin, "GET /api/v1/segments/status?segment=%3Cb%3Ehost").1.contains("\"status_name\":\"OK\""));
    assert_eq!(request(&admin, "GET /api/v1/segments/status").0, 400);
    assert_eq!(request(&admin, "GET /api/v1/tenant_quotas").0, 409);
    assert!(request(&admin, "POST /api/v1/remove_all?force=true").1.contains("\"removed_count\":7"));
    assert!(request(&admin, "GET /get_segments_detail").1.contains("\"base_address\":\"0x1000\""));
}

#[test]
fn long_lists_come_whole() {
    let admin = start();
    let (status, body) = request(&admin, "GET /get_all_keys");
    assert_eq!(status, 200);
    assert_eq!(body.lines().count() as u64, KEYS);
    assert!(body.ends_with("key-19999\n"));
    let (_, body) = request(&admin, "GET /api/v1/keys?after=19990&limit=100");
    assert!(body.contains("key-19999") && body.contains("\"next\":null"), "{body}");
    let (_, body) = request(&admin, "GET /api/v1/keys?limit=2");
    assert!(body.contains("\"next\":\"2\""), "{body}");
}

#[test]
fn the_status_page_is_self_contained() {
    let admin = start();
    let (status, body) = request(&admin, "GET /");
    assert_eq!(status, 200);
    assert!(!body.contains("http://") && !body.contains("https://") && !body.contains("innerHTML"));
    let (_, body) = request(&admin, "GET /status.json");
    assert!(body.contains("\"keys\":20000"), "{body}");
    let (_, body) = request(&admin, "GET /api/v1/clients?offset=1");
    assert!(
        body.contains("\"id\":\"two\"")
            && body.contains("\"host\":\"host-of-two\"")
            && !body.contains("\"id\":\"one\"")
            && body.contains("\"total\":2"),
        "{body}"
    );
}

#[test]
fn a_taken_port_is_named() {
    let admin = start();
    let options = AdminOptions { listen: admin.address().to_string(), max_requests: 1, write: WriteRules::default() };
    let error = Admin::start(&options, Parts::new(Arc::new(Constants))).unwrap_err().to_string();
    assert!(error.contains("metrics_port"), "{error}");
}

#[test]
fn silent_and_stuck_connections_are_closed_and_those_that_collect_stay() {
    let admin = start();
    let connect = || {
        let socket = TcpStream::connect(admin.address()).unwrap();
        socket.set_read_timeout(Some(std::time::Duration::from_secs(10))).unwrap();
        socket
    };
    let mut collecting = connect();
    let mut collect = || {
        collecting.write_all(b"GET /role HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"leader") {
            let mut more = [0; 256];
            let got = collecting.read(&mut more).unwrap();
            assert!(got > 0, "closed");
            answer.extend_from_slice(&more[..got]);
        }
    };
    collect();
    let mut silent: Vec<TcpStream> = (0..60).map(|_| connect()).collect();
    silent.iter_mut().skip(30).for_each(|socket| socket.write_all(b"GET /met").unwrap());
    for mut socket in silent {
        // The end, or an answer that says why and then the end; the read gives up with an error if neither comes.
        socket.read_to_end(&mut Vec::new()).unwrap();
    }
    collect();
}

#[test]
fn requests_that_trickle_in_hold_nobody_up_and_end() {
    let options = AdminOptions { listen: "127.0.0.1:0".to_owned(), max_requests: 2, write: WriteRules::default() };
    let admin = Admin::start(&options, Parts::new(Arc::new(Constants))).unwrap();
    let clock = yb_env::Clock::real();
    let began = clock.now();
    let starts =
        ["PUT /api/v1/config HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n", "GET /role HTTP/1.1\r\nHost: "];
    let mut trickling: Vec<TcpStream> = (0..8)
        .map(|i| {
            let mut socket = TcpStream::connect(admin.address()).unwrap();
            socket.write_all(starts[i % 2].as_bytes()).unwrap();
            socket.set_nonblocking(true).unwrap();
            socket
        })
        .collect();
    // More of them than are served at a time, yet others are answered.
    while !trickling.is_empty() {
        assert_eq!(request(&admin, "GET /role").0, 200);
        trickling.retain_mut(|socket| {
            let sent = socket.write(b"x").is_ok();
            let ended = match socket.read(&mut [0; 256]) {
                Ok(got) => got == 0,
                Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
            };
            sent && !ended
        });
        assert!(clock.now().since(began) < std::time::Duration::from_secs(60), "{} still stand", trickling.len());
        // A byte now and then, sooner than silence ends a connection.
        yb_env::sleep(std::time::Duration::from_millis(200));
    }
}

#[test]
fn queries_are_decoded_the_same_everywhere() {
    let admin = start();
    let (_, body) = request(&admin, "GET /batch_query_keys?keys=x%2Cy");
    assert!(body.contains("\"x\":{") && body.contains("\"y\":{"), "split after decoding, as the peer: {body}");
    let (_, body) = request(&admin, "GET /batch_query_keys?key=x%2Cy&key=a%2Fb%26+%FF");
    assert!(body.contains("\"x,y\":{") && body.contains("\"ok\":true"), "{body}");
    assert_eq!(request(&admin, "POST /api/v1/remove_all?tenant_id=no%20body").0, 404);
    assert_eq!(request(&admin, "GET /api/v1/keys?limit=many").0, 400);
}

#[test]
fn segments_by_page() {
    let admin = start();
    let (_, body) = request(&admin, "GET /api/v1/segments?limit=5&sort=percent&descending=1&name=host");
    assert!(body.contains("\"matching\":1") && body.contains("\"segment_name\":\"<b>host\""), "{body}");
    let (_, body) = request(&admin, "GET /api/v1/segments?offset=1");
    assert!(body.contains("\"segments\":[]") && body.contains("\"total_segments\":1"), "{body}");
    assert_eq!(request(&admin, "GET /api/v1/segments?sort=colour").0, 400);
}

#[test]
fn head_answers_without_a_body() {
    let admin = start();
    for path in ["/metrics", "/health", "/get_all_keys", "/"] {
        assert_eq!(request(&admin, &format!("HEAD {path}")), (200, String::new()), "{path}");
    }
}

#[test]
fn the_openapi_document_and_the_endpoints_are_one() {
    let document = yb_admin::openapi();
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/openapi.json");
    let text = format!("{}\n", serde_json::to_string_pretty(&document).unwrap());
    if std::env::var_os("YB_BLESS").is_some() {
        std::fs::write(path, &text).unwrap();
    }
    // The order of members depends on what else is built with this crate.
    let kept = std::fs::read_to_string(path).unwrap_or_default();
    let kept: serde_json::Value = serde_json::from_str(&kept).unwrap_or_default();
    assert!(kept == document, "docs/openapi.json is stale: YB_BLESS=1 cargo test -p yb-admin --test http");
    let admin = start();
    let served: serde_json::Value = serde_json::from_str(&request(&admin, "GET /openapi.json").1).unwrap();
    assert_eq!(served, document);
    let mut documented = 0;
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let (_, body) = request(&admin, &format!("{} {path}", method.to_uppercase()));
            assert_ne!(body, "404 Not Found", "{method} {path} is documented and does not answer");
            assert!(!operation["summary"].as_str().unwrap().is_empty());
            documented += 1;
        }
    }
    assert_eq!(documented, yb_admin::endpoints().len(), "two endpoints share a method and a path");
}

#[test]
fn calls_that_change_something_can_be_kept_apart() {
    let write = WriteRules { listen: Some("127.0.0.1:0".to_owned()), token: Some("secret".to_owned()) };
    assert!(!format!("{write:?}").contains("secret"));
    let options = AdminOptions { listen: "127.0.0.1:0".to_owned(), max_requests: 4, write };
    let parts = Parts::new(Arc::new(Constants));
    let door = parts.door.clone();
    let admin = Admin::start(&options, parts).unwrap();
    let (status, body) = request(&admin, "POST /api/v1/remove_all");
    assert_eq!(status, 403);
    assert!(body.contains(&admin.write_address().to_string()), "{body}");
    assert_eq!(request(&admin, "GET /role").0, 200);
    let remove = |headers: &str| request_at(admin.write_address(), "POST /api/v1/remove_all", headers).0;
    assert_eq!(remove(""), 401);
    assert_eq!(remove("Authorization: Bearer secreT\r\n"), 401);
    assert_eq!(remove("Authorization: Bearer secret\r\n"), 200);
    let counted: Vec<_> = door.refused_calls().collect();
    assert_eq!(counted, [("no_token", 1), ("wrong_token", 1), ("not_local", 0), ("wrong_address", 1)]);
    assert_eq!(request_at(admin.write_address(), "GET /role", "").0, 200, "reading needs no token");
}

/// A connection to the server from that address of this host.
fn connect_from(own: [u8; 4], admin: &Admin) -> socket2::Socket {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::from((own, 0)).into()).unwrap();
    socket.connect(&admin.address().into()).unwrap();
    socket.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
    socket
}

#[test]
fn one_address_does_not_keep_the_others_out() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let most = rustix::process::Rlimit { current: limit.maximum, ..limit };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, most).unwrap();
    let parts = Parts::new(Arc::new(Constants));
    let door = parts.door.clone();
    let options = AdminOptions { listen: "127.0.0.1:0".to_owned(), max_requests: 4, write: WriteRules::default() };
    let admin = Admin::start(&options, parts).unwrap();
    // More than there may be; they are closed while they say nothing, and come again and again.
    let refused = || door.refused()[1].1;
    let mut crowd = Vec::new();
    while refused() == 0 {
        crowd.push(connect_from([127, 0, 0, 2], &admin));
        assert!(crowd.len() < 20_000, "nobody is refused");
    }
    let mut socket = connect_from([127, 0, 0, 1], &admin);
    socket.write_all(b"GET /role HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.ends_with("leader"), "{answer}");
    assert_eq!((door.refused()[0].1, refused() > 0), (0, true));
}
