//! What one copy costs on this machine: the limit that shared memory can reach.
//!
//! The copy runs from a second mapping of a memfd, as a client sees a node's segment, to ordinary memory, as a caller's
//! buffer is. The source is at least four times the last-level cache, so that its bytes come from memory.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde::Serialize;
use yb_env::Clock;
use yb_mem::{CopyHint, MapError, MemorySegment, SegmentOptions, Span, SpanError, copy};

/// Share of the last-level cache that the source must be at least.
const CACHE_MULTIPLE: u64 = 4;
/// Where the size of the cache is not told.
const ASSUMED_CACHE_BYTES: u64 = 32 << 20;

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct MemcpyReport {
    /// Bytes of one copy.
    pub block_bytes: u64,
    /// Bytes of all different sources.
    pub source_bytes: u64,
    /// Bytes of all different destinations.
    pub destination_bytes: u64,
    /// Last-level cache of the first core.
    pub cache_bytes: u64,
    /// 10^9 bytes a second with the C library's copy.
    pub gb_per_second: f64,
    /// The same with the copy that goes around the caches; `None`: it was stopped before.
    pub streaming_gb_per_second: Option<f64>,
}

/// Why nothing could be measured.
#[derive(Debug, thiserror::Error)]
pub enum MemcpyError {
    /// No memory.
    #[error(transparent)]
    Map(#[from] MapError),
    /// The blocks do not fit.
    #[error(transparent)]
    Span(#[from] SpanError),
    /// Blocks of no bytes, or larger than the memory to copy from.
    #[error("the block must have at least one byte, and at most {0}")]
    Block(u64),
    /// It was stopped before anything was measured.
    #[error("nothing was measured")]
    Stopped,
}

/// What is copied, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct MemcpyLoad {
    /// Bytes of one copy.
    pub block_bytes: u64,
    /// How many blocks the destination has.
    pub destination_blocks: u64,
    /// Time of each kind of copy.
    pub duration: Duration,
}

/// Copies blocks one after the other for so long, with each kind of copy. When `stop` is set, what was measured until then is
/// the answer.
///
/// # Errors
/// If the memory cannot be had; if it was stopped before anything was measured.
pub fn measure(load: &MemcpyLoad, stop: &AtomicBool) -> Result<MemcpyReport, MemcpyError> {
    let MemcpyLoad { block_bytes, destination_blocks, duration } = *load;
    let cache_bytes = last_level_cache();
    let least = (cache_bytes * CACHE_MULTIPLE).max(256 << 20);
    if block_bytes == 0 || block_bytes > least {
        return Err(MemcpyError::Block(least));
    }
    let source_bytes = least.div_ceil(block_bytes) * block_bytes;
    let segment = MemorySegment::create(source_bytes, SegmentOptions { populate: true, ..SegmentOptions::default() })?;
    let mapping = segment.map_again()?;
    let destination_bytes = block_bytes * destination_blocks.max(1);
    let mut memory = vec![1u8; destination_bytes as usize];
    let copies = Copies { source: mapping.span(), block: block_bytes as usize, duration, stop };
    let is_stopped = || stop.load(Ordering::Relaxed);
    // The first run also faults the pages of the second mapping in.
    copies.rate(&mut memory, CopyHint::Cached)?;
    if is_stopped() {
        return Err(MemcpyError::Stopped);
    }
    let gb_per_second = copies.rate(&mut memory, CopyHint::Cached)?;
    let streaming = if is_stopped() { None } else { Some(copies.rate(&mut memory, CopyHint::Streaming)?) };
    Ok(MemcpyReport {
        block_bytes,
        source_bytes,
        destination_bytes,
        cache_bytes,
        gb_per_second,
        streaming_gb_per_second: streaming,
    })
}

/// Copies of one size from one source.
struct Copies<'a> {
    source: Span<'a>,
    block: usize,
    duration: Duration,
    stop: &'a AtomicBool,
}

impl Copies<'_> {
    /// 10^9 bytes a second.
    fn rate(&self, memory: &mut [u8], hint: CopyHint) -> Result<f64, MemcpyError> {
        let clock = Clock::real();
        let started = clock.now();
        let mut copied = 0u64;
        // Whole rounds over the source, so that the cache never helps; one at least, also when it is stopped.
        while copied == 0 || (clock.now().since(started) < self.duration && !self.stop.load(Ordering::Relaxed)) {
            let mut destinations = memory.len() / self.block;
            let count = destinations;
            for offset in (0..self.source.len()).step_by(self.block) {
                destinations = (destinations + 1) % count;
                let to = memory.get_mut(destinations * self.block..).and_then(|rest| rest.get_mut(..self.block));
                copy(Span::destination(to.unwrap_or_default()), self.source.slice(offset, self.block)?, hint)?;
                copied += self.block as u64;
            }
        }
        Ok(copied as f64 / 1e9 / clock.now().since(started).as_secs_f64())
    }
}

/// Size of the largest cache of the first core, in bytes.
fn last_level_cache() -> u64 {
    let directory = "/sys/devices/system/cpu/cpu0/cache";
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.filter_map(|entry| fs::read_to_string(entry.path().join("size")).ok());
    let bytes = sizes.filter_map(|text| text.trim().strip_suffix('K')?.parse::<u64>().ok()).map(|kib| kib << 10);
    bytes.max().unwrap_or(ASSUMED_CACHE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_has_a_rate() {
        let load = MemcpyLoad { block_bytes: 64 << 10, destination_blocks: 16, duration: Duration::from_millis(1) };
        let report = measure(&load, &AtomicBool::new(false)).unwrap();
        assert!(report.gb_per_second > 0.0 && report.streaming_gb_per_second > Some(0.0));
        assert!(report.source_bytes >= CACHE_MULTIPLE * report.cache_bytes);
        let empty = MemcpyLoad { block_bytes: 0, ..load };
        assert!(matches!(measure(&empty, &AtomicBool::new(false)), Err(MemcpyError::Block(_))));
        assert!(matches!(measure(&load, &AtomicBool::new(true)), Err(MemcpyError::Stopped)));
    }
}
