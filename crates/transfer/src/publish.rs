//! Keeps an engine's own records in a metadata store.
//!
//! ```text
//! sockets listen -> address record -> description -> (description again after changes, renewals) -> both removed
//! ```
//! Changes that come while a write is under way are written together by the next one. A registration returns when a
//! write that began after it is done, or has failed; a failed write is repeated until it succeeds.

use std::sync::Arc;
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
    stop: bool,
}

/// What stands in the store, as far as we know.
#[derive(Default)]
struct Written {
    version: u64,
    desc: Vec<u8>,
    address: Vec<u8>,
    /// Somebody else has our name now.
    lost: bool,
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
    let timing = Timing { connect: PROBE.min(settings.connect_timeout), max_length: settings.handshake_max_length };
    let limits = Limits { clock, deadline: clock.now() + PROBE, cancel: None };
    let own = SegmentDesc::tcp("").to_json(&timestamp(yb_env::epoch_millis()));
    let reply = exchange(&place.host, place.port, MessageType::Metadata, &own, timing, &limits);
    // The peer's engines with a store do not say who they are.
    reply.is_ok_and(|reply| SegmentDesc::parse(&reply).map_or(reply.starts_with(b"null"), |desc| desc.name == name))
}

impl Publisher {
    pub(crate) fn new(
        (store, keys): (Arc<dyn MetadataStore>, Keys),
        name: Arc<str>,
        address: HandshakeAddress,
        settings: &EngineSettings,
        clock: Clock,
    ) -> Self {
        Publisher {
            store,
            keys,
            name,
            lease: Lease::new(settings.metadata_lease, &mut Rng::from_entropy()),
            address: RpcMeta { host: address.host, port: address.port, metadata_version: None },
            clock,
            state: Mutex::default(),
            wake: Condvar::new(),
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

    /// Ends [`Publisher::run`].
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.wake.notify_all();
    }

    /// Publishes and renews until stopped, then removes the records.
    pub(crate) fn run(&self, own: impl Fn(u64) -> SegmentDesc) {
        let renewal = self.lease.ttl() / 3;
        let mut renew_at = self.clock.now() + renewal;
        let mut retry: Option<(MonotonicTime, Duration)> = None;
        while let Some(wanted) = self.next(retry.map(|(at, _)| at), renew_at) {
            let mut written = self.written.lock();
            let now = self.clock.now();
            let mut done = Ok(());
            if now >= renew_at {
                renew_at = now + renewal;
                done = self.renew(&mut written, &own);
            }
            let due = wanted.is_some() || retry.is_some_and(|(at, _)| at <= now);
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
            if let Some(wanted) = wanted {
                self.state.lock().settled = wanted;
                self.wake.notify_all();
            }
        }
        self.remove();
    }

    /// Waits for something to do: `Some(change)` to write, `None` inside when only the time has come; `None` to end.
    fn next(&self, retry_at: Option<MonotonicTime>, renew_at: MonotonicTime) -> Option<Option<u64>> {
        let until = retry_at.map_or(renew_at, |retry_at| retry_at.min(renew_at));
        let mut state = self.state.lock();
        loop {
            if state.stop {
                return None;
            }
            if state.wanted > state.settled && state.held == 0 {
                return Some(Some(state.wanted));
            }
            let left = until.since(self.clock.now());
            if left.is_zero() {
                return Some(None);
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
            Some(record) if record == written.address && renewal != Renewal::Lost => Ok(()),
            Some(record) if record != written.address => {
                let text = String::from_utf8_lossy(&record).into_owned();
                tracing::error!(
                    name = &*self.name,
                    text,
                    "another engine has taken the name; this one publishes no more"
                );
                written.lost = true;
                Ok(())
            }
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
