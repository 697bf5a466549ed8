//! The Connection message of the handshake port (pure): what two engines tell each other to connect queue pairs.

use serde_json::{Map, Value, json};

use super::gid::parse_gid;

/// A Connection message, in either direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ConnectionMessage {
    /// The sender's `server@nic`.
    pub(crate) local_nic_path: String,
    /// The receiver's.
    pub(crate) peer_nic_path: String,
    /// The sender's local identifier.
    pub(crate) lid: u16,
    /// The sender's GID; empty from engines before 0.3.13, which leave it to the SegmentDesc.
    pub(crate) gid: String,
    /// The sender's queue pairs.
    pub(crate) pairs: Vec<u32>,
    /// Empty = success.
    pub(crate) reply: String,
    /// `Some`: the sender knows the third message. True in that message.
    pub(crate) ready_ack: Option<bool>,
}

/// The body was not a Connection message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a connection message: {0}")]
pub(crate) struct MessageError(&'static str);

/// A field as text; scalars of another kind are taken as the peer takes them.
fn text(map: &Map<String, Value>, key: &'static str) -> Result<String, MessageError> {
    match map.get(key) {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text.clone()),
        Some(Value::Bool(flag)) => Ok(flag.to_string()),
        Some(Value::Number(number)) => Ok(number.to_string()),
        Some(Value::Array(_) | Value::Object(_)) => Err(MessageError(key)),
    }
}

impl ConnectionMessage {
    /// Reads a body.
    ///
    /// # Errors
    /// When it is no object, a text is a list or an object, or a queue pair is no number of 24 bits.
    pub(crate) fn parse(value: &Value) -> Result<Self, MessageError> {
        let map = value.as_object().ok_or(MessageError("not an object"))?;
        let pairs = match map.get("qp_num") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::Array(list)) => list
                .iter()
                .map(|number| number.as_u64().and_then(|number| u32::try_from(number).ok()).filter(|n| *n < 1 << 24))
                .collect::<Option<Vec<u32>>>()
                .ok_or(MessageError("qp_num"))?,
            Some(_) => return Err(MessageError("qp_num")),
        };
        let lid = map.get("local_lid").and_then(Value::as_u64).unwrap_or(0);
        Ok(ConnectionMessage {
            local_nic_path: text(map, "local_nic_path")?,
            peer_nic_path: text(map, "peer_nic_path")?,
            lid: u16::try_from(lid).map_err(|_| MessageError("local_lid"))?,
            gid: text(map, "local_gid")?,
            pairs,
            reply: text(map, "reply_msg")?,
            ready_ack: map.get("ready_ack").and_then(Value::as_bool),
        })
    }

    /// The body, keys in the peer's order.
    pub(crate) fn to_json(&self) -> Value {
        let mut body = json!({
            "local_gid": self.gid,
            "local_lid": self.lid,
            "local_nic_path": self.local_nic_path,
            "payload": "",
            "peer_nic_path": self.peer_nic_path,
            "qp_num": self.pairs,
            "reply_msg": self.reply,
        });
        if let Some(ready_ack) = self.ready_ack {
            body["ready_ack"] = json!(ready_ack);
        }
        body
    }

    /// The NIC that the receiver is asked for: what stands behind the last `@`.
    pub(crate) fn wanted_nic(&self) -> &str {
        self.peer_nic_path.rsplit_once('@').map_or("", |(_, nic)| nic)
    }

    /// The sender's GID; `None` when it sent none.
    ///
    /// # Errors
    /// The text, when it is no GID.
    pub(crate) fn peer_gid(&self) -> Result<Option<[u8; 16]>, &str> {
        if self.gid.is_empty() {
            return Ok(None);
        }
        parse_gid(&self.gid).map(Some).ok_or(&self.gid)
    }
}

/// Splits `server@nic`.
pub(crate) fn split_path(path: &str) -> Option<(&str, &str)> {
    path.rsplit_once('@').filter(|(server, nic)| !server.is_empty() && !nic.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bodies of two engines of the peer over soft-RoCE, versions 0.3.13.post1, 0.3.10.post2 and 0.3.14, one a line.
    const RECORDED: &str = include_str!("../../tests/fixtures/rdma-connection.jsonl");

    #[test]
    fn recorded_bodies_come_back() {
        let mut count = 0;
        for line in RECORDED.lines() {
            let recorded: Value = serde_json::from_str(line).unwrap();
            let (body, ours) = (&recorded["body"], ConnectionMessage::parse(&recorded["body"]).unwrap());
            let written = ours.to_json();
            for (key, value) in body.as_object().unwrap() {
                // Keys of abilities that we do not announce.
                if !["ctrl_channel", "notify_qp_num", "notify_rq_depth", "efa_addr"].contains(&key.as_str()) {
                    assert_eq!(&written[key], value, "{key} of {line}");
                }
            }
            count += 1;
        }
        assert!(count > 20, "{count}");
    }

    #[test]
    fn malformed_bodies_are_errors() {
        for bad in [
            json!([]),
            json!(5),
            json!(null),
            json!({"local_nic_path": {}}),
            json!({"reply_msg": []}),
            json!({"qp_num": 7}),
            json!({"qp_num": ["x"]}),
            json!({"qp_num": [-1]}),
            json!({"qp_num": [16_777_216]}),
            json!({"local_lid": 70_000}),
        ] {
            assert!(ConnectionMessage::parse(&bad).is_err(), "{bad}");
        }
        let odd = json!({"local_nic_path": 1, "qp_num": null, "local_lid": "x", "ready_ack": 3, "new": {}});
        let odd = ConnectionMessage::parse(&odd).unwrap();
        assert_eq!((odd.local_nic_path.as_str(), odd.pairs.len(), odd.ready_ack), ("1", 0, None));
    }

    #[test]
    fn paths_are_split_at_the_last_sign() {
        assert_eq!(split_path("10.0.0.1:1@mlx5_0"), Some(("10.0.0.1:1", "mlx5_0")));
        assert_eq!(split_path("user@host:1@rxe0"), Some(("user@host:1", "rxe0")));
        for bad in ["", "rxe0", "@rxe0", "a@"] {
            assert_eq!(split_path(bad), None);
        }
        let message = ConnectionMessage { peer_nic_path: "a@b".to_owned(), ..ConnectionMessage::default() };
        assert_eq!(message.wanted_nic(), "b");
        assert_eq!(ConnectionMessage::default().peer_gid(), Ok(None));
        assert_eq!(ConnectionMessage { gid: "zz".to_owned(), ..message }.peer_gid(), Err("zz"));
    }
}
