//! What the handshake server answers (pure).

use std::collections::VecDeque;

use serde_json::{Value, json};

use crate::handshake::frame::{Frame, MessageType};

/// A message that a peer left for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// Sender's name, as it says.
    pub name: String,
    /// Text.
    pub message: String,
}

/// Notifications not fetched yet. When full, the oldest is dropped.
#[derive(Debug, Default)]
pub(crate) struct Mailbox {
    waiting: VecDeque<Notification>,
    pub(crate) dropped: u64,
}

impl Mailbox {
    pub(crate) fn put(&mut self, notification: Notification, limit: usize) {
        self.waiting.push_back(notification);
        while self.waiting.len() > limit {
            self.waiting.pop_front();
            self.dropped += 1;
        }
    }

    pub(crate) fn take(&mut self) -> Vec<Notification> {
        self.waiting.drain(..).collect()
    }
}

/// What to do with a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Send these bytes.
    Reply(Vec<u8>),
    /// Keep the notification and send these bytes.
    Keep(Notification, Vec<u8>),
    /// Close without a reply: the JSON makes no sense.
    Close,
}

/// A field as text: scalars of another kind are taken as the peer takes them, lists and objects are not.
fn field(value: &Value, key: &str) -> Option<String> {
    match value.get(key) {
        None | Some(Value::Null) => Some(String::new()),
        Some(Value::String(text)) => Some(text.clone()),
        Some(Value::Bool(flag)) => Some(flag.to_string()),
        Some(Value::Number(number)) => Some(number.to_string()),
        Some(Value::Array(_) | Value::Object(_)) => None,
    }
}

fn typed(kind: MessageType, json: &Value) -> Vec<u8> {
    Frame::encode(Some(kind), format!("{json}\n").as_bytes())
}

/// What is answered when no transport takes the connection.
fn no_connection() -> Value {
    json!({
        "local_gid": "", "local_lid": 0, "local_nic_path": "", "payload": "", "peer_nic_path": "", "qp_num": [],
        "reply_msg": "",
    })
}

/// Who knows the answers.
pub(crate) trait Answers {
    /// Our own SegmentDesc.
    fn own(&self) -> Vec<u8>;

    /// The reply to a Connection message, where a transport takes it.
    fn connection(&self, request: &Value) -> Option<Value>;

    /// Somebody of this name asked who we are.
    fn met(&self, name: &str);
}

/// The answer to one message.
pub(crate) fn answer(frame: &Frame<'_>, answers: &impl Answers) -> Answer {
    let Ok(value) = serde_json::from_slice::<Value>(frame.json) else { return Answer::Close };
    match frame.kind {
        Some(MessageType::Metadata) => {
            value.get("name").and_then(Value::as_str).into_iter().for_each(|name| answers.met(name));
            Answer::Reply(Frame::encode(Some(MessageType::Metadata), &answers.own()))
        }
        Some(MessageType::Probe) => Answer::Reply(typed(MessageType::Probe, &json!({"status": "success"}))),
        Some(MessageType::Notify) => notify(&value),
        kind @ (None | Some(MessageType::Connection)) => {
            if !value.is_object() {
                return Answer::Close;
            }
            let reply = answers.connection(&value).unwrap_or_else(no_connection);
            Answer::Reply(Frame::encode(kind, format!("{reply}\n").as_bytes()))
        }
    }
}

fn notify(value: &Value) -> Answer {
    let Some((name, message)) =
        value.is_object().then(|| field(value, "name").zip(field(value, "notify_msg"))).flatten()
    else {
        return Answer::Close;
    };
    let reply = typed(MessageType::Notify, &json!({"name": "", "notify_msg": "success"}));
    Answer::Keep(Notification { name, message }, reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Nobody;

    impl Answers for Nobody {
        fn own(&self) -> Vec<u8> {
            b"{}\n".to_vec()
        }

        fn connection(&self, _request: &Value) -> Option<Value> {
            None
        }

        fn met(&self, _name: &str) {}
    }

    fn reply_to(kind: Option<MessageType>, json: &[u8]) -> Answer {
        answer(&Frame { kind, json }, &Nobody)
    }

    #[test]
    fn what_kills_the_peer_only_closes_the_connection_here() {
        for json in [&b"[]"[..], b"5", b"null", b"{\"name\":{}}", b"{\"name\":[],\"notify_msg\":1}", b"{", b""] {
            assert_eq!(reply_to(Some(MessageType::Notify), json), Answer::Close);
        }
        assert_eq!(reply_to(Some(MessageType::Connection), b"[]"), Answer::Close);
        assert_eq!(reply_to(None, b"5"), Answer::Close);
    }

    #[test]
    fn scalars_are_taken_as_text_and_missing_keys_as_empty() {
        let Answer::Keep(kept, _) = reply_to(Some(MessageType::Notify), b"{\"name\":1}") else { panic!() };
        assert_eq!(kept, Notification { name: "1".to_owned(), message: String::new() });
    }

    #[test]
    fn a_full_mailbox_drops_the_oldest() {
        let mut mailbox = Mailbox::default();
        for name in ["a", "b", "c"] {
            mailbox.put(Notification { name: name.to_owned(), message: String::new() }, 2);
        }
        assert_eq!(mailbox.dropped, 1);
        assert_eq!(mailbox.take().iter().map(|n| n.name.as_str()).collect::<Vec<_>>(), ["b", "c"]);
        assert!(mailbox.take().is_empty());
    }
}
