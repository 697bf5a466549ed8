//! Replicas that were lost and are to be made again: how many at a time, how fast, how often.
//!
//! A loss is whatever the pool calls one; what can be done about it is asked when its turn comes. Losses are looked at in the
//! order in which they came; one that cannot be helped now goes to the end.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use yb_types::MonotonicTime;

use crate::TaskId;

/// How much repairing there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RepairSettings {
    /// Bytes copied in a second, over the whole pool; 0: nothing is repaired.
    pub bytes_per_second: u64,
    /// Copies under way.
    pub running: usize,
}

impl Default for RepairSettings {
    fn default() -> Self {
        RepairSettings { bytes_per_second: 256 << 20, running: 16 }
    }
}

/// What became of a loss that was looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mending {
    /// A task copies so many bytes.
    Begun(TaskId, u64),
    /// There is nothing to do.
    Done,
    /// Not now: it is in use, or too many tasks wait.
    Busy,
    /// No segment has room to spare.
    NoRoom,
}

/// What came of repairs so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RepairCounts {
    /// Losses that wait.
    pub waiting: u64,
    /// Copies under way.
    pub running: u64,
    /// Replicas made again.
    pub made: u64,
    /// Losses that were none any more when they were looked at.
    pub settled: u64,
    /// Losses given up after some failures.
    pub failed: u64,
}

/// A task for one loss fails so often before it is given up.
const TRIES: u8 = 3;
/// Losses looked at in one step.
const LOOKS: usize = 256;
/// A loss that cannot be helped is not looked at again before.
const PAUSE: Duration = Duration::from_secs(1);

/// The losses of one pool.
#[derive(Debug)]
pub struct Repairs<L> {
    settings: RepairSettings,
    waiting: VecDeque<(L, u8)>,
    running: BTreeMap<TaskId, (L, u8)>,
    /// Bytes that may be copied now; below zero after a large object.
    allowance: i64,
    counted: Option<MonotonicTime>,
    paused_until: MonotonicTime,
    counts: RepairCounts,
}

impl<L: Copy> Repairs<L> {
    /// Nothing is lost yet.
    pub fn new(settings: RepairSettings) -> Self {
        Repairs {
            settings,
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            allowance: 0,
            counted: None,
            paused_until: MonotonicTime::default(),
            counts: RepairCounts::default(),
        }
    }

    /// Whether anything is repaired.
    pub fn is_on(&self) -> bool {
        self.settings.bytes_per_second > 0
    }

    /// Whether nothing waits or runs.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running.is_empty()
    }

    /// What came of repairs so far.
    pub fn counts(&self) -> RepairCounts {
        RepairCounts { waiting: self.waiting.len() as u64, running: self.running.len() as u64, ..self.counts }
    }

    /// These were lost.
    pub fn lost(&mut self, losses: impl IntoIterator<Item = L>) {
        self.waiting.extend(losses.into_iter().map(|loss| (loss, 0)));
    }

    /// A task ended; others than those of repairs are passed over.
    pub fn task_ended(&mut self, id: TaskId, success: bool) {
        let Some((loss, tries)) = self.running.remove(&id) else { return };
        if success {
            self.counts.made += 1;
            // It may lack more than one: whoever looks finds out.
            self.waiting.push_back((loss, tries));
        } else if tries + 1 >= TRIES {
            self.counts.failed += 1;
        } else {
            self.waiting.push_back((loss, tries + 1));
        }
    }

    /// Begins what may begin now. `mend` looks at a loss and gives a task.
    pub fn step(&mut self, now: MonotonicTime, mut mend: impl FnMut(&L) -> Mending) {
        self.earn(now);
        if now < self.paused_until {
            return;
        }
        for _ in 0..LOOKS.min(self.waiting.len()) {
            if self.allowance < 0 || self.running.len() >= self.settings.running {
                return;
            }
            let Some((loss, tries)) = self.waiting.pop_front() else { return };
            match mend(&loss) {
                Mending::Begun(task, bytes) => {
                    self.allowance -= i64::try_from(bytes).unwrap_or(i64::MAX);
                    self.running.insert(task, (loss, tries));
                }
                Mending::Done => self.counts.settled += 1,
                Mending::Busy => {
                    self.waiting.push_back((loss, tries));
                    self.paused_until = now + PAUSE / 10;
                }
                Mending::NoRoom => {
                    self.waiting.push_back((loss, tries));
                    self.paused_until = now + PAUSE;
                }
            }
        }
    }

    /// What was not copied in the last second may not be made up for later.
    fn earn(&mut self, now: MonotonicTime) {
        let since = self.counted.map_or(Duration::ZERO, |counted| now.since(counted));
        self.counted = Some(now);
        let most = i64::try_from(self.settings.bytes_per_second).unwrap_or(i64::MAX);
        let earned = (self.settings.bytes_per_second as f64 * since.as_secs_f64()) as i64;
        self.allowance = self.allowance.saturating_add(earned).min(most);
    }
}

#[cfg(test)]
mod tests {
    use yb_types::Uuid;

    use super::*;

    fn task(first: u64) -> TaskId {
        TaskId(Uuid { first, second: 0 })
    }

    fn at(ms: u64) -> MonotonicTime {
        MonotonicTime::from_millis(ms)
    }

    #[test]
    fn no_more_run_and_no_more_bytes_go_than_is_set() {
        let mut repairs = Repairs::new(RepairSettings { bytes_per_second: 1000, running: 3 });
        repairs.lost(0..100_u64);
        let mut begun = Vec::new();
        repairs.step(at(0), |loss| {
            begun.push(*loss);
            Mending::Begun(task(*loss), 10)
        });
        assert_eq!(begun, [0], "the first second begins with nothing earned");
        repairs.step(at(100), |loss| Mending::Begun(task(*loss), 10));
        assert_eq!(repairs.counts().running, 3);
        (0..3).for_each(|id| repairs.task_ended(task(id), true));
        // Over ten seconds a thousand bytes each, whatever the tasks would take.
        let mut bytes = 0;
        for step in 2..102 {
            repairs.step(at(step * 100), |loss| {
                bytes += 500;
                Mending::Begun(task(*loss), 500)
            });
            (0..100).for_each(|id| repairs.task_ended(task(id), true));
        }
        assert!((9_000..=11_500).contains(&bytes), "{bytes}");
    }

    #[test]
    fn a_loss_is_given_up_after_three_failures_and_ends_when_it_is_none_any_more() {
        let mut repairs = Repairs::new(RepairSettings { bytes_per_second: 1 << 20, running: 1 });
        repairs.lost([7_u64]);
        for round in 0..3 {
            repairs.step(at(1000 * round), |_| Mending::Begun(task(round), 1));
            repairs.task_ended(task(round), false);
            repairs.task_ended(task(round), false);
        }
        assert!(repairs.is_idle() && repairs.counts().failed == 1);
        repairs.lost([8_u64]);
        repairs.step(at(9000), |_| Mending::Begun(task(9), 1));
        repairs.task_ended(task(9), true);
        assert_eq!((repairs.counts().made, repairs.is_idle()), (1, false));
        repairs.step(at(9100), |_| Mending::Done);
        assert!(repairs.is_idle() && repairs.counts().settled == 1);
    }

    #[test]
    fn a_full_pool_is_asked_once_a_second() {
        let mut repairs = Repairs::new(RepairSettings::default());
        repairs.lost([1_u64]);
        let mut looks = 0;
        for step in 0..100 {
            repairs.step(at(step * 100), |_| {
                looks += 1;
                Mending::NoRoom
            });
        }
        assert_eq!((looks, repairs.counts().waiting), (10, 1));
    }
}
