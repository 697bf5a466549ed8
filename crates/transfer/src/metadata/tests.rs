//! Descriptions of every protocol, as recorded and derived from the peer.

use serde_json::{Value, json};

use super::*;

fn vectors() -> Vec<Value> {
    include_str!("../../tests/fixtures/segment-desc.jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

#[test]
fn every_recorded_description_is_read_and_written_back_byte_for_byte() {
    let vectors = vectors();
    for vector in &vectors {
        let (id, text) = (&vector["id"], vector["json_text"].as_str().unwrap());
        let desc = SegmentDesc::parse(text.as_bytes()).unwrap();
        assert!(!desc.buffers.is_empty() && desc.unreadable_buffers == 0, "{id}");
        let timestamp =
            serde_json::from_str::<Value>(text).unwrap()["timestamp"].as_str().unwrap_or_default().to_owned();
        let (compact, json) = (desc.to_compact(&timestamp), desc.to_json(&timestamp));
        // 0.3.12 writes no version of the data wire; it is read as 1, and written since.
        let expected = if !text.contains("tcp_proto_version") {
            text.replace("\"tcp_data_port\":0,", "\"tcp_data_port\":0,\"tcp_proto_version\":1,")
        } else {
            text.to_owned()
        };
        assert_eq!(String::from_utf8(compact).unwrap(), expected.trim_end(), "{id}");
        assert!(json.ends_with(b"}\n"));
        assert_eq!(SegmentDesc::parse(&json).unwrap(), desc, "{id}");
    }
    assert!(vectors.len() >= 10, "{}", vectors.len());
}

#[test]
fn the_fields_of_rdma_stand_where_readers_look_for_them() {
    let vectors = vectors();
    let rdma = vectors.iter().find(|vector| vector["id"] == "segment-desc-rdma").unwrap();
    let desc = SegmentDesc::parse(rdma["json_text"].as_str().unwrap().as_bytes()).unwrap();
    assert_eq!(desc.protocols, [Protocol::Rdma]);
    assert_eq!(desc.devices[1].gid.as_deref(), Some("00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:01:01"));
    let buffer = desc.covering(139_637_976_727_552 + 4096, 1 << 20).unwrap();
    assert_eq!((buffer.name.as_str(), buffer.rkeys.as_slice()), ("cpu:0", &[4660, 4661][..]));
    assert_eq!(desc.covering(139_637_976_727_552, (1 << 30) + 1), None);
    assert_eq!(desc.priority_matrix.unwrap().of("cpu:1").preferred, ["mlx5_1"]);
}

#[test]
fn our_own_description_comes_back() {
    let desc = SegmentDesc {
        buffers: vec![BufferDesc { name: "cpu:0".to_owned(), ..BufferDesc::new(4096, 8192) }],
        data_host: Some("127.0.0.1".to_owned()),
        data_port: 15_001,
        shm: Some(ShmDesc { socket: "yb-1".to_owned(), boot_id: "b".to_owned(), uid: 7 }),
        extras: BTreeMap::from([("pid".to_owned(), json!(3))]),
        ..SegmentDesc::tcp("127.0.0.1:15000")
    };
    let text = String::from_utf8(desc.to_json("now")).unwrap();
    assert_eq!(SegmentDesc::parse(text.as_bytes()).unwrap(), desc);
    assert!(text.ends_with("\"yuebing\":{\"boot\":\"b\",\"pid\":3,\"shm\":\"yb-1\",\"uid\":7,\"v\":1}}\n"), "{text}");
}

#[test]
fn several_protocols_share_a_segment_when_they_go_together() {
    let text = r#"{"buffers":[{"addr":4096,"length":8,"lkey":[1],"name":"cpu:0","protocol":"rdma","rkey":[2]},{"length":9,"name":"n","offset":0,"protocol":"cxl"},{"addr":4096,"length":8,"name":"n","protocol":"tcp"}],"cxl_base_addr":1,"cxl_name":"/dev/dax0.0","devices":[{"gid":"g","lid":0,"name":"m"}],"name":"n","priority_matrix":{},"protocol":["rdma","cxl","tcp"],"tcp_data_port":0,"tcp_proto_version":1}"#;
    let desc = SegmentDesc::parse(text.as_bytes()).unwrap();
    assert_eq!(String::from_utf8(desc.to_compact("")).unwrap(), text);
    assert_eq!(desc.protocol_of(&desc.buffers[1]), Protocol::Cxl);
    for bad in
        [r#"["tcp"]"#, r#"["tcp","tcp"]"#, r#"["tcp","efa"]"#, r#"["tcp",1]"#, "1", r#""carrier pigeon""#, r#""""#]
    {
        assert!(SegmentDesc::parse(format!(r#"{{"protocol":{bad}}}"#).as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn one_bad_buffer_does_not_hide_the_others() {
    let text = r#"{"protocol":"rdma","devices":[{"name":"a","gid":"g"},7],"buffers":[
        {"addr":16,"length":4,"rkey":[1,2]},{"addr":16,"length":4,"rkey":[1]},{"addr":16,"length":4,"rkey":["x",2]},
        {"addr":0,"length":4,"rkey":[1,2]},{"addr":18446744073709551615,"length":9},7,{"addr":32,"length":4}]}"#;
    let desc = SegmentDesc::parse(text.as_bytes()).unwrap();
    assert_eq!(desc.buffers.iter().map(|buffer| buffer.address).collect::<Vec<_>>(), [16, 32]);
    assert_eq!(desc.unreadable_buffers, 5);
    assert_eq!((desc.devices.len(), desc.devices[1].name.as_str()), (2, ""), "keys keep their places");
    let nvlink = br#"{"protocol":"nvlink","buffers":[{"addr":1,"length":1},{"addr":1,"length":1,"shm_name":"aA"}]}"#;
    assert_eq!(SegmentDesc::parse(nvlink).unwrap().buffers.len(), 1);
}

#[test]
fn odd_documents_are_read_as_far_as_they_make_sense() {
    let desc = SegmentDesc::parse(
        br#"{"buffers":[{"addr":"16","length":4},{"addr":0,"length":1},{"addr":18446744073709551615,"length":9},7],
             "tcp_data_port":99999,"priority_matrix":5,"yuebing":{"v":2,"shm":"x","boot":"y","uid":1},"new":[]}"#,
    )
    .unwrap();
    assert_eq!(desc.buffers, [BufferDesc::new(16, 4)]);
    assert_eq!((desc.data_port, desc.data_version, desc.shm, desc.priority_matrix), (0, 1, None, None));
    for bad in [&b""[..], b"[]", b"{", b"\xff"] {
        assert!(SegmentDesc::parse(bad).is_err());
    }
}

#[test]
fn a_description_of_many_buffers_is_read_in_one_piece() {
    let buffers = (1..=40_000_u64).map(|at| BufferDesc { name: "cpu:0".to_owned(), ..BufferDesc::new(at << 12, 4096) });
    let desc = SegmentDesc { buffers: buffers.collect(), ..SegmentDesc::tcp("a:1") };
    let text = desc.to_json("");
    assert!(text.len() > 1 << 20, "{}", text.len());
    assert_eq!(SegmentDesc::parse(&text).unwrap(), desc);
}
