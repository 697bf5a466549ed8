//! What happened: a number over all of it, always; words, when somebody wants to read them.

use std::time::Duration;

use yb_types::MonotonicTime;

use crate::world::Event;

/// The log of a run.
#[derive(Debug, Default)]
pub struct Log {
    lines: Option<Vec<String>>,
    digest: u64,
}

impl Log {
    /// Without words.
    pub fn mute() -> Log {
        Log { lines: None, digest: 0xcbf2_9ce4_8422_2325 }
    }

    /// With words.
    pub fn readable() -> Log {
        Log { lines: Some(Vec::new()), ..Log::mute() }
    }

    /// Notes something.
    pub fn note(&mut self, at: Duration, what: impl FnOnce() -> String) {
        if let Some(lines) = &mut self.lines {
            let (ms, us) = (at.as_millis(), at.as_micros() % 1000);
            lines.push(format!("{ms:>7}.{us:03}  {}", what()));
        }
    }

    /// What was noted.
    pub fn lines(&self) -> &[String] {
        self.lines.as_deref().unwrap_or_default()
    }

    fn mix(&mut self, word: u64) {
        self.digest = (self.digest ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
    }

    /// Adds an event to the number.
    pub fn digest_event(&mut self, at: MonotonicTime, event: &Event) {
        self.mix(at.0);
        let (kind, subject) = match *event {
            Event::Wake { client, task, step, .. } => {
                (1, (client as u64) << 48 | (task as u64) << 32 | u64::from(step))
            }
            Event::Reaches(call) => (2, call as u64),
            Event::Heard(call) => (3, call as u64),
            Event::CallOver(call) => (4, call as u64),
            Event::CallBroken(call) => (5, call as u64),
            Event::Janitor(life) => (6, u64::from(life)),
            Event::Beat { node, life } => (7, (node as u64) << 32 | u64::from(life)),
            Event::Send { of, piece } => (8, (of as u64) << 8 | u64::from(piece)),
            Event::Arrives { of, piece } => (9, (of as u64) << 8 | u64::from(piece)),
            Event::Came(of) => (10, of as u64),
            Event::Broke(of, how) => (11, (of as u64) << 8 | how as u64),
            Event::MoveOver(of) => (12, of as u64),
            Event::Fault => (13, 0),
            Event::Back(_) => (14, 0),
            Event::Keep { node, life } => (15, (node as u64) << 32 | u64::from(life)),
            Event::Written { node, life } => (16, (node as u64) << 32 | u64::from(life)),
            Event::Play(scene) => (18, scene as u64),
            Event::HungUp { connection, .. } => (17, u64::from(connection)),
        };
        self.mix(kind << 56 ^ subject);
    }

    /// Adds any other word to the number.
    pub fn digest_word(&mut self, word: u64) {
        self.mix(word);
    }

    /// The number.
    pub fn digest(&self) -> u64 {
        self.digest
    }
}
