//! Byte streams recorded with the peer's engine, played against ours.

#![allow(clippy::unwrap_used, reason = "test code")]

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};

use common::*;
use serde_json::Value;

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

fn vectors() -> Vec<Value> {
    include_str!("fixtures/te.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Those of 0.3.14, by itself and with 0.3.13.
fn later_vectors() -> Vec<Value> {
    include_str!("fixtures/te-0.3.14.jsonl").lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn ask(address: &str, request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request).unwrap();
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply);
    reply
}

fn sorted(json: &[u8]) -> Vec<String> {
    let Value::Object(map) = serde_json::from_slice(json).unwrap() else { panic!("not an object") };
    let mut keys: Vec<String> = map.keys().cloned().collect();
    keys.sort();
    keys
}

#[test]
fn handshakes_are_answered_as_the_peer_answers() {
    let ours = engine(tcp_settings());
    let _memory = memory(&ours, 1 << 20);
    let mut played = 0;
    for vector in vectors().iter().filter(|vector| vector["layer"] == "handshake") {
        let id = vector["id"].as_str().unwrap();
        let Some(request) = vector["request_hex"].as_str() else {
            assert_eq!(id, "hs-connection-rdma", "only the RDMA body has no recorded frame");
            continue;
        };
        let reply = ask(ours.endpoint().unwrap(), &unhex(request));
        if id.starts_with("crash-") {
            assert!(reply.is_empty(), "{id} is closed without a reply");
        } else if id == "hs-metadata" {
            let theirs = unhex(vector["reply_hex"].as_str().unwrap());
            assert_eq!(reply[8], 1);
            assert_eq!(u64::from_le_bytes(reply[..8].try_into().unwrap()) as usize, reply.len() - 8);
            let (mut own, their) = (sorted(&reply[9..]), sorted(&theirs[9..]));
            own.retain(|key| key != "metadata_version" && key != "yuebing");
            assert_eq!(own, their, "the keys of 0.3.13, plus those of 0.3.14 and ours");
        } else {
            assert_eq!(reply, unhex(vector["reply_hex"].as_str().unwrap()), "{id}");
        }
        played += 1;
    }
    assert_eq!(played, 7);
    assert_eq!(ours.take_notifications().len(), 1, "hs-notify was kept");
}

fn data_address(endpoint: &str) -> String {
    let reply = ask(endpoint, b"\x03\0\0\0\0\0\0\0\x01{}");
    let desc: Value = serde_json::from_slice(&reply[9..]).unwrap();
    format!("127.0.0.1:{}", desc["tcp_data_port"])
}

/// Replaces the recorded buffer's addresses by ours in a stream of headers and bodies.
fn rebase(stream: &mut [u8], recorded: u64, ours: u64) {
    let mut at = 0;
    while at + 24 <= stream.len() {
        let word = |at: usize| u64::from_le_bytes(stream[at..at + 8].try_into().unwrap());
        let (size, address, write) = (word(at), word(at + 8), stream[at + 16] & 1 == 1);
        if address >= recorded {
            let moved = address - recorded + ours;
            stream[at + 8..at + 16].copy_from_slice(&moved.to_le_bytes());
        }
        at += 24 + if write && stream[at + 16] != 0x7d { size as usize } else { 0 };
    }
}

#[test]
fn data_streams_are_answered_as_the_peer_answers() {
    let ours = engine(tcp_settings());
    let memory = memory(&ours, 1 << 20);
    let address = data_address(ours.endpoint().unwrap());
    let vectors = vectors();
    let recorded = vectors.iter().find(|v| v["id"] == "tcp-conn-0").unwrap()["target_buffer_addr"].as_u64().unwrap();
    let mut played = 0;
    for vector in vectors.iter().filter(|v| v["layer"] == "tcp-data" && v["request_hex"].is_string()) {
        let id = vector["id"].as_str().unwrap();
        let mut request = unhex(vector["request_hex"].as_str().unwrap());
        rebase(&mut request, recorded, memory.address());
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&request).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut reply = Vec::new();
        let _ = stream.read_to_end(&mut reply);
        let expected = match id {
            // The peer serves unknown opcodes as reads; here the connection ends, so that a corrupt header reads nothing.
            "tcp-unknown-opcode" => Vec::new(),
            "tcp-zero-size" => unhex("010000005654434d"),
            _ => unhex(vector["reply_hex"].as_str().unwrap()),
        };
        assert_eq!(reply, expected, "{id}");
        played += 1;
    }
    assert_eq!(played, 7);
}

#[test]
fn recorded_connections_go_the_same_way() {
    let both = [vectors(), later_vectors()].concat();
    let connections = both.iter().filter(|vector| vector["id"].as_str().unwrap().starts_with("tcp-conn-"));
    let played = connections.map(play_connection).count();
    assert_eq!(played, 4);
}

fn play_connection(vector: &Value) {
    let ours = engine(tcp_settings());
    let memory = memory(&ours, 1 << 20);
    let id = vector["id"].as_str().unwrap();
    let recorded = vector["target_buffer_addr"].as_u64().unwrap();
    let mut stream = TcpStream::connect(data_address(ours.endpoint().unwrap())).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    for event in vector["events"].as_array().unwrap() {
        let mut bytes = unhex(event["hex"].as_str().unwrap());
        match (event["dir"].as_str().unwrap(), event["kind"].as_str().unwrap()) {
            ("C", _) => {
                if bytes.len() == 24 {
                    rebase(&mut bytes, recorded, memory.address());
                }
                let _ = stream.write_all(&bytes);
            }
            ("S", "DATA") => {
                let mut got = vec![0; bytes.len()];
                stream.read_exact(&mut got).unwrap();
                assert_eq!(got, bytes, "{id}");
            }
            _ => assert_eq!(stream.read(&mut [0; 8]).unwrap_or(0), 0, "{id}"),
        }
    }
}

#[test]
fn handshakes_of_the_next_version_are_answered() {
    let ours = engine(tcp_settings());
    let _memory = memory(&ours, 1 << 20);
    let mut played = 0;
    for vector in later_vectors().iter().filter(|vector| vector["layer"] == "handshake") {
        let id = vector["id"].as_str().unwrap();
        let request = unhex(vector["request_hex"].as_str().unwrap());
        let reply = ask(ours.endpoint().unwrap(), &request);
        assert_eq!(u64::from_le_bytes(reply[..8].try_into().unwrap()) as usize, reply.len() - 8, "{id}");
        assert_eq!(reply[8], request[8], "{id}: the type of the request");
        let json: Value = serde_json::from_slice(&reply[9..]).unwrap();
        match reply[8] {
            0 => assert_eq!(json["qp_num"], serde_json::json!([]), "{id}: an engine of TCP has no queue pairs"),
            1 => {
                let mut own = sorted(&reply[9..]);
                own.retain(|key| key != "yuebing");
                let their = unhex(vector["reply_hex"].as_str().unwrap());
                if !id.starts_with("rdma") {
                    let mut their = sorted(&their[9..]);
                    their.push("metadata_version".to_owned());
                    their.sort();
                    their.dedup();
                    assert_eq!(own, their, "{id}: the keys of 0.3.14");
                }
            }
            _ => assert_eq!(reply, unhex(vector["reply_hex"].as_str().unwrap()), "{id}"),
        }
        played += 1;
    }
    assert_eq!(played, 10);
    assert_eq!(ours.take_notifications().len(), 3);
}
