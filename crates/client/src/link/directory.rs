//! Directories: what the master tells of segments, and what it is told when it started.

use yb_types::SegmentId;
use yb_wire::List;
use yb_wire::call;
use yb_wire::messages::{
    DirectoryEntry, RosterArgs, RosterReply, SyncDirectoryArgs, SyncDirectoryReply, TellDirectoryArgs,
};

use super::{MasterLink, Repeat};
use crate::deadline::Deadline;
use crate::directory::Roster;
use crate::{Error, Result};

impl MasterLink {
    /// Says how far the directory of a segment is (life of the master, batch) and takes what comes next, with up to
    /// `limit` objects.
    pub(crate) fn sync_directory<R>(
        &self,
        (segment_id, (incarnation, applied), limit): (SegmentId, (u64, u64), u32),
        deadline: &Deadline,
        then: impl FnOnce(&SyncDirectoryReply<'_>) -> R,
    ) -> Result<R> {
        let args = SyncDirectoryArgs { client_id: self.client_id, segment_id, incarnation, applied, limit };
        let answer = self
            .call::<call::SyncDirectory, _>(&args, deadline, Repeat::Harmless, |reply| reply.map(|told| then(&told)))?;
        answer.map_err(|code| Error::from_master("SyncDirectory", code))
    }

    /// Tells a page of the directory of a segment, as that life of a master told it; the first bytes of what is to be
    /// struck out.
    pub(crate) fn tell_directory(
        &self,
        (segment_id, incarnation): (SegmentId, u64),
        page: &[DirectoryEntry<'_>],
        last: bool,
        deadline: &Deadline,
    ) -> Result<Vec<u64>> {
        let entries = List::from(page);
        let args = TellDirectoryArgs { client_id: self.client_id, segment_id, incarnation, last, entries };
        let answer = self.call::<call::TellDirectory, _>(&args, deadline, Repeat::Harmless, |reply| {
            reply.map(|told| told.refused)
        })?;
        answer.map_err(|code| Error::from_master("TellDirectory", code))
    }

    /// Tells which roster was heard last for a segment, and hears the present one.
    pub(crate) fn roster(&self, segment_id: SegmentId, heard: &Roster, deadline: &Deadline) -> Result<RosterReply> {
        let Roster { incarnation, term, number, .. } = *heard;
        let members = List::from(&heard.members[..]);
        let args = RosterArgs { client_id: self.client_id, segment_id, incarnation, term, number, members };
        let answer = self.call::<call::Roster, _>(&args, deadline, Repeat::Harmless, |reply| reply)?;
        answer.map_err(|code| Error::from_master("Roster", code))
    }
}
