//! SegmentDesc: what an engine tells about itself over the handshake.
//!
//! JSON with the peer's keys, read with tolerance (a number may come as text, unknown keys are skipped, one bad buffer
//! does not hide the others), plus one object of our own, `yuebing`, that the peer's engines ignore.

use serde_json::{Map, Value, json};

/// A registered range of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferDesc {
    /// First address in the owner's process.
    pub address: u64,
    /// Bytes.
    pub len: u64,
}

/// Where a peer on this host finds our shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShmDesc {
    /// Abstract UNIX socket name, without the leading zero byte.
    pub socket: String,
    /// Boot id of the host.
    pub boot_id: String,
    /// User id of the owner.
    pub uid: u32,
}

/// A segment as its owner describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SegmentDesc {
    /// `host:port` of the owner's handshake.
    pub name: String,
    /// Registered ranges.
    pub buffers: Vec<BufferDesc>,
    /// Host of the data port; `None` = the handshake's.
    pub data_host: Option<String>,
    /// TCP data port; 0 = none.
    pub data_port: u16,
    /// Version of the TCP data wire; absent on the wire means 1.
    pub data_version: u32,
    /// Shared memory, for engines of our kind.
    pub shm: Option<ShmDesc>,
}

/// The text was not a SegmentDesc.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a segment description: {0}")]
pub struct DescError(String);

fn number(map: &Map<String, Value>, key: &str) -> Option<u64> {
    match map.get(key)? {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    map.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
}

impl SegmentDesc {
    /// Reads a description.
    ///
    /// # Errors
    /// When the text is not a JSON object.
    pub fn parse(json: &[u8]) -> Result<Self, DescError> {
        let value: Value = serde_json::from_slice(json).map_err(|error| DescError(error.to_string()))?;
        let Value::Object(map) = value else { return Err(DescError("not an object".to_owned())) };
        let buffers = map.get("buffers").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        Ok(SegmentDesc {
            name: text(&map, "name").unwrap_or_default().to_owned(),
            buffers: buffers.iter().filter_map(parse_buffer).collect(),
            data_host: text(&map, "tcp_data_host").map(str::to_owned),
            data_port: number(&map, "tcp_data_port").and_then(|port| u16::try_from(port).ok()).unwrap_or(0),
            data_version: number(&map, "tcp_proto_version").and_then(|v| u32::try_from(v).ok()).unwrap_or(1),
            shm: map.get("yuebing").and_then(Value::as_object).and_then(parse_shm),
        })
    }

    /// Writes the description: compact JSON, keys sorted, a newline at the end. `timestamp` is copied as it is.
    pub fn to_json(&self, timestamp: &str) -> Vec<u8> {
        let buffers: Vec<Value> = self
            .buffers
            .iter()
            .map(|buffer| json!({"addr": buffer.address, "length": buffer.len, "name": self.name}))
            .collect();
        let mut desc = json!({
            "buffers": buffers,
            "metadata_version": 0,
            "name": self.name,
            "protocol": "tcp",
            "rdma_server_name": "",
            "tcp_data_port": self.data_port,
            "tcp_proto_version": self.data_version,
            "timestamp": timestamp,
        });
        if let Some(host) = &self.data_host {
            desc["tcp_data_host"] = json!(host);
        }
        if let Some(shm) = &self.shm {
            desc["yuebing"] = json!({"boot": shm.boot_id, "shm": shm.socket, "uid": shm.uid, "v": 1});
        }
        let mut bytes = desc.to_string().into_bytes();
        bytes.push(b'\n');
        bytes
    }
}

fn parse_buffer(value: &Value) -> Option<BufferDesc> {
    let map = value.as_object()?;
    let buffer = BufferDesc { address: number(map, "addr")?, len: number(map, "length")? };
    (buffer.address > 0 && buffer.len > 0 && buffer.address.checked_add(buffer.len).is_some()).then_some(buffer)
}

fn parse_shm(map: &Map<String, Value>) -> Option<ShmDesc> {
    if number(map, "v") != Some(1) {
        return None;
    }
    let uid = u32::try_from(number(map, "uid")?).ok()?;
    Some(ShmDesc { socket: text(map, "shm")?.to_owned(), boot_id: text(map, "boot")?.to_owned(), uid })
}

/// Milliseconds since 1970 as the peer writes times: `YYYY-mm-dd HH:MM:SS.uuuuuu` (in UTC here).
pub fn timestamp(epoch_millis: u64) -> String {
    let (seconds, millis) = (epoch_millis / 1000, epoch_millis % 1000);
    let (day, second) = (seconds / 86_400, seconds % 86_400);
    // Civil date from day number: years start in March, so that the leap day is the last of its year.
    let shifted = day + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let date = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{date:02} {hour:02}:{minute:02}:{:02}.{:06}", second % 60, millis * 1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_description_comes_back() {
        let desc = SegmentDesc {
            name: "127.0.0.1:15000".to_owned(),
            buffers: vec![BufferDesc { address: 4096, len: 8192 }],
            data_host: Some("127.0.0.1".to_owned()),
            data_port: 15_001,
            data_version: 2,
            shm: Some(ShmDesc { socket: "yb-1".to_owned(), boot_id: "b".to_owned(), uid: 7 }),
        };
        assert_eq!(SegmentDesc::parse(&desc.to_json("now")).unwrap(), desc);
    }

    #[test]
    fn odd_documents_are_read_as_far_as_they_make_sense() {
        let desc = SegmentDesc::parse(
            br#"{"buffers":[{"addr":"16","length":4},{"addr":0,"length":1},{"addr":18446744073709551615,"length":9},7],
                 "tcp_data_port":99999,"yuebing":{"v":2,"shm":"x","boot":"y","uid":1},"new":[]}"#,
        )
        .unwrap();
        assert_eq!(desc.buffers, [BufferDesc { address: 16, len: 4 }]);
        assert_eq!((desc.data_port, desc.data_version, desc.shm), (0, 1, None));
        for bad in [&b""[..], b"[]", b"{", b"\xff"] {
            assert!(SegmentDesc::parse(bad).is_err());
        }
    }

    #[test]
    fn times_look_as_the_peers() {
        assert_eq!(timestamp(0), "1970-01-01 00:00:00.000000");
        assert_eq!(timestamp(1_709_210_096_789), "2024-02-29 12:34:56.789000");
        assert_eq!(timestamp(1_795_964_581_001), "2026-11-29 15:03:01.001000");
    }
}
