//! How fast bytes move on this machine: one memcpy, the streaming copy, shared memory, TCP on loopback.
//!
//! `cargo run --release -p yb-transfer --example copy_bench [copy] [shm] [tcp]`. Source: a second mapping of a memfd,
//! as a peer has it; destination: a registered buffer; working set: 256 MiB each, several times a large cache. The CPU
//! figure of TCP is that of both ends together.

use std::time::Duration;

use yb_env::Clock;
use yb_mem::{Access, CopyHint, MemorySegment, SegmentOptions, Span, copy};
use yb_transfer::{Engine, EngineSettings, Opcode, Request, SegmentHandle};
use yb_types::SegmentAddress;

type Failure = Box<dyn std::error::Error>;

const WORKING_SET: usize = 256 << 20;

fn gigabytes_per_second(bytes: usize, time: Duration) -> f64 {
    bytes as f64 / time.as_secs_f64() / 1e9
}

/// Processor time of this process, user and system.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Runs `body` over every block of the working set, three rounds, and gives back the best round and its CPU time.
fn rounds(
    clock: &Clock,
    block: usize,
    mut body: impl FnMut(usize) -> Result<(), Failure>,
) -> Result<(Duration, Duration), Failure> {
    let mut best = (Duration::MAX, Duration::MAX);
    for _ in 0..4 {
        let (start, used) = (clock.now(), cpu());
        for at in (0..WORKING_SET).step_by(block) {
            body(at)?;
        }
        best = best.min((clock.now().since(start), cpu().saturating_sub(used)));
    }
    Ok(best)
}

fn copies(clock: &Clock, segment: &MemorySegment, target: &mut [u8]) -> Result<(), Failure> {
    let peer = segment.map_again()?;
    let span = Span::destination(target);
    for (name, hint) in [("memcpy", CopyHint::Cached), ("streaming", CopyHint::Streaming)] {
        for block in [64 << 10, 1 << 20, 16 << 20] {
            let (time, _) =
                rounds(clock, block, |at| Ok(copy(span.slice(at, block)?, peer.span().slice(at, block)?, hint)?))?;
            println!("{name:10} {:>8} KiB  {:6.2} GB/s", block >> 10, gigabytes_per_second(WORKING_SET, time));
        }
    }
    Ok(())
}

struct Pair {
    engine: Engine,
    peer: SegmentHandle,
    remote: u64,
    local: u64,
}

impl Pair {
    fn transfer(&self, op: Opcode, at: usize, block: usize, pieces: usize) -> Result<(), Failure> {
        let mut requests = Vec::with_capacity(pieces);
        for place in (at..at + block).step_by(block / pieces) {
            let local = self.engine.local(self.local + place as u64, (block / pieces) as u64)?;
            let remote = SegmentAddress(self.remote + place as u64);
            requests.push(Request::new(op, local, self.peer.clone(), remote));
        }
        Ok(self.engine.transfer_sync(&requests, self.engine.now() + Duration::from_secs(30)).into_result()?)
    }

    fn measure(&self, clock: &Clock, name: &str, block: usize, pieces: usize) -> Result<(), Failure> {
        for op in [Opcode::Read, Opcode::Write] {
            let (time, cpu) = rounds(clock, block, |at| self.transfer(op, at, block, pieces))?;
            let per_call = time.as_secs_f64() * 1e6 / (WORKING_SET / block) as f64;
            println!(
                "{name:10} {:>8} KiB in {pieces:>3}  {:6.2} GB/s  {per_call:9.1} us a call  {:5.3} CPU s per GB  {op:?}",
                block >> 10,
                gigabytes_per_second(WORKING_SET, time),
                cpu.as_secs_f64() * 1e9 / WORKING_SET as f64,
            );
        }
        Ok(())
    }
}

fn pair(shm: bool, owner: &Engine, segment: &MemorySegment) -> Result<Pair, Failure> {
    let engine = Engine::builder()
        .settings(EngineSettings {
            shm,
            in_process: false,
            ..EngineSettings::from_env(|name| std::env::var(name).ok())
        })
        .build()?;
    let target = engine.allocate(
        WORKING_SET as u64,
        SegmentOptions { populate: true, ..SegmentOptions::default() },
        Access::Local,
    )?;
    let endpoint = owner.endpoint().ok_or("the owner does not listen")?;
    Ok(Pair { peer: engine.open_segment(endpoint)?, engine, remote: segment.address(), local: target.address() })
}

fn main() -> Result<(), Failure> {
    let only: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |name: &str| only.is_empty() || only.iter().any(|only| only == name);
    let clock = Clock::real();
    let owner = Engine::builder().listen(([127, 0, 0, 1], 0).into()).build()?;
    let options = SegmentOptions { populate: true, ..SegmentOptions::default() };
    let segment = owner.allocate(WORKING_SET as u64, options, Access::Remote)?;
    if wanted("copy") {
        copies(&clock, &segment, &mut vec![1; WORKING_SET])?;
    }
    for (name, shm) in [("shm", true), ("tcp", false)].into_iter().filter(|(name, _)| wanted(name)) {
        let pair = pair(shm, &owner, &segment)?;
        for (block, pieces) in [(4 << 10, 1), (64 << 10, 1), (1 << 20, 1), (2 << 20, 32), (16 << 20, 1), (64 << 20, 1)]
        {
            pair.measure(&clock, name, block, pieces)?;
        }
    }
    Ok(())
}
