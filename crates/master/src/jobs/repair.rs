//! Lost replicas are made again from those that are left.

use yb_catalog::{Loss, Repair};
use yb_jobs::{CopyWork, Mending, Now, Purpose, Repairs, Work};

use super::grounds::tenant_name;
use crate::shared::Shared;

/// Losses that wait outside the catalog; it keeps the others.
const AT_HAND: usize = 4096;

/// Looks at the losses, and gives tasks.
pub(super) fn step(repairs: &mut Repairs<Loss>, shared: &Shared, now: Now) {
    if !repairs.is_on() {
        return;
    }
    let waiting = usize::try_from(repairs.counts().waiting).unwrap_or(usize::MAX);
    repairs.lost(shared.catalog.take_losses(AT_HAND.saturating_sub(waiting)));
    repairs.step(now.mono, |loss| mend(shared, loss, now));
}

fn mend(shared: &Shared, loss: &Loss, now: Now) -> Mending {
    let (tenant, key, source, target, size) = match shared.catalog.plan_repair(loss) {
        Repair::Copy { tenant, key, source, target, size } => (tenant, key, source, target, size),
        Repair::Done => return Mending::Done,
        Repair::Busy => return Mending::Busy,
        Repair::NoRoom => return Mending::NoRoom,
    };
    let tenant = tenant_name(shared, tenant);
    let work = CopyWork { tenant, key, source: source.segment, targets: vec![target], dynamic: None };
    match shared.jobs.give(Work::Copy(work), Purpose::Repair, source.owner, now) {
        Ok(task) => Mending::Begun(task, size),
        Err(_) => Mending::Busy,
    }
}
