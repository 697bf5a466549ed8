//! Counters of the RDMA transport.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

/// What the RDMA transport has done since the start.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RdmaStats {
    /// Work requests given to devices.
    pub work_requests: u64,
    /// Lists of work requests given to devices, one doorbell each.
    pub doorbells: u64,
    /// Completions taken from devices. Fewer than work requests: most are not signalled.
    pub completions: u64,
    /// Completions that told of a failure.
    pub failed_completions: u64,
    /// Endpoints connected, in either role.
    pub connects: u64,
    /// Endpoints connected again after they broke.
    pub reconnects: u64,
    /// Attempts to connect that failed.
    pub failed_connects: u64,
    /// Slices that were given to another rail, or to the same one again.
    pub retried_slices: u64,
    /// Endpoints that are there now.
    pub endpoints: u64,
    /// What each rail has carried.
    pub rails: Vec<RailStats>,
}

/// What one rail (one of our devices to one of a peer's) has carried.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RailStats {
    /// Our device.
    pub local: String,
    /// The peer's `server@nic`.
    pub peer: String,
    /// Bytes moved.
    pub bytes: u64,
    /// Slices moved.
    pub slices: u64,
    /// Slices that failed or were given back.
    pub errors: u64,
    /// Whether it takes slices now.
    pub up: bool,
}

#[derive(Debug, Default)]
pub(crate) struct RdmaCounters {
    work_requests: AtomicU64,
    doorbells: AtomicU64,
    completions: AtomicU64,
    failed_completions: AtomicU64,
    connects: AtomicU64,
    reconnects: AtomicU64,
    failed_connects: AtomicU64,
    retried_slices: AtomicU64,
    endpoints: AtomicU64,
    pub(crate) rails: Mutex<Vec<RailStats>>,
}

impl RdmaCounters {
    pub(crate) fn posted(&self, requests: u64) {
        if requests > 0 {
            self.work_requests.fetch_add(requests, Ordering::Relaxed);
            self.doorbells.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn completed(&self, failed: bool) {
        self.completions.fetch_add(1, Ordering::Relaxed);
        self.failed_completions.fetch_add(u64::from(failed), Ordering::Relaxed);
    }

    /// A rail is being connected, for the first time or again.
    pub(crate) fn connecting(&self, again: bool) {
        self.reconnects.fetch_add(u64::from(again), Ordering::Relaxed);
    }

    pub(crate) fn connected(&self) {
        self.connects.fetch_add(1, Ordering::Relaxed);
    }

    /// A peer has connected to us, in place of an older endpoint or not.
    pub(crate) fn accepted(&self, again: bool) {
        self.connects.fetch_add(1, Ordering::Relaxed);
        self.reconnects.fetch_add(u64::from(again), Ordering::Relaxed);
    }

    pub(crate) fn rail(&self, at: usize, change: impl FnOnce(&mut RailStats)) {
        if let Some(rail) = self.rails.lock().get_mut(at) {
            change(rail);
        }
    }

    pub(crate) fn connect_failed(&self) {
        self.failed_connects.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn retried(&self) {
        self.retried_slices.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn endpoints(&self, count: usize) {
        self.endpoints.store(count as u64, Ordering::Relaxed);
    }

    pub(crate) fn snapshot(&self) -> RdmaStats {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        RdmaStats {
            work_requests: load(&self.work_requests),
            doorbells: load(&self.doorbells),
            completions: load(&self.completions),
            failed_completions: load(&self.failed_completions),
            connects: load(&self.connects),
            reconnects: load(&self.reconnects),
            failed_connects: load(&self.failed_connects),
            retried_slices: load(&self.retried_slices),
            endpoints: load(&self.endpoints),
            rails: self.rails.lock().clone(),
        }
    }
}
