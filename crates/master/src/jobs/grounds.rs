//! The pool as drain jobs see it.

use std::time::Duration;

use yb_catalog::{Elsewhere, Held, HoldingsCursor, Tenant};
use yb_jobs::{
    Cursor, DrainRequest, Grounds, JobId, Lookout, MoveWork, Now, Obstacle, Placing, Purpose, Scan, TaskId, Unit,
    UnitName, Work,
};
use yb_types::{DEFAULT_TENANT, SegmentStatus};

use crate::shared::Shared;

/// What was leased to a reader, or written, as short a time ago is likely to be read again.
const LATELY: Duration = Duration::from_secs(10);

pub(super) struct MasterGrounds<'a> {
    pub(super) shared: &'a Shared,
    pub(super) now: Now,
}

/// The name of a tenant, as tasks say it.
pub(super) fn tenant_name(shared: &Shared, tenant: Tenant) -> String {
    shared.catalog.tenants().name(tenant).map_or_else(|| DEFAULT_TENANT.to_owned(), |name| name.to_string())
}

impl Grounds for MasterGrounds<'_> {
    fn look(&mut self, segment: &str) -> Option<Lookout> {
        let (status, members) = self.shared.catalog.look_at(segment)?;
        Some(Lookout { status, members, known: self.shared.catalog.is_known(segment) })
    }

    fn set_status(&mut self, segment: &str, status: SegmentStatus) {
        let catalog = &self.shared.catalog;
        let changed = match status {
            SegmentStatus::DRAINING => catalog.set_draining(&[segment]),
            SegmentStatus::DRAINED => catalog.set_drained(&[segment]),
            _ => {
                catalog.set_ok(&[segment]);
                Ok(())
            }
        };
        if let Err(code) = changed {
            tracing::warn!(segment, wanted = status.0, %code, "the segment of a drain job has another status by now");
        }
    }

    fn scan(&mut self, segment: &str, from: Cursor) -> Scan {
        let mut units = Vec::new();
        let next = self.shared.catalog.holdings(segment, HoldingsCursor(from.0), |holding| {
            let tenant = tenant_name(self.shared, holding.tenant);
            units.push(Unit {
                name: UnitName { segment: segment.to_owned(), tenant, key: holding.key.into() },
                size: holding.size,
                hot: holding.pinned || holding.read_until + LATELY > self.now.mono,
                safe: holding.safe,
                obstacle: match holding.held {
                    Held::Ready => None,
                    Held::Unfinished => Some(Obstacle::Unfinished),
                    Held::Busy => Some(Obstacle::Busy),
                },
            });
        });
        Scan { units, next: next.map(|cursor| Cursor(cursor.0)) }
    }

    fn largest_target(&mut self, request: &DrainRequest) -> u64 {
        self.shared.catalog.largest_beside(&request.segments, &request.targets)
    }

    fn send(&mut self, job: JobId, unit: &Unit, request: &DrainRequest) -> Placing {
        let UnitName { segment, tenant: name, key } = &unit.name;
        let catalog = &self.shared.catalog;
        let Ok(tenant) = catalog.tenants().reader(name.as_bytes()) else { return Placing::Gone };
        let (target, owner) = match catalog.elsewhere(tenant, key, segment, &request.targets) {
            Elsewhere::Move { target, owner } => (target, owner),
            Elsewhere::Gone => return Placing::Gone,
            Elsewhere::Busy => return Placing::Blocked(Obstacle::Busy),
            Elsewhere::NoRoom => return Placing::Blocked(Obstacle::NoRoom),
            Elsewhere::Duplicate if catalog.drop_duplicate(tenant, key, segment, self.now.mono) => {
                return Placing::Dropped;
            }
            Elsewhere::Duplicate => return Placing::Blocked(Obstacle::Busy),
        };
        let work = MoveWork { tenant: name.clone(), key: key.clone(), source: segment.clone(), target };
        let purpose = if request.leaver.is_some() { Purpose::Leave(job) } else { Purpose::Drain(job) };
        match self.shared.jobs.give(Work::Move(work), purpose, owner, self.now) {
            Ok(task) => Placing::Task(task),
            Err(_) => Placing::Blocked(Obstacle::QueueFull),
        }
    }

    fn withdraw(&mut self, task: TaskId) -> bool {
        self.shared.jobs.tasks.lock().withdraw(task)
    }
}
