//! What all calls of one dummy share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};
use yb_client::{Error, Health, NoRoom, Result};
use yb_env::{Clock, Rng};
use yb_mem::{MemorySegment, SegmentOptions};
use yb_types::ClientId;
use yb_wire::call;
use yb_wire::messages::{ClientArgs, NoArgs};

use crate::config::{DummyConfig, LEAST_STAGE};
use crate::link::DaemonLink;
use crate::pulse::Pulse;
use crate::side::SideChannel;
use crate::stage::{Place, Stage};
use crate::windows::Windows;

/// Something that answers and knows no dummies is, as a rule, a master: the two ports are mistaken for each other.
fn no_daemon(link: &DaemonLink, error: Error) -> Error {
    match error {
        Error::Rejected { .. } => {
            let reason = format!(
                "what answers at {} is no daemon; mooncake_client is one, at its --port (50052)",
                link.address()
            );
            Error::Setup { stage: "attaching to the daemon", reason }
        }
        other => other,
    }
}

/// The inside of a dummy.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) id: ClientId,
    pub(crate) link: DaemonLink,
    pub(crate) side: SideChannel,
    pub(crate) windows: Windows,
    pub(crate) stage: RwLock<Arc<Stage>>,
    pub(crate) stage_bytes: u64,
    pub(crate) attached: AtomicBool,
    closed: AtomicBool,
    pulse: Mutex<Option<Pulse>>,
}

impl Core {
    /// Attaches to a daemon.
    pub(crate) fn attach(config: &DummyConfig) -> Result<Arc<Core>> {
        let id = ClientId(Rng::from_entropy().uuid());
        let link = DaemonLink::new(config, Clock::real())?;
        link.control::<call::ServiceReadyInternal, ()>(&NoArgs {}).map_err(|error| no_daemon(&link, error))?;
        let stage_bytes = config.local_buffer_size.max(LEAST_STAGE);
        let stage = Stage::of(segment(stage_bytes)?);
        let core = Arc::new(Core {
            id,
            side: SideChannel::new(link.port(), id),
            link,
            windows: Windows::default(),
            stage: RwLock::new(Arc::clone(&stage)),
            stage_bytes,
            attached: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            pulse: Mutex::new(None),
        });
        core.hand_over_stage(&stage)?;
        core.beat()?;
        let pulse = Pulse::start(Arc::downgrade(&core), config.ping_interval);
        *core.pulse.lock() =
            Some(pulse.map_err(|error| Error::Setup { stage: "the ping thread", reason: error.to_string() })?);
        Ok(core)
    }

    /// # Errors
    /// [`Error::Closed`].
    pub(crate) fn open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// As last seen by the ping thread.
    pub(crate) fn health(&self) -> Health {
        match (self.open(), self.attached.load(Ordering::Acquire)) {
            (Err(_), _) => Health::Closed,
            (Ok(()), true) => Health::Healthy,
            (Ok(()), false) => Health::MasterUnreachable,
        }
    }

    /// Room for a value of `len` bytes in the stage; `None` when there is none at the moment.
    pub(crate) fn place(&self, len: u64) -> Option<Place> {
        let stage = Arc::clone(&self.stage.read());
        stage.place(len)
    }

    /// Room for a value of `len` bytes in a window of its own.
    pub(crate) fn own_place(&self, len: u64) -> Result<Place> {
        // Whole pages: a tail shorter than a cache line would not be given out.
        let stage = Stage::of(segment(len.max(1).checked_next_multiple_of(4096).unwrap_or(u64::MAX))?);
        self.hand_over_stage(&stage)?;
        stage.place(len).ok_or(Error::NoSpace(NoRoom::Untold))
    }

    /// Gives room back. With the last place of a stage that is not the current one its window goes.
    pub(crate) fn give_back(&self, places: Vec<Place>) {
        let current = Arc::clone(&self.stage.read());
        let own = places.iter().any(|place| !Arc::ptr_eq(place.stage(), &current));
        drop(places);
        if own {
            drop(current);
            // A daemon that is silent is told later, by the ping thread.
            if !self.link.is_silent() {
                self.withdraw_unused();
            }
        }
    }

    /// The daemon may still be at work on these: a new stage takes the place of theirs.
    pub(crate) fn lose(&self, places: &mut [Place]) {
        let mut current = self.stage.write();
        for place in places.iter_mut() {
            place.lose();
        }
        if !places.iter().any(|place| Arc::ptr_eq(place.stage(), &current)) {
            return;
        }
        match segment(self.stage_bytes) {
            Ok(memory) => {
                let fresh = Stage::of(memory);
                // The daemon gets it with the next ping, or with the first call that it refuses.
                self.list_stage(&fresh);
                *current = fresh;
            }
            Err(error) => tracing::warn!(%error, "no memory for a new staging window"),
        }
    }

    /// Leaves the daemon. The second time nothing happens.
    pub(crate) fn close(&self) {
        if self.closed.swap(true, Ordering::AcqRel) {
            return;
        }
        let pulse = self.pulse.lock().take();
        drop(pulse);
        let left = self.link.control::<call::UnmapShmInternal, ()>(&ClientArgs { client_id: self.id });
        if let Err(error) = left {
            tracing::debug!(%error, "the daemon was not told that a dummy client leaves");
        }
        self.link.shutdown();
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.close();
    }
}

fn segment(len: u64) -> Result<Arc<MemorySegment>> {
    let made = MemorySegment::create(len, SegmentOptions::default());
    made.map(Arc::new).map_err(|error| Error::Setup { stage: "shared memory", reason: format!("{len} bytes: {error}") })
}
