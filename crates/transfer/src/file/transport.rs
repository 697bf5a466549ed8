//! The transport of file segments.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::file::fixed::Fixable;
use crate::file::lane::{Lane, Lanes};
use crate::file::run::Run;
use crate::file::{FileSet, FileSettings};
use crate::segment::Segment;
use crate::stats::EngineCounters;
use crate::transport::{Job, Limits, Transport};
use crate::{RegionInfo, RegistryError, TransferErrorKind, TransportKind};

/// Reads and writes files.
#[derive(Debug)]
pub(crate) struct FileTransport {
    settings: FileSettings,
    counters: Arc<EngineCounters>,
    lanes: Lanes,
    /// Regions whose memory may be fixed. A copy is used by each call.
    regions: RwLock<Arc<Vec<Fixable>>>,
    next_id: AtomicU64,
}

impl FileTransport {
    pub(crate) fn new(settings: FileSettings, counters: Arc<EngineCounters>) -> Self {
        FileTransport {
            settings,
            counters,
            lanes: Lanes::default(),
            regions: RwLock::default(),
            next_id: AtomicU64::new(0),
        }
    }

    fn known_regions(&self) -> Arc<Vec<Fixable>> {
        Arc::clone(&self.regions.read())
    }

    /// False when the lane is of no more use.
    fn run_on(&self, lane: &mut Lane, jobs: &mut [Job<'_>], limits: &Limits<'_>) -> bool {
        let regions = self.known_regions();
        if let Some(ring) = &mut lane.ring {
            lane.fixed.keep_only(ring, &regions);
            for job in jobs.iter().filter(|job| job.segment.files().is_some_and(FileSet::is_direct)) {
                lane.fixed.prepare(ring, &regions, job.local.address(), job.len());
            }
        }
        let mut run = Run::new(*limits, lane.bounce.span(), &lane.fixed, &regions);
        let mut indices = Vec::with_capacity(jobs.len());
        for (index, job) in jobs.iter_mut().enumerate() {
            let segment = job.segment;
            match segment.files() {
                Some(files) => {
                    run.add(job.op, files, job.remote, job.local);
                    indices.push(index);
                }
                None => job.fail(TransferErrorKind::Unreachable, "the segment has no files"),
            }
        }
        let driven = match &mut lane.ring {
            Some(ring) => ring.drive(&mut run),
            None => {
                self.counters.file_plain_calls.fetch_add(1, Ordering::Relaxed);
                run.drive_plainly();
                Ok(())
            }
        };
        self.counters.file_direct_bytes.fetch_add(run.direct_bytes, Ordering::Relaxed);
        self.counters.file_fixed_bytes.fetch_add(run.fixed_bytes, Ordering::Relaxed);
        for (result, index) in run.finish().into_iter().zip(indices) {
            let Some(job) = jobs.get_mut(index) else { continue };
            match result {
                Ok(()) => job.outcome = Some(Ok(())),
                Err((kind, detail)) => job.fail(kind, detail),
            }
        }
        if let Err(error) = &driven {
            tracing::warn!(%error, "a ring failed; another one is made for the next call");
        }
        driven.is_ok()
    }
}

impl Transport for FileTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::File
    }

    fn reaches(&self, segment: &Segment, _remote: u64, _len: u64, _limits: &Limits<'_>) -> bool {
        segment.files().is_some()
    }

    fn run(&self, jobs: &mut [Job<'_>], limits: &Limits<'_>) {
        match self.lanes.take(self.settings) {
            Ok(mut lane) => {
                if self.run_on(&mut lane, jobs, limits) {
                    // Regions may have gone meanwhile.
                    lane.forget(&self.known_regions());
                    self.lanes.give(lane);
                }
            }
            Err(error) => {
                for job in jobs {
                    job.fail(TransferErrorKind::Storage, format_args!("no bounce buffers: {error}"));
                }
            }
        }
    }

    fn region_added(&self, region: &RegionInfo) -> Result<(), RegistryError> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let mut regions = self.regions.write();
        let regions = Arc::make_mut(&mut *regions);
        let at = regions.partition_point(|other| other.info.address < region.address);
        regions.insert(at, Fixable { id, info: region.clone() });
        Ok(())
    }

    fn region_removed(&self, address: u64) {
        let left = {
            let mut regions = self.regions.write();
            let at = regions.partition_point(|region| region.info.address < address);
            if regions.get(at).is_some_and(|region| region.info.address == address) {
                Arc::make_mut(&mut *regions).remove(at);
            }
            Arc::clone(&regions)
        };
        self.lanes.forget(&left);
    }
}
