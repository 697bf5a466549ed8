//! Requests to the daemon, typed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use yb_client::{CallLimits, DaemonFailure, Error, Result};
use yb_env::Clock;
use yb_pack::{Form, Limits};
use yb_rpc::{ClientPool, ClientSettings, Retry, RpcAddress, RpcError};
use yb_types::WireVersion;
use yb_wire::messages::ErrorOr;
use yb_wire::{Call, WireTable};

use crate::config::DummyConfig;

/// Elements that a reply may have at most.
const REPLY_ELEMENTS: u32 = 1 << 24;
/// Connections to the daemon; each carries many requests at a time.
const CONNECTIONS: usize = 4;

/// Time for a request that moves no bytes and asks no master.
const CONTROL_TIME: Duration = Duration::from_secs(2);

/// Time for a request that walks over all objects. The daemon's client has half a minute for it.
const WALK_TIME: Duration = Duration::from_secs(35);

/// What a repetition of a request would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Nothing that the first did not do: it may be sent again when the connection broke.
    Harmless,
    /// Something else.
    Never,
}

/// Connections to one daemon.
#[derive(Debug)]
pub(crate) struct DaemonLink {
    /// Another one when the daemon did not answer a ping: what waits in the old one is over.
    pool: RwLock<Arc<ClientPool>>,
    settings: ClientSettings,
    closed: AtomicBool,
    /// It did not answer the last ping.
    silent: AtomicBool,
    address: RpcAddress,
    table: &'static WireTable,
    limits: CallLimits,
}

impl DaemonLink {
    /// Connects with the first request.
    pub(crate) fn new(config: &DummyConfig, clock: Clock) -> Result<DaemonLink> {
        let text = config.address();
        let address = RpcAddress::resolve(&text)
            .map_err(|error| Error::Setup { stage: "the daemon's address", reason: format!("{text:?}: {error}") })?;
        let settings = ClientSettings {
            max_connections: CONNECTIONS,
            connect_timeout: config.connect_timeout,
            clock,
            security: config.security.clone(),
            ..ClientSettings::default()
        };
        let pool = RwLock::new(Arc::new(ClientPool::new(address.clone(), settings.clone())));
        // Every function of the daemon but the newest is the same in 0.3.13 and 0.3.14.
        let (table, limits) = (WireTable::of(WireVersion::V0_3_13), config.limits);
        let (closed, silent) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(DaemonLink { pool, settings, closed, silent, address, table, limits })
    }

    /// The daemon's RPC port.
    pub(crate) fn port(&self) -> u16 {
        match &self.address {
            RpcAddress::Tcp(address) => address.port(),
            RpcAddress::Unix(_) => 0,
        }
    }

    /// The generation in whose words a call is made: 0.3.13, which every daemon knows, and 0.3.14 for what that brought.
    fn table<C: Call>(&self) -> &'static WireTable {
        if self.table.signature(C::RPC).is_ok() { self.table } else { WireTable::of(WireVersion::V0_3_14) }
    }

    /// For messages.
    pub(crate) fn address(&self) -> String {
        self.address.to_string()
    }

    /// Ends every call that waits and refuses new ones.
    pub(crate) fn shutdown(&self) {
        self.closed.store(true, Ordering::SeqCst);
        self.pool().shutdown();
    }

    fn pool(&self) -> Arc<ClientPool> {
        Arc::clone(&self.pool.read())
    }

    /// Whether the last ping was not answered.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent.load(Ordering::Relaxed)
    }

    /// What came of a ping. One that is not answered ends the calls that wait: a daemon that is at work on them, however
    /// long, answers pings.
    pub(crate) fn pinged<T>(&self, answer: &Result<T>) {
        let is_silent = matches!(answer, Err(Error::DaemonUnreachable(failure)) if failure.timed_out);
        self.silent.store(is_silent, Ordering::Relaxed);
        if is_silent && !self.closed.load(Ordering::SeqCst) {
            let fresh = Arc::new(ClientPool::new(self.address.clone(), self.settings.clone()));
            let old = std::mem::replace(&mut *self.pool.write(), fresh);
            old.shutdown();
            if self.closed.load(Ordering::SeqCst) {
                self.pool().shutdown();
            }
        }
    }

    /// Sends one request that moves `bytes` and gives its decoded reply to `read`.
    pub(crate) fn call<C: Call, T>(
        &self,
        args: &C::Args<'_>,
        bytes: u64,
        repeat: Repeat,
        read: impl FnOnce(C::Reply<'_>) -> T,
    ) -> Result<T> {
        self.call_within::<C, T>(args, self.limits.for_bytes(bytes), repeat, read)
    }

    /// The same with a time limit of its own.
    fn call_within<C: Call, T>(
        &self,
        args: &C::Args<'_>,
        within: Duration,
        repeat: Repeat,
        read: impl FnOnce(C::Reply<'_>) -> T,
    ) -> Result<T> {
        let rpc = C::RPC.name();
        let unusable = |error: &dyn std::fmt::Display| Error::Invalid(format!("{rpc}: {error}").into());
        let signature = self.table::<C>().signature(C::RPC).map_err(|error| unusable(&error))?;
        let mut body = Vec::with_capacity(256);
        yb_pack::encode(args, &signature.args, Form::Bare, &mut body).map_err(|error| unusable(&error))?;
        let pool = self.pool();
        let deadline = pool.deadline_in(within);
        let mut answer = pool.call(signature.function_id, &body, deadline);
        // After a restart of the daemon each of the connections may be found broken.
        let mut left = if repeat == Repeat::Harmless { CONNECTIONS } else { 0 };
        while left > 0 && matches!(&answer, Err(RpcError::Closed { .. })) {
            answer = pool.call(signature.function_id, &body, deadline);
            left -= 1;
        }
        let reply = answer.map_err(|error| self.unanswered(rpc, &error))?;
        let limits = Limits { max_elements: REPLY_ELEMENTS };
        let decoded = yb_wire::decode_reply::<C>(self.table::<C>(), &reply, limits)
            .map_err(|error| self.nonsense(rpc, format!("its answer makes no sense: {error}")))?;
        Ok(read(decoded))
    }

    /// A request whose answer is one value or a code.
    pub(crate) fn ask<C, T>(&self, args: &C::Args<'_>, repeat: Repeat) -> Result<T>
    where
        C: for<'r> Call<Reply<'r> = ErrorOr<T>>,
    {
        let answer = self.call::<C, _>(args, 0, repeat, |reply| reply)?;
        answer.map_err(|code| Error::from_master(C::RPC.name(), code))
    }

    /// A request that makes the master walk over all objects: a long time is enough for it, and a daemon that stands still
    /// ends it sooner.
    pub(crate) fn ask_slowly<C, T>(&self, args: &C::Args<'_>) -> Result<T>
    where
        C: for<'r> Call<Reply<'r> = ErrorOr<T>>,
    {
        let answer = self.call_within::<C, _>(args, WALK_TIME, Repeat::Never, |reply| reply)?;
        answer.map_err(|code| Error::from_master(C::RPC.name(), code))
    }

    /// A short request about windows and the connection itself: a daemon that hangs must not hold up the caller.
    pub(crate) fn control<C, T>(&self, args: &C::Args<'_>) -> Result<T>
    where
        C: for<'r> Call<Reply<'r> = ErrorOr<T>>,
    {
        let answer = self.call_within::<C, _>(args, CONTROL_TIME, Repeat::Harmless, |reply| reply)?;
        answer.map_err(|code| Error::from_master(C::RPC.name(), code))
    }

    /// A request with an answer for each of `keys` keys, which moves `bytes`.
    pub(crate) fn ask_each<C, T>(
        &self,
        args: &C::Args<'_>,
        (keys, bytes): (usize, u64),
        repeat: Repeat,
    ) -> Result<Vec<ErrorOr<T>>>
    where
        C: for<'r> Call<Reply<'r> = Vec<ErrorOr<T>>>,
    {
        let answers = self.call::<C, _>(args, bytes, repeat, |reply| reply)?;
        if answers.len() == keys {
            return Ok(answers);
        }
        Err(self.nonsense(C::RPC.name(), format!("{} answers for {keys} keys", answers.len())))
    }

    fn unanswered(&self, rpc: &'static str, error: &RpcError) -> Error {
        match error {
            RpcError::ShutDown if self.closed.load(Ordering::SeqCst) => Error::Closed,
            RpcError::ShutDown => {
                let reason = format!("it answers no ping for {CONTROL_TIME:?}");
                let (address, timed_out, in_flight) = (self.address.to_string(), true, true);
                Error::DaemonUnreachable(Box::new(DaemonFailure { address, rpc, reason, timed_out, in_flight }))
            }
            RpcError::Refused { code, message, .. } => Error::Rejected { rpc, code: *code, message: message.clone() },
            _ => {
                let timed_out = matches!(error, RpcError::TimedOut { .. } | RpcError::ConnectTimeout { .. });
                let in_flight = error.retry() == Retry::MayHaveRun;
                let (address, reason) = (self.address.to_string(), error.to_string());
                Error::DaemonUnreachable(Box::new(DaemonFailure { address, rpc, reason, timed_out, in_flight }))
            }
        }
    }

    /// An answer that is none.
    fn nonsense(&self, rpc: &'static str, reason: String) -> Error {
        let (address, timed_out, in_flight) = (self.address.to_string(), false, false);
        Error::DaemonUnreachable(Box::new(DaemonFailure { address, rpc, reason, timed_out, in_flight }))
    }
}

/// Whether the daemon may still be at work on a call that ended so: its memory must not be used for anything else.
pub(crate) fn may_go_on(error: &Error) -> bool {
    matches!(error, Error::DaemonUnreachable(failure) if failure.in_flight)
}
