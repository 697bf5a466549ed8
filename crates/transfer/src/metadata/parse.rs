//! Reading a SegmentDesc.

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use yb_topology::Matrix;

use super::{BufferDesc, CxlDesc, DeviceDesc, FileDesc, Protocol, SegmentDesc, ShmDesc};

/// The text was not a SegmentDesc.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a segment description: {0}")]
pub struct DescError(String);

/// Keys of the `yuebing` object that are fields of ours.
const OWN_KEYS: [&str; 4] = ["v", "shm", "boot", "uid"];

impl SegmentDesc {
    /// Reads a description. A newline at the end is allowed. Buffers that make no sense are left out and counted.
    ///
    /// # Errors
    /// When the text is not a JSON object, or names a protocol, or a set of them, that nobody speaks.
    pub fn parse(json: &[u8]) -> Result<Self, DescError> {
        let value: Value = serde_json::from_slice(json).map_err(|error| DescError(error.to_string()))?;
        let Value::Object(map) = value else { return Err(DescError("not an object".to_owned())) };
        let own = map.get("yuebing").and_then(Value::as_object).filter(|own| number(own, "v") == Some(1));
        let mut desc = SegmentDesc {
            name: text(&map, "name").unwrap_or_default().to_owned(),
            protocols: protocols(map.get("protocol"))?,
            devices: list(&map, "devices").iter().map(device).collect(),
            priority_matrix: map.get("priority_matrix").and_then(|matrix| Matrix::from_json(matrix).ok()),
            cxl: text(&map, "cxl_name")
                .map(|path| CxlDesc { path: path.to_owned(), base: number(&map, "cxl_base_addr").unwrap_or(0) }),
            rank_info: map.get("rank_info").cloned(),
            rdma_server_name: map.get("rdma_server_name").and_then(Value::as_str).map(str::to_owned),
            data_host: text(&map, "tcp_data_host").map(str::to_owned),
            data_port: small(&map, "tcp_data_port").unwrap_or(0),
            data_version: small(&map, "tcp_proto_version").unwrap_or(1),
            metadata_version: number(&map, "metadata_version"),
            shm: own.and_then(shm),
            extras: own.map(extras).unwrap_or_default(),
            buffers: Vec::new(),
            unreadable_buffers: 0,
        };
        let buffers = list(&map, "buffers");
        let read = buffers.iter().filter_map(|value| buffer(value, &desc)).collect();
        desc.buffers = read;
        desc.unreadable_buffers = buffers.len() - desc.buffers.len();
        Ok(desc)
    }
}

fn number(map: &Map<String, Value>, key: &str) -> Option<u64> {
    match map.get(key)? {
        Value::Number(number) => number.as_u64(),
        Value::String(text) => text.parse().ok(),
        _ => None,
    }
}

fn small<T: TryFrom<u64>>(map: &Map<String, Value>, key: &str) -> Option<T> {
    number(map, key).and_then(|number| T::try_from(number).ok())
}

fn text<'a>(map: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    map.get(key).and_then(Value::as_str).filter(|text| !text.is_empty())
}

fn list<'a>(map: &'a Map<String, Value>, key: &str) -> &'a [Value] {
    map.get(key).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Numbers of a list; `None` when one of them is none.
fn numbers(map: &Map<String, Value>, key: &str) -> Option<Vec<u64>> {
    list(map, key).iter().map(Value::as_u64).collect()
}

fn protocols(value: Option<&Value>) -> Result<Vec<Protocol>, DescError> {
    let one =
        |name: &str| Protocol::from_name(name).ok_or_else(|| DescError(format!("protocol {name:?} is not known here")));
    match value {
        None | Some(Value::Null) => Ok(vec![Protocol::Tcp]),
        Some(Value::String(name)) => one(name).map(|protocol| vec![protocol]),
        Some(Value::Array(names)) => {
            let several: Vec<Protocol> =
                names.iter().map(|name| one(name.as_str().unwrap_or_default())).collect::<Result<_, _>>()?;
            let distinct =
                several.iter().enumerate().all(|(at, protocol)| !several.iter().take(at).any(|p| p == protocol));
            if several.len() < 2 || !distinct || !several.iter().all(|protocol| protocol.is_combinable()) {
                return Err(DescError("these protocols do not go together in one segment".to_owned()));
            }
            Ok(several)
        }
        Some(_) => Err(DescError("the protocol is neither a name nor a list of names".to_owned())),
    }
}

fn device(value: &Value) -> DeviceDesc {
    let Some(map) = value.as_object() else { return DeviceDesc::default() };
    DeviceDesc {
        name: text(map, "name").unwrap_or_default().to_owned(),
        lid: small(map, "lid").unwrap_or(0),
        gid: text(map, "gid").map(str::to_owned),
        eid: text(map, "eid").map(str::to_owned),
    }
}

/// A buffer that can be used, or nothing.
fn buffer(value: &Value, desc: &SegmentDesc) -> Option<BufferDesc> {
    let map = value.as_object()?;
    let protocol = match text(map, "protocol") {
        Some(name) if desc.protocols.len() > 1 => {
            Some(Protocol::from_name(name).filter(|protocol| desc.speaks(*protocol))?)
        }
        None if desc.protocols.len() > 1 => return None,
        _ => None,
    };
    let buffer = BufferDesc {
        name: text(map, "name").unwrap_or_default().to_owned(),
        address: number(map, "addr").unwrap_or(0),
        len: number(map, "length")?,
        rkeys: numbers(map, "rkey")?,
        lkeys: numbers(map, "lkey").unwrap_or_default(),
        shm_name: text(map, "shm_name").map(str::to_owned),
        offset: number(map, "offset"),
        target_segments: list(map, "tseg").iter().map(|hex| hex.as_str().map(str::to_owned)).collect::<Option<_>>()?,
        file: file(map),
        protocol,
        device_id: map.get("device_id").and_then(Value::as_i64),
    };
    is_usable(&buffer, desc).then_some(buffer)
}

fn file(map: &Map<String, Value>) -> Option<FileDesc> {
    let path = text(map, "file_path")?.to_owned();
    let paths = map.get("local_path_map").and_then(Value::as_object).into_iter().flatten();
    let local_paths: BTreeMap<String, String> =
        paths.filter_map(|(name, path)| Some((name.clone(), path.as_str()?.to_owned()))).collect();
    Some(FileDesc { path, local_paths })
}

fn is_usable(buffer: &BufferDesc, desc: &SegmentDesc) -> bool {
    let protocol = desc.protocol_of(buffer);
    let place = match protocol {
        Protocol::Nvmeof => buffer.file.is_some(),
        Protocol::Cxl => buffer.offset.is_some_and(|offset| offset.checked_add(buffer.len).is_some()),
        _ => buffer.address > 0 && buffer.address.checked_add(buffer.len).is_some(),
    };
    let keys = !protocol.has_keys() || buffer.rkeys.is_empty() || buffer.rkeys.len() == desc.devices.len();
    let handle = !protocol.has_handle() || buffer.shm_name.is_some();
    buffer.len > 0 && place && keys && handle
}

fn shm(own: &Map<String, Value>) -> Option<ShmDesc> {
    let uid = small(own, "uid")?;
    Some(ShmDesc { socket: text(own, "shm")?.to_owned(), boot_id: text(own, "boot")?.to_owned(), uid })
}

fn extras(own: &Map<String, Value>) -> BTreeMap<String, Value> {
    let others = own.iter().filter(|(key, _)| !OWN_KEYS.contains(&key.as_str()));
    others.map(|(key, value)| (key.clone(), value.clone())).collect()
}
