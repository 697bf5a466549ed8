//! The transport as the engine sees it.

use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::Mutex;
use serde_json::Value;
use yb_env::Clock;
use yb_mem::{RegionInfo, RegistryError, Span};
use yb_verbs::{MemoryAccess, WorkKind};

use super::connectors::Connectors;
use super::driver::{Changed, Driver};
use super::gid::gid_text;
use super::hub::{Hub, Order};
use super::memory::{Chunk, RegisteredRegion, register};
use super::nic::{Nic, NicReport, Nics};
use super::peer::{Peer, Peers};
use super::plan::{KeyedRange, Part, covers, cut};
use super::rails::Move;
use super::settings::RdmaMode;
use super::stats::RdmaStats;
use super::ticket::Ticket;
use crate::device::Gpus;
use crate::handshake::client::Timing;
use crate::metadata::{BufferDesc, DeviceDesc, Protocol, SegmentDesc};
use crate::segment::{Segment, split_endpoint};
use crate::settings::EngineSettings;
use crate::transport::{Job, Limits, Transport};
use crate::{Opcode, TransferErrorKind, TransportKind};

/// Transfers over RDMA.
#[derive(Debug)]
pub(crate) struct RdmaTransport {
    settings: EngineSettings,
    hub: Arc<Hub>,
    connectors: Arc<Connectors>,
    peers: Peers,
    driver: Mutex<Option<JoinHandle<()>>>,
    gpus: Gpus,
}

/// Local memory of a job that belongs to no registered region: registered for the call.
type Guest<'a> = Vec<Chunk<Span<'a>>>;

/// What keeps the memory of a call's jobs usable for devices until the call is over.
#[derive(Debug, Default)]
struct Holds<'a> {
    regions: Vec<Arc<RegisteredRegion>>,
    guests: Vec<Guest<'a>>,
}

impl RdmaTransport {
    /// Opens the devices and starts the driver. `server` is the name under which peers connect to this engine; `None` =
    /// nobody can. `changed` is called when our devices are others than described before. Gives `None` where RDMA is not wanted, or not needed and not there.
    ///
    /// # Errors
    /// One sentence, when RDMA is required and cannot be used.
    pub(crate) fn start(
        settings: &EngineSettings,
        clock: &Clock,
        server: Option<&Arc<str>>,
        changed: Changed,
    ) -> Result<Option<Self>, String> {
        let mode = settings.rdma.mode;
        if mode == RdmaMode::Off {
            return Ok(None);
        }
        match Self::open(settings, clock, server, changed) {
            Ok(transport) => Ok(Some(transport)),
            // Whoever names devices expects them; on a machine without any, nobody asked.
            Err(reason) if mode == RdmaMode::Auto && settings.rdma.devices.is_empty() => {
                tracing::info!(reason, "RDMA is not used");
                Ok(None)
            }
            Err(reason) if mode == RdmaMode::Auto => {
                let devices = settings.rdma.devices.join(",");
                tracing::warn!(reason, devices, "RDMA is not used although devices are named: bytes go over TCP");
                Ok(None)
            }
            Err(reason) => Err(reason),
        }
    }

    fn open(
        settings: &EngineSettings,
        clock: &Clock,
        server: Option<&Arc<str>>,
        changed: Changed,
    ) -> Result<Self, String> {
        let nics = Nics::open(&settings.rdma)?;
        let server = match (server, &settings.rdma.bind_address) {
            (Some(server), Some(address)) => match split_endpoint(server) {
                Some((_, port)) => format!("{address}:{port}").into(),
                None => Arc::clone(server),
            },
            (Some(server), None) => Arc::clone(server),
            (None, _) => format!("client-{}", yb_env::Rng::from_entropy().uuid()).into(),
        };
        let timing = Timing::of(settings);
        let timing = (timing, settings.handshake_timeout);
        let hub = Hub::new(nics, settings.rdma.clone(), clock.clone(), server, timing);
        let hub = Arc::new(hub.map_err(|error| format!("preparing the RDMA driver: {error}"))?);
        let connectors = Connectors::new(Arc::clone(&hub));
        let driver = Driver::new(Arc::clone(&hub), Arc::clone(&connectors), changed);
        let driver = yb_env::spawn_thread("yb-rdma", move || driver.run())
            .map_err(|error| format!("starting the RDMA driver: {error}"))?;
        let gpus = Gpus::new(settings.cuda_library.clone());
        let (settings, driver) = (settings.clone(), Mutex::new(Some(driver)));
        Ok(RdmaTransport { settings, hub, connectors, peers: Peers::default(), driver, gpus })
    }

    pub(crate) fn devices(&self) -> Vec<NicReport> {
        self.hub.nics.list.iter().map(Nic::report).collect()
    }

    pub(crate) fn stats(&self) -> RdmaStats {
        self.hub.counters.snapshot()
    }

    fn peer(&self, segment: &Segment, refresh: bool, limits: &Limits<'_>) -> Result<Arc<Peer>, crate::TransferError> {
        let desc = segment.desc(&self.settings, refresh, limits)?;
        let at = segment.handshake(&self.settings, false, limits)?;
        self.peers
            .of(&segment.endpoint, &desc, (&at.host, at.port))
            .ok_or_else(|| segment.error(TransferErrorKind::Unreachable, "the peer does not offer RDMA"))
    }

    /// The peer, asked again when what it said last does not hold the job's range.
    fn covering_peer(
        &self,
        job: &Job<'_>,
        refresh: bool,
        limits: &Limits<'_>,
    ) -> Result<Arc<Peer>, crate::TransferError> {
        let peer = self.peer(job.segment, refresh, limits)?;
        if refresh || covers(&peer.memory, job.remote, job.len()) {
            return Ok(peer);
        }
        self.peer(job.segment, true, limits)
    }

    /// Our side's keys. Memory that is not registered is registered for the call.
    fn local<'a>(&self, job: &Job<'a>, holds: &mut Holds<'a>) -> Result<Vec<KeyedRange>, String> {
        if let Some(region) = self.hub.regions.covering(&job.local) {
            let ranges = keyed(&region.chunks);
            holds.regions.push(region);
            return Ok(ranges);
        }
        let access = MemoryAccess {
            local_write: job.op == Opcode::Read,
            remote: false,
            relaxed_ordering: self.hub.settings.relaxed_ordering,
        };
        let guest = register(&self.hub.nics, &self.hub.settings, &job.local, access)?;
        let ranges = keyed(&guest);
        holds.guests.push(guest);
        Ok(ranges)
    }

    /// Cuts a job into moves; gives it an outcome when that cannot be done.
    fn prepare<'a>(
        &self,
        job: &mut Job<'a>,
        refresh: bool,
        holds: &mut Holds<'a>,
        limits: &Limits<'_>,
    ) -> Option<(Arc<Peer>, Vec<Part>)> {
        let peer = match self.covering_peer(job, refresh, limits) {
            Ok(peer) => peer,
            Err(error) => {
                job.outcome = Some(Err(error));
                return None;
            }
        };
        if !covers(&peer.memory, job.remote, job.len()) {
            job.fail(TransferErrorKind::RemoteRefused, "the range is not inside the peer's registered memory");
            return None;
        }
        let inline = self.fits_inline(job, job.len());
        let local = if inline { Ok(vec![anything(&job.local)]) } else { self.local(job, holds) };
        let local = match local {
            Ok(local) => local,
            Err(reason) => {
                job.fail(TransferErrorKind::LocalNotRegistered, reason);
                return None;
            }
        };
        let parts = cut((&local, job.local.address()), (&peer.memory, job.remote), job.len());
        if parts.is_none() {
            job.fail(TransferErrorKind::InvalidRequest, "the range wraps around");
        }
        Some((peer, parts?))
    }

    /// Runs the jobs of `places` once.
    fn round<'a>(&self, jobs: &mut [Job<'a>], places: &[usize], refresh: bool, limits: &Limits<'_>) {
        let mut holds = Holds::default();
        let mut cuts = Vec::new();
        for place in places {
            if let Some(job) = jobs.get_mut(*place)
                && let Some((peer, parts)) = self.prepare(job, refresh, &mut holds, limits)
            {
                cuts.push((*place, peer, parts));
            }
        }
        let count = cuts.iter().map(|(_, _, parts)| parts.len()).sum();
        if count == 0 {
            return;
        }
        let ticket = match Ticket::new(count) {
            Ok(ticket) => Arc::new(ticket),
            Err(error) => {
                for (place, ..) in cuts {
                    let detail = format!("no descriptor to wait with: {error}");
                    jobs.get_mut(place).into_iter().for_each(|job| job.fail(TransferErrorKind::Unreachable, &detail));
                }
                return;
            }
        };
        let mut moves = Vec::with_capacity(count);
        for (place, peer, parts) in &cuts {
            let Some(job) = jobs.get(*place) else { continue };
            moves.extend(parts.iter().map(|part| self.part(job, *place, peer, part, &ticket)));
        }
        if !self.hub.order(Order::Submit(moves)) {
            for (place, ..) in cuts {
                let job = jobs.get_mut(place);
                job.into_iter().for_each(|job| job.fail(TransferErrorKind::Closed, "the engine was shut down"));
            }
            return;
        }
        if let Some(over) = ticket.wait_within(limits) {
            self.hub.order(Order::GiveUp(Arc::clone(&ticket), over));
            ticket.wait();
        }
        // From here on no device can touch the jobs' memory.
        self.hub.regions.release(holds.regions);
        for failure in ticket.take_failures() {
            let job = jobs.get_mut(failure.job).filter(|job| job.outcome.is_none());
            job.into_iter().for_each(|job| job.fail(failure.kind, &failure.detail));
        }
        for (place, ..) in cuts {
            let job = jobs.get_mut(place).filter(|job| job.outcome.is_none());
            job.into_iter().for_each(|job| job.outcome = Some(Ok(())));
        }
    }

    /// Whether bytes can be sent inside of a work request: the CPU copies them there.
    fn fits_inline(&self, job: &Job<'_>, len: u64) -> bool {
        job.op == Opcode::Write && len <= u64::from(self.hub.settings.max_inline) && !job.local.is_on_device()
    }

    fn part(&self, job: &Job<'_>, place: usize, peer: &Arc<Peer>, part: &Part, ticket: &Arc<Ticket>) -> Move {
        let (local, remote) = (job.local.address() + part.offset, job.remote + part.offset);
        let small = self.fits_inline(job, part.len);
        let bytes = job.local.slice(part.offset as usize, part.len as usize).ok().filter(|_| small);
        let nic_hint = job.options.nic_hint.as_deref();
        let hint = nic_hint.and_then(|name| self.hub.nics.by_name(name)).map(|(index, _)| index);
        Move {
            ticket: Arc::clone(ticket),
            job: place,
            route: Arc::clone(&peer.route),
            kind: if job.op == Opcode::Read { WorkKind::Read } else { WorkKind::Write },
            local,
            remote,
            len: part.len,
            lkeys: Arc::clone(&part.lkeys),
            rkeys: Arc::clone(&part.rkeys),
            inline: bytes.map(|bytes| bytes.to_vec().into()),
            location: self
                .hub
                .regions
                .covering(&job.local)
                .map_or_else(|| "*".to_owned(), |region| region.location.clone()),
            remote_location: peer.location(job.remote).to_owned(),
            hint,
            class: job.options.class,
            priority: job.options.priority,
            failure: None,
            given_up: None,
        }
    }

    /// Whether the peer says something else about the job's range than before: then another try makes sense.
    fn has_changed(&self, job: &Job<'_>, limits: &Limits<'_>) -> bool {
        let Ok(before) = self.peer(job.segment, false, limits) else { return false };
        let Ok(after) = self.peer(job.segment, true, limits) else { return false };
        let keys = |peer: &Peer| {
            let end = job.remote.saturating_add(job.len());
            let of = |range: &KeyedRange| range.address < end && job.remote < range.address.saturating_add(range.len);
            peer.memory.iter().filter(|range| of(range)).cloned().collect::<Vec<_>>()
        };
        before.route != after.route || keys(&before) != keys(&after)
    }
}

fn keyed<H: yb_verbs::Hold>(chunks: &[Chunk<H>]) -> Vec<KeyedRange> {
    let range = |chunk: &Chunk<H>| KeyedRange { address: chunk.address, len: chunk.len, keys: Arc::new(chunk.lkeys()) };
    chunks.iter().map(range).collect()
}

/// Bytes that are sent inside of a work request need no key.
fn anything(span: &Span<'_>) -> KeyedRange {
    KeyedRange { address: span.address(), len: span.len() as u64, keys: Arc::default() }
}

impl Transport for RdmaTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::Rdma
    }

    fn reaches(&self, segment: &Segment, _remote: u64, _len: u64, limits: &Limits<'_>) -> bool {
        segment.files().is_none() && self.peer(segment, false, limits).is_ok()
    }

    fn run(&self, jobs: &mut [Job<'_>], limits: &Limits<'_>) {
        if let Some(over) = limits.over() {
            jobs.iter_mut().for_each(|job| job.fail(over, "before it was started"));
            return;
        }
        let all: Vec<usize> = (0..jobs.len()).collect();
        self.round(jobs, &all, false, limits);
        let again: Vec<usize> = all
            .into_iter()
            .filter(|place| {
                let Some(job) = jobs.get(*place) else { return false };
                let Some(Err(error)) = &job.outcome else { return false };
                use TransferErrorKind as K;
                matches!(error.kind(), K::RemoteRefused | K::Unreachable | K::ConnectionLost)
                    && limits.over().is_none()
                    && self.has_changed(job, limits)
            })
            .collect();
        for place in &again {
            jobs.get_mut(*place).into_iter().for_each(|job| job.outcome = None);
        }
        if !again.is_empty() {
            self.round(jobs, &again, false, limits);
        }
    }

    fn region_added(&self, region: &RegionInfo) -> Result<(), RegistryError> {
        if region.on_device {
            let buffer = self.gpus.dmabuf(region.address, region.len).map_err(|error| error.to_string());
            self.hub.regions.add_device(region, &self.hub.nics, &self.hub.settings, buffer);
            return Ok(());
        }
        self.hub.regions.add(region, &self.hub.nics, &self.hub.settings)
    }

    fn region_removed(&self, address: u64) {
        self.hub.regions.remove(address);
    }

    fn describe(&self, desc: &mut SegmentDesc) {
        let zero = gid_text(&[0; 16]);
        desc.protocols = vec![Protocol::Rdma];
        desc.devices = self
            .hub
            .nics
            .list
            .iter()
            .map(|nic| {
                let open = nic.active();
                let gid = open.map_or_else(|| zero.clone(), |open| gid_text(&open.gid.read().entry.gid));
                let lid = open.map_or(0, |open| u32::from(open.port.read().lid));
                DeviceDesc { name: nic.name.clone(), lid, gid: Some(gid), eid: None }
            })
            .collect();
        desc.priority_matrix = Some(self.hub.nics.live_matrix());
        if self.settings.rdma.bind_address.is_some() {
            desc.rdma_server_name = Some(self.hub.server.to_string());
        }
        let plain = std::mem::take(&mut desc.buffers);
        for buffer in plain {
            let Some(region) = self.hub.regions.at(buffer.address) else { continue };
            desc.buffers.extend(region.chunks.iter().map(|chunk| {
                let rkeys: Vec<u64> = chunk.rkeys().iter().map(|key| u64::from(*key)).collect();
                // Local keys are of no use to peers, but their readers count them.
                let lkeys = vec![0; rkeys.len()];
                let name = region.location.clone();
                BufferDesc { name, rkeys, lkeys, ..BufferDesc::new(chunk.address, chunk.len) }
            }));
        }
    }

    fn connection(&self, request: &Value) -> Option<Value> {
        Some(self.hub.answer(request))
    }

    fn as_rdma(&self) -> Option<&RdmaTransport> {
        Some(self)
    }

    fn stop(&self) {
        self.connectors.stop();
        self.hub.order(Order::Stop);
        if let Some(driver) = self.driver.lock().take() {
            let _ = driver.join();
        }
    }
}

impl Drop for RdmaTransport {
    fn drop(&mut self) {
        self.stop();
    }
}
