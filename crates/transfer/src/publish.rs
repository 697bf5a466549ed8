//! Keeps an engine's own records in a metadata store.
//!
//! ```text
//! sockets listen -> address record -> description -> (description again after changes, renewals) -> both removed
//! ```
//! Changes that come while a write is under way are written together by the next one. A registration returns when a
//! write that began after it is done, or has failed; a failed write is repeated until it succeeds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use yb_env::{Clock, Rng};
use yb_metadata::{Keys, Lease, MetadataStore, Renewal, RpcMeta, StoreError, StoreErrorKind};
use yb_types::MonotonicTime;

use crate::directory::HandshakeAddress;
use crate::handshake::client::{Timing, exchange};
use crate::handshake::frame::MessageType;
use crate::metadata::{SegmentDesc, timestamp};
use crate::serving::StartError;
use crate::settings::EngineSettings;
use crate::transport::Limits;

/// How long a process at an older address record may take to say that it lives.
const PROBE: Duration = Duration::from_secs(1);
/// First and longest pause before a failed write is repeated.
const RETRY: Duration = Duration::from_millis(100);
const LONGEST_RETRY: Duration = Duration::from_secs(5);
/// How long a registration waits for its publication.
const PATIENCE: Duration = Duration::from_secs(6);
/// How long the process that had the name before may take to hear that it lost it.
const GREETING: Duration = Duration::from_millis(300);
/// Shortest time between two looks at who has our name.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The records of one engine.
pub(crate) struct Publisher {
    store: Arc<dyn MetadataStore>,
    keys: Keys,
    name: Arc<str>,
    lease: Lease,
    address: RpcMeta,
    clock: Clock,
    state: Mutex<State>,
    wake: Condvar,
    /// The name is another engine's.
    lost: Arc<AtomicBool>,
    /// Serializes what is written.
    written: Mutex<Written>,
}

#[derive(Default)]
struct State {
    /// Counts changes.
    wanted: u64,
    /// Changes that are written, or whose write failed.
    settled: u64,
    /// How many callers make changes that are to be written together.
    held: usize,
    /// Somebody uses our name: the record is to be looked at now.
    look: bool,
    /// Who has our name now, as its record says.
    taken_by: Option<Arc<str>>,
    stop: bool,
}

/// What stands in the store, as far as we know.
#[derive(Default)]
struct Written {
    version: u64,
    desc: Vec<u8>,
    address: Vec<u8>,
    /// Where the engine was that had the name before us.
    older: Option<HandshakeAddress>,
    /// Somebody else has our name now.
    lost: bool,
}

/// What the thread has to do next.
enum Task {
    /// Write what changed, up to this change.
    Write(u64),
    /// Look who has our name.
    Look,
    /// The time has come for a renewal or another try.
    Time,
}

/// Who publishes.
pub(crate) struct Identity {
    pub(crate) name: Arc<str>,
    pub(crate) address: HandshakeAddress,
    /// To be set when the name is another engine's.
    pub(crate) lost: Arc<AtomicBool>,
}

/// While it lives, changes are not written; they are when it goes.
pub(crate) struct Held<'a>(&'a Publisher);

impl<'a> Held<'a> {
    pub(crate) fn new(publisher: &'a Publisher) -> Self {
        publisher.hold();
        Held(publisher)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.release();
    }
}

/// Whether a process that says it is `name` answers at an address.
fn answers(settings: &EngineSettings, clock: &Clock, name: &str, place: &HandshakeAddress) -> bool {
    let timing = Timing { connect: PROBE.min(settings.connect_timeout), ..Timing::of(settings) };
    let limits = Limits { clock, deadline: clock.now() + PROBE, cancel: None };
    let own = SegmentDesc::tcp("").to_json(&timestamp(yb_env::epoch_millis()));
    let reply = exchange(&place.host, place.port, MessageType::Metadata, &own, &timing, &limits);
    // The peer's engines with a store do not say who they are.
    reply.is_ok_and(|reply| SegmentDesc::parse(&reply).map_or(reply.starts_with(b"null"), |desc| desc.name == name))
}

/// Who a record says has a name, in words.
fn owner_in(record: &[u8]) -> Arc<str> {
    let place = RpcMeta::parse(record).map(|found| HandshakeAddress { host: found.host, port: found.port }.to_string());
    place.unwrap_or_else(|| String::from_utf8_lossy(record).into_owned()).into()
}

impl Publisher {
    pub(crate) fn new(
        (store, keys): (Arc<dyn MetadataStore>, Keys),
        identity: Identity,
        settings: &EngineSettings,
        clock: Clock,
    ) -> Self {
        let Identity { name, address, lost } = identity;
        Publisher {
            store,
            keys,
            name,
            lease: Lease::new(settings.metadata_lease, &mut Rng::from_entropy()),
            address: RpcMeta { host: address.host, port: address.port, metadata_version: None },
            clock,
            state: Mutex::default(),
            wake: Condvar::new(),
            lost,
            written: Mutex::default(),
        }
    }

    /// Takes the name: an older record of it goes away, unless its owner lives and the store protects it. `own` makes
    /// our description.
    ///
    /// # Errors
    /// [`StartError::NameTaken`], [`StartError::Metadata`]; nothing of ours is left in the store then.
    pub(crate) fn claim(&self, settings: &EngineSettings, own: impl Fn(u64) -> SegmentDesc) -> Result<(), StartError> {
        let mut written = self.written.lock();
        written.version = now_micros();
        let older = self.store.get(&self.keys.rpc_meta(&self.name)).map_err(|error| self.failed(error))?;
        let older = older.as_deref().and_then(RpcMeta::parse);
        let is_ours = |place: &HandshakeAddress| place.host == self.address.host && place.port == self.address.port;
        written.older =
            older.map(|older| HandshakeAddress { host: older.host, port: older.port }).filter(|place| !is_ours(place));
        let claimed = self.put_address(&mut written).or_else(|error| match error.kind() {
            StoreErrorKind::Duplicate => self.replace(settings, &mut written),
            _ => Err(self.failed(error)),
        });
        claimed?;
        let described = self.store.get(&self.keys.segment(&self.name)).and_then(|older| {
            // A reader that knows the predecessor's description takes only a newer one.
            let older = older.and_then(|older| SegmentDesc::parse(&older).ok()).and_then(|desc| desc.metadata_version);
            written.version = older.map_or(written.version, |older| written.version.max(older + 1));
            self.put_desc(&mut written, &own)
        });
        described.map_err(|error| {
            let _ = self.store.withdraw(&self.keys.rpc_meta(&self.name), &written.address, &self.lease);
            self.failed(error)
        })
    }

    fn failed(&self, source: StoreError) -> StartError {
        StartError::Metadata { name: self.name.to_string(), source }
    }

    /// The store keeps the older address record: it is removed when nobody answers there.
    fn replace(&self, settings: &EngineSettings, written: &mut Written) -> Result<(), StartError> {
        let key = self.keys.rpc_meta(&self.name);
        let older = self.store.get(&key).map_err(|error| self.failed(error))?;
        if let Some(older) = older.as_deref().and_then(RpcMeta::parse) {
            // We listen at our own address: who left a record of it is gone, and it would be us who answers.
            let is_ours = older.host == self.address.host && older.port == self.address.port;
            let place = HandshakeAddress { host: older.host, port: older.port };
            if !is_ours && answers(settings, &self.clock, &self.name, &place) {
                return Err(StartError::NameTaken { name: self.name.to_string(), address: place.to_string() });
            }
            tracing::info!(name = &*self.name, %place, "the record of a process that is gone is replaced");
        }
        self.store.delete(&key).and_then(|_| self.put_address(written)).map_err(|error| self.failed(error))
    }

    fn put_address(&self, written: &mut Written) -> Result<(), StoreError> {
        let record = RpcMeta { metadata_version: Some(written.version), ..self.address.clone() }.to_json();
        self.store.put(&self.keys.rpc_meta(&self.name), &record, Some(&self.lease))?;
        written.address = record;
        Ok(())
    }

    fn put_desc(&self, written: &mut Written, own: &impl Fn(u64) -> SegmentDesc) -> Result<(), StoreError> {
        written.version = now_micros().max(written.version + 1);
        let record = own(written.version).to_compact(&timestamp(yb_env::epoch_millis()));
        self.store.put(&self.keys.segment(&self.name), &record, Some(&self.lease))?;
        written.desc = record;
        Ok(())
    }

    /// The version of what stands in the store.
    pub(crate) fn version(&self) -> u64 {
        self.written.lock().version
    }

    /// Something that the description tells has changed: it is written, by the thread that [`Publisher::run`]s.
    /// Waits until that has happened or failed.
    pub(crate) fn changed(&self) {
        let mut state = self.state.lock();
        state.wanted += 1;
        if state.held == 0 {
            self.settle(&mut state);
        }
    }

    /// As [`Publisher::changed`], without waiting.
    pub(crate) fn stale(&self) {
        self.state.lock().wanted += 1;
        self.wake.notify_all();
    }

    fn hold(&self) {
        self.state.lock().held += 1;
    }

    fn release(&self) {
        let mut state = self.state.lock();
        state.held -= 1;
        if state.held == 0 {
            self.settle(&mut state);
        }
    }

    fn settle(&self, state: &mut MutexGuard<'_, State>) {
        let mine = state.wanted;
        self.wake.notify_all();
        while state.settled < mine && !state.stop {
            if self.wake.wait_for(state, PATIENCE).timed_out() {
                tracing::warn!(name = &*self.name, "the metadata store is slow; the change is published later");
                return;
            }
        }
    }

    /// Somebody who says that it has our name has spoken to us: the record tells whose it is now.
    pub(crate) fn met_namesake(&self) {
        self.state.lock().look = true;
        self.wake.notify_all();
    }

    /// Where the engine is that has taken our name, if one has.
    pub(crate) fn taken_by(&self) -> Option<Arc<str>> {
        self.state.lock().taken_by.clone()
    }

    /// As [`Publisher::taken_by`], by what the store says now. A store that does not answer changes nothing.
    pub(crate) fn confirm(&self) -> Option<Arc<str>> {
        let mut written = self.written.lock();
        if !written.lost
            && let Ok(Some(record)) = self.store.get(&self.keys.rpc_meta(&self.name))
        {
            self.compare(&mut written, &record);
        }
        drop(written);
        self.taken_by()
    }

    /// Whether the record of our name is ours; if it is not, the name is given up.
    fn compare(&self, written: &mut Written, record: &[u8]) -> bool {
        if record == written.address {
            return true;
        }
        let by = owner_in(record);
        tracing::error!(
            name = &*self.name,
            by = &*by,
            "another engine has taken the name; this one publishes no more: give every client a name of its own"
        );
        written.lost = true;
        self.lost.store(true, Ordering::Release);
        self.state.lock().taken_by = Some(by);
        false
    }

    /// Tells the engine that had the name before us: it has lost it, and finds that out when it looks. One that is gone
    /// does not answer, and one of the peer does not mind.
    fn greet_older(&self, settings: &EngineSettings) {
        let Some(place) = self.written.lock().older.take() else { return };
        let timing = Timing { connect: GREETING, ..Timing::of(settings) };
        let limits = Limits { clock: &self.clock, deadline: self.clock.now() + GREETING, cancel: None };
        let own = SegmentDesc::tcp(&*self.name).to_json(&timestamp(yb_env::epoch_millis()));
        if exchange(&place.host, place.port, MessageType::Metadata, &own, &timing, &limits).is_ok() {
            tracing::warn!(name = &*self.name, %place, "this name was another engine's, which still answers; it is ours now");
        }
    }

    /// Ends [`Publisher::run`].
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_all();
    }

    /// Publishes and renews until stopped, then removes the records.
    pub(crate) fn run(&self, settings: &EngineSettings, own: impl Fn(u64) -> SegmentDesc) {
        self.greet_older(settings);
        let renewal = self.lease.ttl() / 3;
        let (mut renew_at, mut look_at) = (self.clock.now() + renewal, self.clock.now());
        let mut retry: Option<(MonotonicTime, Duration)> = None;
        while let Some(task) = self.next((retry.map(|(at, _)| at), renew_at), look_at) {
            let mut written = self.written.lock();
            let now = self.clock.now();
            let mut done = Ok(());
            if now >= renew_at || matches!(task, Task::Look) {
                (renew_at, look_at) = (now + renewal, now + LOOK_AGAIN);
                done = self.renew(&mut written, &own);
            }
            let due = matches!(task, Task::Write(_)) || retry.is_some_and(|(at, _)| at <= now);
            if due && done.is_ok() && !written.lost {
                done = self.put_desc(&mut written, &own);
            }
            drop(written);
            if due || done.is_err() {
                retry = done.err().map(|error| {
                    tracing::warn!(name = &*self.name, %error, "the metadata store has an older description of us");
                    let pause = retry.map_or(RETRY, |(_, pause)| (pause * 2).min(LONGEST_RETRY));
                    (now + pause, pause)
                });
            }
            if let Task::Write(wanted) = task {
                self.state.lock().settled = wanted;
                self.wake.notify_all();
            }
        }
        self.remove();
    }

    /// Waits for something to do; `None` to end.
    fn next(
        &self,
        (retry_at, renew_at): (Option<MonotonicTime>, MonotonicTime),
        look_at: MonotonicTime,
    ) -> Option<Task> {
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return None;
            }
            if state.wanted > state.settled && state.held == 0 {
                return Some(Task::Write(state.wanted));
            }
            let now = self.clock.now();
            if state.look && look_at <= now {
                state.look = false;
                return Some(Task::Look);
            }
            let until = retry_at.map_or(renew_at, |retry_at| retry_at.min(renew_at));
            let until = if state.look { until.min(look_at) } else { until };
            let left = until.since(now);
            if left.is_zero() {
                return Some(Task::Time);
            }
            self.wake.wait_for(&mut state, left);
        }
    }

    fn renew(&self, written: &mut Written, own: &impl Fn(u64) -> SegmentDesc) -> Result<(), StoreError> {
        if written.lost {
            return Ok(());
        }
        let renewal = self.store.renew(&self.lease)?;
        let current = self.store.get(&self.keys.rpc_meta(&self.name))?;
        match current {
            Some(record) if !self.compare(written, &record) => Ok(()),
            Some(_) if renewal != Renewal::Lost => Ok(()),
            _ => {
                tracing::warn!(name = &*self.name, "the metadata store has lost our records; they are written again");
                self.put_address(written).and_then(|()| self.put_desc(written, own))
            }
        }
    }

    fn remove(&self) {
        let written = self.written.lock();
        // A store that does not answer is asked once: whoever ends must not wait for it again and again.
        let address = self.store.withdraw(&self.keys.rpc_meta(&self.name), &written.address, &self.lease);
        let desc = || self.store.withdraw(&self.keys.segment(&self.name), &written.desc, &self.lease);
        if let Err(error) = address.and_then(|()| desc()).and_then(|()| self.store.end(&self.lease)) {
            tracing::warn!(name = &*self.name, %error, "records stay in the metadata store");
        }
    }
}

/// Microseconds since 1970: versions grow over restarts.
fn now_micros() -> u64 {
    yb_env::epoch_millis() * 1000
}
