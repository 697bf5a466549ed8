//! The transports of an engine in order of cost, and the way of a job from one to the next.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use yb_mem::Crc64;

use crate::device::{self, Gpus};
use crate::metadata::SegmentDesc;
use crate::rdma::RdmaTransport;
use crate::segment::Segment;
use crate::stats::EngineCounters;
use crate::transport::{Job, Limits, Transport};
use crate::{Notification, RegionInfo, RegistryError, TransferError, TransferErrorKind};

/// All transports of an engine, cheapest first.
pub(crate) struct Paths {
    transports: Vec<Box<dyn Transport>>,
    counters: Arc<EngineCounters>,
    gpus: Arc<Gpus>,
}

impl Paths {
    /// Puts the transports in order of cost.
    pub(crate) fn new(mut transports: Vec<Box<dyn Transport>>, counters: Arc<EngineCounters>) -> Self {
        transports.sort_by_key(|transport| transport.kind());
        Paths { transports, counters, gpus: Arc::new(Gpus::new(None)) }
    }

    /// Who stages memory of GPUs.
    pub(crate) fn with_gpus(self, gpus: Arc<Gpus>) -> Self {
        Paths { gpus, ..self }
    }

    /// Gives every job an outcome. Each goes to the cheapest transport that reaches its range, and from there to the
    /// next one while it fails in a way that another one may not, and there is time left. The order of the jobs may
    /// change. When this returns, nothing can touch the jobs' local memory any more.
    pub(crate) fn run(&self, jobs: &mut [Job<'_>], limits: &Limits<'_>) {
        let on_gpus = partition(jobs, |job| job.local.is_on_device());
        let (on_gpus, on_host) = jobs.split_at_mut(on_gpus);
        self.run_gpus(on_gpus, limits);
        self.run_host(on_host, limits);
    }

    /// Jobs whose local memory is on a GPU: over a transport that takes it, else in chunks of host memory.
    fn run_gpus(&self, jobs: &mut [Job<'_>], limits: &Limits<'_>) {
        if jobs.is_empty() {
            return;
        }
        let left = self.run_over(jobs, |transport| transport.takes_devices(), limits);
        for job in left {
            device::stage(&self.gpus, job, limits, &|part| self.run_host(std::slice::from_mut(part), limits));
        }
    }

    fn run_host(&self, jobs: &mut [Job<'_>], limits: &Limits<'_>) {
        for job in self.run_over(jobs, |_| true, limits) {
            if job.outcome.is_none() {
                job.fail(TransferErrorKind::Unreachable, "no transport reaches the range");
            }
        }
    }

    /// Runs jobs over some of the transports; those that no transport settled are given back.
    fn run_over<'j, 'a>(
        &self,
        jobs: &'j mut [Job<'a>],
        takes: impl Fn(&dyn Transport) -> bool,
        limits: &Limits<'_>,
    ) -> &'j mut [Job<'a>] {
        let mut left = jobs;
        for transport in self.transports.iter().filter(|transport| takes(transport.as_ref())) {
            let reached = partition(left, |job| {
                transport.reaches(job.segment, job.remote, job.len(), &limits.hurried(job.options.patience))
            });
            let (now, _) = left.split_at_mut(reached);
            if now.is_empty() {
                continue;
            }
            self.run_on(transport.as_ref(), now, limits);
            let settled = partition(left, Job::is_settled);
            left = left.split_at_mut(settled).1;
            if left.is_empty() {
                break;
            }
            if limits.over().is_some() {
                // What has failed is not tried again.
                let failed = partition(left, |job| job.outcome.is_some());
                left = left.split_at_mut(failed).1;
            }
        }
        left
    }

    fn run_on(&self, transport: &dyn Transport, jobs: &mut [Job<'_>], limits: &Limits<'_>) {
        for job in &mut *jobs {
            if let Some(Err(error)) = job.outcome.take() {
                let next = transport.kind().name();
                tracing::info!(%error, next, "a transfer is tried over another transport");
                self.counters.rerouted.fetch_add(1, Ordering::Relaxed);
                job.done = 0;
                job.sum = job.sum.map(|_| Crc64::default());
            }
        }
        transport.run(jobs, limits);
        let counters = self.counters.of(transport.kind());
        for job in jobs {
            if job.outcome.is_none() {
                job.fail(TransferErrorKind::ConnectionLost, "the transport gave no outcome");
            }
            match &job.outcome {
                Some(Ok(())) => counters.succeeded(job.op, job.len()),
                _ => counters.failed(),
            }
        }
    }

    /// Whether the cheapest transport that knows the range moves it without waiting for anybody.
    pub(crate) fn is_immediate(&self, segment: &Segment, remote: u64, len: u64) -> bool {
        self.transports.iter().any(|transport| transport.is_immediate(segment, remote, len))
    }

    /// Makes a region usable for every transport, or for none.
    pub(crate) fn region_added(&self, region: &RegionInfo) -> Result<(), RegistryError> {
        for (index, transport) in self.transports.iter().enumerate() {
            if let Err(refused) = transport.region_added(region) {
                for earlier in self.transports.iter().take(index) {
                    earlier.region_removed(region.address);
                }
                return Err(refused);
            }
        }
        Ok(())
    }

    pub(crate) fn region_removed(&self, address: u64) {
        for transport in &self.transports {
            transport.region_removed(address);
        }
    }

    pub(crate) fn describe(&self, desc: &mut SegmentDesc) {
        for transport in &self.transports {
            transport.describe(desc);
        }
    }

    pub(crate) fn connection(&self, request: &serde_json::Value) -> Option<serde_json::Value> {
        self.transports.iter().find_map(|transport| transport.connection(request))
    }

    pub(crate) fn notify(
        &self,
        segment: &Segment,
        notification: &Notification,
        limits: &Limits<'_>,
    ) -> Option<Result<(), TransferError>> {
        self.transports.iter().find_map(|transport| transport.notify(segment, notification, limits))
    }

    /// The transport over RDMA, where there is one.
    pub(crate) fn rdma(&self) -> Option<&RdmaTransport> {
        self.transports.iter().find_map(|transport| transport.as_rdma())
    }

    /// Ends the threads of the transports.
    pub(crate) fn stop(&self) {
        for transport in &self.transports {
            transport.stop();
        }
    }
}

/// Brings those that pass to the front, in their order, and says how many they are.
fn partition<T>(items: &mut [T], mut passes: impl FnMut(&T) -> bool) -> usize {
    let mut front = 0;
    for index in 0..items.len() {
        if items.get(index).is_some_and(&mut passes) {
            items.swap(front, index);
            front += 1;
        }
    }
    front
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TransportKind;
    use crate::request::RequestOptions;
    use parking_lot::Mutex;
    use std::sync::Weak;

    use crate::directory::Directory;
    use yb_env::Clock;
    use yb_mem::Span;

    /// Fails jobs whose address is in its list, with the kind beside it.
    struct Scripted {
        kind: TransportKind,
        reaches_below: u64,
        fails: Vec<(u64, TransferErrorKind)>,
        seen: Arc<Mutex<Vec<(TransportKind, u64)>>>,
    }

    impl Transport for Scripted {
        fn kind(&self) -> TransportKind {
            self.kind
        }

        fn reaches(&self, _segment: &Segment, remote: u64, _len: u64, _limits: &Limits<'_>) -> bool {
            remote < self.reaches_below
        }

        fn run(&self, jobs: &mut [Job<'_>], _limits: &Limits<'_>) {
            for job in jobs {
                self.seen.lock().push((self.kind, job.remote));
                match self.fails.iter().find(|(remote, _)| *remote == job.remote) {
                    Some((_, kind)) => job.fail(*kind, "as told"),
                    None => job.outcome = Some(Ok(())),
                }
            }
        }

        fn region_added(&self, region: &RegionInfo) -> Result<(), RegistryError> {
            self.seen.lock().push((self.kind, region.address));
            let refused = RegistryError::Refused { address: 1, len: 1, reason: "as told".to_owned() };
            if self.fails.is_empty() { Ok(()) } else { Err(refused) }
        }

        fn region_removed(&self, address: u64) {
            self.seen.lock().push((self.kind, address));
        }
    }

    type Seen = Arc<Mutex<Vec<(TransportKind, u64)>>>;

    fn paths(rdma_fails: Vec<(u64, TransferErrorKind)>) -> (Paths, Seen) {
        let seen = Seen::default();
        let scripted = |kind, reaches_below, fails| -> Box<dyn Transport> {
            Box::new(Scripted { kind, reaches_below, fails, seen: Arc::clone(&seen) })
        };
        let list = vec![
            scripted(TransportKind::Tcp, 100, Vec::new()),
            scripted(TransportKind::Rdma, 50, rdma_fails),
            scripted(TransportKind::Local, 1, Vec::new()),
        ];
        (Paths::new(list, Arc::default()), seen)
    }

    fn run(paths: &Paths, remotes: &[u64]) -> Vec<(u64, Option<TransferErrorKind>)> {
        let segment = Segment::new("peer:1".into(), Weak::new(), Directory::Handshake);
        let clock = Clock::manual();
        let limits = Limits { clock: &clock, deadline: clock.now() + std::time::Duration::from_secs(1), cancel: None };
        let options = RequestOptions::default();
        let job = |remote: &u64| Job::new(crate::Opcode::Write, Span::source(b"four"), &segment, *remote, &options);
        let mut jobs: Vec<Job<'_>> = remotes.iter().map(job).collect();
        paths.run(&mut jobs, &limits);
        let mut ends: Vec<_> =
            jobs.into_iter().map(|job| (job.remote, job.outcome.unwrap().err().map(|error| error.kind()))).collect();
        ends.sort_by_key(|(remote, _)| *remote);
        ends
    }

    #[test]
    fn a_job_goes_down_the_list_until_it_succeeds_or_no_other_way_may_help() {
        use TransferErrorKind as K;
        let (paths, seen) = paths(vec![(10, K::ConnectionLost), (11, K::RemoteRefused), (12, K::PeerGone)]);
        let ends = run(&paths, &[0, 10, 11, 12, 13, 60, 200]);
        let expected = [(0, None), (10, None), (11, Some(K::RemoteRefused)), (12, Some(K::PeerGone)), (13, None)];
        assert_eq!(ends[..5], expected);
        assert_eq!(ends[5..], [(60, None), (200, Some(K::Unreachable))]);
        let mut seen = seen.lock().clone();
        seen.sort();
        let rdma = [10, 11, 12, 13].map(|remote| (TransportKind::Rdma, remote));
        let tcp = [10, 60].map(|remote| (TransportKind::Tcp, remote));
        assert_eq!(seen, [&[(TransportKind::Local, 0)][..], &rdma, &tcp].concat());
        let counters = paths.counters.snapshot();
        assert_eq!(
            (counters.rerouted, counters.rdma.failures, counters.rdma.requests, counters.tcp.requests),
            (1, 3, 1, 2)
        );
    }

    #[test]
    fn a_region_that_one_transport_refuses_is_taken_from_the_others() {
        let registry = yb_mem::Registry::default();
        let segment = Arc::new(yb_mem::MemorySegment::create(4096, yb_mem::SegmentOptions::default()).unwrap());
        let info = registry.prepare_segment(segment, yb_mem::Access::Remote, yb_mem::Location::default()).unwrap();
        let (paths, seen) = paths(vec![(1, TransferErrorKind::Protocol)]);
        assert!(matches!(paths.region_added(&info), Err(RegistryError::Refused { .. })));
        let kinds: Vec<TransportKind> = seen.lock().iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [TransportKind::Local, TransportKind::Rdma, TransportKind::Local], "added, refused, removed");
    }
}
