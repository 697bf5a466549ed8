//! What a task asks for, and its text on the wire: JSON, as the peer's clients read and write it.
//!
//! Keys are any bytes. The peer writes them as they are between the quotes, so a payload need not be UTF-8.

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use yb_types::{DEFAULT_TENANT, Uuid};
use yb_wire::messages::TaskType;

/// The right to make one copy of a hot object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DynamicLease {
    /// Its id.
    pub id: Uuid,
    /// The write of the object that it is for.
    pub epoch: u64,
}

/// Copy a replica to other segments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyWork {
    /// Whose key.
    pub tenant: String,
    /// The key.
    pub key: Box<[u8]>,
    /// Name of the segment to read.
    pub source: String,
    /// Names of the segments to write.
    pub targets: Vec<String>,
    /// For a copy that the master itself wants.
    pub dynamic: Option<DynamicLease>,
}

/// Move a replica to another segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MoveWork {
    /// Whose key.
    pub tenant: String,
    /// The key.
    pub key: Box<[u8]>,
    /// Name of the segment to read.
    pub source: String,
    /// Name of the segment to write.
    pub target: String,
}

/// What a task asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// Another copy.
    Copy(CopyWork),
    /// A copy elsewhere instead of this one.
    Move(MoveWork),
}

/// The payload of a task is not what its type says.
#[derive(Debug, thiserror::Error)]
pub enum BadPayload {
    /// A kind of task that did not exist when this was written.
    #[error("unknown type of task {0}")]
    Type(i32),
    /// Not the JSON of such a task.
    #[error("the task's payload cannot be read: {0}")]
    Json(#[from] serde_json::Error),
}

impl Work {
    /// The wire's number for it.
    pub fn task_type(&self) -> TaskType {
        match self {
            Work::Copy(_) => TaskType::REPLICA_COPY,
            Work::Move(_) => TaskType::REPLICA_MOVE,
        }
    }

    /// The tenant and key it is about.
    pub fn object(&self) -> (&str, &[u8]) {
        match self {
            Work::Copy(work) => (&work.tenant, &work.key),
            Work::Move(work) => (&work.tenant, &work.key),
        }
    }

    /// Bytes that it takes, roughly.
    pub fn bytes(&self) -> usize {
        let (tenant, key) = self.object();
        let targets = match self {
            Work::Copy(work) => work.targets.iter().map(|target| target.len() + size_of::<String>()).sum(),
            Work::Move(work) => work.target.len(),
        };
        size_of::<Work>() + tenant.len() + key.len() + self.source().len() + targets
    }

    /// Name of the segment it reads.
    pub fn source(&self) -> &str {
        match self {
            Work::Copy(work) => &work.source,
            Work::Move(work) => &work.source,
        }
    }

    /// The payload of the task.
    pub fn to_json(&self) -> Vec<u8> {
        let mut out = Object::new();
        match self {
            Work::Copy(work) => {
                let lease = work.dynamic.unwrap_or(DynamicLease { id: Uuid::NIL, epoch: 0 });
                out.text("tenant_id", work.tenant.as_bytes());
                out.text("key", &work.key);
                out.text("source", work.source.as_bytes());
                out.texts("targets", &work.targets);
                out.number("dynamic_replication_lease_id_high", lease.id.first);
                out.number("dynamic_replication_lease_id_low", lease.id.second);
                out.number("dynamic_replication_version_epoch", lease.epoch);
            }
            Work::Move(work) => {
                out.text("tenant_id", work.tenant.as_bytes());
                out.text("key", &work.key);
                out.text("source", work.source.as_bytes());
                out.text("target", work.target.as_bytes());
            }
        }
        out.close()
    }

    /// Reads the payload of a task. What is missing takes its default, as it does for the peer's clients.
    ///
    /// # Errors
    /// [`BadPayload`]; the task is to be reported as failed.
    pub fn from_json(kind: TaskType, payload: &[u8]) -> Result<Work, BadPayload> {
        if kind != TaskType::REPLICA_COPY && kind != TaskType::REPLICA_MOVE {
            return Err(BadPayload::Type(kind.0));
        }
        let read: Payload = serde_json::from_slice(payload)?;
        let tenant = if read.tenant_id.is_empty() { DEFAULT_TENANT.to_owned() } else { read.tenant_id };
        let key = read.key.0.into_boxed_slice();
        if kind == TaskType::REPLICA_MOVE {
            return Ok(Work::Move(MoveWork { tenant, key, source: read.source, target: read.target }));
        }
        let id = Uuid { first: read.lease_high, second: read.lease_low };
        let dynamic = (!id.is_nil()).then_some(DynamicLease { id, epoch: read.epoch });
        Ok(Work::Copy(CopyWork { tenant, key, source: read.source, targets: read.targets, dynamic }))
    }
}

/// Both payloads in one.
#[derive(Debug, Default, serde::Deserialize)]
#[serde(default)]
struct Payload {
    tenant_id: String,
    key: RawText,
    source: String,
    target: String,
    targets: Vec<String>,
    #[serde(rename = "dynamic_replication_lease_id_high")]
    lease_high: u64,
    #[serde(rename = "dynamic_replication_lease_id_low")]
    lease_low: u64,
    #[serde(rename = "dynamic_replication_version_epoch")]
    epoch: u64,
}

/// A JSON string of any bytes.
#[derive(Debug, Default)]
struct RawText(Vec<u8>);

impl<'de> Deserialize<'de> for RawText {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_byte_buf(RawTextVisitor)
    }
}

struct RawTextVisitor;

impl<'de> Visitor<'de> for RawTextVisitor {
    type Value = RawText;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a string")
    }

    fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<RawText, E> {
        Ok(RawText(bytes.to_vec()))
    }

    fn visit_byte_buf<E: de::Error>(self, bytes: Vec<u8>) -> Result<RawText, E> {
        Ok(RawText(bytes))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<RawText, A::Error> {
        Err(de::Error::invalid_type(de::Unexpected::Seq, &self))
    }
}

/// A JSON object in the making, without blanks.
struct Object(Vec<u8>);

impl Object {
    fn new() -> Self {
        Object(Vec::with_capacity(160))
    }

    fn name(&mut self, name: &str) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        self.string(name.as_bytes());
        self.0.push(b':');
    }

    fn text(&mut self, name: &str, value: &[u8]) {
        self.name(name);
        self.string(value);
    }

    fn texts(&mut self, name: &str, values: &[String]) {
        self.name(name);
        self.0.push(b'[');
        for (at, value) in values.iter().enumerate() {
            if at > 0 {
                self.0.push(b',');
            }
            self.string(value.as_bytes());
        }
        self.0.push(b']');
    }

    fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        self.0.extend_from_slice(value.to_string().as_bytes());
    }

    fn string(&mut self, value: &[u8]) {
        self.0.push(b'"');
        for &byte in value {
            match byte {
                b'"' | b'\\' => self.0.extend_from_slice(&[b'\\', byte]),
                0..0x20 => self.0.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
                _ => self.0.push(byte),
            }
        }
        self.0.push(b'"');
    }

    fn close(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn copy(key: &[u8], dynamic: Option<DynamicLease>) -> Work {
        let targets = vec!["b:2".to_owned(), "c:3".to_owned()];
        Work::Copy(CopyWork { tenant: "default".into(), key: key.into(), source: "a:1".into(), targets, dynamic })
    }

    #[test]
    fn payloads_have_the_members_of_the_peer_in_its_order() {
        let text = String::from_utf8(copy(b"k\"\\\n", None).to_json()).unwrap();
        assert_eq!(
            text,
            r#"{"tenant_id":"default","key":"k\"\\\u000a","source":"a:1","targets":["b:2","c:3"],"dynamic_replication_lease_id_high":0,"dynamic_replication_lease_id_low":0,"dynamic_replication_version_epoch":0}"#
        );
        let work = MoveWork { tenant: "t".into(), key: (*b"k").into(), source: "a:1".into(), target: "b:2".into() };
        let text = String::from_utf8(Work::Move(work).to_json()).unwrap();
        assert_eq!(text, r#"{"tenant_id":"t","key":"k","source":"a:1","target":"b:2"}"#);
    }

    #[test]
    fn what_is_missing_takes_its_default() {
        let read = Work::from_json(TaskType::REPLICA_COPY, br#"{"key":"k","targets":["b:2"],"new":1}"#).unwrap();
        assert_eq!(read.object(), ("default", &b"k"[..]));
        assert!(matches!(&read, Work::Copy(copy) if copy.dynamic.is_none() && copy.targets == ["b:2"]));
        assert!(Work::from_json(TaskType::REPLICA_COPY, b"{").is_err());
        assert!(Work::from_json(TaskType::REPLICA_MOVE, br#"{"key":[1,2]}"#).is_err());
        assert!(Work::from_json(TaskType(7), b"{}").is_err());
    }

    proptest! {
        #[test]
        fn no_payload_panics(kind in -1i32..3, payload in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = Work::from_json(TaskType(kind), &payload);
        }

        #[test]
        fn any_key_survives(key in proptest::collection::vec(any::<u8>(), 0..60), high in any::<u64>(), epoch in any::<u64>()) {
            let dynamic = (high > 0).then_some(DynamicLease { id: Uuid { first: high, second: 1 }, epoch });
            let work = copy(&key, dynamic);
            prop_assert_eq!(Work::from_json(TaskType::REPLICA_COPY, &work.to_json()).unwrap(), work);
        }
    }
}
