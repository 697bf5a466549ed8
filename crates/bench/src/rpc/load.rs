//! The generator: one thread, all connections, a fixed number of requests under way on each.

use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hdrhistogram::Histogram;
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use yb_env::Clock;
use yb_types::MonotonicTime;
use yb_wire::frame::{FrameLimits, Parsed, parse_response};

use super::frames::{Half, Plan};
use super::server::{Meter, ServerCost};
use super::{BenchError, RpcBench};

/// Most requests under way on one connection.
pub(super) const MOST_OUTSTANDING: usize = 4096;
/// One reply body in so many is decoded.
const VERIFY_EVERY: u64 = 64;
/// No reply for this long fails the run.
const SILENCE: Duration = Duration::from_secs(10);
const READ_BYTES: usize = 256 << 10;

/// What was measured.
pub(super) struct Measured {
    pub(super) seconds: f64,
    /// Whole operation cycles: requests, or pairs of a put.
    pub(super) cycles: u64,
    /// Nanoseconds of each cycle.
    pub(super) latency: Histogram<u64>,
    pub(super) cost: Option<ServerCost>,
}

/// One operation under way.
#[derive(Clone, Copy)]
struct Flight {
    cycle: u64,
    half: Half,
    begun: MonotonicTime,
}

struct Line {
    socket: TcpStream,
    input: Vec<u8>,
    output: Vec<u8>,
    next_sequence: u32,
    /// By sequence number modulo [`MOST_OUTSTANDING`] times two: numbers under way are never that far apart.
    flights: Vec<Option<Flight>>,
    watching_room: bool,
}

/// When it ends.
pub(super) struct Until<'a> {
    pub(super) clock: &'a Clock,
    /// Set from outside: at once.
    pub(super) stop: &'a AtomicBool,
}

struct Generator<'a> {
    plan: &'a Plan,
    clock: &'a Clock,
    stop: &'a AtomicBool,
    epoll: std::os::fd::OwnedFd,
    lines: Vec<Line>,
    scratch: Vec<u8>,
    next_cycle: u64,
    replies: u64,
    cycles: u64,
    latency: Histogram<u64>,
}

const LIMITS: FrameLimits = FrameLimits { max_body: 64 << 20, max_attachment: 0 };

/// Warms up, then measures.
pub(super) fn drive(bench: &RpcBench, plan: &Plan, until: &Until<'_>) -> Result<Measured, BenchError> {
    let clock = until.clock;
    let mut generator = Generator::connect(bench, plan, until)?;
    generator.start(bench.outstanding)?;
    generator.run_until(clock.now() + bench.warm_up)?;
    let meter = bench.server_pid.map(Meter::start).transpose()?;
    generator.cycles = 0;
    generator.latency.reset();
    let begin = clock.now();
    generator.run_until(begin + bench.duration)?;
    let seconds = clock.now().since(begin).as_secs_f64();
    let cost = meter.map(Meter::stop).transpose()?;
    Ok(Measured { seconds, cycles: generator.cycles, latency: generator.latency, cost })
}

impl<'a> Generator<'a> {
    fn connect(bench: &RpcBench, plan: &'a Plan, until: &Until<'a>) -> Result<Self, BenchError> {
        let failed = |error: Errno| BenchError::io("watching sockets")(error.into());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(failed)?;
        let mut lines = Vec::new();
        for index in 0..bench.connections {
            let socket = open(bench).map_err(BenchError::io("connecting to the master"))?;
            epoll::add(&epoll, &socket, epoll::EventData::new_u64(index as u64), epoll::EventFlags::IN)
                .map_err(failed)?;
            lines.push(Line::new(socket));
        }
        let latency =
            Histogram::new_with_bounds(1, 60_000_000_000, 3).map_err(|e| BenchError::Setting(e.to_string()))?;
        let scratch = vec![0; READ_BYTES];
        let Until { clock, stop } = *until;
        Ok(Generator { plan, clock, stop, epoll, lines, scratch, next_cycle: 0, replies: 0, cycles: 0, latency })
    }

    fn start(&mut self, outstanding: usize) -> Result<(), BenchError> {
        for index in 0..self.lines.len() {
            let now = self.clock.now();
            for _ in 0..outstanding {
                self.begin(index, now);
            }
            self.flush(index)?;
        }
        Ok(())
    }

    /// Starts the next operation.
    fn begin(&mut self, index: usize, now: MonotonicTime) {
        let flight = Flight { cycle: self.next_cycle, half: Half::First, begun: now };
        self.next_cycle += 1;
        self.send(index, flight);
    }

    fn send(&mut self, index: usize, flight: Flight) {
        let Some(line) = self.lines.get_mut(index) else { return };
        self.plan.append(flight.half, line.next_sequence, flight.cycle, &mut line.output);
        let place = line.next_sequence as usize % line.flights.len();
        line.flights[place] = Some(flight);
        line.next_sequence = line.next_sequence.wrapping_add(1);
    }

    fn run_until(&mut self, end: MonotonicTime) -> Result<(), BenchError> {
        let mut events = Vec::with_capacity(512);
        let mut last_reply = self.clock.now();
        loop {
            let now = self.clock.now();
            if now >= end || self.stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if now.since(last_reply) > SILENCE {
                return Err(BenchError::BadReply(format!("none came for {SILENCE:?}")));
            }
            events.clear();
            let tick = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
            match epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&tick)) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(BenchError::io("waiting for replies")(error.into())),
            }
            if !events.is_empty() {
                last_reply = now;
            }
            for event in &events {
                self.ready(event.data.u64() as usize)?;
            }
        }
    }

    fn ready(&mut self, index: usize) -> Result<(), BenchError> {
        let Some(line) = self.lines.get_mut(index) else { return Ok(()) };
        match rustix::net::recv(&line.socket, &mut self.scratch[..], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => return Err(BenchError::BadReply("the master closed the connection".to_owned())),
            Ok((_, got)) => {
                line.input.extend_from_slice(&self.scratch[..got]);
                self.take_replies(index)?;
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(error) => return Err(BenchError::io("reading a reply")(error.into())),
        }
        self.flush(index)
    }

    fn take_replies(&mut self, index: usize) -> Result<(), BenchError> {
        let now = self.clock.now();
        let Some(line) = self.lines.get_mut(index) else { return Ok(()) };
        let input = std::mem::take(&mut line.input);
        let mut used = 0;
        loop {
            let rest = input.get(used..).unwrap_or_default();
            let frame = match parse_response(rest, &LIMITS).map_err(|error| BenchError::BadReply(error.to_string()))? {
                Parsed::Frame(frame) => frame,
                Parsed::NeedMore { .. } => break,
            };
            used += frame.len;
            self.reply(index, frame.header.sequence, frame.header.error_code, frame.body, now)?;
        }
        if let Some(line) = self.lines.get_mut(index) {
            line.input = input;
            line.input.drain(..used);
        }
        Ok(())
    }

    fn reply(
        &mut self,
        index: usize,
        sequence: u32,
        error: u8,
        body: &[u8],
        now: MonotonicTime,
    ) -> Result<(), BenchError> {
        let Some(line) = self.lines.get_mut(index) else { return Ok(()) };
        let place = sequence as usize % line.flights.len();
        let Some(flight) = line.flights.get_mut(place).and_then(Option::take) else {
            return Err(BenchError::BadReply(format!("sequence number {sequence} was not asked")));
        };
        if error != 0 {
            return Err(BenchError::BadReply(format!("transport error {error}")));
        }
        if self.replies.is_multiple_of(VERIFY_EVERY) {
            self.plan.verify(flight.half, flight.cycle, body).map_err(BenchError::BadReply)?;
        }
        self.replies += 1;
        if self.plan.continues(flight.half, flight.cycle) {
            self.send(index, Flight { half: Half::Second, ..flight });
            return Ok(());
        }
        self.cycles += 1;
        let took = u64::try_from(now.since(flight.begun).as_nanos()).unwrap_or(u64::MAX);
        self.latency.saturating_record(took.max(1));
        self.begin(index, now);
        Ok(())
    }

    /// Writes what is to be sent; asks to be told of room when the socket is full.
    fn flush(&mut self, index: usize) -> Result<(), BenchError> {
        let Some(line) = self.lines.get_mut(index) else { return Ok(()) };
        let mut sent = 0;
        while let Some(rest) = line.output.get(sent..).filter(|rest| !rest.is_empty()) {
            match rustix::net::send(&line.socket, rest, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(taken) => sent += taken,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(BenchError::io("sending a request")(error.into())),
            }
        }
        line.output.drain(..sent);
        let full = !line.output.is_empty();
        if full != line.watching_room {
            line.watching_room = full;
            let mut wanted = epoll::EventFlags::IN;
            wanted.set(epoll::EventFlags::OUT, full);
            epoll::modify(&self.epoll, &line.socket, epoll::EventData::new_u64(index as u64), wanted)
                .map_err(|error| BenchError::io("watching sockets")(error.into()))?;
        }
        Ok(())
    }
}

impl Line {
    fn new(socket: TcpStream) -> Self {
        Line {
            socket,
            input: Vec::new(),
            output: Vec::new(),
            next_sequence: 0,
            flights: vec![None; 2 * MOST_OUTSTANDING],
            watching_room: false,
        }
    }
}

/// How long it may take until a connection is secured.
const SECURED_IN: Duration = Duration::from_secs(5);

fn open(bench: &RpcBench) -> io::Result<TcpStream> {
    let socket = TcpStream::connect(bench.address)?;
    socket.set_nodelay(true)?;
    let Some(security) = &bench.security else {
        socket.set_nonblocking(true)?;
        return Ok(socket);
    };
    let secured =
        security.dial(socket.into(), bench.address, SECURED_IN)?.wait(SECURED_IN).map_err(io::Error::other)?;
    secured.set_nonblocking(true)?;
    Ok(secured.into())
}
