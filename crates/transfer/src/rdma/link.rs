//! The handshake of one endpoint (pure): what is said, what is accepted, and when queue pairs may be used.
//!
//! ```text
//!              request sent              reply, identity right
//!   (none) ───────────────► Connecting ───────────────────────► Connected ──► ready word to the peer, if it knows it
//!      │                        │ the peer's own request came first: the same pairs are joined (simultaneous open)
//!      │  request received      ▼
//!      └──────────────────► WaitingForReady ── ready word ────► Connected
//!                               └─ 10 s without it: taken down       (a peer that does not know the word: at once)
//! ```

use std::sync::Arc;
use std::time::Duration;

use yb_types::MonotonicTime;

use super::message::ConnectionMessage;

/// Where a link stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// Our request is under way; the pairs wait.
    Connecting,
    /// The pairs are connected, but the peer has not said yet that its are.
    WaitingForReady {
        /// Taken down then.
        until: MonotonicTime,
    },
    /// May be used.
    Connected,
}

/// Our address on a device, as peers are told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnAddress {
    pub(crate) gid: String,
    pub(crate) lid: u16,
}

/// One end of a connection between two devices.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    pub(crate) own_path: Arc<str>,
    pub(crate) peer_path: Arc<str>,
    pub(crate) own_pairs: Vec<u32>,
    /// Empty until connected.
    pub(crate) peer_pairs: Vec<u32>,
    pub(crate) state: LinkState,
    pub(crate) born: MonotonicTime,
}

/// What is to be done with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Make pairs, connect them, answer.
    New,
    /// Connect the pairs that wait for our own request, answer.
    Join,
    /// They are connected already: answer.
    Reuse,
    /// Take the old ones down, then as `New`.
    Rebuild,
    /// The ready word: use the link from now on.
    Ready,
    /// Answer with this text.
    Refuse(String),
}

/// How long a repeated request may still mean the same connection.
const SAME: Duration = Duration::from_secs(10);

/// What to do with a request for the device whose path is `own_path`. `existing` is the link to its sender.
pub(crate) fn judge(
    existing: Option<&Link>,
    own_path: &str,
    message: &ConnectionMessage,
    pairs: usize,
    now: MonotonicTime,
) -> Verdict {
    if message.peer_nic_path != own_path {
        return Verdict::Refuse(format!("NIC path mismatch: asked for {}, this is {own_path}", message.peer_nic_path));
    }
    if super::message::split_path(&message.local_nic_path).is_none() {
        return Verdict::Refuse(format!("Invalid local_nic_path: {}", message.local_nic_path));
    }
    if message.ready_ack == Some(true) {
        return match existing {
            Some(link) if link.state != LinkState::Connecting && link.peer_pairs == message.pairs => Verdict::Ready,
            _ => Verdict::Refuse("no endpoint waits for this acknowledgement: it was taken down or rebuilt".to_owned()),
        };
    }
    if message.pairs.len() != pairs {
        // The peer's own words, although the setting that matters is MC_NUM_QP_PER_EP.
        return Verdict::Refuse("QP count mismatch in peer and local endpoints, check MC_MAX_EP_PER_CTX".to_owned());
    }
    match message.peer_gid() {
        Err(text) => return Verdict::Refuse(format!("Invalid peer GID: {text}")),
        Ok(None) => {
            return Verdict::Refuse(
                "no GID in the request: an engine as old as 0.3.10 can be connected to, but not connect".to_owned(),
            );
        }
        Ok(Some(_)) => {}
    }
    match existing {
        None => Verdict::New,
        Some(link) if link.state == LinkState::Connecting => Verdict::Join,
        // A peer that was started again may get the numbers of its predecessor: what is older than the exchange could
        // last is not the same connection.
        Some(link) if link.peer_pairs == message.pairs && now.since(link.born) < SAME => Verdict::Reuse,
        Some(_) => Verdict::Rebuild,
    }
}

impl Link {
    /// Our request, or with `ready` the third message.
    pub(crate) fn request(&self, own: &OwnAddress, ready: bool) -> ConnectionMessage {
        ConnectionMessage {
            local_nic_path: self.own_path.to_string(),
            peer_nic_path: self.peer_path.to_string(),
            lid: own.lid,
            gid: own.gid.clone(),
            pairs: self.own_pairs.clone(),
            reply: String::new(),
            ready_ack: Some(ready),
        }
    }

    /// Our answer to an accepted request.
    pub(crate) fn reply(&self, own: &OwnAddress) -> ConnectionMessage {
        self.request(own, false)
    }

    /// Notes that the pairs are connected with the sender's, whose request was accepted.
    pub(crate) fn accepted(&mut self, request: &ConnectionMessage, now: MonotonicTime, patience: Duration) {
        self.peer_pairs.clone_from(&request.pairs);
        self.born = now;
        self.state = match request.ready_ack {
            Some(_) => LinkState::WaitingForReady { until: now + patience },
            None => LinkState::Connected,
        };
    }

    /// Whether a reply to our request can be believed.
    ///
    /// # Errors
    /// The peer's words, or what is wrong with the reply.
    pub(crate) fn check_reply(&self, reply: &ConnectionMessage) -> Result<(), String> {
        if !reply.reply.is_empty() {
            return Err(format!("the peer refuses: {}", reply.reply));
        }
        if reply.local_nic_path.is_empty() && reply.pairs.is_empty() {
            return Err("the peer has no RDMA".to_owned());
        }
        if *reply.local_nic_path != *self.peer_path || *reply.peer_nic_path != *self.own_path {
            return Err(format!(
                "identity mismatch: {} answers for {} ({} asked {})",
                reply.local_nic_path, reply.peer_nic_path, self.own_path, self.peer_path
            ));
        }
        if reply.pairs.len() != self.own_pairs.len() {
            let (theirs, ours) = (reply.pairs.len(), self.own_pairs.len());
            return Err(format!("the peer has {theirs} queue pairs and we have {ours}, see MC_NUM_QP_PER_EP"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    const RECORDED: &str = include_str!("../../tests/fixtures/rdma-connection.jsonl");
    const NOW: MonotonicTime = MonotonicTime(1_000_000_000_000);

    fn link(state: LinkState, peer_pairs: &[u32]) -> Link {
        Link {
            own_path: "10.77.0.1:1@rxe0".into(),
            peer_path: "10.77.0.2:2@rxe1".into(),
            own_pairs: vec![17, 18],
            peer_pairs: peer_pairs.to_vec(),
            state,
            born: NOW,
        }
    }

    fn request(pairs: &[u32], ready_ack: Option<bool>) -> ConnectionMessage {
        ConnectionMessage {
            local_nic_path: "10.77.0.2:2@rxe1".to_owned(),
            peer_nic_path: "10.77.0.1:1@rxe0".to_owned(),
            gid: "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:02".to_owned(),
            pairs: pairs.to_vec(),
            ready_ack,
            ..ConnectionMessage::default()
        }
    }

    fn judged(existing: Option<&Link>, message: &ConnectionMessage) -> Verdict {
        judge(existing, "10.77.0.1:1@rxe0", message, 2, NOW)
    }

    #[test]
    fn requests_are_accepted_by_the_state_of_the_link() {
        let first = request(&[1, 2], Some(false));
        assert_eq!(judged(None, &first), Verdict::New);
        assert_eq!(judged(Some(&link(LinkState::Connecting, &[])), &first), Verdict::Join);
        assert_eq!(judged(Some(&link(LinkState::Connected, &[1, 2])), &first), Verdict::Reuse);
        assert_eq!(judged(Some(&link(LinkState::Connected, &[1, 3])), &first), Verdict::Rebuild);
        let old = Link { born: MonotonicTime(0), ..link(LinkState::Connected, &[1, 2]) };
        assert_eq!(judged(Some(&old), &first), Verdict::Rebuild, "a restarted peer with the numbers of the old one");
    }

    #[test]
    fn the_ready_word_needs_its_link() {
        let ready = request(&[1, 2], Some(true));
        let mut passive = link(LinkState::Connecting, &[]);
        assert!(matches!(judged(None, &ready), Verdict::Refuse(_)));
        assert!(matches!(judged(Some(&passive), &ready), Verdict::Refuse(_)));
        passive.accepted(&request(&[1, 2], Some(false)), NOW, Duration::from_secs(10));
        assert_eq!(passive.state, LinkState::WaitingForReady { until: NOW + Duration::from_secs(10) });
        assert_eq!(judged(Some(&passive), &ready), Verdict::Ready);
        assert!(matches!(judged(Some(&passive), &request(&[1, 9], Some(true))), Verdict::Refuse(_)));
        passive.accepted(&request(&[1, 2], None), NOW, Duration::from_secs(10));
        assert_eq!(passive.state, LinkState::Connected, "a peer that does not know the word");
    }

    #[test]
    fn nonsense_is_refused_with_the_peers_words() {
        let refused = |message: &ConnectionMessage| match judged(None, message) {
            Verdict::Refuse(text) => text,
            other => panic!("{other:?}"),
        };
        let count = "QP count mismatch in peer and local endpoints, check MC_MAX_EP_PER_CTX";
        assert_eq!(refused(&request(&[], None)), count);
        assert_eq!(refused(&request(&[101], None)), count);
        let bad_gid = ConnectionMessage { gid: "zz".to_owned(), ..request(&[1, 2], None) };
        assert_eq!(refused(&bad_gid), "Invalid peer GID: zz");
        let elsewhere = ConnectionMessage { peer_nic_path: "10.9.9.9:1@rxe0".to_owned(), ..request(&[1, 2], None) };
        assert!(refused(&elsewhere).contains("mismatch"));
        let nameless = ConnectionMessage { local_nic_path: "rxe1".to_owned(), ..request(&[1, 2], None) };
        assert!(refused(&nameless).contains("local_nic_path"));
    }

    #[test]
    fn replies_are_believed_only_from_the_one_asked() {
        let ours = link(LinkState::Connecting, &[]);
        let good = ConnectionMessage {
            local_nic_path: "10.77.0.2:2@rxe1".to_owned(),
            peer_nic_path: "10.77.0.1:1@rxe0".to_owned(),
            pairs: vec![5, 6],
            ..ConnectionMessage::default()
        };
        assert_eq!(ours.check_reply(&good), Ok(()));
        for (bad, word) in [
            (ConnectionMessage { reply: "no".to_owned(), ..good.clone() }, "refuses: no"),
            (ConnectionMessage::default(), "no RDMA"),
            (ConnectionMessage { local_nic_path: "x@y".to_owned(), ..good.clone() }, "identity"),
            (ConnectionMessage { peer_nic_path: "x@y".to_owned(), ..good.clone() }, "identity"),
            (ConnectionMessage { pairs: vec![5], ..good.clone() }, "MC_NUM_QP_PER_EP"),
        ] {
            assert!(ours.check_reply(&bad).unwrap_err().contains(word), "{bad:?}");
        }
    }

    /// Plays every recorded exchange: what the initiator sent is judged and answered as its target did, and the target's
    /// reply is believed by the initiator's link.
    #[test]
    fn recorded_exchanges_are_played() {
        let mut passive: Option<Link> = None;
        let (mut accepted, mut ready, mut refused) = (0, 0, 0);
        let lines: Vec<Value> = RECORDED.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        for pair in lines.chunk_by(|a, b| a["case"] == b["case"] && b["message"] == "reply") {
            let [asked, answered] = pair else { continue };
            let message = ConnectionMessage::parse(&asked["body"]).unwrap();
            let reply = ConnectionMessage::parse(&answered["body"]).unwrap();
            if message.gid.is_empty() || message.wanted_nic() == "nosuch" {
                continue;
            }
            let own_path = message.peer_nic_path.clone();
            let existing = passive.as_ref().filter(|link| *link.peer_path == *message.local_nic_path);
            match judge(existing.filter(|link| *link.own_path == *own_path), &own_path, &message, 2, NOW) {
                Verdict::New => {
                    let mut link = Link {
                        own_path: own_path.as_str().into(),
                        peer_path: message.local_nic_path.as_str().into(),
                        own_pairs: reply.pairs.clone(),
                        ..link(LinkState::Connecting, &[])
                    };
                    link.accepted(&message, NOW, Duration::from_secs(10));
                    let own = OwnAddress { gid: reply.gid.clone(), lid: reply.lid };
                    if reply.ready_ack.is_some() {
                        assert_eq!(link.reply(&own), reply);
                    }
                    let initiator = Link {
                        own_path: message.local_nic_path.as_str().into(),
                        peer_path: own_path.as_str().into(),
                        own_pairs: message.pairs.clone(),
                        ..link.clone()
                    };
                    assert_eq!(initiator.check_reply(&reply), Ok(()));
                    assert_eq!(
                        initiator.request(&OwnAddress { gid: message.gid.clone(), lid: 0 }, false).pairs,
                        message.pairs
                    );
                    (passive, accepted) = (Some(link), accepted + 1);
                }
                Verdict::Ready => {
                    assert_eq!(reply, ConnectionMessage::default(), "the answer to the ready word is empty");
                    ready += 1;
                }
                Verdict::Refuse(text) => {
                    assert_eq!(text, reply.reply);
                    refused += 1;
                }
                other => panic!("{other:?} for {asked}"),
            }
        }
        assert!(accepted >= 8 && ready >= 8 && refused >= 3, "{accepted} {ready} {refused}");
    }
}
