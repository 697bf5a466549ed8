//! What the engine itself costs, beside the transports: time of one thread for submitting, asking and releasing.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;
use yb_env::Clock;
use yb_sched::{Completion, Effect, RailScheduler, RailSettings, RailSpec, TransferSpec};
use yb_transfer::{
    Access, BatchError, Engine, EngineSettings, MapError, MemorySegment, Opcode, RegistryError, Request, SegmentHandle,
    SegmentOptions, StartError, TaskState, TransferError,
};
use yb_types::SegmentAddress;

/// Bytes of the smallest write that is measured.
const SMALL: u64 = 64;

/// In so many parts a measurement is made.
const PARTS: u64 = 50;

/// Nanoseconds of one thread, in the best of many parts of the measurement.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct EngineCosts {
    /// To submit a batch of one write of 64 bytes inside the process, see it complete and release it.
    pub small_write: f64,
    /// The same without a batch: one synchronous call.
    pub small_write_sync: f64,
    /// To ask for one task of a batch of 10.
    pub task_of_10: f64,
    /// To ask for one task of a batch of 10,000.
    pub task_of_10_000: f64,
    /// To ask for the progress of a batch of 10.
    pub progress_of_10: f64,
    /// To ask for the progress of a batch of 10,000.
    pub progress_of_10_000: f64,
    /// To submit a batch of 10,000 such writes, see each complete and release it, for each of them.
    pub write_of_10_000: f64,
    /// To schedule one slice over 2 rails and hear of its end.
    pub slice_over_2_rails: f64,
    /// The same over 64 rails.
    pub slice_over_64_rails: f64,
}

/// A measurement that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum CostError {
    /// The engine did not start.
    #[error(transparent)]
    Start(#[from] StartError),
    /// No memory.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The memory could not be used.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// The engine refused a call.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// A write failed.
    #[error(transparent)]
    Transfer(#[from] TransferError),
}

struct Stage {
    engine: Engine,
    memory: std::sync::Arc<MemorySegment>,
    own: SegmentHandle,
    clock: Clock,
}

/// Measures, with `rounds` of everything (100,000 takes about a second).
///
/// # Errors
/// When the engine cannot be set up.
pub fn measure(rounds: u64) -> Result<EngineCosts, CostError> {
    let listen = Some(std::net::SocketAddr::from(([127, 0, 0, 1], 0)));
    let engine = Engine::builder().settings(EngineSettings { listen, ..EngineSettings::default() }).build()?;
    let options = SegmentOptions { populate: true, ..SegmentOptions::default() };
    let memory = engine.allocate(2 << 20, options, Access::Remote)?;
    let own = engine.open_segment(engine.endpoint().unwrap_or_default())?;
    let stage = Stage { engine, memory, own, clock: Clock::real() };
    stage.time(rounds / 10, |stage| stage.write_batch(1))?;
    let large = rounds.div_ceil(10_000);
    Ok(EngineCosts {
        small_write: stage.time(rounds, |stage| stage.write_batch(1))?,
        small_write_sync: stage.time(rounds, Stage::write_sync)?,
        task_of_10: stage.polling(rounds.div_ceil(10), 10, Stage::ask_every_task)? / 10.0,
        task_of_10_000: stage.polling(large, 10_000, Stage::ask_every_task)? / 10_000.0,
        progress_of_10: stage.polling(rounds, 10, Stage::ask_progress)?,
        progress_of_10_000: stage.polling(rounds, 10_000, Stage::ask_progress)?,
        write_of_10_000: stage.time(large, |stage| stage.write_batch(10_000))? / 10_000.0,
        slice_over_2_rails: stage.slices(rounds, 2)?,
        slice_over_64_rails: stage.slices(rounds, 64)?,
    })
}

impl Stage {
    /// Nanoseconds of one round, in the best of the parts: others use the machine too.
    fn time(&self, rounds: u64, mut round: impl FnMut(&Self) -> Result<(), CostError>) -> Result<f64, CostError> {
        let rounds = rounds.div_ceil(PARTS);
        let mut best = f64::INFINITY;
        for _ in 0..PARTS {
            let started = self.clock.now();
            for _ in 0..rounds {
                round(self)?;
            }
            best = best.min(self.clock.now().since(started).as_nanos() as f64 / rounds as f64);
        }
        Ok(best)
    }

    /// Nanoseconds of one round over a batch that is complete.
    fn polling(
        &self,
        rounds: u64,
        tasks: usize,
        round: impl Fn(&Self, yb_transfer::BatchId, usize) -> Result<(), CostError>,
    ) -> Result<f64, CostError> {
        let batch = self.engine.open_batch(tasks)?;
        self.engine.submit_to(batch, self.requests(tasks)?)?;
        self.engine.wait(batch, self.engine.now() + Duration::from_secs(60))?;
        let nanos = self.time(rounds, |stage| round(stage, batch, tasks))?;
        self.engine.release(batch)?;
        Ok(nanos)
    }

    /// Nanoseconds of one slice of a transfer that never ends, over rails whose windows are kept full.
    fn slices(&self, rounds: u64, rails: u32) -> Result<f64, CostError> {
        let mut now = self.clock.now();
        let mut scheduler = RailScheduler::new(RailSettings::default());
        for _ in 0..rails {
            scheduler.add_rail(now, RailSpec::new(12_500_000_000, 0));
        }
        scheduler.submit(now, TransferSpec::new(u64::MAX / 2));
        let mut posted = VecDeque::new();
        self.time(rounds, |_| {
            now = now + Duration::from_micros(5);
            if let Some(slice) = posted.pop_front() {
                scheduler.completed(now, slice, Completion::Done);
            }
            while let Some(effect) = scheduler.poll(now) {
                if let Effect::Post(post) = effect {
                    posted.push_back(post.slice);
                }
            }
            Ok(())
        })
    }

    fn ask_every_task(&self, batch: yb_transfer::BatchId, tasks: usize) -> Result<(), CostError> {
        for index in 0..tasks {
            std::hint::black_box(self.engine.task(batch, index)?);
        }
        Ok(())
    }

    fn ask_progress(&self, batch: yb_transfer::BatchId, _tasks: usize) -> Result<(), CostError> {
        std::hint::black_box(self.engine.progress(batch)?);
        Ok(())
    }

    fn requests(&self, tasks: usize) -> Result<Vec<Request<'static>>, CostError> {
        let (source, target) = (self.memory.address(), self.memory.address() + (1 << 20));
        let request = |index: usize| {
            let offset = index as u64 % 1000 * SMALL;
            let local = self.engine.local(source + offset, SMALL)?;
            Ok(Request::new(Opcode::Write, local, self.own.clone(), SegmentAddress(target + offset)))
        };
        (0..tasks).map(request).collect()
    }

    fn write_batch(&self, tasks: usize) -> Result<(), CostError> {
        let batch = self.engine.open_batch(tasks)?;
        self.engine.submit_to(batch, self.requests(tasks)?)?;
        for index in 0..tasks {
            while self.engine.task(batch, index)?.state == TaskState::Waiting {
                std::thread::yield_now();
            }
        }
        Ok(self.engine.release(batch)?)
    }

    fn write_sync(&self) -> Result<(), CostError> {
        let until = self.engine.now() + Duration::from_secs(60);
        Ok(self.engine.transfer_sync(&self.requests(1)?, until).into_result()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asking_costs_the_same_however_many_tasks_there_are() {
        let costs = measure(20_000).unwrap();
        assert!(costs.small_write > 0.0 && costs.write_of_10_000 > 0.0, "{costs:?}");
        // Scanning the batch would make it a thousand times slower.
        assert!(costs.task_of_10_000 < 20.0 * costs.task_of_10.max(50.0), "{costs:?}");
        assert!(costs.progress_of_10_000 < 20.0 * costs.progress_of_10.max(50.0), "{costs:?}");
    }
}
