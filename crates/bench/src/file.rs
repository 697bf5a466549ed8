//! A file through the engine, beside a plain loop of `pread` and `pwrite`: the same blocks, the same memory, in turn.

use std::fs::OpenOptions;
use std::io;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;
use yb_env::Clock;
use yb_mem::{MemorySegment, SegmentOptions, read_at, write_at};
use yb_transfer::{
    Access, Engine, EngineSettings, FilePart, FileSettings, Opcode, Request, SegmentHandle, TransferError,
};
use yb_types::SegmentAddress;

/// What is measured.
#[derive(Clone, Copy, Debug)]
pub struct FileLoad {
    /// Bytes of the file, which is written first.
    pub size: u64,
    /// Bytes of a request.
    pub block: u64,
    /// Requests of a call.
    pub batch: usize,
    /// How the engine uses the file.
    pub settings: FileSettings,
}

/// One direction.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Rates {
    /// GB/s (10^9 bytes) of the engine.
    pub engine: f64,
    /// GB/s of the plain loop, through the page cache.
    pub plain: f64,
}

/// The result.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct FileFigures {
    /// Reading the whole file, which the page cache has forgotten before each round.
    pub read: Rates,
    /// Writing over the whole file. The plain loop flushes at its end, as the engine's direct writes need no flush.
    pub write: Rates,
    /// Share of the engine's bytes that went past the page cache.
    pub direct: f64,
}

fn transfer(error: &TransferError) -> io::Error {
    io::Error::other(error.to_string())
}

/// Measures on a file that is made at `path`, and left there.
///
/// # Errors
/// The system's, and the engine's as text.
pub fn run(path: &Path, load: &FileLoad) -> io::Result<FileFigures> {
    let block = load.block.max(1).min(load.size.max(1));
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
    file.set_len(load.size)?;
    let engine = Engine::builder().settings(EngineSettings { file: load.settings, ..Default::default() }).build();
    let engine = engine.map_err(|error| io::Error::other(error.to_string()))?;
    let len = block * load.batch.max(1) as u64;
    let memory = engine.allocate(len, SegmentOptions { populate: true, ..SegmentOptions::default() }, Access::Local);
    let memory = memory.map_err(|error| io::Error::other(error.to_string()))?;
    let part = FilePart { path: path.to_owned(), len: None };
    let segment = engine.open_files("bench", &[part], load.settings).map_err(|error| transfer(&error))?;
    let side = Side { engine: &engine, segment: &segment, memory: &memory, size: load.size, block };
    let rate = |passed: Duration| load.size as f64 / passed.as_secs_f64().max(1e-9) / 1e9;
    let plain = |op| side.timed(|| side.plain(&file, op)).map(rate);
    let fast = |op| side.timed(|| side.engine(op)).map(rate);
    // The first round makes the blocks of the file.
    plain(Opcode::Write)?;
    let write = Rates { plain: plain(Opcode::Write)?, engine: fast(Opcode::Write)? };
    forget(&file)?;
    let cold = plain(Opcode::Read)?;
    forget(&file)?;
    let read = Rates { plain: cold, engine: fast(Opcode::Read)? };
    let stats = engine.stats();
    let total = (stats.file.read_bytes + stats.file.written_bytes).max(1);
    Ok(FileFigures { read, write, direct: stats.file_direct_bytes as f64 / total as f64 })
}

/// Empties the page cache of the file, where the file system keeps one beside its storage.
fn forget(file: &std::fs::File) -> io::Result<()> {
    file.sync_data()?;
    Ok(rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?)
}

struct Side<'a> {
    engine: &'a Engine,
    segment: &'a SegmentHandle,
    memory: &'a MemorySegment,
    size: u64,
    block: u64,
}

impl Side<'_> {
    fn timed(&self, work: impl FnOnce() -> io::Result<()>) -> io::Result<Duration> {
        let clock = Clock::real();
        let started = clock.now();
        work()?;
        Ok(clock.now().since(started))
    }

    /// Every block of the file, with a place in memory for it.
    fn blocks(&self) -> impl Iterator<Item = (u64, u64, u64)> {
        let (size, block, room) = (self.size, self.block, self.memory.len());
        (0..size.div_ceil(block)).map(move |index| {
            let offset = index * block;
            (offset, offset % room, block.min(size - offset))
        })
    }

    fn plain(&self, file: &std::fs::File, op: Opcode) -> io::Result<()> {
        for (offset, place, len) in self.blocks() {
            let span = self.memory.span().slice(place as usize, len as usize).map_err(io::Error::other)?;
            let moved = match op {
                Opcode::Read => read_at(file, span, offset)?,
                Opcode::Write => write_at(file, span, offset)?,
            };
            if moved as u64 != len {
                return Err(io::Error::other(format!("{moved} of {len} bytes moved at {offset}")));
            }
        }
        if op == Opcode::Write { file.sync_data() } else { Ok(()) }
    }

    fn engine(&self, op: Opcode) -> io::Result<()> {
        let batch = (self.memory.len() / self.block).max(1) as usize;
        let blocks: Vec<_> = self.blocks().collect();
        for part in blocks.chunks(batch) {
            let request = |&(offset, place, len): &(u64, u64, u64)| {
                let local = self.engine.local(self.memory.address() + place, len).map_err(io::Error::other)?;
                Ok(Request::new(op, local, self.segment.clone(), SegmentAddress(offset)))
            };
            let requests = part.iter().map(request).collect::<io::Result<Vec<_>>>()?;
            let outcome = self.engine.transfer_sync(&requests, self.engine.now() + Duration::from_secs(60));
            outcome.into_result().map_err(|error| transfer(&error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_are_measured() {
        let path = std::env::temp_dir().join(format!("yb-file-bench-{}", std::process::id()));
        let load = FileLoad { size: 3_000_001, block: 100_000, batch: 8, settings: FileSettings::default() };
        let figures = run(&path, &load).unwrap();
        std::fs::remove_file(&path).unwrap();
        for rate in [figures.read.engine, figures.read.plain, figures.write.engine, figures.write.plain] {
            assert!(rate > 0.0 && rate.is_finite(), "{figures:?}");
        }
    }
}
