//! An engine that is initialized, and its operations in the peer's numbers. The caller has released the interpreter.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use yb_classic::{
    AsyncState, BatchId, BufferEntry, ClassicEngine, ClassicError, ClassicOptions, Notification, Opcode, Protocol,
    Range, ScatterRegion, ScatterTicket, StatusCode, SyncOptions, device_list,
};
use yb_mem::{CopyHint, ForeignMemory, LocalBuffer, Span, copy};

use crate::engine::address::{Hold, is_mapped};
use crate::engine::managed::Managed;
use crate::engine::wait::SLICE;
use crate::last_error::LastWords;

/// What most calls answer to whatever cannot work.
pub(crate) const FAILED: i64 = -1;

/// Engines to be ended with the interpreter, and by whose names transfers stay in this process.
static LIVE: Mutex<Vec<Weak<Live>>> = Mutex::new(Vec::new());

/// Ends every engine of the process, so that none of their threads is left when the interpreter goes.
pub(crate) fn close_all() {
    let live: Vec<Arc<Live>> = LIVE.lock().drain(..).filter_map(|live| live.upgrade()).collect();
    for live in live {
        live.close();
    }
}

/// Where an engine is started, as the caller said it.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    pub(crate) host: String,
    pub(crate) metadata: String,
    pub(crate) protocol: String,
    pub(crate) devices: String,
}

/// One transfer call.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) target: String,
    pub(crate) op: Opcode,
    pub(crate) ranges: Vec<Range>,
    pub(crate) notify: Option<Notification>,
    pub(crate) nic_hint: String,
}

impl Call {
    fn bytes(&self) -> u64 {
        self.ranges.iter().fold(0, |sum, range| sum.saturating_add(range.len))
    }

    fn options(&self, notify: Option<Notification>) -> SyncOptions {
        SyncOptions { notify, nic_hint: (!self.nic_hint.is_empty()).then(|| self.nic_hint.as_str().into()) }
    }
}

/// An asynchronous call that was not asked for yet.
struct UnderWay {
    bytes: u64,
    _holds: Vec<Hold>,
}

/// The engine, what its batches use, and the buffers it made.
pub(crate) struct Live {
    classic: std::mem::ManuallyDrop<ClassicEngine>,
    managed: Managed,
    /// Segments that were opened before, so that using them asks nobody.
    known: Mutex<BTreeSet<String>>,
    under_way: Mutex<BTreeMap<u64, UnderWay>>,
    registered: Mutex<BTreeMap<u64, Hold>>,
    closed: AtomicBool,
    /// The process that the engine's threads are in.
    process: u32,
}

impl Drop for Live {
    fn drop(&mut self) {
        if self.is_here() {
            // SAFETY: nothing uses the field after this.
            unsafe { std::mem::ManuallyDrop::drop(&mut self.classic) };
        }
    }
}

impl Live {
    /// Starts an engine.
    pub(crate) fn start(start: &Start) -> Result<Arc<Live>, ClassicError> {
        let options = ClassicOptions {
            protocol: protocol(&start.protocol)?,
            filters: device_list(&start.devices),
            ..ClassicOptions::new(&start.metadata, &start.host)
        };
        let live = Arc::new(Live {
            classic: std::mem::ManuallyDrop::new(ClassicEngine::start(options)?),
            managed: Managed::default(),
            known: Mutex::default(),
            under_way: Mutex::default(),
            registered: Mutex::default(),
            closed: AtomicBool::new(false),
            process: std::process::id(),
        });
        let mut all = LIVE.lock();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&live));
        Ok(live)
    }

    /// The engine in the API that this module speaks.
    pub(crate) fn classic(&self) -> &ClassicEngine {
        &self.classic
    }

    /// Whether calls can work: not after `close`, and not in a child made by fork, which has none of the threads.
    pub(crate) fn is_open(&self) -> bool {
        self.is_here() && !self.closed.load(Ordering::SeqCst)
    }

    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Ends the engine; nothing is in flight after it.
    pub(crate) fn close(&self) {
        if self.is_here() && !self.closed.swap(true, Ordering::SeqCst) {
            self.classic.shutdown();
        }
    }

    /// Whether using the segment asks nobody first.
    pub(crate) fn knows(&self, name: &str) -> bool {
        self.known.lock().contains(name)
    }

    /// Opens a segment.
    pub(crate) fn open(&self, name: &str) -> Result<(), ClassicError> {
        self.classic.open_segment(name)?;
        self.known.lock().insert(name.to_owned());
        Ok(())
    }

    /// Refuses memory that is not there: ours, and the target's where that is an engine of this process.
    fn check(&self, call: &Call) -> Result<(), ClassicError> {
        let gone = |address: u64, len: u64| {
            let detail = format!("{address:#x}+{len} is not memory that can be used so");
            Err(ClassicError::new(StatusCode::Memory, detail))
        };
        let read = call.op == Opcode::Read;
        for range in &call.ranges {
            if !is_mapped(range.local, range.len, read) && range.len > 0 {
                return gone(range.local, range.len);
            }
        }
        if !is_of_this_process(&call.target) {
            return Ok(());
        }
        for range in &call.ranges {
            if !is_mapped(range.remote, range.len, !read) && range.len > 0 {
                return gone(range.remote, range.len);
            }
        }
        Ok(())
    }

    /// Moves everything and waits here.
    pub(crate) fn transfer(&self, call: &Call) -> Result<(), ClassicError> {
        self.open(&call.target)?;
        self.check(call)?;
        // SAFETY: the caller names memory that it has; what is not there was refused.
        unsafe { self.classic.transfer_sync(&call.target, call.op, &call.ranges, &call.options(call.notify.clone())) }
    }

    /// Starts moving; the notification is the caller's to send.
    pub(crate) fn begin(&self, call: &Call, holds: Vec<Hold>) -> Result<BatchId, ClassicError> {
        self.open(&call.target)?;
        self.check(call)?;
        // SAFETY: as above; what the caller's objects own is held until the batch is terminal and asked for.
        let batch = unsafe { self.classic.transfer_async(&call.target, call.op, &call.ranges, call.options(None)) }?;
        self.under_way.lock().insert(batch.0, UnderWay { bytes: call.bytes(), _holds: holds });
        Ok(batch)
    }

    /// Whether a batch has ended, after waiting one slice for it.
    pub(crate) fn ended_in_slice(&self, batch: BatchId) -> Result<bool, ClassicError> {
        Ok(self.classic.wait_batch(batch, SLICE)?.state.is_terminal())
    }

    /// What a batch may take from its start.
    pub(crate) fn budget(&self, batch: BatchId) -> Duration {
        let bytes = self.under_way.lock().get(&batch.0).map_or(0, |under_way| under_way.bytes);
        self.classic.budget(bytes)
    }

    /// The result of a batch that has ended, or is to be stopped now. Its number is spent.
    pub(crate) fn result(&self, batch: BatchId) -> Result<(), ClassicError> {
        let known = self.under_way.lock().contains_key(&batch.0);
        let result = match known {
            true => self.classic.await_batches(&[batch]),
            false => {
                let detail = format!("batch {} was never given out, or is spent", batch.0);
                Err(ClassicError::new(StatusCode::InvalidArgument, detail))
            }
        };
        self.under_way.lock().remove(&batch.0);
        result
    }

    /// Stops a batch and waits until nothing of it is in flight.
    pub(crate) fn stop(&self, batch: BatchId) {
        // A batch that has ended meanwhile has nothing to stop.
        let _ = self.classic.cancel_batch(batch);
        let _ = self.result(batch);
    }

    /// 1 done, -1 failed, -2 timed out, 0 under way. All but 0 spend the number.
    pub(crate) fn state(&self, batch: BatchId) -> Result<i64, ClassicError> {
        let number = match self.classic.async_state(batch)? {
            AsyncState::Running => return Ok(0),
            AsyncState::Done => 1,
            AsyncState::Failed => FAILED,
            AsyncState::TimedOut => -2,
        };
        self.under_way.lock().remove(&batch.0);
        Ok(number)
    }

    /// Registers memory; an object that has it is kept alive until it is unregistered.
    pub(crate) fn register(
        &self,
        entry: BufferEntry,
        location: &str,
        remote: bool,
        hold: Option<Hold>,
    ) -> Result<(), ClassicError> {
        // SAFETY: the caller says that the memory is its, and stays until it is unregistered.
        unsafe { self.classic.register_memory(entry, location, remote) }?;
        if let Some(hold) = hold {
            self.registered.lock().insert(entry.address, hold);
        }
        Ok(())
    }

    /// As `register` for many: all or none.
    pub(crate) fn register_many(
        &self,
        entries: &[BufferEntry],
        location: &str,
        holds: Vec<(u64, Hold)>,
    ) -> Result<(), ClassicError> {
        // SAFETY: as above.
        unsafe { self.classic.register_memory_batch(entries, location) }?;
        self.registered.lock().extend(holds);
        Ok(())
    }

    /// Unregisters memory.
    pub(crate) fn unregister(&self, address: u64) -> Result<(), ClassicError> {
        self.classic.unregister_memory(address)?;
        self.registered.lock().remove(&address);
        Ok(())
    }

    /// Unregisters all that are registered; the first failure.
    pub(crate) fn unregister_many(&self, addresses: &[u64]) -> Result<(), ClassicError> {
        let mut first = Ok(());
        for address in addresses {
            first = first.and(self.unregister(*address));
        }
        first
    }

    /// Address of a new registered buffer.
    pub(crate) fn allocate(&self, size: u64) -> Option<u64> {
        self.managed.allocate(self.classic.engine(), size)
    }

    /// Takes a buffer back.
    pub(crate) fn free(&self, address: u64, size: u64) -> bool {
        self.managed.free(self.classic.engine(), address, size)
    }

    /// Starts moving pieces; refuses memory that is not there.
    pub(crate) fn scatter(
        &self,
        target: &str,
        op: Opcode,
        regions: &[ScatterRegion],
    ) -> Result<ScatterTicket, ClassicError> {
        let mut ranges = Vec::new();
        for region in regions {
            ranges.extend(region.ranges()?);
        }
        let call = Call { target: target.to_owned(), op, ranges, notify: None, nic_hint: String::new() };
        self.check(&call)?;
        // SAFETY: as above.
        Ok(unsafe { self.classic.submit_scatter(target, op, regions) })
    }

    /// A registered range as memory to copy from or to; else why not.
    pub(crate) fn registered_range(&self, address: u64, len: u64) -> Result<LocalBuffer<'static>, String> {
        let pinned = self.classic.engine().local(address, len).map_err(|error| error.to_string())?;
        if is_mapped(address, len, true) { Ok(pinned) } else { Err("the memory was freed".to_owned()) }
    }

    /// Copies bytes into registered memory.
    pub(crate) fn copy_in(&self, address: u64, bytes: &[u8]) -> Result<(), String> {
        let target = self.registered_range(address, bytes.len() as u64)?;
        copy(target.span(), Span::source(bytes), CopyHint::Cached).map_err(|error| error.to_string())
    }

    /// Copies registered memory out.
    pub(crate) fn copy_out(source: &LocalBuffer<'_>, target: &ForeignMemory) -> Result<(), String> {
        copy(target.lend().span(), source.span(), CopyHint::Cached).map_err(|error| error.to_string())
    }

    /// Whether a peer's process answers.
    pub(crate) fn probe(&self, name: &str) -> Result<(), ClassicError> {
        self.classic.probe_by_name(name).map_err(|error| match error.code() {
            // No host of that name can be asked.
            StatusCode::InvalidArgument => ClassicError::new(StatusCode::Dns, error),
            _ => error,
        })
    }
}

/// As with the peer, the protocol chooses little: what is not built is replaced by what is there. One name is refused.
fn protocol(name: &str) -> Result<Protocol, ClassicError> {
    let known = Protocol::preferred(name);
    match (name, known) {
        (_, Ok(protocol)) => Ok(protocol),
        ("xgmi", Err(error)) => Err(error),
        (_, Err(error)) => {
            tracing::warn!(%error, "the fastest transport that is there is used instead");
            Ok(Protocol::Auto)
        }
    }
}

/// Whether the segment belongs to an engine of this process.
fn is_of_this_process(name: &str) -> bool {
    let name = name.trim_start_matches('/');
    LIVE.lock().iter().filter_map(Weak::upgrade).any(|live| live.is_here() && live.classic.name() == name)
}

/// Keeps why a call failed and answers its number.
pub(crate) fn number<T>(last: &LastWords, result: Result<T, ClassicError>, ok: impl FnOnce(T) -> i64) -> i64 {
    match result {
        Ok(value) => ok(value),
        Err(error) => {
            last.set(error.to_string());
            i64::from(error.negated())
        }
    }
}

/// As `number` for calls that know one number for every failure.
pub(crate) fn zero_or_failed<T>(last: &LastWords, result: Result<T, ClassicError>) -> i64 {
    if number(last, result, |_| 0) == 0 { 0 } else { FAILED }
}
