//! Writing a SegmentDesc. The structures here name the peer's keys in sorted order, which is the order on the wire.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::Value;

use super::{BufferDesc, DeviceDesc, Protocol, SegmentDesc};

#[derive(Serialize)]
struct Document<'a> {
    buffers: Vec<Buffer<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cxl_base_addr: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cxl_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    devices: Option<Vec<Device<'a>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata_version: Option<u64>,
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority_matrix: Option<Value>,
    protocol: Protocols,
    #[serde(skip_serializing_if = "Option::is_none")]
    rank_info: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rdma_server_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_data_host: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_data_port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tcp_proto_version: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    yuebing: BTreeMap<&'a str, Value>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Protocols {
    One(&'static str),
    Several(Vec<&'static str>),
}

#[derive(Serialize)]
struct Device<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    eid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gid: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lid: Option<u32>,
    name: &'a str,
}

#[derive(Default, Serialize)]
struct Buffer<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    addr: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    device_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_path: Option<&'a str>,
    length: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lkey: Option<&'a [u64]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    local_path_map: Option<&'a BTreeMap<String, String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    protocol: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    rkey: Option<&'a [u64]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    shm_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tseg: Option<&'a [String]>,
}

impl SegmentDesc {
    /// Writes the description as a metadata store keeps it: compact JSON, keys sorted, no newline. `timestamp` is
    /// copied as it is; an empty one is left out.
    pub fn to_compact(&self, timestamp: &str) -> Vec<u8> {
        serde_json::to_vec(&self.document(timestamp)).unwrap_or_default()
    }

    /// Writes the description as a handshake carries it: as [`SegmentDesc::to_compact`], with a newline at the end.
    pub fn to_json(&self, timestamp: &str) -> Vec<u8> {
        let mut bytes = self.to_compact(timestamp);
        bytes.push(b'\n');
        bytes
    }

    fn document<'a>(&'a self, timestamp: &'a str) -> Document<'a> {
        let has_devices = self.protocols.iter().any(|protocol| protocol.has_devices());
        let devices = has_devices || !self.devices.is_empty();
        // Operators write segments of files by hand, and they have no engine behind them.
        let engine = !self.speaks(Protocol::Nvmeof);
        Document {
            buffers: self.buffers.iter().map(|buffer| self.buffer(buffer)).collect(),
            cxl_base_addr: self.cxl.as_ref().map(|cxl| cxl.base),
            cxl_name: self.cxl.as_ref().map(|cxl| cxl.path.as_str()),
            devices: devices.then(|| self.devices.iter().map(|device| self.device(device)).collect()),
            metadata_version: self.metadata_version,
            name: &self.name,
            priority_matrix: match &self.priority_matrix {
                Some(matrix) => Some(matrix.to_json()),
                None => has_devices.then(|| Value::Object(serde_json::Map::new())),
            },
            protocol: match self.protocols.as_slice() {
                [one] => Protocols::One(one.name()),
                several => Protocols::Several(several.iter().map(|protocol| protocol.name()).collect()),
            },
            rank_info: self.rank_info.as_ref(),
            rdma_server_name: self.rdma_server_name.as_deref(),
            tcp_data_host: self.data_host.as_deref(),
            tcp_data_port: engine.then_some(self.data_port),
            tcp_proto_version: engine.then_some(self.data_version),
            timestamp: (engine && !timestamp.is_empty()).then_some(timestamp),
            yuebing: self.own(),
        }
    }

    fn device<'a>(&self, device: &'a DeviceDesc) -> Device<'a> {
        Device {
            eid: device.eid.as_deref(),
            gid: device.gid.as_deref(),
            lid: device.eid.is_none().then_some(device.lid),
            name: &device.name,
        }
    }

    fn buffer<'a>(&'a self, buffer: &'a BufferDesc) -> Buffer<'a> {
        let protocol = self.protocol_of(buffer);
        let file = buffer.file.as_ref();
        let in_memory = !matches!(protocol, Protocol::Cxl | Protocol::Nvmeof);
        let name = if buffer.name.is_empty() { &self.name } else { &buffer.name };
        Buffer {
            addr: in_memory.then_some(buffer.address),
            device_id: buffer.device_id,
            file_path: file.map(|file| file.path.as_str()),
            length: buffer.len,
            lkey: protocol.has_keys().then_some(buffer.lkeys.as_slice()),
            local_path_map: file.map(|file| &file.local_paths),
            name: (protocol != Protocol::Nvmeof).then_some(name.as_str()),
            offset: buffer.offset,
            protocol: buffer.protocol.map(Protocol::name),
            rkey: protocol.has_keys().then_some(buffer.rkeys.as_slice()),
            shm_name: buffer.shm_name.as_deref(),
            tseg: (protocol == Protocol::Ub).then_some(buffer.target_segments.as_slice()),
        }
    }

    fn own(&self) -> BTreeMap<&str, Value> {
        let mut own: BTreeMap<&str, Value> =
            self.extras.iter().map(|(key, value)| (key.as_str(), value.clone())).collect();
        if let Some(shm) = &self.shm {
            own.insert("boot", shm.boot_id.as_str().into());
            own.insert("shm", shm.socket.as_str().into());
            own.insert("uid", shm.uid.into());
        }
        if !own.is_empty() {
            own.insert("v", 1.into());
        }
        own
    }
}
