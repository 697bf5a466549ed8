//! Segments that a master before this one was emptying, or had emptied: they come back as they were.

use std::collections::BTreeMap;

use yb_types::{SegmentId, SegmentStatus};

use crate::catalog::Catalog;
use crate::segment::MountedSegment;

/// What is known of segments that were not mounted again yet.
#[derive(Debug, Default)]
pub(crate) struct Standings {
    expected: BTreeMap<SegmentId, SegmentStatus>,
    /// Names of those that came back and are to be emptied on.
    resumed: Vec<String>,
}

impl Standings {
    /// A segment is mounted, and nothing was placed in it yet. `again`: with the memory of before.
    pub fn settle(&mut self, segment: &MountedSegment, again: bool) {
        let Some(status) = self.expected.remove(&segment.info().id).filter(|_| again) else { return };
        segment.turn(SegmentStatus::DRAINING);
        if status == SegmentStatus::DRAINED {
            segment.turn(SegmentStatus::DRAINED);
        } else {
            self.resumed.push(segment.info().name.clone());
        }
    }
}

impl Catalog {
    /// A master before this one was emptying these segments (`DRAINING`), or had emptied them (`DRAINED`): they have that status
    /// from the moment on at which their client mounts the same memory again. To be called before anything is mounted.
    pub fn expect_statuses(&self, statuses: BTreeMap<SegmentId, SegmentStatus>) {
        self.segments.registry().standings().expected = statuses;
    }

    /// Who did not come by now is not waited for.
    pub fn expect_no_more_statuses(&self) {
        self.segments.registry().standings().expected.clear();
    }

    /// The segments that are `DRAINING` or `DRAINED`, those that are still [expected](Self::expect_statuses) among them. The
    /// same as long as [`segments_version`](Self::segments_version) is.
    pub fn emptied(&self) -> BTreeMap<SegmentId, SegmentStatus> {
        let mut registry = self.segments.registry();
        let mut emptied = registry.standings().expected.clone();
        let is_emptied = |status| status == SegmentStatus::DRAINING || status == SegmentStatus::DRAINED;
        let mounted = registry.iter().map(|segment| (segment.info().id, segment.status()));
        emptied.extend(mounted.filter(|(_, status)| is_emptied(*status)));
        emptied
    }

    /// Names of segments that came back `DRAINING` since the last time: somebody has to go on.
    pub fn take_resumed(&self) -> Vec<String> {
        std::mem::take(&mut self.segments.registry().standings().resumed)
    }
}
