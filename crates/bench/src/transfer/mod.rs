//! Load on a Transfer Engine, and what one TCP connection of this machine can carry.
//!
//! The pattern of access is that of Mooncake's bench: thread `t` moves the blocks `t`, `t + threads`, ... of a batch, at
//! the same offsets on both sides, and starts the next batch when the last one is over.

pub mod load;
pub mod plot;
pub mod raw;
pub mod submit;
pub mod sweep;
pub mod target;

/// Time on a core of this process, all threads that ever ran together.
pub(crate) fn own_cpu() -> std::time::Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    std::time::Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
