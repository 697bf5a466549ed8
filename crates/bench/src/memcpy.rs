//! What one copy costs on this machine: the limit that shared memory can reach.
//!
//! The copy runs from a second mapping of a memfd, as a client sees a node's segment, to ordinary memory, as a caller's
//! buffer is. The source is at least four times the last-level cache, so that its bytes come from memory.

use std::fs;
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
    /// The same with the copy that goes around the caches.
    pub streaming_gb_per_second: f64,
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
}

/// Copies blocks one after the other for so long, with each kind of copy.
///
/// # Errors
/// If the memory cannot be had.
pub fn measure(block_bytes: u64, destination_blocks: u64, duration: Duration) -> Result<MemcpyReport, MemcpyError> {
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
    let mut rate = |hint| rate(&mut memory, mapping.span(), block_bytes as usize, hint, duration);
    // The first run also faults the pages of the second mapping in.
    rate(CopyHint::Cached)?;
    Ok(MemcpyReport {
        block_bytes,
        source_bytes,
        destination_bytes,
        cache_bytes,
        gb_per_second: rate(CopyHint::Cached)?,
        streaming_gb_per_second: rate(CopyHint::Streaming)?,
    })
}

fn rate(
    memory: &mut [u8],
    source: Span<'_>,
    block: usize,
    hint: CopyHint,
    duration: Duration,
) -> Result<f64, MemcpyError> {
    let clock = Clock::real();
    let started = clock.now();
    let mut copied = 0u64;
    // Whole rounds over the source, so that the cache never helps.
    while clock.now().since(started) < duration {
        let mut destinations = memory.len() / block;
        let count = destinations;
        for offset in (0..source.len()).step_by(block) {
            destinations = (destinations + 1) % count;
            let to = memory.get_mut(destinations * block..).and_then(|rest| rest.get_mut(..block)).unwrap_or_default();
            copy(Span::destination(to), source.slice(offset, block)?, hint)?;
            copied += block as u64;
        }
    }
    Ok(copied as f64 / 1e9 / clock.now().since(started).as_secs_f64())
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
        let report = measure(64 << 10, 16, Duration::from_millis(1)).unwrap();
        assert!(report.gb_per_second > 0.0 && report.streaming_gb_per_second > 0.0);
        assert!(report.source_bytes >= CACHE_MULTIPLE * report.cache_bytes);
        assert!(matches!(measure(0, 1, Duration::ZERO), Err(MemcpyError::Block(_))));
    }
}
