//! What only a master of ours tells: why a call failed, and what a removal left.

use std::sync::atomic::Ordering;

use yb_wire::messages::{RemovalReply, RemoveArgs, WhyArgs, WhyQuestion, WhyReply};
use yb_wire::{List, call};

use super::{MasterLink, Repeat};
use crate::deadline::Deadline;
use crate::{Error, Result};

impl MasterLink {
    /// Whether the master may be asked why calls failed, as far as is known.
    pub(crate) fn tells_why(&self) -> bool {
        self.tells_why.load(Ordering::Relaxed)
    }

    /// What stood in the way of calls that failed, and with `room` how much space there is; `None` if the master does not say.
    pub(crate) fn why(&self, questions: &[WhyQuestion<'_>], room: bool, deadline: &Deadline) -> Option<WhyReply> {
        let (client_id, tenant_id) = (self.client_id, self.tenant.as_slice());
        let args = WhyArgs { client_id, tenant_id, questions: List::from(questions), room };
        match self.call::<call::Why, _>(&args, deadline, Repeat::Harmless, |reply| reply) {
            Ok(answer) => answer.ok(),
            Err(Error::Rejected { .. }) => {
                self.tells_why.store(false, Ordering::Relaxed);
                None
            }
            Err(error) => {
                tracing::debug!(%error, "the master did not say why a call failed");
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
