//! What only a master of ours tells: why there is no room, and what a removal left.

use std::sync::atomic::Ordering;

use yb_wire::call;
use yb_wire::messages::{NoArgs, RemovalReply, RemoveArgs, RoomReply};

use super::{MasterLink, Repeat};
use crate::deadline::Deadline;
use crate::{Error, Result};

impl MasterLink {
    /// The segments that take objects, in sum; `None` if the master does not say.
    pub(crate) fn tell_room(&self, deadline: &Deadline) -> Option<RoomReply> {
        if !self.tells_room.load(Ordering::Relaxed) {
            return None;
        }
        match self.call::<call::TellRoom, _>(&NoArgs {}, deadline, Repeat::Harmless, |reply| reply) {
            Ok(answer) => answer.ok(),
            Err(Error::Rejected { .. }) => {
                self.tells_room.store(false, Ordering::Relaxed);
                None
            }
            Err(error) => {
                tracing::debug!(%error, "the master did not say why it has no room");
                None
            }
        }
    }

    /// Removes what matches, everything where the pattern is empty; `None` from a master that does not count what stays: it
    /// did nothing.
    pub(crate) fn remove_matching(
        &self,
        pattern: &[u8],
        force: bool,
        deadline: &Deadline,
    ) -> Result<Option<RemovalReply>> {
        if !self.counts_what_stays.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let args = RemoveArgs { key: pattern, force, tenant_id: &self.tenant };
        match self.call::<call::RemoveMatching, _>(&args, deadline, Repeat::NeverSlow, |reply| reply) {
            Ok(answer) => answer.map(Some).map_err(|code| Error::from_master("RemoveMatching", code)),
            Err(Error::Rejected { code: NO_SUCH_FUNCTION, .. }) => {
                self.counts_what_stays.store(false, Ordering::Relaxed);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Number of the RPC layer.
const NO_SUCH_FUNCTION: u16 = 11;
