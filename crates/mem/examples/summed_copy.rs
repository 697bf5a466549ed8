//! What a checksum costs while bytes are copied from shared memory: `cargo run --release -p yb-mem --example summed_copy`.
//!
//! Both sides walk through more memory than the caches keep. Prints GB for a second of CPU time of the copy alone, of the copy with
//! its checksum, and of the copy with a pass of its own behind it, for pieces of some sizes; rounds take turns, the median counts.

use rustix::time::{ClockId, clock_gettime};
use yb_mem::{CopyHint, Crc64, MemorySegment, SegmentOptions, Span, copy, copy_summed};

/// Bytes that each side walks through.
const SET: usize = 512 << 20;
const ROUNDS: usize = 9;
/// Seconds.
const ROUND: f64 = 0.2;

type Way = fn(Span<'_>, Span<'_>, CopyHint) -> u64;

fn plain(to: Span<'_>, from: Span<'_>, hint: CopyHint) -> u64 {
    u64::from(copy(to, from, hint).is_ok())
}

fn summed(to: Span<'_>, from: Span<'_>, hint: CopyHint) -> u64 {
    let mut sum = Crc64::default();
    u64::from(copy_summed(to, from, hint, &mut sum).is_ok()) ^ sum.value()
}

fn then_summed(to: Span<'_>, from: Span<'_>, hint: CopyHint) -> u64 {
    u64::from(copy(to, from, hint).is_ok()) ^ Crc64::of(to).map_or(0, Crc64::value)
}

/// CPU time of this thread, in seconds.
fn cpu() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

/// GB/s of one round.
fn measure(way: Way, to: Span<'_>, from: Span<'_>, size: usize) -> f64 {
    let hint = CopyHint::for_total(size as u64);
    let (start, mut pieces, mut seen) = (cpu(), 0_usize, 0);
    while cpu() - start < ROUND {
        for _ in 0..16 {
            let at = pieces * size % (SET - size + 1) / 4096 * 4096;
            let Some((to, from)) = to.slice(at, size).ok().zip(from.slice(at, size).ok()) else { return 0.0 };
            seen ^= way(to, from, hint);
            pieces += 1;
        }
    }
    std::hint::black_box(seen);
    (pieces * size) as f64 / (cpu() - start) / 1e9
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = SegmentOptions { populate: true, ..SegmentOptions::default() };
    let (from, to) = (MemorySegment::create(SET as u64, options)?, MemorySegment::create(SET as u64, options)?);
    let ways: [(&str, Way); 3] = [("copy", plain), ("copy_summed", summed), ("copy, then sum", then_summed)];
    println!("{:>10} {:>12} {:>12} {:>15}  summed/copy", "bytes", ways[0].0, ways[1].0, ways[2].0);
    for size in [4 << 10, 64 << 10, 256 << 10, 1 << 20, 16 << 20] {
        let mut rates = [const { Vec::new() }; 3];
        for _ in 0..ROUNDS {
            for (rates, (_, way)) in rates.iter_mut().zip(ways) {
                rates.push(measure(way, to.span(), from.span(), size));
            }
        }
        let [plain, summed, passes] = rates.map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            rates[ROUNDS / 2]
        });
        println!("{size:>10} {plain:>12.2} {summed:>12.2} {passes:>15.2}  {:.2}", summed / plain);
    }
    Ok(())
}
