//! The RPC service: from a request to its handler, and what all handlers share.

use std::sync::Arc;

use yb_client::{Client, Error};
use yb_env::Clock;
use yb_pack::{Form, Limits};
use yb_rpc::{Outcome, Reply, Request};
use yb_types::ErrorCode;
use yb_wire::{Call, Rpc, Service, WireProfile};

use crate::door::Bell;
use crate::dummies::Dummies;
use crate::handlers;
use crate::hands::Hands;
use crate::host::ThisHost;
use crate::users::Users;

/// Elements that a request may have at most.
const REQUEST_ELEMENTS: u32 = 1 << 24;

/// What every call and every connection may use.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) dummies: Dummies,
    pub(crate) door: Bell,
    pub(crate) clock: Clock,
    pub(crate) users: Users,
    pub(crate) own_uid: u32,
}

/// The service.
#[derive(Debug)]
pub(crate) struct DaemonService {
    pub(crate) shared: Arc<Shared>,
    pub(crate) hands: Hands,
    pub(crate) host: ThisHost,
}

impl yb_rpc::Service for DaemonService {
    type Worker = ();

    fn worker(&self, _: usize) {}

    fn call(&self, _: &mut (), request: Request<'_>, reply: Reply<'_>) -> Outcome {
        if !self.host.includes(request.peer) {
            return reply.failed("a daemon takes calls from its own host only");
        }
        let Some(rpc) = WireProfile::main().lookup(Service::Client, request.function) else {
            return reply.unknown_function();
        };
        let shared = Arc::clone(&self.shared);
        if !handlers::waits(rpc) {
            return handlers::dispatch(Incoming { shared: &shared, rpc, body: request.body }, reply);
        }
        let body = request.body.to_vec();
        let (deferred, outcome) = reply.defer();
        self.hands.run(move || {
            deferred.answer(|reply| handlers::dispatch(Incoming { shared: &shared, rpc, body: &body }, reply));
        });
        outcome
    }
}

/// One call while it is answered.
#[derive(Clone, Copy)]
pub(crate) struct Incoming<'c> {
    pub(crate) shared: &'c Shared,
    pub(crate) rpc: Rpc,
    body: &'c [u8],
}

impl<'c> Incoming<'c> {
    /// Answers with what `answer` makes of the arguments.
    pub(crate) fn answer<C: Call>(
        self,
        reply: Reply<'_>,
        answer: impl FnOnce(&'c Shared, C::Args<'c>) -> C::Reply<'c>,
    ) -> Outcome {
        match self.args::<C>() {
            Some(args) => finish::<C>(reply, &answer(self.shared, args)),
            None => reply.bad_arguments(),
        }
    }

    /// The arguments; `None`: answer that they do not decode.
    pub(crate) fn args<C: Call>(&self) -> Option<C::Args<'c>> {
        let limits = Limits { max_elements: REQUEST_ELEMENTS };
        let decoded = WireProfile::main().decode_args::<C>(self.body, limits);
        decoded.inspect_err(|error| tracing::debug!(%error, "arguments of a dummy client do not decode")).ok()
    }
}

/// Answers with a value.
pub(crate) fn finish<C: Call>(mut reply: Reply<'_>, value: &C::Reply<'_>) -> Outcome {
    let encoded = WireProfile::main().signature(C::RPC).map_err(|error| error.to_string()).and_then(|signature| {
        yb_pack::encode(value, &signature.reply, Form::Bare, reply.body()).map_err(|error| error.to_string())
    });
    match encoded {
        Ok(()) => reply.done(),
        Err(error) => reply.failed(error),
    }
}

/// The peer's number for a failure, for the dummy; the words stay in the log.
pub(crate) fn code(error: &Error) -> ErrorCode {
    if !matches!(error, Error::NotFound) {
        tracing::debug!(%error, "a call of a dummy client failed");
    }
    error.code()
}

/// A count of bytes or objects as it travels.
pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}
