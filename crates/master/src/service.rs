//! From a request to its handler.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use yb_catalog::{Caller, Effects, Tenant};
use yb_env::Rng;
use yb_pack::{Form, Scratch};
use yb_rpc::{Outcome, Reply, Request};
use yb_types::{ClientId, ErrorCode, MonotonicTime, WireVersion};
use yb_wire::{Call, ReplyWriter, Rpc, Service, WireProfile, call};

use crate::handlers;
use crate::metrics::{Dice, Tally};
use crate::shared::{Shared, SharedRef, WorkerState};

/// The master's functions, as the RPC server calls them.
pub(crate) struct MasterService {
    pub(crate) shared: SharedRef,
}

impl yb_rpc::Service for MasterService {
    type Worker = WorkerState;

    fn worker(&self, index: usize) -> WorkerState {
        let seed = self.shared.worker_seed.fetch_add(0x9e37_79b9, Ordering::Relaxed);
        WorkerState {
            lane: self.shared.metrics.metrics.lane(index).clone(),
            scratch: Scratch::default(),
            rng: Rng::seeded(seed),
            effects: Effects::default(),
            dice: Dice::new(seed),
        }
    }

    fn foresee(&self, _worker: &mut WorkerState, requests: &[Request<'_>]) {
        let Some(first) = requests.first() else { return };
        let profile = self.shared.profile(first.tag.0);
        let mut asked = requests.iter().filter_map(|request| key_of(&profile, request, self.shared.message_limits));
        let Some((key, name)) = asked.next() else { return };
        let Ok(tenant) = self.shared.catalog.tenants().reader(name) else { return };
        // Neighbours that ask for another tenant are left to meet main memory by themselves.
        let others = asked.filter(|(_, other)| *other == name).map(|(key, _)| key);
        self.shared.catalog.foresee(tenant, std::iter::once(key).chain(others));
    }

    fn call(&self, worker: &mut WorkerState, request: Request<'_>, reply: Reply<'_>) -> Outcome {
        let profile = self.shared.profile(request.tag.0);
        let Some(rpc) = profile.lookup(Service::Master, request.function) else {
            return reply.unknown_function();
        };
        self.shared.metrics.arrived(&worker.lane, request.tag.0);
        if request.body.len() > LARGE_BODY {
            return self.call_elsewhere(rpc, profile, request, reply);
        }
        let timed = worker.dice.picks();
        let mut context = Context { shared: &self.shared, worker, profile, request, rpc };
        let outcome = handlers::dispatch(&mut context, reply);
        if timed {
            let nanos = self.shared.clock.now().since(request.now).as_nanos();
            self.shared.metrics.took(&worker.lane, rpc, u64::try_from(nanos).unwrap_or(u64::MAX));
        }
        outcome
    }
}

/// Arguments larger than this, some 40,000 keys, are not worked on by a worker: other calls would wait for milliseconds.
const LARGE_BODY: usize = 2 << 20;

impl MasterService {
    /// Answers a large batch on the slow lane, from a copy of its arguments.
    fn call_elsewhere(&self, rpc: Rpc, profile: WireProfile, request: Request<'_>, reply: Reply<'_>) -> Outcome {
        let mut part = self.shared.bulk.part();
        if !part.grow(request.body.len()) {
            tracing::warn!(event = "slow_lane_full", "a large batch was refused: those that wait hold too many bytes");
            return reply.failed("too many bytes of large requests wait; try again later, or send smaller batches");
        }
        let (body, function, tag, peer) = (request.body.to_vec(), request.function, request.tag, request.peer);
        let service = MasterService { shared: Arc::clone(&self.shared) };
        let (deferred, outcome) = reply.defer();
        let queued = self.shared.slow.submit(move || {
            let mut worker = yb_rpc::Service::worker(&service, usize::MAX);
            let now = service.shared.clock.now();
            let request = Request { function, body: &body, attachment: &[], tag, peer, now };
            let mut context = Context { shared: &service.shared, worker: &mut worker, profile, request, rpc };
            deferred.answer(|reply| handlers::dispatch(&mut context, reply));
            drop(part);
        });
        if !queued {
            tracing::warn!(event = "slow_lane_full", "a large batch was refused: too many wait");
        }
        outcome
    }
}

/// The key that a call on a single key asks for, and its tenant.
fn key_of<'r>(profile: &WireProfile, request: &Request<'r>, limits: yb_pack::Limits) -> Option<(&'r [u8], &'r [u8])> {
    match profile.lookup(Service::Master, request.function)? {
        Rpc::ExistKey => {
            let args = profile.decode_args::<call::ExistKey>(request.body, limits).ok()?;
            Some((args.key, args.tenant_id))
        }
        Rpc::GetReplicaList => {
            let args = profile.decode_args::<call::GetReplicaList>(request.body, limits).ok()?;
            Some((args.key, args.tenant_id))
        }
        Rpc::EndWrite => {
            let args = profile.decode_args::<call::EndWrite>(request.body, limits).ok()?;
            Some((args.ended.write.key, args.tenant_id))
        }
        Rpc::PutEnd => {
            let args = profile.decode_args::<call::PutEnd>(request.body, limits).ok()?;
            Some((args.object_meta.key, args.tenant_id))
        }
        _ => None,
    }
}

/// Clients at the wrong port are logged no more often.
const NOTE_EVERY: Duration = Duration::from_secs(60);

/// One call while it is answered.
pub(crate) struct Context<'c, 'r> {
    pub(crate) shared: &'c Arc<Shared>,
    pub(crate) worker: &'c mut WorkerState,
    pub(crate) profile: WireProfile,
    pub(crate) request: Request<'r>,
    pub(crate) rpc: Rpc,
}

impl<'r> Context<'_, 'r> {
    pub(crate) fn now(&self) -> MonotonicTime {
        self.request.now
    }

    /// The address of the caller; `None` over a UNIX socket.
    pub(crate) fn origin(&self) -> Option<std::net::IpAddr> {
        self.request.peer.map(|peer| peer.ip().to_canonical())
    }

    /// Whether the request may be of that client: not if the client's segments were mounted from another host. Everybody
    /// can learn the ids of clients.
    pub(crate) fn may_speak_for(&self, client: ClientId) -> bool {
        let Some(from) = self.origin() else { return true };
        let mut own = self.shared.catalog.segments_of(client).into_iter();
        own.all(|id| self.shared.origins.may_be_of(id, from))
    }

    /// The tenant of a call that reads or removes; always the default one while multi-tenancy is off.
    ///
    /// # Errors
    /// `INVALID_PARAMS` for a name that cannot be a tenant's.
    pub(crate) fn tenant(&self, name: &[u8]) -> Result<Tenant, ErrorCode> {
        self.shared.catalog.tenants().reader(name)
    }

    /// The caller of a catalog function that ends, revokes or changes what is there.
    ///
    /// # Errors
    /// `INVALID_PARAMS` for a name that cannot be a tenant's.
    pub(crate) fn caller(&self, client: ClientId, tenant: &[u8]) -> Result<Caller, ErrorCode> {
        Ok(Caller { tenant: self.tenant(tenant)?, client, now: self.request.now })
    }

    /// The caller of a catalog function that writes something new. A tenant that is not registered, or cannot be one,
    /// is refused there, after the checks that come first.
    pub(crate) fn writer(&self, client: ClientId, tenant: &[u8]) -> Caller {
        Caller { tenant: self.shared.catalog.tenants().writer(tenant), client, now: self.request.now }
    }

    /// The arguments; `None`: answer that they do not decode.
    pub(crate) fn args<C: Call>(&self) -> Option<C::Args<'r>> {
        match self.profile.decode_args::<C>(self.request.body, self.shared.message_limits) {
            Ok(args) => Some(args),
            Err(error) => {
                tracing::debug!(peer = ?self.request.peer, %error, "arguments refused");
                self.name_generations::<C>();
                None
            }
        }
    }

    /// Tells the operator when arguments that do not decode here are those of another generation: its client is at the
    /// wrong port. At most one line a minute, for such a client tries again and again.
    fn name_generations<C: Call>(&self) {
        let last = self.shared.generation_noted.load(Ordering::Relaxed);
        if last != 0 && self.now().since(MonotonicTime(last)) < NOTE_EVERY {
            return;
        }
        let (body, limits) = (self.request.body, self.shared.message_limits);
        let speaks = |version: WireVersion| WireProfile::exactly(version).decode_args::<C>(body, limits).is_ok();
        let spoken: Vec<&str> = WireVersion::ALL.iter().filter(|v| speaks(**v)).map(|v| v.name()).collect();
        if spoken.is_empty() {
            return;
        }
        self.shared.generation_noted.store(self.now().0.max(1), Ordering::Relaxed);
        tracing::warn!(
            peer = ?self.request.peer, rpc = ?C::RPC, client = spoken.join(" or "), port = self.profile.version().name(),
            "a client speaks another generation than this port and is refused; --compat_listen opens a port for it"
        );
    }

    /// Answers a call whose result is a value.
    pub(crate) fn typed<C: Call>(
        &mut self,
        mut reply: Reply<'_>,
        answer: impl FnOnce(&mut Self, C::Args<'r>) -> C::Reply<'r>,
    ) -> Outcome
    where
        C::Reply<'r>: Tally,
    {
        let Some(args) = self.args::<C>() else { return reply.bad_arguments() };
        let value = answer(self, args);
        self.count(value.tally());
        match encode_body::<C>(self.profile, &value, reply.body()) {
            Ok(()) => reply.done(),
            Err(error) => reply.failed(error),
        }
    }

    /// Counts this call: items, and how many failed.
    pub(crate) fn count(&self, (items, failed): (u64, u64)) {
        self.shared.metrics.call(&self.worker.lane, self.rpc, items, failed);
    }

    /// Carries out what the catalog wants done after a call.
    pub(crate) fn carry_out(&mut self) {
        self.shared.carry_out(&mut self.worker.effects, &self.worker.lane);
    }
}

/// Appends the body of a result.
pub(crate) fn encode_body<C: Call>(
    profile: WireProfile,
    value: &C::Reply<'_>,
    out: &mut Vec<u8>,
) -> Result<(), String> {
    let signature = profile.signature(C::RPC).map_err(|error| error.to_string())?;
    yb_pack::encode(value, &signature.reply, Form::Bare, out).map_err(|error| error.to_string())
}

/// Writes a result piece by piece with `write`, straight into the reply.
pub(crate) fn written(
    rpc: Rpc,
    profile: WireProfile,
    expected: usize,
    scratch: &mut Scratch,
    mut reply: Reply<'_>,
    write: impl FnOnce(&mut ReplyWriter<'_>),
) -> Outcome {
    match write_body((rpc, profile, expected), scratch, reply.body(), write) {
        Ok(()) => reply.done(),
        Err(error) => reply.failed(error),
    }
}

/// Appends a result to `out` piece by piece. `form`: the function, its wire, and how many elements are expected.
pub(crate) fn write_body(
    (rpc, profile, expected): (Rpc, WireProfile, usize),
    scratch: &mut Scratch,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut ReplyWriter<'_>),
) -> Result<(), String> {
    let begun = ReplyWriter::begin_body(profile.table(), rpc, Form::Bare, expected, out, scratch);
    let finished = begun.and_then(|mut writer| {
        write(&mut writer);
        writer.finish()
    });
    finished.map_err(|error| error.to_string())
}
