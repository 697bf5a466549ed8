//! The TCP transport: which lanes a call uses, stripes, and one quiet retry after an idle close.

use std::time::Duration;

use smallvec::SmallVec;

use crate::segment::Segment;
use crate::settings::EngineSettings;
use crate::tcp::flow::{Flow, FlowEnd, Piece, drive};
use crate::tcp::lanes::Lane;
use crate::tcp::plan::plan;
use crate::transport::{Job, Limits, Transport};
use crate::{TransferErrorKind, TransportKind};

/// Transfers over Mooncake's data wire.
#[derive(Debug)]
pub(crate) struct TcpTransport {
    settings: EngineSettings,
}

impl TcpTransport {
    pub(crate) fn new(settings: EngineSettings) -> Self {
        TcpTransport { settings }
    }

    /// Opens the flows for pieces of one segment, one per lane number that occurs in them where that many lanes can be had.
    /// `None` when none can be had now, and the call uses lanes of others, for which somebody may wait.
    fn open<'a>(
        &self,
        group: &Group<'a, '_>,
        uses_others: bool,
        limits: &Limits<'_>,
    ) -> Result<Option<Vec<Flow<'a>>>, crate::TransferError> {
        let Group { segment, pieces, patience } = *group;
        let address = segment.address(&self.settings, false, &limits.hurried(patience))?;
        let mut lanes: Vec<(Lane<'a>, Vec<Piece<'a>>)> = Vec::new();
        for group in pieces.chunk_by(|(left, _), (right, _)| left == right) {
            let group = group.iter().map(|(_, piece)| *piece);
            let lane = if lanes.is_empty() && !uses_others {
                segment.lanes.take(&address, &self.settings, limits)
            } else {
                segment.lanes.try_take(&address, limits.clock.now(), &self.settings)
            };
            match (lane, lanes.last_mut()) {
                (Some(lane), _) => lanes.push((lane, group.collect())),
                (None, Some((_, with))) => with.extend(group),
                (None, None) if uses_others => return Ok(None),
                (None, None) => {
                    let kind = limits.over().unwrap_or(TransferErrorKind::TimedOut);
                    return Err(segment.error(kind, "while all connections to the peer were in use"));
                }
            }
        }
        let now = limits.clock.now();
        let flow = |(lane, pieces)| Flow::new(lane, pieces, now).with_patience(patience);
        Ok(Some(lanes.into_iter().map(flow).collect()))
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
        let mut later = Vec::new();
        for group in groups {
            let Some(segment) = group.first().and_then(|(_, piece)| segment_of(jobs, piece)) else { continue };
            let patience = patience_of(jobs, group);
            match self.open(&Group { segment, pieces: group, patience }, !flows.is_empty(), limits) {
                Ok(Some(opened)) => flows.extend(opened),
                Ok(None) => later.extend_from_slice(group),
                Err(error) => {
                    for job in group.iter().map(|(_, piece)| piece.job) {
                        fail(jobs, job, &error);
                    }
                }
            }
        }
        drive(&mut flows, &self.settings, limits);
        let again = flows.into_iter().enumerate().flat_map(|(lane, flow)| self.settle(lane, flow, jobs, limits));
        again.chain(later).collect()
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
                job.segment.lanes.moved(piece.op, piece.local.len() as u64);
            }
        }
        let left: Vec<Piece<'a>> = flow.pieces().skip(flow.finished()).collect();
        let first = flow.pieces().next().map(|piece| piece.job);
        let Some(segment) = first.and_then(|job| jobs.get(job)).map(|job| job.segment) else { return Vec::new() };
        let again = |pieces: &[Piece<'a>]| pieces.iter().map(|piece| (lane, *piece)).collect();
        match flow.end {
            Some(FlowEnd::Done) => {
                flow.lane.keep(limits.clock.now());
                Vec::new()
            }
            Some(FlowEnd::Rejected) => {
                let Some((refused, behind)) = left.split_first() else { return Vec::new() };
                if segment.has_moved_from(&flow.lane.address, &self.settings, limits) {
                    return again(&left);
                }
                let range = format!("{:#x}+{} is not registered there", refused.remote, refused.local.len());
                fail(jobs, refused.job, &segment.error(TransferErrorKind::RemoteRefused, range));
                again(behind)
            }
            Some(FlowEnd::Unreachable(kind, why)) => {
                // The peer may have been restarted on another data port.
                let address = &flow.lane.address;
                if segment.has_moved_from(address, &self.settings, limits) {
                    return again(&left);
                }
                let at = format!("data port {}:{}: {why}", address.host, address.port);
                fail_all(jobs, &left, &segment.error(kind, at))
            }
            Some(FlowEnd::Broken(_)) if flow.lane.reused => {
                segment.lanes.close_idle();
                again(&left)
            }
            Some(FlowEnd::Broken(why)) => fail_all(jobs, &left, &segment.error(TransferErrorKind::ConnectionLost, why)),
            Some(FlowEnd::Protocol(why)) => fail_all(jobs, &left, &segment.error(TransferErrorKind::Protocol, why)),
            Some(FlowEnd::Stopped(kind)) => fail_all(jobs, &left, &segment.error(kind, "during the transfer")),
            None => fail_all(jobs, &left, &segment.error(TransferErrorKind::ConnectionLost, "the flow did not end")),
        }
    }
}

/// Pieces for one segment.
#[derive(Clone, Copy)]
struct Group<'a, 'p> {
    segment: &'a Segment,
    /// Each with the number of its lane.
    pieces: &'p [(usize, Piece<'a>)],
    patience: Option<Duration>,
}

/// How long nothing may move for pieces that share connections: as long as the most patient of them waits.
fn patience_of(jobs: &[Job<'_>], pieces: &[(usize, Piece<'_>)]) -> Option<Duration> {
    let each = pieces.iter().map(|(_, piece)| jobs.get(piece.job).and_then(|job| job.options.patience));
    each.collect::<Option<SmallVec<[Duration; 8]>>>()?.into_iter().max()
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

    fn reaches(&self, segment: &Segment, _remote: u64, _len: u64, _limits: &Limits<'_>) -> bool {
        !segment.is_without_tcp()
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
