//! Requests on one connection, driven by the caller.
//!
//! Headers and bodies of many requests leave in one call; status frames and bodies are received in one call, bodies at
//! their final address. Sending and receiving go on at the same time, so neither side can wait for the other for ever.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use smallvec::SmallVec;
use socket2::Socket;
use yb_mem::{RecvList, SendList, Span};
use yb_types::MonotonicTime;

use crate::tcp::dial::{self, Dial};
use crate::tcp::lanes::Lane;
use crate::tcp::wire::{HEADER_LEN, Header, STATUS_LEN, Status};
use crate::transport::Limits;
use crate::{EngineSettings, Opcode, TransferErrorKind};

/// A part of a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    /// Index of the job.
    pub(crate) job: usize,
    pub(crate) op: Opcode,
    pub(crate) local: Span<'a>,
    pub(crate) remote: u64,
}

/// How a flow ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FlowEnd {
    /// Every piece is done; the connection can be used again.
    Done,
    /// The server refused the piece at [`Flow::finished`].
    Rejected,
    /// No connection could be made.
    Unreachable(TransferErrorKind, String),
    /// The connection broke.
    Broken(String),
    /// The server speaks another protocol.
    Protocol(String),
    /// The deadline passed or the caller cancelled.
    Stopped(TransferErrorKind),
}

/// A piece with its bytes on the wire.
struct Exchange<'a> {
    piece: Piece<'a>,
    header: [u8; HEADER_LEN],
    status: [u8; STATUS_LEN],
}

pub(crate) struct Flow<'a> {
    pub(crate) lane: Lane<'a>,
    /// Set while the connection is on its way.
    dial: Option<Dial>,
    pub(crate) end: Option<FlowEnd>,
    exchanges: Vec<Exchange<'a>>,
    /// The piece that is being sent, and how much of it was.
    sending: (usize, usize),
    /// The piece that is being received, and how much of it was.
    receiving: (usize, usize),
    last_progress: MonotonicTime,
    /// How long nothing may move, if that is less than the engine's setting says.
    patience: Option<Duration>,
}

impl<'a> Flow<'a> {
    pub(crate) fn new(lane: Lane<'a>, pieces: impl IntoIterator<Item = Piece<'a>>, now: MonotonicTime) -> Self {
        let version_2 = lane.address.version_2;
        let exchange = |piece: Piece<'a>| {
            let header = Header { size: piece.local.len() as u64, address: piece.remote, op: piece.op, version_2 };
            Exchange { piece, header: header.encode(), status: [0; STATUS_LEN] }
        };
        let exchanges = pieces.into_iter().map(exchange).collect();
        let (sending, receiving) = ((0, 0), (0, 0));
        Flow { lane, dial: None, end: None, exchanges, sending, receiving, last_progress: now, patience: None }
    }

    /// The same flow, given up when nothing moves for so long.
    pub(crate) fn with_patience(self, patience: Option<Duration>) -> Self {
        Flow { patience, ..self }
    }

    /// Connects if that is not done, and sends what the socket takes.
    fn begin(&mut self, now: MonotonicTime, settings: &EngineSettings) {
        if self.lane.stream.is_some() {
            return self.advance_send();
        }
        match Dial::new(&self.lane.address) {
            Ok(dial) => {
                self.dial = Some(dial);
                self.dial_on(io::ErrorKind::NotFound.into(), now, settings);
            }
            Err(error) => self.end = Some(unreachable(&error)),
        }
    }

    /// Goes on to the next address of the peer; `last` is why the one before did not do.
    fn dial_on(&mut self, mut last: io::Error, now: MonotonicTime, settings: &EngineSettings) {
        self.lane.stream = None;
        while let Some(next) = self.dial.as_mut().and_then(|dial| dial.next(now, settings)) {
            match next {
                Ok(stream) => {
                    self.lane.stream = Some(stream);
                    return;
                }
                Err(error) => last = error,
            }
        }
        self.end = Some(unreachable(&last));
    }

    /// The connection on its way is there, or has failed.
    fn advance_dial(&mut self, now: MonotonicTime, settings: &EngineSettings) {
        match self.connected(now, settings) {
            Ok(None) => {}
            Ok(Some(stream)) => {
                self.lane.stream = Some(stream);
                self.dial = None;
                self.last_progress = now;
                self.advance_send();
            }
            Err(error) => self.dial_on(error, now, settings),
        }
    }

    /// What came of the attempt under way; `None`: it is being secured.
    fn connected(&mut self, now: MonotonicTime, settings: &EngineSettings) -> io::Result<Option<Socket>> {
        let Some(dial) = &mut self.dial else { return Ok(None) };
        if let Some(pending) = &dial.securing {
            return pending.take().transpose().map_err(|error| io::Error::new(io::ErrorKind::PermissionDenied, error));
        }
        let Some(stream) = self.lane.stream.take() else { return Ok(None) };
        dial::outcome(&stream)?;
        dial.secure(stream, now, settings)
    }

    /// Ends or goes on where nothing has happened for too long.
    fn look_at_time(&mut self, now: MonotonicTime, settings: &EngineSettings) {
        let still = now.since(self.last_progress);
        let is_over = match &self.dial {
            _ if self.patience.is_some_and(|patience| still > patience) => true,
            Some(dial) if now >= dial.by => return self.dial_on(io::ErrorKind::TimedOut.into(), now, settings),
            Some(_) => false,
            None => still > settings.progress_timeout,
        };
        if is_over {
            self.end = Some(FlowEnd::Stopped(TransferErrorKind::TimedOut));
        }
    }

    /// How long nothing may happen from now on.
    fn patience(&self, now: MonotonicTime, settings: &EngineSettings) -> Duration {
        let still = now.since(self.last_progress);
        let until = match &self.dial {
            Some(dial) => dial.by.since(now),
            None => settings.progress_timeout.saturating_sub(still),
        };
        self.patience.map_or(until, |patience| until.min(patience.saturating_sub(still)))
    }

    /// What to wait for.
    fn waits_for(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        if let Some(pending) = self.dial.as_ref().and_then(|dial| dial.securing.as_ref()) {
            return Some((pending.as_fd(), PollFlags::IN));
        }
        let wants = match &self.dial {
            Some(_) => PollFlags::OUT,
            None if self.has_more_to_send() => PollFlags::IN | PollFlags::OUT,
            None => PollFlags::IN,
        };
        self.lane.stream.as_ref().map(|stream| (stream.as_fd(), wants))
    }

    fn stream(&self) -> io::Result<&Socket> {
        self.lane.stream.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// How many pieces are done. When the flow was rejected, the next one is the refused one.
    pub(crate) fn finished(&self) -> usize {
        self.receiving.0
    }

    /// All pieces, in order.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece<'a>> + '_ {
        self.exchanges.iter().map(|exchange| exchange.piece)
    }

    fn status_len(&self) -> usize {
        if self.lane.address.version_2 { STATUS_LEN } else { 0 }
    }

    fn has_more_to_send(&self) -> bool {
        self.sending.0 < self.exchanges.len()
    }

    /// Sends what the socket takes.
    fn send(&mut self) -> io::Result<()> {
        while self.has_more_to_send() {
            let mut list = SendList::default();
            let (first, mut skip) = self.sending;
            for exchange in self.exchanges.iter().skip(first) {
                if list.is_full() {
                    break;
                }
                list.push_bytes(exchange.header.get(skip..).unwrap_or_default());
                if exchange.piece.op == Opcode::Write {
                    list.push_span(
                        exchange.piece.local.skip(skip.saturating_sub(HEADER_LEN)).map_err(io::Error::other)?,
                    );
                }
                skip = 0;
            }
            let mut sent = match list.send(self.stream()?) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                other => other?,
            };
            sent += self.sending.1;
            while let Some(exchange) = self.exchanges.get(self.sending.0) {
                let body = if exchange.piece.op == Opcode::Write { exchange.piece.local.len() } else { 0 };
                if sent < HEADER_LEN + body {
                    break;
                }
                sent -= HEADER_LEN + body;
                self.sending.0 += 1;
            }
            self.sending.1 = sent;
            self.skip_unanswered();
        }
        Ok(())
    }

    /// Writes of version 1 have no answer: they are done when they are sent.
    fn skip_unanswered(&mut self) {
        while !self.lane.address.version_2
            && self.receiving.0 < self.sending.0
            && self.exchanges.get(self.receiving.0).is_some_and(|exchange| exchange.piece.op == Opcode::Write)
        {
            self.receiving = (self.receiving.0 + 1, 0);
        }
    }

    /// Receives what has arrived. False when the socket is empty.
    fn receive(&mut self) -> io::Result<bool> {
        let status_len = self.status_len();
        let (first, mut skip) = self.receiving;
        let header_sent = self.sending.0 + usize::from(self.sending.1 >= HEADER_LEN);
        let mut list = RecvList::default();
        for exchange in self.exchanges.iter_mut().take(header_sent).skip(first) {
            if list.is_full() {
                break;
            }
            list.push_bytes(exchange.status.get_mut(skip.min(status_len)..status_len).unwrap_or_default());
            if exchange.piece.op == Opcode::Read {
                let rest = exchange.piece.local.skip(skip.saturating_sub(status_len)).map_err(io::Error::other)?;
                list.push_span(rest).map_err(io::Error::other)?;
            }
            skip = 0;
        }
        // Bytes that nobody asked for are a protocol error, found here as well as the peer's close.
        let mut surplus = [0_u8; 1];
        if list.bytes() == 0 {
            list.push_bytes(&mut surplus);
            return match list.receive(self.lane.stream.as_ref().ok_or(io::ErrorKind::NotConnected)?)? {
                0 => Err(io::ErrorKind::UnexpectedEof.into()),
                _ => Err(io::Error::new(io::ErrorKind::InvalidData, "bytes that were not asked for")),
            };
        }
        let room = list.bytes();
        let got = list.receive(self.lane.stream.as_ref().ok_or(io::ErrorKind::NotConnected)?)?;
        if got == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.account(got);
        Ok(got == room)
    }

    /// Moves the receiving side forward by `got` bytes and looks at the status frames among them.
    fn account(&mut self, got: usize) {
        let status_len = self.status_len();
        let mut got = got + self.receiving.1;
        while let Some(exchange) = self.exchanges.get(self.receiving.0) {
            let body = if exchange.piece.op == Opcode::Read { exchange.piece.local.len() } else { 0 };
            if got >= status_len && self.lane.address.version_2 {
                match Status::decode(exchange.status) {
                    Ok(Status::Ok) => {}
                    Ok(Status::Rejected) => return self.end = Some(FlowEnd::Rejected),
                    Err(error) => return self.end = Some(FlowEnd::Protocol(error.to_string())),
                }
            }
            if got < status_len + body || got == 0 {
                break;
            }
            got -= status_len + body;
            self.receiving.0 += 1;
        }
        self.receiving.1 = got;
        self.skip_unanswered();
        if self.receiving.0 == self.exchanges.len() {
            self.end = Some(FlowEnd::Done);
        }
    }

    fn broke(&mut self, error: &io::Error) {
        let end = match error.kind() {
            io::ErrorKind::InvalidData => FlowEnd::Protocol(error.to_string()),
            io::ErrorKind::UnexpectedEof => FlowEnd::Broken("the peer closed the connection".to_owned()),
            _ => FlowEnd::Broken(error.to_string()),
        };
        self.end.get_or_insert(end);
    }

    fn advance_send(&mut self) {
        if let Err(error) = self.send() {
            // The server may have said why before it closed.
            while self.end.is_none() && self.receive().is_ok() {}
            self.broke(&error);
        } else if self.receiving.0 == self.exchanges.len() {
            self.end.get_or_insert(FlowEnd::Done);
        }
    }

    fn advance_receive(&mut self, now: MonotonicTime) {
        self.last_progress = now;
        while self.end.is_none() {
            match self.receive() {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => self.broke(&error),
            }
        }
    }
}

fn unreachable(error: &io::Error) -> FlowEnd {
    FlowEnd::Unreachable(crate::handshake::client::kind_of(error), error.to_string())
}

/// Drives all flows to their end. Nothing touches the pieces' memory when this has returned.
pub(crate) fn drive(flows: &mut [Flow<'_>], settings: &EngineSettings, limits: &Limits<'_>) {
    for flow in flows.iter_mut() {
        flow.begin(limits.clock.now(), settings);
    }
    while flows.iter().any(|flow| flow.end.is_none()) {
        let over = limits.over();
        let now = limits.clock.now();
        for flow in flows.iter_mut().filter(|flow| flow.end.is_none()) {
            match over {
                Some(kind) => flow.end = Some(FlowEnd::Stopped(kind)),
                None => flow.look_at_time(now, settings),
            }
        }
        if flows.iter().any(|flow| flow.end.is_none()) {
            wait(flows, settings, limits);
        }
    }
}

fn wait(flows: &mut [Flow<'_>], settings: &EngineSettings, limits: &Limits<'_>) {
    let now = limits.clock.now();
    let mut polled: SmallVec<[PollFd<'_>; 8]> = SmallVec::new();
    let mut events: SmallVec<[(usize, PollFlags); 8]> = SmallVec::new();
    let mut patience = limits.deadline.since(now);
    for (index, flow) in flows.iter().enumerate().filter(|(_, flow)| flow.end.is_none()) {
        let Some((socket, wants)) = flow.waits_for() else { continue };
        polled.push(PollFd::from_borrowed_fd(socket, wants));
        events.push((index, PollFlags::empty()));
        patience = patience.min(flow.patience(now, settings));
    }
    if let Some(wake) = limits.cancel.and_then(|cancel| cancel.wake()) {
        polled.push(PollFd::from_borrowed_fd(wake, PollFlags::IN));
    }
    let timeout = Timespec::try_from(patience + Duration::from_millis(1)).ok();
    if rustix::event::poll(&mut polled, timeout.as_ref()).is_err() {
        return;
    }
    for ((_, flags), polled) in events.iter_mut().zip(&polled) {
        *flags = polled.revents();
    }
    drop(polled);
    let now = limits.clock.now();
    for (index, flags) in events.into_iter().filter(|(_, flags)| !flags.is_empty()) {
        let Some(flow) = flows.get_mut(index) else { continue };
        if flow.dial.is_some() {
            flow.advance_dial(now, settings);
            continue;
        }
        if flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
            flow.advance_receive(now);
        }
        if flags.contains(PollFlags::OUT) && flow.end.is_none() {
            flow.last_progress = now;
            flow.advance_send();
        }
    }
}
