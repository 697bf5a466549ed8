//! The requests of our HTTP client are those recorded with the peer's clients.

#![allow(clippy::unwrap_used, reason = "test code")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;

use serde_json::Value;
use yb_metadata::{HttpStore, Keys, MetadataStore, RpcMeta, StoreErrorKind, StoreSettings};

/// One request as it came: request line, headers in lower case, body.
fn receive(listener: &TcpListener, reply: &str) -> (String, Vec<String>, String) {
    let (stream, _) = listener.accept().unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let line = lines.remove(0);
    let headers: Vec<String> = lines.iter().map(|header| header.to_ascii_lowercase()).collect();
    let length = headers.iter().find_map(|header| header.strip_prefix("content-length: ")?.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    (&stream).write_all(reply.as_bytes()).unwrap();
    (line, headers, String::from_utf8(body).unwrap())
}

#[test]
fn requests_are_the_peers() {
    let vectors = include_str!("http-metadata.jsonl").lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut played = 0;
    for vector in vectors {
        let text = |name: &str| vector[name].as_str().unwrap();
        let line = text("request_line");
        let name = line.split("%2F").last().unwrap().split(' ').next().unwrap().replace("%3A", ":");
        let is_address = line.contains("rpc_meta");
        let key = if is_address { Keys::default().rpc_meta(&name) } else { Keys::default().segment(&name) };
        let headers: Vec<&str> =
            vector["request_headers"].as_array().into_iter().flatten().map(|header| header.as_str().unwrap()).collect();
        let token = headers.iter().find_map(|header| header.strip_prefix("Authorization: Bearer ")).map(str::to_owned);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let settings = StoreSettings { http_token: token.clone(), ..StoreSettings::default() };
        let store = HttpStore::new(&format!("http://{}/metadata", listener.local_addr().unwrap()), &settings).unwrap();
        let reply = text("reply_body");
        let reply = format!(
            "{}\r\nContent-Length: {}\r\nContent-Type: application/json; charset=utf-8\r\nConnection: close\r\n\r\n{reply}",
            text("status_line"),
            reply.len()
        );
        let server = yb_env::spawn_thread("server", move || receive(&listener, &reply)).unwrap();
        let body = text("request_body");
        let status: u16 = text("status_line").split(' ').nth(1).unwrap().parse().unwrap();
        match line.split(' ').next().unwrap() {
            "GET" => {
                let found = store.get(&key).unwrap();
                assert_eq!(found, (status == 200).then(|| text("reply_body").as_bytes().to_vec()));
            }
            "DELETE" => assert_eq!(store.delete(&key).unwrap(), status == 200),
            _ => {
                let value = match RpcMeta::parse(body.as_bytes()).filter(|_| is_address) {
                    Some(record) => record.to_json(),
                    None => body.as_bytes().to_vec(),
                };
                match store.put(&key, &value, None) {
                    Ok(()) => assert_eq!(status, 200),
                    Err(refused) => assert_eq!((status, refused.kind()), (401, StoreErrorKind::Unauthorized)),
                }
            }
        }
        let (got_line, got_headers, got_body) = server.join().unwrap();
        assert_eq!((got_line.as_str(), got_body.as_str()), (line, body), "{}", vector["id"]);
        for header in headers {
            assert!(got_headers.contains(&header.to_ascii_lowercase()), "{}: {got_headers:?}", vector["id"]);
        }
        assert_eq!(got_headers.iter().any(|header| header.starts_with("authorization")), token.is_some());
        played += 1;
    }
    assert_eq!(played, 31);
}
