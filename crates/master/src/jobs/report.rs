//! Jobs and tasks for the admin server.

use std::time::Duration;

use yb_admin::{DrainOrder, DrainRow, Jobs};
use yb_jobs::{DrainReport, DrainRequest, JobId};
use yb_types::{ErrorCode, Uuid};

use crate::shared::SharedRef;

/// The jobs of a master.
pub(crate) struct MasterJobs(pub(crate) SharedRef);

fn row(report: DrainReport) -> DrainRow {
    DrainRow {
        id: report.id.0,
        status: report.status as i32,
        status_name: report.status.name(),
        created_ms: report.created_ms,
        updated_ms: report.updated_ms,
        segments: report.segments,
        succeeded: report.succeeded_units,
        dropped: report.dropped_units,
        failed: report.failed_units,
        blocked: report.blocked_units,
        active: report.active_units,
        left: report.left_units,
        migrated_bytes: report.migrated_bytes,
        message: report.message,
    }
}

impl Jobs for MasterJobs {
    fn create_drain(&self, order: DrainOrder) -> Result<Uuid, ErrorCode> {
        let DrainOrder { segments, target_segments: targets, max_concurrency, deadline_seconds } = order;
        let within = (deadline_seconds > 0).then(|| Duration::from_secs(deadline_seconds.into()));
        let request = DrainRequest { segments, targets, max_concurrency, within, leaver: None };
        self.0.jobs.create_drain(&self.0, request).map(|id| id.0).map_err(|refusal| refusal.code())
    }

    fn drain(&self, id: Uuid) -> Option<DrainRow> {
        self.0.jobs.query_drain(JobId(id)).map(row)
    }

    fn drains(&self) -> Vec<DrainRow> {
        self.0.jobs.drains().into_iter().map(row).collect()
    }

    fn cancel_drain(&self, id: Uuid) -> Result<(), ErrorCode> {
        self.0.jobs.cancel_drain(&self.0, JobId(id)).map_err(|refusal| refusal.code())
    }

    fn undo_drain(&self, segment: &str) -> Result<(), ErrorCode> {
        self.0.jobs.undo_drain(&self.0, segment).map_err(|refusal| refusal.code())
    }

    fn tasks(&self) -> [usize; 3] {
        let counts = self.0.jobs.tasks.lock().counts();
        [counts.pending, counts.processing, counts.finished]
    }
}
