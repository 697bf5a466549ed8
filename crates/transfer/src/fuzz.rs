//! Fuzz targets of the parsers; `cargo test` runs them as property tests, `cargo bolero test` fuzzes them.

use bolero::check;

use crate::handshake::frame::Frame;
use crate::handshake::reply::{Answer, Answers, answer};
use crate::metadata::SegmentDesc;
use crate::segment::{endpoint_fault, split_endpoint};
use crate::shm::wire::{ENTRY_LEN, Entry, HELLO_LEN, LIST_HEAD, ListHead, decode_hello, encode_hello};
use crate::tcp::wire::{HEADER_LEN, Header, STATUS_LEN, Status};

const LIMIT: u64 = 4096;

struct Echo;

impl Answers for Echo {
    fn own(&self) -> Vec<u8> {
        SegmentDesc::default().to_json("")
    }

    fn connection(&self, request: &serde_json::Value) -> Option<serde_json::Value> {
        request.get("qp_num").map(|_| request.clone())
    }

    fn met(&self, _name: &str) {}
}

fn handshake(bytes: &[u8]) {
    let Ok(Some(frame)) = Frame::parse(bytes, LIMIT) else { return };
    assert!(frame.json.len() as u64 <= LIMIT);
    assert_eq!(
        Frame::encode(frame.kind, frame.json),
        bytes[..bytes.len().min(8 + frame.json.len() + usize::from(frame.kind.is_some()))]
    );
    if let Answer::Reply(reply) | Answer::Keep(_, reply) = answer(&frame, &Echo) {
        let back = Frame::parse(&reply, u64::MAX).unwrap().unwrap();
        assert_eq!(back.kind, frame.kind, "an answer has the form and the type of its request");
    }
}

#[test]
fn handshake_frames() {
    check!().with_iterations(20_000).for_each(|input: &[u8]| {
        handshake(input);
        // With a right length the rest gets its chance.
        let mut framed = (input.len() as u64).to_le_bytes().to_vec();
        framed.extend_from_slice(input);
        handshake(&framed);
        for kind in 0..4 {
            let mut typed = (input.len() as u64 + 1).to_le_bytes().to_vec();
            typed.push(kind);
            typed.extend_from_slice(input);
            handshake(&typed);
        }
    });
}

#[test]
fn segment_descriptions() {
    check!().with_iterations(5_000).with_type().for_each(|(bytes, address, len, port): &(Vec<u8>, u64, i64, u32)| {
        let _ = SegmentDesc::parse(bytes);
        let text = String::from_utf8_lossy(bytes);
        let desc = serde_json::json!({
            "name": text, "tcp_data_port": port, "tcp_proto_version": len, "tcp_data_host": text,
            "buffers": [{"addr": address, "length": len}, {"addr": text, "length": address}],
            "yuebing": {"v": 1, "shm": text, "boot": text, "uid": port},
        });
        let desc = SegmentDesc::parse(desc.to_string().as_bytes()).unwrap();
        assert!(desc.buffers.iter().all(|buffer| buffer.len > 0 && buffer.address.checked_add(buffer.len).is_some()));
        assert_eq!(SegmentDesc::parse(&desc.to_json("")).unwrap().buffers.len(), desc.buffers.len());
    });
}

#[test]
fn data_wire() {
    check!().with_iterations(20_000).with_type().for_each(|(header, status): &([u8; HEADER_LEN], [u8; STATUS_LEN])| {
        if let Ok(decoded) = Header::decode(header) {
            assert_eq!(decoded.encode()[..17], header[..17], "only the padding may differ");
        }
        if let Ok(Status::Ok) = Status::decode(*status) {
            assert_eq!(Status::Ok.encode(), *status);
        }
    });
}

#[test]
fn shared_memory_wire() {
    type Input = ([u8; HELLO_LEN], [u8; LIST_HEAD], [u8; ENTRY_LEN]);
    check!().with_iterations(20_000).with_type().for_each(|(hello, head, entry): &Input| {
        if let Ok(client) = decode_hello(hello) {
            assert_eq!(encode_hello(client), *hello);
        }
        let _ = ListHead::decode(head);
        if let Ok(decoded) = Entry::decode(entry) {
            assert_eq!(decoded.encode()[..24], entry[..24], "only unknown flags may differ");
        }
    });
}

#[test]
fn endpoints() {
    check!().with_iterations(20_000).with_type().for_each(|(host, port): &(String, u16)| {
        for text in [host.clone(), format!("{host}:{port}"), format!("[{host}]:{port}"), format!("[{host}")] {
            if endpoint_fault(&text).is_none() {
                let (host, port) = split_endpoint(&text).expect("what has no fault has two parts");
                assert!(port > 0 && !host.is_empty() && !host.contains(char::is_whitespace), "{text:?}");
            }
        }
    });
}
