//! What stood in the way of a call that the master answered with a number only.
//!
//! The peer's answers say "not ready" for a key that somebody writes and for one whose node is silent alike. A master of ours
//! is asked once when a call has failed so, never when it succeeded or found nothing. What it says is true when it is asked,
//! and said as that: it may have been otherwise a moment before.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;
use yb_types::{ClientId, ErrorCode, MonotonicTime};
use yb_wire::messages::{WHY_KEYS, WhyAnswer, WhyQuestion, WhyReason};

use crate::core::Core;
use crate::deadline::Deadline;
use crate::room::Wanted;
use crate::{Error, NoRoom};

/// How long the master is waited for.
const PATIENCE: Duration = Duration::from_millis(200);
/// Between two questions in the long run: a storm of failures shall not become a storm of questions.
const PAUSE: Duration = Duration::from_millis(50);
/// So much may be asked ahead of that, by calls that fail one after the other.
const AHEAD: Duration = Duration::from_millis(950);

macro_rules! obstacles {
    ($($(#[$doc:meta])* $name:ident = $word:literal $reason:ident),* $(,)?) => {
        /// What stood in the way.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Obstacle {
            $($(#[$doc])* $name,)*
        }

        impl Obstacle {
            /// In one word, as it is in logs and in Python.
            pub const fn word(self) -> &'static str {
                match self { $(Obstacle::$name => $word,)* }
            }

            fn of(reason: WhyReason) -> Option<Self> {
                match reason { $(WhyReason::$reason => Some(Obstacle::$name),)* _ => None }
            }
        }
    };
}

obstacles! {
    /// Nothing any more, when the master was asked.
    Nothing = "nothing_now" NOTHING,
    /// Another client writes the key.
    Writer = "writer" WRITER,
    /// This client itself began to write the key and has not ended.
    OwnWrite = "own_write" OWN_WRITE,
    /// The node that has the object is silent.
    SilentNode = "silent_node" SILENT_NODE,
    /// The node that has the object is heard of, and the object not offered yet.
    HiddenNode = "hidden_node" HIDDEN_NODE,
    /// Somebody read the object a short time ago.
    Lease = "lease" LEASE,
    /// The object is copied or moved.
    Copy = "copy" COPY,
    /// Somebody works with the bytes.
    InUse = "in_use" IN_USE,
    /// The tenant has used what it may.
    Quota = "quota" QUOTA,
}

/// What a master said of one key when it was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What stood in the way.
    pub obstacle: Obstacle,
    /// Name of the node's segment, `host:port`: the silent node, or where a write puts its bytes.
    pub node: Option<String>,
    /// Its data address, `host:port`, as failed transfers name it.
    pub endpoint: Option<String>,
    /// Client id of that node.
    pub node_id: Option<ClientId>,
    /// Who writes, or copies.
    pub writer: Option<ClientId>,
    /// Where that client is: the name of what it lends, or the address it calls from.
    pub writer_host: Option<String>,
    /// Since the write began, or since the node was heard of.
    pub age: Option<Duration>,
    /// Until the last read lease ends, or the time for a copy is over.
    pub left: Option<Duration>,
    /// Bytes in use.
    pub bytes: Option<u64>,
    /// Bytes that may be in use.
    pub limit: Option<u64>,
}

impl Finding {
    fn of(answer: WhyAnswer) -> Option<Self> {
        let obstacle = Obstacle::of(WhyReason(answer.reason))?;
        let named = |text: String| Some(text).filter(|text| !text.is_empty());
        let known = |client: ClientId| Some(client).filter(|client| *client != ClientId::default());
        let ages = matches!(obstacle, Obstacle::Writer | Obstacle::OwnWrite | Obstacle::SilentNode);
        let ends = matches!(obstacle, Obstacle::Lease | Obstacle::Copy);
        let counts = obstacle == Obstacle::Quota;
        Some(Finding {
            obstacle,
            node: named(answer.node),
            endpoint: named(answer.endpoint),
            node_id: known(answer.owner),
            writer: known(answer.writer),
            writer_host: named(answer.host),
            age: ages.then(|| Duration::from_millis(answer.age_ms)),
            left: ends.then(|| Duration::from_millis(answer.left_ms)),
            bytes: counts.then_some(answer.bytes),
            limit: counts.then_some(answer.limit),
        })
    }

    /// `10.0.0.7:41234 (client 1-2)`
    fn who(&self) -> String {
        let id = self.writer.unwrap_or_default();
        self.writer_host.as_ref().map_or_else(|| format!("client {id}"), |host| format!("{host} (client {id})"))
    }

    /// `10.0.0.5:7000`, with the data address where that is another one.
    fn node(&self) -> String {
        match (&self.node, &self.endpoint) {
            (Some(node), Some(endpoint)) if node != endpoint => format!("{node} (data address {endpoint})"),
            (Some(node), _) => node.clone(),
            (None, _) => "an unnamed node".to_owned(),
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |time: Option<Duration>| format!("{:.1} s", time.unwrap_or_default().as_secs_f64());
        match self.obstacle {
            Obstacle::Nothing => f.write_str("nothing is in the way any more"),
            Obstacle::Writer => {
                write!(f, "{} has been writing this object for {}, to {}", self.who(), seconds(self.age), self.node())
            }
            Obstacle::OwnWrite if self.node.is_none() => {
                f.write_str("this client has not ended an earlier write of this object, which others put an end to")
            }
            Obstacle::OwnWrite => {
                write!(f, "this client itself has been writing this object for {}", seconds(self.age))
            }
            Obstacle::SilentNode => write!(
                f,
                "{} has this object and has not been heard of for {} (`yuebing segments` shows it as OFFLINE)",
                self.node(),
                seconds(self.age)
            ),
            Obstacle::HiddenNode => {
                write!(f, "{} has this object, and the master does not offer yet what it has", self.node())
            }
            Obstacle::Lease => {
                write!(f, "somebody read it a short time ago: the last lease ends in {}", seconds(self.left))
            }
            Obstacle::Copy => {
                write!(f, "{} copies or moves it and has {} left for that", self.who(), seconds(self.left))
            }
            Obstacle::InUse => f.write_str("somebody works with its bytes"),
            Obstacle::Quota => write!(
                f,
                "the tenant uses {} of the {} bytes that it may",
                self.bytes.unwrap_or_default(),
                self.limit.unwrap_or_default()
            ),
        }
    }
}

/// What a master of ours said, when it was asked; nothing when it was not, or does not know the question.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Why(Option<Box<Finding>>);

impl Why {
    /// What the master said.
    pub fn finding(&self) -> Option<&Finding> {
        self.0.as_deref()
    }
}

impl From<Finding> for Why {
    fn from(finding: Finding) -> Self {
        Why(Some(Box::new(finding)))
    }
}

/// A call that failed for an object, and what it wanted.
#[derive(Debug)]
pub(crate) struct Failed<'e> {
    pub(crate) key: &'e [u8],
    pub(crate) error: &'e mut Error,
    /// Of a write.
    pub(crate) wanted: Wanted,
}

/// How often the master may be asked: [`PAUSE`] apart in the long run.
#[derive(Debug, Default)]
pub(crate) struct Questions(AtomicU64);

impl Questions {
    /// Takes one, if there is one.
    fn take(&self, now: MonotonicTime) -> bool {
        let next = |spoken_for: u64| {
            let from = spoken_for.max(now.0);
            (from <= (now + AHEAD).0).then(|| (MonotonicTime(from) + PAUSE).0)
        };
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }
}

impl Error {
    /// The place for what a master says of this failure, if it is one that it is asked about.
    fn why_mut(&mut self) -> Option<&mut Why> {
        let asked = |code: ErrorCode| {
            matches!(
                code,
                ErrorCode::OBJECT_HAS_LEASE
                    | ErrorCode::OBJECT_HAS_REPLICATION_TASK
                    | ErrorCode::OBJECT_REPLICA_BUSY
                    | ErrorCode::TENANT_QUOTA_EXCEEDED
            )
        };
        match self {
            Error::Busy(why) => Some(why),
            Error::Refused { code, why, .. } if asked(*code) => Some(why),
            _ => None,
        }
        .filter(|why| why.0.is_none())
    }

    /// What a master of ours said of it, when it was asked after the call.
    pub fn finding(&self) -> Option<&Finding> {
        match self {
            Error::Busy(why) | Error::Refused { why, .. } => why.finding(),
            _ => None,
        }
    }

    /// What stood in the way, in one word; `None` where nobody was asked.
    pub fn cause(&self) -> Option<&'static str> {
        match self {
            Error::NoSpace(room) => room.word(),
            error => error.finding().map(|finding| finding.obstacle.word()),
        }
    }

    /// Bytes in use and those that may be, of what there is too little.
    pub fn usage(&self) -> Option<(u64, u64)> {
        match self {
            Error::NoSpace(room) => room.usage(),
            error => error.finding().and_then(|finding| finding.bytes.zip(finding.limit)),
        }
    }
}

impl Core {
    /// Asks the master, once, what stood in the way of the first of these, and has their errors say it.
    pub(crate) fn explain<'e>(&self, failed: impl Iterator<Item = Failed<'e>>, deadline: &Deadline) {
        let asked_about = |failed: &mut Failed<'_>| failed.error.why_mut().is_some() || is_untold_room(failed.error);
        let mut failed: SmallVec<[Failed<'e>; 2]> =
            failed.filter_map(|mut failed| asked_about(&mut failed).then_some(failed)).take(WHY_KEYS).collect();
        if failed.is_empty() {
            return;
        }
        let now = self.now();
        let mut known_room = self.room_known.at(now);
        let room = known_room.is_none() && failed.iter().any(|failed| is_untold_room(failed.error));
        let questions: SmallVec<[WhyQuestion<'_>; 2]> = failed
            .iter_mut()
            .filter_map(|Failed { key, error, .. }| {
                let code = error.code();
                error.why_mut().map(|_| WhyQuestion { key, code })
            })
            .collect();
        let deadline = Deadline { at: deadline.at.min(now + PATIENCE), ..*deadline };
        let mut answers = Vec::new();
        if (room || !questions.is_empty())
            && !deadline.left(now).is_zero()
            && self.link.tells_why()
            && self.questions.take(now)
            && let Some(reply) = self.link.why(&questions, room, &deadline)
        {
            answers = reply.answers;
            if let Some(room) = reply.room {
                self.room_known.keep(now, room);
                known_room = Some(room);
            }
        }
        let mut answers = answers.into_iter();
        for Failed { error, wanted, .. } in &mut failed {
            if let Some(why) = error.why_mut() {
                *why = Why(answers.next().and_then(Finding::of).map(Box::new));
            } else if let Some(room) = &known_room {
                **error = Error::NoSpace(NoRoom::of(wanted, room));
            }
        }
    }
}

fn is_untold_room(error: &Error) -> bool {
    matches!(error, Error::NoSpace(NoRoom::Untold))
}

#[cfg(test)]
mod tests {
    use yb_types::Uuid;

    use super::*;

    fn finding(reason: WhyReason) -> Finding {
        let answer = WhyAnswer {
            reason: reason.0,
            node: "10.0.0.5:7000".to_owned(),
            endpoint: "10.0.0.5:15001".to_owned(),
            owner: ClientId(Uuid { first: 5, second: 5 }),
            writer: ClientId(Uuid { first: 7, second: 7 }),
            host: "10.0.0.7:41234".to_owned(),
            age_ms: 2140,
            left_ms: 4500,
            bytes: 10,
            limit: 12,
        };
        Finding::of(answer).unwrap()
    }

    #[test]
    fn each_finding_names_who_stands_in_the_way() {
        let writer = finding(WhyReason::WRITER);
        let text = writer.to_string();
        assert!(
            text.starts_with("10.0.0.7:41234 (client ")
                && text.contains("for 2.1 s, to 10.0.0.5:7000 (data address 10.0.0.5:15001)"),
            "{text}"
        );
        assert_eq!((writer.age, writer.left, writer.bytes), (Some(Duration::from_millis(2140)), None, None));
        let silent = Error::Busy(finding(WhyReason::SILENT_NODE).into());
        let text = silent.to_string();
        assert!(text.contains("10.0.0.5:15001) has this object and has not been heard of for 2.1 s"), "{text}");
        assert!(text.contains("when the master was asked") && silent.retryable(), "{text}");
        assert_eq!((silent.peer(), silent.cause()), (Some("10.0.0.5:15001"), Some("silent_node")));
        assert_eq!(Error::Busy(writer.into()).peer(), None, "a writer is nobody who failed");
        let quota = finding(WhyReason::QUOTA);
        assert_eq!((quota.bytes, quota.limit, quota.age), (Some(10), Some(12), None));
        assert_eq!(Finding::of(WhyAnswer { reason: 200, ..WhyAnswer::default() }), None, "a newer master says more");
    }

    #[test]
    fn a_storm_of_failures_asks_twenty_times_a_second() {
        let (questions, start) = (Questions::default(), MonotonicTime::from_millis(1_000_000));
        let taken =
            |from: u64, to: u64| (from..to).filter(|ms| questions.take(start + Duration::from_millis(*ms))).count();
        assert_eq!(taken(0, 1), 1);
        let first = taken(0, 1000);
        assert!((30..=41).contains(&first), "{first} in the first second: those that were saved up, and twenty");
        let second = taken(1000, 2000);
        assert!((19..=21).contains(&second), "{second} in the next one");
    }
}
