//! The TCP transport: connections to peers, stripes, and one quiet retry after an idle close.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use yb_types::MonotonicTime;

use crate::segment::{PeerAddress, Segment};
use crate::settings::EngineSettings;
use crate::tcp::flow::{Flow, FlowEnd, Piece, drive};
use crate::tcp::plan::plan;
use crate::transport::{Job, Limits, Transport};
use crate::{TransferErrorKind, TransportKind};

/// An open connection that is not in use.
#[derive(Debug)]
pub(crate) struct IdleLane {
    stream: TcpStream,
    address: Arc<PeerAddress>,
    since: MonotonicTime,
}

impl IdleLane {
    /// Whether it can still be trusted.
    pub(crate) fn is_fresh(&self, now: MonotonicTime, timeout: Duration) -> bool {
        now.since(self.since) < timeout
    }
}

/// Transfers over Mooncake's data wire.
#[derive(Debug)]
pub(crate) struct TcpTransport {
    settings: EngineSettings,
}

impl TcpTransport {
    pub(crate) fn new(settings: EngineSettings) -> Self {
        TcpTransport { settings }
    }

    /// A connection to the peer: an idle one, or a new one.
    fn lane(
        &self,
        segment: &Segment,
        address: &Arc<PeerAddress>,
        limits: &Limits<'_>,
    ) -> std::io::Result<(TcpStream, bool)> {
        let now = limits.clock.now();
        while let Some(lane) = segment.idle_lanes.lock().pop() {
            if lane.address == *address && lane.is_fresh(now, self.settings.idle_lane_timeout) {
                return Ok((lane.stream, true));
            }
        }
        let stream =
            crate::handshake::client::connect(&address.host, address.port, self.settings.connect_timeout, limits)?;
        stream.set_nonblocking(true)?;
        let keepalive = socket2::TcpKeepalive::new().with_time(self.settings.keepalive);
        socket2::SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
        Ok((stream, false))
    }

    /// Opens the flows for pieces of one segment, one per lane number that occurs in them.
    fn open<'a>(
        &self,
        segment: &'a Segment,
        pieces: &[(usize, Piece<'a>)],
        limits: &Limits<'_>,
    ) -> Result<Vec<Flow<'a>>, crate::TransferError> {
        let mut address = segment.address(&self.settings, false, limits)?;
        let mut flows = Vec::new();
        for group in pieces.chunk_by(|(left, _), (right, _)| left == right) {
            let mut lane = self.lane(segment, &address, limits);
            if lane.is_err() {
                // The peer may have been restarted on another data port.
                let fresh = segment.address(&self.settings, true, limits)?;
                if fresh != address {
                    address = fresh;
                    lane = self.lane(segment, &address, limits);
                }
            }
            let (stream, reused) = lane.map_err(|error| {
                let at = format!("data port {}:{}: {error}", address.host, address.port);
                segment.error(TransferErrorKind::Unreachable, at)
            })?;
            let pieces = group.iter().map(|(_, piece)| *piece);
            flows.push(Flow::new(stream, Arc::clone(&address), reused, pieces, limits.clock.now()));
        }
        Ok(flows)
    }

    /// Runs the pieces of one round, and gives back those that deserve another.
    fn round<'a>(
        &self,
        pieces: &[(usize, Piece<'a>)],
        jobs: &mut [Job<'a>],
        limits: &Limits<'_>,
    ) -> Vec<(usize, Piece<'a>)> {
        let mut flows: Vec<Flow<'a>> = Vec::new();
        let segment_of = |jobs: &[Job<'a>], piece: &Piece<'a>| jobs.get(piece.job).map(|job| job.segment);
        let same = |left: &(usize, Piece<'a>), right: &(usize, Piece<'a>)| match (
            segment_of(jobs, &left.1),
            segment_of(jobs, &right.1),
        ) {
            (Some(left), Some(right)) => std::ptr::eq(left, right),
            _ => false,
        };
        let groups: Vec<&[(usize, Piece<'a>)]> = pieces.chunk_by(same).collect();
        for group in groups {
            let Some(segment) = group.first().and_then(|(_, piece)| segment_of(jobs, piece)) else { continue };
            match self.open(segment, group, limits) {
                Ok(opened) => flows.extend(opened),
                Err(error) => {
                    for job in group.iter().map(|(_, piece)| piece.job) {
                        fail(jobs, job, &error);
                    }
                }
            }
        }
        drive(&mut flows, self.settings.progress_timeout, limits);
        flows.into_iter().enumerate().flat_map(|(lane, flow)| self.settle(lane, flow, jobs, limits)).collect()
    }

    /// Turns the end of a flow into outcomes; gives back pieces that were not at fault.
    fn settle<'a>(
        &self,
        lane: usize,
        flow: Flow<'a>,
        jobs: &mut [Job<'a>],
        limits: &Limits<'_>,
    ) -> Vec<(usize, Piece<'a>)> {
        for piece in flow.pieces().take(flow.finished()) {
            if let Some(job) = jobs.get_mut(piece.job) {
                job.done += piece.local.len() as u64;
            }
        }
        let left: Vec<Piece<'a>> = flow.pieces().skip(flow.finished()).collect();
        let first = flow.pieces().next().map(|piece| piece.job);
        let Some(segment) = first.and_then(|job| jobs.get(job)).map(|job| job.segment) else { return Vec::new() };
        let again = |pieces: &[Piece<'a>]| pieces.iter().map(|piece| (lane, *piece)).collect();
        match flow.end {
            Some(FlowEnd::Done) => {
                self.keep(segment, flow, limits);
                Vec::new()
            }
            Some(FlowEnd::Rejected) => {
                let Some((refused, behind)) = left.split_first() else { return Vec::new() };
                if segment.has_moved(&self.settings, limits) {
                    return again(&left);
                }
                let range = format!("{:#x}+{} is not registered there", refused.remote, refused.local.len());
                fail(jobs, refused.job, &segment.error(TransferErrorKind::RemoteRefused, range));
                again(behind)
            }
            Some(FlowEnd::Broken(_)) if flow.reused => {
                // Whatever closed this connection while it was idle has closed the others too.
                segment.idle_lanes.lock().clear();
                again(&left)
            }
            Some(FlowEnd::Broken(why)) => fail_all(jobs, &left, &segment.error(TransferErrorKind::ConnectionLost, why)),
            Some(FlowEnd::Protocol(why)) => fail_all(jobs, &left, &segment.error(TransferErrorKind::Protocol, why)),
            Some(FlowEnd::Stopped(kind)) => fail_all(jobs, &left, &segment.error(kind, "during the transfer")),
            None => fail_all(jobs, &left, &segment.error(TransferErrorKind::ConnectionLost, "the flow did not end")),
        }
    }

    fn keep(&self, segment: &Segment, flow: Flow<'_>, limits: &Limits<'_>) {
        let mut idle = segment.idle_lanes.lock();
        if idle.len() < self.settings.max_idle_lanes {
            idle.push(IdleLane { stream: flow.stream, address: flow.address, since: limits.clock.now() });
        }
    }
}

fn fail(jobs: &mut [Job<'_>], job: usize, error: &crate::TransferError) {
    if let Some(job) = jobs.get_mut(job) {
        job.outcome = Some(Err(error.clone()));
    }
}

fn fail_all<'a>(jobs: &mut [Job<'_>], pieces: &[Piece<'a>], error: &crate::TransferError) -> Vec<(usize, Piece<'a>)> {
    for piece in pieces {
        fail(jobs, piece.job, error);
    }
    Vec::new()
}

impl Transport for TcpTransport {
    fn kind(&self) -> TransportKind {
        TransportKind::Tcp
    }

    fn reaches(&self, _segment: &Segment, _remote: u64, _len: u64, _limits: &Limits<'_>) -> bool {
        true
    }

    fn run(&self, jobs: &mut [Job<'_>], limits: &Limits<'_>) {
        let mut pieces = cut(jobs, &self.settings);
        while !pieces.is_empty() {
            if let Some(kind) = limits.over() {
                for (_, piece) in &pieces {
                    if let Some(job) = jobs.get_mut(piece.job) {
                        job.fail(kind, "before the transfer");
                    }
                }
                break;
            }
            pieces = self.round(&pieces, jobs, limits);
            pieces.retain(|(_, piece)| jobs.get(piece.job).is_some_and(|job| job.outcome.is_none()));
        }
        for job in jobs.iter_mut().filter(|job| job.outcome.is_none()) {
            if job.done == job.local.len() as u64 {
                job.outcome = Some(Ok(()));
            } else {
                job.fail(TransferErrorKind::ConnectionLost, "a part was not moved");
            }
        }
    }
}

/// Cuts the jobs of each segment over its lanes. Pieces of one segment and lane are neighbours.
fn cut<'a>(jobs: &[Job<'a>], settings: &EngineSettings) -> Vec<(usize, Piece<'a>)> {
    let mut order: Vec<usize> = (0..jobs.len()).collect();
    let place = |index: &usize| jobs.get(*index).map(|job| std::ptr::from_ref(job.segment));
    order.sort_by_key(place);
    let mut pieces = Vec::with_capacity(jobs.len());
    for group in order.chunk_by(|left, right| place(left) == place(right)) {
        let members: Vec<&Job<'a>> = group.iter().filter_map(|index| jobs.get(*index)).collect();
        let lens: Vec<u64> = members.iter().map(|job| job.local.len() as u64).collect();
        for stripe in plan(&lens, settings.lanes_per_peer, settings.stripe_min) {
            let (Some(job), Some(index)) = (members.get(stripe.request), group.get(stripe.request)) else { continue };
            let Ok(local) = job.local.slice(stripe.offset as usize, stripe.len as usize) else { continue };
            let piece = Piece { job: *index, op: job.op, local, remote: job.remote.wrapping_add(stripe.offset) };
            pieces.push((stripe.lane, piece));
        }
    }
    pieces
}
