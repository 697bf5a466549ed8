//! The master's own log: what lies in segments whose nodes keep no directory, so that the next life of this master knows it.
//! See `docs/durability.md`.
//!
//! [`Scribe`] decides what is written (pure but for the catalog that it asks), [`LogFile`] writes it. A thread of its own lets
//! the one follow the other: no call of a client waits for it.

mod file;
mod scribe;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use yb_catalog::{Catalog, Roster};
use yb_journal::RosterNote;

pub(crate) use self::file::Before;
use self::file::{Found, LogFile};
use self::scribe::Scribe;
use crate::metrics::MasterMetrics;
use crate::shared::Shared;

/// Whether and how a master keeps a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalOptions {
    /// The log; beside it lie its lock, and for a moment its successor.
    pub path: PathBuf,
    /// What is acknowledged is on the disk by then; else it outlives the process and not the host.
    pub sync: bool,
    /// A log whose master was last heard of longer ago is not used: others may have had the nodes meanwhile.
    pub max_age: Duration,
}

/// Why a log could not be opened.
#[derive(Debug, thiserror::Error)]
#[error("the log {} cannot be used: {why} (setting journal_file)", path.display())]
pub struct JournalError {
    /// The log.
    pub path: PathBuf,
    /// What is wrong.
    pub why: String,
}

/// Between two looks while nothing happens: from here, doubling, to there.
const IDLE: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(20)];
/// After a log that can be neither written nor removed.
const STUCK: Duration = Duration::from_secs(1);

/// An open log and who writes it.
#[derive(Debug)]
pub(crate) struct Journal {
    file: LogFile,
    scribe: Scribe,
    before: Before,
}

impl Journal {
    /// Opens the log and tells the catalog which segments it knows. To be called before clients are answered.
    pub(crate) fn open(options: &JournalOptions, catalog: &Catalog) -> Result<Journal, JournalError> {
        let Found { mut file, image, before } = LogFile::open(options, yb_env::epoch_millis())?;
        let objects: usize = image.segments.values().map(yb_journal::Held::len).sum();
        tracing::info!(
            event = "journal_opened", path = ?options.path, segments = image.segments.len(), objects,
            "the log is open; what it knows is offered when its nodes mount again"
        );
        catalog.keep_log(image.segments.values().map(|held| held.note.id));
        catalog.expect_statuses(image.statuses.clone());
        if let Some(RosterNote { incarnation, term, number, members }) = image.roster.clone() {
            catalog.expect_roster(Roster { incarnation, term, number, members });
        }
        let mut scribe = Scribe::new(image, catalog.settings().first_replica_id, yb_env::epoch_millis());
        file.append(scribe.waiting()).map_err(|error| options.failed(&error))?;
        scribe.committed(catalog, yb_types::MonotonicTime::default());
        Ok(Journal { file, scribe, before })
    }

    /// What became of the log of the life before.
    pub(crate) fn before(&self) -> Before {
        self.before
    }

    /// One look at everything, and what the page says of the log.
    fn round(&mut self, shared: &Shared) -> Option<Duration> {
        let was_in_use = self.file.is_in_use();
        let pause = self.write_down(shared);
        let in_use = self.file.is_in_use();
        shared.journal_in_use.store(in_use, Ordering::Relaxed);
        if pause == Some(STUCK) || (was_in_use && !in_use) {
            shared.metrics.shared_lane().add(shared.metrics.journal_failures, 1);
        }
        pause
    }

    /// One look at everything, written down. Answers how long there is nothing to do, zero: there is more.
    fn write_down(&mut self, shared: &Shared) -> Option<Duration> {
        let (catalog, metrics) = (&shared.catalog, &shared.metrics);
        let (now, lane) = (shared.clock.now(), metrics.shared_lane());
        let more = self.scribe.gather(catalog, now, yb_env::epoch_millis());
        let waiting = self.scribe.waiting();
        if !waiting.is_empty() {
            match self.file.append(waiting) {
                // It was given up, now or before.
                Ok(0) => {}
                Ok(bytes) => {
                    lane.add(metrics.journal_commits, 1);
                    lane.add(metrics.journal_bytes, bytes);
                }
                Err(error) => {
                    tracing::error!(event = "journal_stuck", %error, "the log can be neither written nor removed: space that comes free is not used again until it can");
                    return Some(STUCK);
                }
            }
        }
        let read = self.scribe.committed(catalog, now);
        count_read(metrics, &read);
        if self.file.is_long() {
            self.file.compact();
        }
        (!more).then_some(IDLE[0])
    }
}

fn count_read(metrics: &MasterMetrics, read: &scribe::Read) {
    let lane = metrics.shared_lane();
    lane.add(metrics.directory_adopted, read.adopted);
    lane.add(metrics.directory_refused, read.refused);
    for segment in &read.segments {
        tracing::info!(event = "directory_read", %segment, "what the log says of a segment is known again");
    }
}

/// Runs until the waker is stopped, and once after that.
pub(crate) fn run(journal: &mut Journal, shared: &Shared) {
    shared.journal_in_use.store(journal.file.is_in_use(), Ordering::Relaxed);
    let mut pause = IDLE[0];
    while shared.journal.wait(pause) {
        pause = match journal.round(shared) {
            None => Duration::ZERO,
            Some(STUCK) => STUCK,
            Some(_) => (pause * 2).clamp(IDLE[0], IDLE[1]),
        };
    }
    journal.round(shared);
}
