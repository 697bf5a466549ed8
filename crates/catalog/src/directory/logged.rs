//! Segments whose directory the master keeps itself, in a log: those of clients that keep none.
//!
//! The log is told what a node would be told, and acknowledges what it has made durable, by the same rules. What differs:
//! it knows segments by their id, and an id may be mounted twice. So every mount has a number, and a segment whose id the log
//! knows takes nothing before the log has said what it makes of it.

use std::collections::BTreeSet;

use yb_types::{ClientId, ErrorCode, MonotonicTime, Segment, SegmentId};

use super::feed::Feed;
use super::{Adopting, Keeper, Published, SyncCall, Told};
use crate::catalog::Catalog;
use crate::segments::Registry;

/// What the log knows of, as far as mounts have to know it.
#[derive(Debug, Default)]
pub(crate) struct LogBook {
    /// Segments that the log may say something of.
    known: BTreeSet<SegmentId>,
    mounts: u64,
}

/// What a segment is to the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Logged {
    mount: u64,
    again: bool,
}

impl LogBook {
    /// A segment is mounted that is to be in the log.
    pub fn mounted(&mut self, segment: SegmentId, again: bool) -> (Keeper, Logged) {
        self.mounts += 1;
        let keeper = if self.known.contains(&segment) { Keeper::Filled } else { Keeper::Empty };
        (keeper, Logged { mount: self.mounts, again })
    }
}

/// A mounted segment that the log is to keep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedSegment {
    /// As its client describes it.
    pub segment: Segment,
    /// Who mounted it.
    pub owner: ClientId,
    /// Which mount of this life of the master; tells two of the same id apart.
    pub mount: u64,
    /// Its client said that the memory was in the pool before.
    pub again: bool,
}

impl Catalog {
    /// From now on a log keeps the directories of segments whose clients keep none. `known`: what it says something of.
    /// To be called before anything is mounted.
    pub fn keep_log(&self, known: impl IntoIterator<Item = SegmentId>) {
        let known = known.into_iter().collect();
        self.segments.registry().keepers().log = Some(LogBook { known, mounts: 0 });
    }

    /// Changes when segments come or go; [`logged_segments`](Self::logged_segments) are the same as long as it does not.
    pub fn segments_version(&self) -> u64 {
        self.segments.version()
    }

    /// The segments that the log is to keep.
    pub fn logged_segments(&self) -> Vec<LoggedSegment> {
        let registry = self.segments.registry();
        let logged = registry.iter().filter_map(|segment| {
            let Logged { mount, again } = segment.feed()?.logged()?;
            Some(LoggedSegment { segment: segment.info().clone(), owner: segment.owner(), mount, again })
        });
        logged.collect()
    }

    /// Whether what an earlier master told may still be taken over.
    pub fn is_relearning(&self, now: MonotonicTime) -> bool {
        self.relearning.look(now)
    }

    /// The log is about to say something of this mount. `false`: it is not mounted any more.
    pub fn log_takes(&self, segment: SegmentId, mount: u64) -> bool {
        let mut registry = self.segments.registry();
        let is_mounted = is_logged_as(&registry, segment, mount);
        if let Some(log) = registry.keepers().log.as_mut().filter(|_| is_mounted) {
            log.known.insert(segment);
        }
        is_mounted
    }

    /// The log says nothing of this segment any more, and that is durable.
    pub fn log_drops(&self, segment: SegmentId) {
        if let Some(log) = self.segments.registry().keepers().log.as_mut() {
            log.known.remove(&segment);
        }
    }

    /// As [`tell_directory`](Self::tell_directory), of a segment that the log keeps.
    ///
    /// # Errors
    /// The same.
    pub fn tell_log(&self, call: &SyncCall, sink: impl FnMut(Published<'_>)) -> Result<Told, ErrorCode> {
        self.tell_keeper(call, Feed::is_logged, sink)
    }

    /// As [`adopt`](Self::adopt), of a segment that the log keeps.
    ///
    /// # Errors
    /// The same.
    pub fn adopt_logged<'a>(
        &self,
        call: &Adopting,
        page: impl IntoIterator<Item = Published<'a>>,
        refused: impl FnMut(u64),
    ) -> Result<(), ErrorCode> {
        self.adopt_from(call, Feed::is_logged, page, refused)
    }
}

fn is_logged_as(registry: &Registry, id: SegmentId, mount: u64) -> bool {
    let logged = registry.get(id).and_then(|segment| segment.feed()?.logged());
    logged.is_some_and(|logged| logged.mount == mount)
}
