//! What one call needs to drive files: a ring and bounce buffers. Idle ones are kept for later calls.

use std::io;

use parking_lot::Mutex;
use yb_mem::{HugePages, MemorySegment, SegmentOptions};
use yb_uring::DiskRing;

use crate::file::FileSettings;
use crate::file::fixed::{FIXED_SLOTS, Fixable, FixedRegions};
use crate::file::plan::BOUNCE;

/// Bounce buffers of a lane.
pub(crate) const BOUNCE_BUFFERS: usize = 16;
/// The slot of the ring in which they are fixed.
pub(crate) const BOUNCE_SLOT: u16 = 0;
/// Lanes that are kept while nobody uses them.
const KEPT_LANES: usize = 4;

/// A ring, where the kernel gives one, and bounce buffers.
#[derive(Debug)]
pub(crate) struct Lane {
    pub(crate) ring: Option<DiskRing>,
    pub(crate) bounce: MemorySegment,
    pub(crate) fixed: FixedRegions,
}

impl Lane {
    /// Lets go of the pages of all but these regions.
    pub(crate) fn forget(&mut self, regions: &[Fixable]) {
        if let Some(ring) = &mut self.ring {
            self.fixed.keep_only(ring, regions);
        }
    }
}

/// The lanes that nobody uses now.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    idle: Mutex<Vec<Lane>>,
    /// Why there is no io_uring, once that was tried.
    refused: Mutex<Option<String>>,
}

impl Lanes {
    /// An idle lane, or a new one.
    pub(crate) fn take(&self, settings: FileSettings) -> io::Result<Lane> {
        if let Some(lane) = self.idle.lock().pop() {
            return Ok(lane);
        }
        let options = SegmentOptions { huge_pages: HugePages::Never, ..SegmentOptions::default() };
        let bounce = MemorySegment::create(BOUNCE_BUFFERS as u64 * BOUNCE, options).map_err(io::Error::other)?;
        let mut ring = if settings.uring { self.ring(settings.depth) } else { None };
        // Without it, the pages are looked up at each operation.
        if let Some(ring) = ring.as_mut().filter(|ring| ring.slots() > 0)
            && let Err(error) = ring.fix(BOUNCE_SLOT, bounce.span())
        {
            tracing::debug!(%error, "bounce buffers are not fixed");
        }
        Ok(Lane { ring, bounce, fixed: FixedRegions::default() })
    }

    /// Gives a lane back.
    pub(crate) fn give(&self, lane: Lane) {
        let mut idle = self.idle.lock();
        if idle.len() < KEPT_LANES {
            idle.push(lane);
        }
    }

    /// Lets go of the pages of a region in every lane that nobody uses; the others are asked when they come back.
    pub(crate) fn forget(&self, regions: &[Fixable]) {
        for lane in self.idle.lock().iter_mut() {
            lane.forget(regions);
        }
    }

    fn ring(&self, depth: u16) -> Option<DiskRing> {
        if self.refused.lock().is_some() {
            return None;
        }
        match DiskRing::new(depth, BOUNCE_SLOT + 1 + FIXED_SLOTS) {
            Ok(ring) => Some(ring),
            Err(error) => {
                // The system call is missing or forbidden: a seccomp filter, a sysctl.
                let forbidden = matches!(error.kind(), io::ErrorKind::Unsupported | io::ErrorKind::PermissionDenied);
                tracing::warn!(%error, "no io_uring; files are read and written one operation after the other");
                if forbidden {
                    *self.refused.lock() = Some(error.to_string());
                }
                None
            }
        }
    }
}
