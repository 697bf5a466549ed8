//! Segments whose clients asked for a graceful unmount, by deadline.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use yb_types::{ClientId, MonotonicTime, SegmentId};

/// Deadlines of graceful unmounts.
#[derive(Debug, Default)]
pub(crate) struct GracefulUnmounts(Mutex<BTreeMap<SegmentId, (MonotonicTime, ClientId)>>);

impl GracefulUnmounts {
    /// Notes a deadline; an earlier one of the same segment stays.
    pub(crate) fn schedule(&self, segment: SegmentId, client: ClientId, deadline: MonotonicTime) {
        let mut waiting = self.0.lock();
        let entry = waiting.entry(segment).or_insert((deadline, client));
        entry.0 = entry.0.min(deadline);
    }

    /// Takes the segments whose time has come.
    pub(crate) fn take_due(&self, now: MonotonicTime) -> Vec<(SegmentId, ClientId)> {
        let mut waiting = self.0.lock();
        let due: Vec<_> = waiting
            .iter()
            .filter(|(_, (deadline, _))| *deadline <= now)
            .map(|(id, (_, client))| (*id, *client))
            .collect();
        waiting.retain(|_, (deadline, _)| *deadline > now);
        due
    }

    /// The segment went in another way.
    pub(crate) fn cancel(&self, segment: SegmentId) {
        self.0.lock().remove(&segment);
    }
}
