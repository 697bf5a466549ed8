//! The request of a client that is about to end.

use std::time::Duration;

use yb_wire::call;
use yb_wire::messages::{DepartArgs, DepartReply};

use super::{MasterLink, Repeat};
use crate::deadline::Deadline;
use crate::departure::Departure;
use crate::{Error, Result};

impl MasterLink {
    /// Asks a master of ours to have what this client holds moved elsewhere, and hears how far that is. `None`: the master is
    /// not one of ours, or the client lends nothing that could be moved.
    pub(crate) fn depart(&self, within: Duration, deadline: &Deadline) -> Result<Option<Departure>> {
        let within_ms = u64::try_from(within.as_millis()).unwrap_or(u64::MAX);
        let args = DepartArgs { client_id: self.client_id, within_ms };
        let told = |told: DepartReply<'_>| Departure {
            ended: told.ended,
            moved_objects: told.moved_units,
            moved_bytes: told.moved_bytes,
            left_objects: told.left_units,
            message: told.message.to_owned(),
        };
        match self.call::<call::Depart, _>(&args, deadline, Repeat::Harmless, |reply| reply.map(told)) {
            Ok(answer) => Ok(answer.ok()),
            Err(Error::Rejected { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
