//! Scattered transfers.

use parking_lot::Mutex;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use std::sync::Arc;
use std::time::Duration;
use yb_classic::{BufferEntry, ClassicError, ScatterPiece, ScatterRegion, ScatterStatus, ScatterTicket, StatusCode};

use crate::convert::Unsigned;
use crate::engine::live::Live;
use crate::engine::wait::{SLICE, on_main_thread};
use crate::enums::ScatterTransferCompletionStatus;

/// The regions and pieces as the peer takes them: six lists of one length, three of lists.
pub(crate) struct ScatterLists {
    pub(crate) local: Vec<Unsigned>,
    pub(crate) local_capacities: Vec<Unsigned>,
    pub(crate) remote: Vec<Unsigned>,
    pub(crate) remote_capacities: Vec<Unsigned>,
    pub(crate) local_offsets: Vec<Vec<Unsigned>>,
    pub(crate) remote_offsets: Vec<Vec<Unsigned>>,
    pub(crate) lengths: Vec<Vec<Unsigned>>,
}

impl ScatterLists {
    /// The pairs of regions; refused when the lists do not fit together.
    pub(crate) fn regions(&self) -> Result<Vec<ScatterRegion>, ClassicError> {
        let count = self.local.len();
        let alike = [
            self.local_capacities.len(),
            self.remote.len(),
            self.remote_capacities.len(),
            self.local_offsets.len(),
            self.remote_offsets.len(),
            self.lengths.len(),
        ];
        if alike.iter().any(|length| *length != count) {
            return Err(ClassicError::new(StatusCode::InvalidArgument, "the lists of regions differ in length"));
        }
        (0..count).map(|index| self.region(index)).collect()
    }

    fn region(&self, index: usize) -> Result<ScatterRegion, ClassicError> {
        let at = |list: &[Unsigned]| list.get(index).map_or(0, |number| number.0);
        let inner = |list: &[Vec<Unsigned>]| -> Vec<u64> {
            list.get(index).map(|numbers| Unsigned::list(numbers).collect()).unwrap_or_default()
        };
        let (here, there, lengths) = (inner(&self.local_offsets), inner(&self.remote_offsets), inner(&self.lengths));
        if here.len() != there.len() || here.len() != lengths.len() {
            return Err(ClassicError::new(StatusCode::InvalidArgument, "the lists of pieces differ in length"));
        }
        let piece = |((local_offset, remote_offset), len)| ScatterPiece { local_offset, remote_offset, len };
        Ok(ScatterRegion {
            local: BufferEntry { address: at(&self.local), len: at(&self.local_capacities) },
            remote: BufferEntry { address: at(&self.remote), len: at(&self.remote_capacities) },
            pieces: here.into_iter().zip(there).zip(lengths).map(piece).collect(),
        })
    }
}

enum State {
    Open(ScatterTicket),
    /// Refused before anything was started.
    Refused,
}

/// A scattered transfer under way. Keeps the engine alive.
#[pyclass(module = "mooncake.engine", frozen)]
pub(crate) struct ScatterTransferTicket {
    state: Mutex<State>,
    live: Option<Arc<Live>>,
}

impl ScatterTransferTicket {
    /// Of a transfer that was started, or refused by the engine.
    pub(crate) fn of(ticket: ScatterTicket, live: Arc<Live>) -> Self {
        ScatterTransferTicket { state: Mutex::new(State::Open(ticket)), live: Some(live) }
    }

    /// Of one that was refused.
    pub(crate) fn refused() -> Self {
        ScatterTransferTicket { state: Mutex::new(State::Refused), live: None }
    }

    /// Waits for the end, in slices where signals are looked after.
    pub(crate) fn wait(&self, py: Python<'_>, patience: Duration) -> PyResult<ScatterTransferCompletionStatus> {
        let clock = yb_env::Clock::real();
        let until = clock.now() + patience;
        loop {
            let left = until.since(clock.now());
            let slice = if on_main_thread() { left.min(SLICE) } else { left };
            let status = py.detach(|| self.drained_in(slice));
            if status != ScatterStatus::Unknown || left <= slice {
                return Ok(named(status));
            }
            py.check_signals()?;
        }
    }

    fn drained_in(&self, patience: Duration) -> ScatterStatus {
        let usable = self.live.as_ref().is_some_and(|live| live.is_open());
        match &mut *self.state.lock() {
            State::Open(ticket) if usable => ticket.drain(patience),
            // The engine has ended, so nothing is in flight.
            State::Open(ticket) if ticket.status() == ScatterStatus::Unknown => ScatterStatus::FailedDrained,
            State::Open(ticket) => ticket.status(),
            State::Refused => ScatterStatus::FailedDrained,
        }
    }

    fn known(&self) -> ScatterStatus {
        match &*self.state.lock() {
            State::Open(ticket) => ticket.status(),
            State::Refused => ScatterStatus::FailedDrained,
        }
    }
}

fn named(status: ScatterStatus) -> ScatterTransferCompletionStatus {
    ScatterTransferCompletionStatus(status as i32)
}

#[pymethods]
impl ScatterTransferTicket {
    /// What is known so far; only `drain` finds out more.
    #[getter]
    fn status(&self) -> ScatterTransferCompletionStatus {
        named(self.known())
    }

    /// Whether it is known that nothing is in flight.
    #[getter]
    fn drained(&self) -> bool {
        self.known() != ScatterStatus::Unknown
    }

    /// Waits until nothing is in flight, at most so many milliseconds, and says what is known then.
    #[pyo3(signature = (timeout_ms, /))]
    fn drain(&self, py: Python<'_>, timeout_ms: Unsigned) -> PyResult<ScatterTransferCompletionStatus> {
        let millis = i64::try_from(timeout_ms.0).map_err(|_| PyTypeError::new_err("timeout_ms is too large"))?;
        self.wait(py, Duration::from_millis(millis.unsigned_abs()))
    }
}
