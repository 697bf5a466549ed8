//! Requests to the master, typed.
//!
//! Two errors are kept apart: the master did not answer (`Err` of a whole call), and the master answered no (an
//! `ErrorCode` per key).

mod departure;
mod directory;
mod inquiry;
mod slow;
mod task;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use smallvec::{SmallVec, smallvec};
use yb_env::Clock;
use yb_rpc::{ClientPool, ClientSettings, Retry, RpcAddress, RpcError};
use yb_secure::Security;
use yb_types::{
    ClientId, ClientStatus, ErrorCode, MonotonicTime, ReplicaDescriptor, ReplicaId, ReplicateConfig, Segment, SegmentId,
};
use yb_wire::messages::{
    BatchRemoveArgs, ClientArgs, DoubtAnswer, DoubtQuestion, ErrorOr, GetReplicaListResponse,
    GracefulUnmountSegmentArgs, HelloArgs, KeyArgs, KeysArgs, MountSegmentArgs, NoArgs, PatternArgs, PollDoubtsArgs,
    PollQuiesceArgs, QuiesceConfirmation, QuiesceQuestion, ReMountSegmentArgs, RemoveAllArgs, RemoveArgs,
    ReportCorruptArgs, ReportSuspectArgs, SegmentIdArgs, UnmountSegmentArgs,
};
use yb_wire::{Call, Form, Limits, List, WireTable, WireVersion, call};

use crate::deadline::Deadline;
use crate::rpc_times::{RpcMeter, RpcTimes};
use crate::suspects::Failing;
use crate::{Error, MasterFailure, Result};

pub(crate) use write::{Ending, Manner, Reservation};

/// One answer per key of a call.
pub(crate) type PerKey<T> = SmallVec<[ErrorOr<T>; 1]>;

/// Elements that a reply may have at most; keys times replicas of the largest batch anybody sends.
const REPLY_ELEMENTS: u32 = 1 << 24;
/// Masters of ours take no larger request: they close the connection, which looks as if they had gone.
const REQUEST_MAX: usize = 64 << 20;

/// The capability bit of a client that answers `PollQuiesce`, and of a master that asks.
pub(crate) const CAPABILITY_QUIESCE: u64 = 1;
/// The capability bit of a client that keeps directories, and of a master that tells what is in them.
pub(crate) const CAPABILITY_DIRECTORY: u64 = 2;
/// The bit of a client that looks at its memory when a master asks what lies there.
pub(crate) const CAPABILITY_LOOKS: u64 = 8;
/// The bit of a master that understands ends and revokes that name their write.
pub(crate) const CAPABILITY_NAMES: u64 = 16;
/// The bit of a client that brings what an earlier master told it.
pub(crate) const CAPABILITY_FILLED: u64 = 4;

/// A replica that has other bytes than were written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CorruptReplica<'a> {
    /// Whose key, if it is not the client's own tenant's.
    pub(crate) tenant: Option<&'a [u8]>,
    pub(crate) key: &'a [u8],
    pub(crate) replica: ReplicaId,
    /// The checksum that the writer gave, and that of what was read.
    pub(crate) written: u64,
    pub(crate) found: u64,
}

/// Nanoseconds between two times that a writer attends.
const ATTEND_EVERY: u64 = 500_000_000;

/// What a repetition of a request would do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Nothing that the first did not do: it may be sent again when the connection broke.
    Harmless,
    /// Something else.
    Never,
    /// Something else; and a master that is at work on it may take long, so it is asked meanwhile whether it is there.
    NeverSlow,
}

/// Connections to one master, and what every request carries.
#[derive(Debug)]
pub(crate) struct MasterLink {
    pool: ClientPool,
    address: String,
    table: &'static WireTable,
    /// Of the newest generation that such a master may be of: what 0.3.14 added to requests is passed over by 0.3.13,
    /// whose functions it asks for besides.
    newest: &'static WireTable,
    clock: Clock,
    client_id: ClientId,
    tenant: Vec<u8>,
    /// Whether the master understands ends and revokes that name their write; cleared when it turns out to be Mooncake's,
    /// or an older one of ours.
    names_writes: AtomicBool,
    /// Cleared likewise.
    knows_quiet_revoke: AtomicBool,
    /// Cleared likewise.
    hears_reports: AtomicBool,
    /// Cleared likewise.
    hears_attendance: AtomicBool,
    /// Cleared likewise.
    tells_why: AtomicBool,
    /// Cleared likewise.
    counts_what_stays: AtomicBool,
    /// When this writer attended last, in nanoseconds.
    attended: AtomicU64,
    /// Set when the master turns out to be of 0.3.13, whose clearing of replicas names no tenant.
    clears_by_default_tenant: AtomicBool,
    meter: RpcMeter,
}

/// How to reach a master.
#[derive(Clone, Debug)]
pub(crate) struct LinkSettings {
    pub(crate) address: String,
    pub(crate) connections: usize,
    pub(crate) connect_timeout: Duration,
    pub(crate) version: WireVersion,
    pub(crate) client_id: ClientId,
    pub(crate) tenant: String,
    pub(crate) security: Option<Arc<Security>>,
}

impl MasterLink {
    /// Connects with the first request.
    pub(crate) fn new(settings: LinkSettings, clock: Clock) -> Result<Arc<Self>> {
        let resolved = RpcAddress::resolve(&settings.address)
            .map_err(|error| Error::setup("the master's address", format!("{:?}: {error}", settings.address)))?;
        let pool = ClientSettings {
            max_connections: settings.connections,
            connect_timeout: settings.connect_timeout,
            clock: clock.clone(),
            security: settings.security,
            ..ClientSettings::default()
        };
        Ok(Arc::new(MasterLink {
            pool: ClientPool::new(resolved, pool),
            address: settings.address,
            table: WireTable::of(settings.version),
            newest: WireTable::of(newest_beside(settings.version)),
            clock,
            client_id: settings.client_id,
            tenant: settings.tenant.into_bytes(),
            names_writes: AtomicBool::new(true),
            knows_quiet_revoke: AtomicBool::new(true),
            hears_reports: AtomicBool::new(true),
            hears_attendance: AtomicBool::new(true),
            tells_why: AtomicBool::new(true),
            counts_what_stays: AtomicBool::new(true),
            attended: AtomicU64::new(0),
            clears_by_default_tenant: AtomicBool::new(false),
            meter: RpcMeter::default(),
        }))
    }

    /// As given at setup.
    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    /// Who this client is.
    pub(crate) fn client_id(&self) -> ClientId {
        self.client_id
    }

    /// Ends every call that waits and refuses new ones.
    pub(crate) fn shutdown(&self) {
        self.pool.shutdown();
    }

    /// How often and how long the master was asked.
    pub(crate) fn times(&self) -> Vec<RpcTimes> {
        self.meter.used()
    }

    fn now(&self) -> MonotonicTime {
        self.clock.now()
    }

    /// The generation in which a configuration is sent: the newest where it says what only that one can.
    fn table_for(&self, config: &ReplicateConfig) -> &'static WireTable {
        let plain = config.session_ids.is_none()
            && config.preferred_hca_names.is_none()
            && config.per_key_preferred_hca_names.is_none()
            && config.residency_affinity_ids.is_none();
        if plain { self.table } else { self.newest }
    }

    /// Sends one request and gives its decoded reply to `read`.
    pub(crate) fn call<C: Call, T>(
        &self,
        args: &C::Args<'_>,
        deadline: &Deadline,
        repeat: Repeat,
        read: impl FnOnce(C::Reply<'_>) -> T,
    ) -> Result<T> {
        self.exchange::<C, T>(self.table, args, (deadline, repeat), read)
    }

    /// As [`MasterLink::call`] in the words of a generation, for requests that may be repeated.
    fn call_in<C: Call, T>(
        &self,
        table: &'static WireTable,
        args: &C::Args<'_>,
        deadline: &Deadline,
        read: impl FnOnce(C::Reply<'_>) -> T,
    ) -> Result<T> {
        self.exchange::<C, T>(table, args, (deadline, Repeat::Harmless), read)
    }

    fn exchange<C: Call, T>(
        &self,
        table: &'static WireTable,
        args: &C::Args<'_>,
        (deadline, repeat): (&Deadline, Repeat),
        read: impl FnOnce(C::Reply<'_>) -> T,
    ) -> Result<T> {
        let rpc = C::RPC.name();
        let unusable = |error: &dyn std::fmt::Display| Error::invalid(format!("{rpc}: {error}"));
        let signature = table.signature(C::RPC).map_err(|error| unusable(&error))?;
        let mut body = Vec::with_capacity(256);
        yb_pack::encode(args, &signature.args, Form::Bare, &mut body).map_err(|error| unusable(&error))?;
        if body.len() > REQUEST_MAX {
            let bytes = body.len();
            return Err(unusable(&format_args!(
                "a request of {bytes} bytes, above {REQUEST_MAX}; fewer or shorter keys"
            )));
        }
        let asked = self.now();
        let mut answer = match repeat {
            Repeat::NeverSlow => self.call_slowly(signature.function_id, body.clone(), deadline),
            _ => self.pool.call(signature.function_id, &body, deadline.at),
        };
        if repeat == Repeat::Harmless && matches!(&answer, Err(RpcError::Closed { .. })) {
            answer = self.pool.call(signature.function_id, &body, deadline.at);
        }
        // A refusal by the RPC layer is an answer too.
        match &answer {
            Ok(_) | Err(RpcError::Refused { .. }) => self.meter.answered(C::RPC, self.now().since(asked)),
            Err(_) => self.meter.unanswered(C::RPC),
        }
        let reply = answer.map_err(|error| self.unanswered(rpc, deadline, &error))?;
        let limits = Limits { max_elements: REPLY_ELEMENTS };
        let decoded = yb_wire::decode_reply::<C>(table, &reply, limits).map_err(|error| {
            let failure = self.failure(rpc, deadline, format!("its answer makes no sense: {error}"));
            Error::MasterUnreachable(Box::new(MasterFailure { refused: true, ..failure }))
        })?;
        Ok(read(decoded))
    }

    fn unanswered(&self, rpc: &'static str, deadline: &Deadline, error: &RpcError) -> Error {
        match error {
            RpcError::ShutDown => return Error::Closed,
            RpcError::Refused { code, message, .. } => {
                return Error::Rejected { rpc, code: *code, message: message.clone() };
            }
            _ => {}
        }
        let timed_out = matches!(error, RpcError::TimedOut { .. } | RpcError::ConnectTimeout { .. });
        let refused = error.retry() == Retry::Useless;
        let failure = self.failure(rpc, deadline, error.to_string());
        Error::MasterUnreachable(Box::new(MasterFailure { timed_out, refused, ..failure }))
    }

    fn failure(&self, rpc: &'static str, deadline: &Deadline, reason: String) -> MasterFailure {
        let elapsed = deadline.elapsed(self.now());
        MasterFailure { address: self.address.clone(), rpc, reason, elapsed, timed_out: false, refused: false }
    }

    /// A request whose answer is nothing or a code.
    pub(crate) fn command<C>(&self, args: &C::Args<'_>, deadline: &Deadline) -> Result<()>
    where
        C: for<'r> Call<Reply<'r> = ErrorOr<()>>,
    {
        let answer = self.call::<C, _>(args, deadline, Repeat::Harmless, |reply| reply)?;
        answer.map_err(|code| Error::from_master(C::RPC.name(), code))
    }

    // Session.

    /// The master's store version.
    pub(crate) fn service_ready(&self, deadline: &Deadline) -> Result<String> {
        let answer = self.call::<call::ServiceReady, _>(&NoArgs {}, deadline, Repeat::Harmless, |reply| {
            reply.map(|version| String::from_utf8_lossy(version.as_ref()).into_owned())
        })?;
        answer.map_err(|code| Error::from_master("ServiceReady", code))
    }

    /// The shared directory on which the master wants objects persisted; empty for none.
    pub(crate) fn storage_directory(&self, deadline: &Deadline) -> Result<String> {
        let answer = self.call::<call::GetStorageConfig, _>(&NoArgs {}, deadline, Repeat::Harmless, |reply| {
            reply.map(|config| config.fsdir.to_owned())
        })?;
        answer.map_err(|code| Error::from_master("GetStorageConfig", code))
    }

    /// Introduces this client as one that answers questions about its memory. The master's version and capabilities;
    /// `None`: it is not one of ours.
    pub(crate) fn hello(&self, capabilities: u64, deadline: &Deadline) -> Result<Option<(String, u64)>> {
        let node_version = env!("CARGO_PKG_VERSION");
        let args = HelloArgs { client_id: self.client_id, node_version, capabilities };
        let answer = self.call::<call::Hello, _>(&args, deadline, Repeat::Harmless, |reply| {
            reply.map(|hello| (hello.master_version.to_owned(), hello.capabilities))
        });
        let answer = match answer {
            Ok(hello) => hello.ok(),
            // Mooncake's master does not know the function, and says so.
            Err(Error::Rejected { .. }) => None,
            Err(error) => return Err(error),
        };
        let names = answer.as_ref().is_some_and(|(_, capabilities)| capabilities & CAPABILITY_NAMES != 0);
        self.names_writes.store(names, Ordering::Relaxed);
        Ok(answer)
    }

    /// Confirms extents that nobody writes to any more, and takes up to `limit` new questions.
    pub(crate) fn poll_quiesce(
        &self,
        confirmed: &[QuiesceConfirmation],
        limit: u32,
        deadline: &Deadline,
    ) -> Result<Vec<QuiesceQuestion>> {
        let args = PollQuiesceArgs { client_id: self.client_id, confirmed: List::from(confirmed), limit };
        let answer = self.call::<call::PollQuiesce, _>(&args, deadline, Repeat::Harmless, |reply| reply)?;
        answer.map_err(|code| Error::from_master("PollQuiesce", code))
    }

    /// Tells what lies at replicas in doubt, and takes up to `limit` new questions.
    pub(crate) fn poll_doubts(
        &self,
        answers: &[DoubtAnswer],
        limit: u32,
        deadline: &Deadline,
    ) -> Result<Vec<DoubtQuestion>> {
        let args = PollDoubtsArgs { client_id: self.client_id, answers: List::from(answers), limit };
        let answer = self.call::<call::PollDoubts, _>(&args, deadline, Repeat::Harmless, |reply| reply)?;
        answer.map_err(|code| Error::from_master("PollDoubts", code))
    }

    /// Tells a master of ours that nobody answers at the data address of a node, or that what answers takes no bytes; others
    /// are not told.
    pub(crate) fn report_suspect(
        &self,
        how: Failing,
        (endpoint, reason): (&str, &str),
        deadline: &Deadline,
    ) -> Result<()> {
        if !self.hears_reports.load(Ordering::Relaxed) {
            return Ok(());
        }
        let args = ReportSuspectArgs { client_id: self.client_id, endpoint, reason };
        let answer = match how {
            Failing::Gone => self.call::<call::ReportSuspect, _>(&args, deadline, Repeat::Harmless, |reply| reply),
            Failing::Slow | Failing::Late => {
                self.call::<call::ReportSlow, _>(&args, deadline, Repeat::Harmless, |reply| reply)
            }
        };
        match answer {
            Ok(answer) => answer.map_err(|code| Error::from_master("ReportSuspect", code)),
            Err(Error::Rejected { .. }) => {
                self.hears_reports.store(false, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Tells a master of ours that a replica has other bytes than were written; others are not told.
    pub(crate) fn report_corrupt(&self, corrupt: &CorruptReplica<'_>, deadline: &Deadline) -> Result<()> {
        if !self.hears_reports.load(Ordering::Relaxed) {
            return Ok(());
        }
        let CorruptReplica { tenant, key, replica, written, found } = *corrupt;
        let (client_id, tenant_id) = (self.client_id, tenant.unwrap_or(&self.tenant));
        let args = ReportCorruptArgs { client_id, key, tenant_id, replica, written, found };
        match self.call::<call::ReportCorrupt, _>(&args, deadline, Repeat::Harmless, |reply| reply) {
            Ok(answer) => answer.map_err(|code| Error::from_master("ReportCorrupt", code)),
            Err(Error::Rejected { .. }) => {
                self.hears_reports.store(false, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Tells a master of ours, not too often, that this client writes: it knows by the end of the connection when this
    /// process has ended, and others may write the keys.
    fn attend(&self, deadline: &Deadline) {
        let (now, last) = (self.now().0, self.attended.load(Ordering::Relaxed));
        if !self.hears_attendance.load(Ordering::Relaxed) || now < last.saturating_add(ATTEND_EVERY) {
            return;
        }
        let is_mine = self.attended.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if is_mine {
            let args = ClientArgs { client_id: self.client_id };
            match self.call::<call::Attend, _>(&args, deadline, Repeat::Harmless, |reply| reply) {
                Err(Error::Rejected { .. }) => {
                    self.hears_attendance.store(false, Ordering::Relaxed);
                    // Whoever does not know this does not know that either.
                    self.names_writes.store(false, Ordering::Relaxed);
                }
                // The write that comes next says what is wrong.
                Err(error) => tracing::debug!(%error, "the master did not hear that this client writes"),
                Ok(_) => {}
            }
        }
    }

    /// Tells the master that this client lives, and hears whether it is known.
    pub(crate) fn ping(&self, deadline: &Deadline) -> Result<ClientStatus> {
        let args = ClientArgs { client_id: self.client_id };
        let answer = self
            .call::<call::Ping, _>(&args, deadline, Repeat::Harmless, |reply| reply.map(|pong| pong.client_status))?;
        answer.map_err(|code| Error::from_master("Ping", code))
    }

    // Segments.

    pub(crate) fn mount(&self, segment: &Segment, deadline: &Deadline) -> Result<()> {
        let args = MountSegmentArgs { segment: segment.clone(), client_id: self.client_id };
        self.command::<call::MountSegment>(&args, deadline)
    }

    pub(crate) fn remount(&self, segments: Vec<Segment>, deadline: &Deadline) -> Result<()> {
        let args = ReMountSegmentArgs { segments, client_id: self.client_id };
        self.command::<call::ReMountSegment>(&args, deadline)
    }

    pub(crate) fn unmount(&self, segment_id: SegmentId, deadline: &Deadline) -> Result<()> {
        let args = UnmountSegmentArgs { segment_id, client_id: self.client_id };
        self.command::<call::UnmountSegment>(&args, deadline)
    }

    /// No new objects from now on; the present ones go when the time is over.
    pub(crate) fn unmount_after(&self, segment_id: SegmentId, grace: Duration, deadline: &Deadline) -> Result<()> {
        let grace_period_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        let args = GracefulUnmountSegmentArgs { segment_id, client_id: self.client_id, grace_period_ms };
        self.command::<call::GracefulUnmountSegment>(&args, deadline)
    }

    /// Whether the master still has the segment.
    pub(crate) fn has_segment(&self, segment_id: SegmentId, deadline: &Deadline) -> Result<bool> {
        let args = SegmentIdArgs { segment_id };
        let answer = self.call::<call::QuerySegmentStatusById, _>(&args, deadline, Repeat::Harmless, |reply| reply)?;
        match answer {
            Ok(_) => Ok(true),
            Err(ErrorCode::SEGMENT_NOT_FOUND) => Ok(false),
            Err(code) => Err(Error::from_master("QuerySegmentStatusById", code)),
        }
    }

    // Lookup.

    pub(crate) fn lookup(&self, keys: &[&[u8]], deadline: &Deadline) -> Result<PerKey<GetReplicaListResponse>> {
        let tenant_id = self.tenant.as_slice();
        if let [key] = keys {
            let args = KeyArgs { key, tenant_id };
            return self.call::<call::GetReplicaList, _>(&args, deadline, Repeat::Harmless, |reply| smallvec![reply]);
        }
        let args = KeysArgs { keys: List::from(keys), tenant_id };
        let answers = self.call::<call::BatchGetReplicaList, _>(&args, deadline, Repeat::Harmless, collect)?;
        self.complete("BatchGetReplicaList", keys.len(), answers, deadline)
    }

    pub(crate) fn exists(&self, keys: &[&[u8]], deadline: &Deadline) -> Result<PerKey<bool>> {
        let tenant_id = self.tenant.as_slice();
        if let [key] = keys {
            let args = KeyArgs { key, tenant_id };
            return self.call::<call::ExistKey, _>(&args, deadline, Repeat::Harmless, |reply| smallvec![reply]);
        }
        let args = KeysArgs { keys: List::from(keys), tenant_id };
        let answers = self.call::<call::BatchExistKey, _>(&args, deadline, Repeat::Harmless, collect)?;
        self.complete("BatchExistKey", keys.len(), answers, deadline)
    }

    /// Keys that match, with their replicas.
    pub(crate) fn lookup_by_regex(
        &self,
        pattern: &[u8],
        deadline: &Deadline,
    ) -> Result<Vec<(Vec<u8>, Vec<ReplicaDescriptor>)>> {
        let args = PatternArgs { regex: pattern, tenant_id: &self.tenant };
        let answer = self.call::<call::GetReplicaListByRegex, _>(&args, deadline, Repeat::NeverSlow, |reply| {
            reply.map(|found| found.0.into_iter().map(|(key, replicas)| (key.to_vec(), replicas)).collect())
        })?;
        answer.map_err(|code| Error::from_master("GetReplicaListByRegex", code))
    }

    // Removal.

    pub(crate) fn remove(&self, keys: &[&[u8]], force: bool, deadline: &Deadline) -> Result<PerKey<()>> {
        let tenant_id = self.tenant.as_slice();
        if let [key] = keys {
            let args = RemoveArgs { key, force, tenant_id };
            return self.call::<call::Remove, _>(&args, deadline, Repeat::Never, |reply| smallvec![reply]);
        }
        let args = BatchRemoveArgs { keys: List::from(keys), force, tenant_id };
        let answers = self.call::<call::BatchRemove, _>(&args, deadline, Repeat::Never, collect)?;
        self.complete("BatchRemove", keys.len(), answers, deadline)
    }

    /// How many were removed.
    pub(crate) fn remove_by_regex(&self, pattern: &[u8], force: bool, deadline: &Deadline) -> Result<u64> {
        let args = RemoveArgs { key: pattern, force, tenant_id: &self.tenant };
        let answer = self.call::<call::RemoveByRegex, _>(&args, deadline, Repeat::NeverSlow, |reply| reply)?;
        let removed = answer.map_err(|code| Error::from_master("RemoveByRegex", code))?;
        count("RemoveByRegex", removed)
    }

    /// How many were removed.
    pub(crate) fn remove_all(&self, force: bool, deadline: &Deadline) -> Result<u64> {
        let args = RemoveAllArgs { force, tenant_id: &self.tenant };
        let removed = self.call::<call::RemoveAll, _>(&args, deadline, Repeat::NeverSlow, |reply| reply)?;
        count("RemoveAll", removed)
    }

    /// A reply must have an answer for every key.
    fn complete<T>(
        &self,
        rpc: &'static str,
        expected: usize,
        answers: PerKey<T>,
        deadline: &Deadline,
    ) -> Result<PerKey<T>> {
        if answers.len() == expected {
            return Ok(answers);
        }
        let reason = format!("{} answers for {expected} keys", answers.len());
        Err(Error::MasterUnreachable(Box::new(self.failure(rpc, deadline, reason))))
    }
}

/// Generations 0.3.13 and 0.3.14 share a port; an older one is spoken to in its own words only.
fn newest_beside(version: WireVersion) -> WireVersion {
    if version == WireVersion::V0_3_13 { WireVersion::V0_3_14 } else { version }
}

fn collect<T>(answers: Vec<ErrorOr<T>>) -> PerKey<T> {
    PerKey::from_vec(answers)
}

/// The peer answers with negative numbers where its counts fail.
fn count(rpc: &'static str, removed: i64) -> Result<u64> {
    u64::try_from(removed).map_err(|_| Error::from_master(rpc, ErrorCode(i32::try_from(removed).unwrap_or(-1))))
}
