//! The thread for what time brings: clients that fell silent, eviction, frees that have come due, the periodic report.
//!
//! It works in small budgeted steps and sleeps between them, so that it never holds a shard's lock for long. A put that
//! found no space wakes it.

use std::sync::atomic::Ordering;
use std::time::Duration;

use yb_catalog::Effects;
use yb_env::Rng;
use yb_types::MonotonicTime;

use crate::log::LogHandle;
use crate::metrics::summary;
use crate::shared::{Shared, SharedRef};

/// Sleep between two rounds when nothing is waiting.
const TICK: Duration = Duration::from_millis(20);
/// Sleep after a round of eviction that found nothing it may take: leases end by themselves.
const EXHAUSTED_TICK: Duration = Duration::from_millis(100);
/// Sleep while writes wait for space.
const WAITING_TICK: Duration = Duration::from_millis(5);
/// Objects that one round of eviction looks at.
const EVICTION_BUDGET: u32 = 8192;
/// Objects that one round looks at in tenants that are near their quota.
const TRIM_BUDGET: u32 = 2048;
/// Units of upkeep of one round.
const UPKEEP_BUDGET: u32 = 4096;
/// Bytes that an allocator takes for large.
const LARGE_BLOCK: usize = 2 << 20;
/// How often it is looked whose directories are up to date.
const ROLL_PERIOD: Duration = Duration::from_millis(250);
const LIVENESS_PERIOD: Duration = Duration::from_secs(1);
const REPORT_PERIOD: Duration = Duration::from_secs(10);

/// Runs until the waker is stopped.
pub(crate) fn run(shared: &SharedRef) {
    let mut janitor = Janitor::new(shared);
    let mut sleep = TICK;
    while shared.janitor.wait(sleep) {
        sleep = janitor.round(shared);
    }
}

/// What the janitor keeps between two rounds.
pub(crate) struct Janitor {
    effects: Effects,
    rng: Rng,
    liveness: Timer,
    roll: Timer,
    reports: Timer,
    summaries: Timer,
    suppressed: u64,
}

impl Janitor {
    pub(crate) fn new(shared: &Shared) -> Janitor {
        let now = shared.clock.now();
        Janitor {
            effects: Effects::default(),
            rng: Rng::seeded(shared.worker_seed.fetch_add(0x9e37_79b9, Ordering::Relaxed)),
            liveness: Timer::new(now, LIVENESS_PERIOD),
            roll: Timer::new(now, ROLL_PERIOD),
            reports: Timer::new(now, REPORT_PERIOD),
            summaries: Timer::new(now, REPORT_PERIOD),
            suppressed: 0,
        }
    }

    /// Does what is due now; answers how long to sleep after it.
    pub(crate) fn round(&mut self, shared: &SharedRef) -> Duration {
        let lane = shared.metrics.shared_lane();
        let effects = &mut self.effects;
        let now = shared.clock.now();
        lane.add(shared.metrics.janitor_rounds, 1);
        for (segment, client) in shared.graceful.take_due(now) {
            if let Err(code) = shared.catalog.unmount(segment, client, now, effects) {
                tracing::debug!(%segment, %code, "a graceful unmount came too late");
            }
        }
        for (client, left) in shared.attendance.gone(now) {
            lane.add(shared.metrics.writers_left, 1);
            tracing::debug!(event = "writer_left", %client, "a writer closed its connections: what it left unfinished is given up");
            shared.catalog.writer_left(client, left);
        }
        if self.liveness.is_due(now) {
            invite_to_give_back();
            shared.catalog.expire_clients(now, effects);
            shared.look_at_quotas();
            shared.look_at_imports();
        }
        if self.roll.is_due(now) {
            shared.catalog.call_roll(now);
        }
        let more = shared.catalog.upkeep(UPKEEP_BUDGET, now, effects);
        shared.catalog.trim_tenants(TRIM_BUDGET, now);
        let eviction = evict(shared, now);
        shared.waiting.serve(shared, matches!(eviction, Eviction::Exhausted), &mut self.rng, effects);
        shared.carry_out(effects, lane);
        if self.reports.is_due(now) {
            self.suppressed = say_suppressed(shared, self.suppressed);
        }
        if shared.report.load(Ordering::Relaxed) && self.summaries.is_due(now) {
            tracing::info!("Master Admin Metrics: {}", summary(shared));
            shared.window.advance(shared, now);
        }
        let sleep = match eviction {
            Eviction::MoreToDo => Duration::ZERO,
            Eviction::Exhausted => EXHAUSTED_TICK,
            Eviction::Idle if more => Duration::ZERO,
            Eviction::Idle => TICK,
        };
        if shared.waiting.is_empty() { sleep } else { sleep.min(WAITING_TICK) }
    }
}

/// Says in one line how many lines were left out of the log. Answers how many that was by now.
fn say_suppressed(shared: &Shared, before: u64) -> u64 {
    let now = shared.log.as_ref().map_or(0, LogHandle::suppressed);
    if now > before {
        tracing::warn!(event = "log_lines_suppressed", lines = now - before, "too many lines of a kind");
    }
    now
}

/// The allocator gives pages that became free back to the system when it handles a large block, and not before: a master
/// that lost its objects may never need one again.
fn invite_to_give_back() {
    drop(std::hint::black_box(Vec::<u8>::with_capacity(LARGE_BLOCK)));
}

enum Eviction {
    /// Nothing to evict.
    Idle,
    /// The goal is not reached yet.
    MoreToDo,
    /// Everything left is leased, pinned or being written.
    Exhausted,
}

fn evict(shared: &Shared, now: MonotonicTime) -> Eviction {
    let Some(goal) = shared.catalog.eviction_goal(now) else { return Eviction::Idle };
    let done = shared.catalog.evict(&goal, EVICTION_BUDGET, now);
    let nanos = shared.clock.now().since(now).as_nanos();
    let metrics = &shared.metrics;
    metrics.shared_lane().time(metrics.eviction_rounds, 0, u64::try_from(nanos).unwrap_or(u64::MAX));
    if done.keys > 0 {
        tracing::debug!(keys = done.keys, bytes = done.bytes.0, looked_at = done.steps, "evicted");
    }
    if done.exhausted || done.bytes >= goal.target || done.steps == 0 {
        // Freed enough, or nothing may go: a wake or the next tick looks again.
        return if done.keys == 0 { Eviction::Exhausted } else { Eviction::Idle };
    }
    Eviction::MoreToDo
}

/// Something that comes round.
struct Timer {
    next: MonotonicTime,
    period: Duration,
}

impl Timer {
    fn new(now: MonotonicTime, period: Duration) -> Timer {
        Timer { next: now + period, period }
    }

    /// True once a period.
    fn is_due(&mut self, now: MonotonicTime) -> bool {
        let due = now >= self.next;
        if due {
            self.next = now + self.period;
        }
        due
    }
}
