//! One TCP connection on loopback without any engine: the limit that transfers over one lane can reach.
//!
//! One thread writes a buffer over and over, another reads into a buffer of the same size. The working sets are those of
//! the transfers they are compared with, so caches help both alike.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;
use yb_env::{Clock, spawn_thread};

use crate::transfer::own_cpu;

/// Bytes of one write that are tried.
pub const WRITE_SIZES: [usize; 4] = [64 << 10, 256 << 10, 1 << 20, 4 << 20];

/// What one write size reached.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RawRate {
    /// Bytes given to one write call, and taken by one read call at most.
    pub write_bytes: u64,
    /// 10^9 bytes a second.
    pub gb_per_second: f64,
    /// CPU seconds of both sides for 10^9 bytes.
    pub cpu_seconds_per_gb: f64,
}

/// Moves `working_set` bytes over and over with each of [`WRITE_SIZES`] for so long, the fastest first.
///
/// # Errors
/// The system's.
pub fn measure(working_set: usize, duration: Duration) -> io::Result<Vec<RawRate>> {
    let rates = WRITE_SIZES.iter().filter(|size| **size <= working_set);
    let mut rates = rates.map(|size| rate(working_set, *size, duration)).collect::<io::Result<Vec<_>>>()?;
    rates.sort_by(|a, b| b.gb_per_second.total_cmp(&a.gb_per_second));
    Ok(rates)
}

/// Moves `working_set` bytes over and over in pieces of `write_bytes`.
///
/// # Errors
/// The system's.
pub fn rate(working_set: usize, write_bytes: usize, duration: Duration) -> io::Result<RawRate> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let sender = TcpStream::connect(listener.local_addr()?)?;
    let (receiver, _) = listener.accept()?;
    sender.set_nodelay(true)?;
    let received = Arc::new(AtomicU64::new(0));
    let stop = Arc::new(AtomicBool::new(false));
    let (counted, stopped) = (Arc::clone(&received), Arc::clone(&stop));
    let write = spawn_thread("yb-raw-send", move || send(sender, working_set, write_bytes, &stopped))?;
    let read = spawn_thread("yb-raw-recv", move || receive(receiver, working_set, write_bytes, &counted))?;
    // Pages and windows are there after the first round.
    while received.load(Ordering::Relaxed) < working_set as u64 && !read.is_finished() {
        yb_env::sleep(Duration::from_millis(1));
    }
    let clock = Clock::real();
    let (bytes, cpu, started) = (received.load(Ordering::Relaxed), own_cpu(), clock.now());
    yb_env::sleep(duration);
    let bytes = received.load(Ordering::Relaxed) - bytes;
    let (cpu, seconds) = (own_cpu().saturating_sub(cpu), clock.now().since(started).as_secs_f64());
    stop.store(true, Ordering::SeqCst);
    let gone = |_| io::Error::other("a thread of the raw loop panicked");
    write.join().map_err(gone)??;
    read.join().map_err(gone)??;
    let gb = bytes as f64 / 1e9;
    let cpu_seconds_per_gb = if gb > 0.0 { cpu.as_secs_f64() / gb } else { 0.0 };
    Ok(RawRate { write_bytes: write_bytes as u64, gb_per_second: gb / seconds, cpu_seconds_per_gb })
}

fn send(mut stream: TcpStream, working_set: usize, write_bytes: usize, stop: &AtomicBool) -> io::Result<()> {
    let memory = vec![1_u8; working_set];
    while !stop.load(Ordering::Relaxed) {
        for piece in memory.chunks(write_bytes.max(1)) {
            stream.write_all(piece)?;
        }
    }
    Ok(())
}

fn receive(mut stream: TcpStream, working_set: usize, read_bytes: usize, received: &AtomicU64) -> io::Result<()> {
    let mut memory = vec![2_u8; working_set];
    loop {
        for mut piece in memory.chunks_mut(read_bytes.max(1)) {
            while !piece.is_empty() {
                let got = stream.read(piece)?;
                if got == 0 {
                    return Ok(());
                }
                received.fetch_add(got as u64, Ordering::Relaxed);
                piece = piece.get_mut(got..).unwrap_or_default();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_a_rate() {
        let rates = measure(256 << 10, Duration::from_millis(20)).unwrap();
        assert_eq!(rates.len(), 2);
        assert!(rates[0].gb_per_second >= rates[1].gb_per_second && rates[1].gb_per_second > 0.0);
        assert!(rates.iter().all(|rate| rate.cpu_seconds_per_gb > 0.0));
    }
}
