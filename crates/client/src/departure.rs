//! A client that is about to end has what it holds moved elsewhere.
//!
//! The master has the objects moved, by this client, one task after the other; this asks how far that is. It waits for nobody: a
//! master that does not answer at once is left without.

use std::time::Duration;

use crate::Result;
use crate::core::Core;
use crate::deadline::{CallLimits, Deadline};

/// Between two questions.
const PERIOD: Duration = Duration::from_millis(20);
/// Time for one of them.
const QUESTION_TIME: Duration = Duration::from_millis(500);

/// How far the objects of a client that is about to end have been moved.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Departure {
    /// Nothing more is moved.
    pub ended: bool,
    /// Objects that are elsewhere now.
    pub moved_objects: u64,
    /// Bytes of them.
    pub moved_bytes: u64,
    /// Objects that go with the client, as far as is known; some have other replicas.
    pub left_objects: u64,
    /// What the master says, one line.
    pub message: String,
}

impl Core {
    /// See [`Client::drain`](crate::Client::drain).
    pub(crate) fn drain(&self, within: Duration, mut goes_on: impl FnMut() -> bool) -> Result<Departure> {
        let end = self.now() + within;
        let limits = CallLimits { base: QUESTION_TIME, ..CallLimits::default() };
        let mut known = Departure::default();
        loop {
            let deadline = Deadline::start(&self.clock, &limits, 0);
            match self.link.depart(within, &deadline)? {
                Some(told) => known = told,
                None => return Ok(Departure { ended: true, ..known }),
            }
            if known.ended || self.now() >= end || self.is_closed() || !goes_on() {
                return Ok(known);
            }
            if let Some(membership) = self.membership.lock().as_ref() {
                membership.hurry();
            }
            yb_env::sleep(PERIOD);
        }
    }
}
