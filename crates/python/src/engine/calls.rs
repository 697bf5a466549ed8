//! What the calls of an engine have in common: lists made into ranges, waiting, numbers.

use std::sync::Arc;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use yb_classic::{BatchId, ClassicError, Opcode, Range, expand_pages};

use crate::convert::{Text, Unsigned};
use crate::engine::address::{Hold, Place};
use crate::engine::live::{Call, FAILED, Live, Start, zero_or_failed};
use crate::engine::notify::TransferNotify;
use crate::engine::pages::{Words, same_length};
use crate::engine::scatter::{ScatterLists, ScatterTransferTicket};
use crate::engine::transfer_engine::TransferEngine;
use crate::engine::wait::{interruptible, on_main_thread};
use crate::enums::TransferOpcode;

/// Lists of our places, the peer's addresses, and lengths.
pub(crate) struct Lists {
    pub(crate) here: Vec<Place>,
    pub(crate) there: Vec<Unsigned>,
    pub(crate) lengths: Vec<Unsigned>,
}

impl Lists {
    pub(crate) fn one(here: Place, there: Unsigned, length: Unsigned) -> Self {
        Lists { here: vec![here], there: vec![there], lengths: vec![length] }
    }

    /// Ranges and what keeps them alive; `None` for lists of different lengths.
    fn ranges(self, op: Opcode) -> PyResult<Option<(Vec<Range>, Vec<Hold>)>> {
        if self.here.len() != self.there.len() || self.here.len() != self.lengths.len() {
            return Ok(None);
        }
        let mut ranges = Vec::with_capacity(self.here.len());
        let mut holds = Vec::new();
        for ((here, there), length) in self.here.into_iter().zip(self.there).zip(self.lengths) {
            here.check(length.0, op == Opcode::Read)?;
            ranges.push(Range { local: here.address, remote: there.0, len: length.0 });
            holds.extend(here.into_hold());
        }
        Ok(Some((ranges, holds)))
    }
}

/// Which way; `None` for a number that has no name.
pub(crate) fn opcode_of(op: TransferOpcode) -> Option<Opcode> {
    match op.0 {
        0 => Some(Opcode::Read),
        1 => Some(Opcode::Write),
        _ => None,
    }
}

pub(crate) fn not_initialized() -> PyErr {
    PyRuntimeError::new_err("the engine is not initialized, or closed")
}

impl Drop for TransferEngine {
    fn drop(&mut self) {
        // What is under way is stopped first, which may take a moment that belongs to other threads.
        if let Some(live) = self.live.get_mut().take() {
            Python::try_attach(|py| py.detach(|| drop(live)));
        }
    }
}

impl TransferEngine {
    /// Starts an engine and puts it in the place of the one before. 0, or -1.
    pub(crate) fn start_engine(&self, py: Python<'_>, start: Start) -> PyResult<i64> {
        crate::logs::start();
        let started = interruptible(py, move || Live::start(&start))?;
        if let Err(error) = &started {
            tracing::error!(%error, "initialize failed");
        }
        let answer = match started {
            Ok(live) => Ok(self.live.write().replace(live)),
            Err(error) => Err(error),
        };
        Ok(match answer {
            Ok(old) => {
                py.detach(|| drop(old));
                0
            }
            Err(error) => zero_or_failed::<()>(&self.last, Err(error)),
        })
    }

    pub(crate) fn live(&self) -> Option<Arc<Live>> {
        let live = self.live.read().clone().filter(|live| live.is_open());
        if live.is_none() {
            self.last.set("the engine is not initialized, or closed");
        }
        live
    }

    /// Keeps the words and answers the number for what cannot work.
    pub(crate) fn refuse(&self, text: &str) -> i64 {
        self.last.set(text);
        FAILED
    }

    /// Opens the segment first where that may ask its owner, so that signals get through. False: it cannot be opened.
    fn open(&self, py: Python<'_>, live: &Arc<Live>, target: &str) -> PyResult<bool> {
        if live.knows(target) {
            return Ok(true);
        }
        let (of, name) = (Arc::clone(live), target.to_owned());
        let opened = interruptible(py, move || of.open(&name))?;
        Ok(zero_or_failed(&self.last, opened) == 0)
    }

    /// Moves everything, or nothing more when this returns. 0 or -1.
    pub(crate) fn transfer(&self, py: Python<'_>, call: Call, holds: Vec<Hold>) -> PyResult<i64> {
        let Some(live) = self.live() else { return Ok(FAILED) };
        if !self.open(py, &live, &call.target)? {
            return Ok(FAILED);
        }
        if !on_main_thread() {
            let moved = py.detach(|| live.transfer(&call));
            drop(holds);
            return Ok(zero_or_failed(&self.last, moved));
        }
        let batch = match py.detach(|| live.begin(&call, holds)) {
            Ok(batch) => batch,
            Err(error) => return Ok(zero_or_failed::<()>(&self.last, Err(error))),
        };
        if self.finish(py, &live, batch, Interrupted::Stop)? != 0 {
            return Ok(FAILED);
        }
        let Some(notification) = call.notify else { return Ok(0) };
        let sent = interruptible(py, move || live.classic().send_notify_by_name(&call.target, &notification))?;
        Ok(zero_or_failed(&self.last, sent))
    }

    /// Waits until a batch has ended, or its time is up, and spends it. 0 or -1.
    pub(crate) fn finish(
        &self,
        py: Python<'_>,
        live: &Arc<Live>,
        batch: BatchId,
        interrupted: Interrupted,
    ) -> PyResult<i64> {
        let clock = yb_env::Clock::real();
        let until = clock.now() + live.budget(batch);
        let main = on_main_thread();
        loop {
            match py.detach(|| live.ended_in_slice(batch)) {
                Ok(false) if clock.now() < until => {}
                Ok(_) => break,
                Err(error) => {
                    py.detach(|| live.stop(batch));
                    return Ok(zero_or_failed::<()>(&self.last, Err(error)));
                }
            }
            if main && let Err(signal) = py.check_signals() {
                if interrupted == Interrupted::Stop {
                    py.detach(|| live.stop(batch));
                }
                return Err(signal);
            }
        }
        Ok(zero_or_failed(&self.last, py.detach(|| live.result(batch))))
    }

    pub(crate) fn sync(
        &self,
        py: Python<'_>,
        target: Text,
        op: Opcode,
        lists: Lists,
        extra: Extra<'_>,
    ) -> PyResult<i64> {
        let Some((ranges, holds)) = lists.ranges(op)? else {
            return Ok(self.refuse("lists of different lengths"));
        };
        let notify = extra.notify.map(TransferNotify::notification);
        let call = Call { target: target.0, op, ranges, notify, nic_hint: extra.nic_hint.to_owned() };
        self.transfer(py, call, holds)
    }

    /// As `sync` for ranges that are ready.
    pub(crate) fn sync_ranges(
        &self,
        py: Python<'_>,
        target: Text,
        op: Opcode,
        ranges: Vec<Range>,
        nic_hint: &str,
    ) -> PyResult<i64> {
        if ranges.is_empty() {
            return Ok(0);
        }
        let call = Call { target: target.0, op, ranges, notify: None, nic_hint: nic_hint.to_owned() };
        self.transfer(py, call, Vec::new())
    }

    /// As `start` for ranges that are ready.
    pub(crate) fn start_ranges(
        &self,
        py: Python<'_>,
        target: Text,
        op: Opcode,
        ranges: Vec<Range>,
        nic_hint: &str,
    ) -> PyResult<u64> {
        let call = Call { target: target.0, op, ranges, notify: None, nic_hint: nic_hint.to_owned() };
        self.begin(py, call, Vec::new())
    }

    /// The number of a batch, or 0.
    pub(crate) fn start(
        &self,
        py: Python<'_>,
        target: Text,
        op: Opcode,
        lists: Lists,
        nic_hint: &str,
    ) -> PyResult<u64> {
        let Some((ranges, holds)) = lists.ranges(op)? else {
            self.refuse("lists of different lengths");
            return Ok(0);
        };
        let call = Call { target: target.0, op, ranges, notify: None, nic_hint: nic_hint.to_owned() };
        self.begin(py, call, holds)
    }

    fn begin(&self, py: Python<'_>, call: Call, holds: Vec<Hold>) -> PyResult<u64> {
        let Some(live) = self.live() else { return Ok(0) };
        if !self.open(py, &live, &call.target)? {
            return Ok(0);
        }
        match py.detach(|| live.begin(&call, holds)) {
            Ok(batch) => Ok(batch.0),
            Err(error) => {
                self.refuse(&error.to_string());
                Ok(0)
            }
        }
    }

    pub(crate) fn pages(
        &self,
        py: Python<'_>,
        target: Text,
        op: Opcode,
        pages: PageArrays,
        nic_hint: &str,
    ) -> PyResult<i64> {
        let fields = pages.fields.fields()?;
        let (here, there) = (pages.here.list()?, pages.there.list()?);
        same_length(&[&here, &there])?;
        let ranges = match expand_pages(&here, &there, &fields) {
            Ok(ranges) => ranges,
            Err(error) => return Ok(self.refuse(&error.to_string())),
        };
        let most = usize::try_from(pages.max_batch_size.0).ok().filter(|most| *most > 0).unwrap_or(usize::MAX);
        if ranges.is_empty() {
            return Ok(0);
        }
        for part in ranges.chunks(most) {
            let (target, nic_hint) = (target.0.clone(), nic_hint.to_owned());
            let call = Call { target, op, ranges: part.to_vec(), notify: None, nic_hint };
            let answer = self.transfer(py, call, Vec::new())?;
            if answer != 0 {
                return Ok(answer);
            }
        }
        Ok(0)
    }

    pub(crate) fn scatter(
        &self,
        py: Python<'_>,
        endpoint: Text,
        op: Opcode,
        lists: ScatterLists,
    ) -> PyResult<ScatterTransferTicket> {
        let refused = |error: &ClassicError| {
            self.last.set(error.to_string());
            ScatterTransferTicket::refused()
        };
        let regions = match lists.regions() {
            Ok(regions) => regions,
            Err(error) => return Ok(refused(&error)),
        };
        let Some(live) = self.live() else { return Ok(ScatterTransferTicket::refused()) };
        if !self.open(py, &live, &endpoint.0)? {
            return Ok(ScatterTransferTicket::refused());
        }
        let submitted = py.detach(|| live.scatter(&endpoint.0, op, &regions));
        Ok(match submitted {
            Ok(ticket) => ScatterTransferTicket::of(ticket, live),
            Err(error) => refused(&error),
        })
    }

    pub(crate) fn scatter_now(
        &self,
        py: Python<'_>,
        endpoint: Text,
        op: Opcode,
        lists: ScatterLists,
    ) -> PyResult<ScatterTransferTicket> {
        let bytes = lists.lengths.iter().flatten().fold(0_u64, |sum, length| sum.saturating_add(length.0));
        let ticket = self.scatter(py, endpoint, op, lists)?;
        if let Some(live) = self.live() {
            ticket.wait(py, live.classic().budget(bytes))?;
        }
        Ok(ticket)
    }

    pub(crate) fn on_cuda(&self) -> PyResult<()> {
        self.last.set("no CUDA streams");
        Err(PyRuntimeError::new_err("cudaLaunchHostFunc failed: this build does not queue transfers on CUDA streams"))
    }
}

/// What becomes of a batch when a signal handler raises.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// It is stopped, for nobody else knows its number.
    Stop,
    /// It goes on, and can be asked for again.
    GoOn,
}

/// What some calls have beside their lists.
#[derive(Default)]
pub(crate) struct Extra<'a> {
    pub(crate) notify: Option<&'a TransferNotify>,
    pub(crate) nic_hint: &'a str,
}

/// The arrays of the page forms.
pub(crate) struct PageArrays {
    pub(crate) here: Words,
    pub(crate) there: Words,
    pub(crate) fields: Words,
    pub(crate) max_batch_size: Unsigned,
}

pub(crate) fn arrays(here: Words, there: Words, lengths: Words) -> PyResult<Vec<Range>> {
    let (here, there, lengths) = (here.list()?, there.list()?, lengths.list()?);
    same_length(&[&here, &there, &lengths])?;
    let range = |((local, remote), len)| Range { local, remote, len };
    Ok(here.into_iter().zip(there).zip(lengths).map(range).collect())
}
