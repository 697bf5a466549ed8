//! Handles of engines: numbers in a table. One that was destroyed names nothing, for ever.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;
use yb_classic::{ClassicEngine, ClassicError, StatusCode};

static ENGINES: RwLock<BTreeMap<usize, Held>> = RwLock::new(BTreeMap::new());

/// An engine, and the process that its threads are in. A child made by fork has a copy of the table, but none of the
/// threads: it cannot even end the engine.
struct Held {
    process: u32,
    engine: ManuallyDrop<ClassicEngine>,
}

impl Held {
    fn new(engine: ClassicEngine) -> Self {
        Held { process: std::process::id(), engine: ManuallyDrop::new(engine) }
    }

    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    fn into_engine(self) -> Option<ClassicEngine> {
        self.is_here().then(|| ManuallyDrop::into_inner(self.engine))
    }
}
/// Handles count upwards in steps that leave room for the handles of transports.
static NEXT: AtomicUsize = AtomicUsize::new(STEP);
const STEP: usize = 16;

/// Puts an engine in the table.
pub(crate) fn add(engine: ClassicEngine) -> *mut c_void {
    let handle = NEXT.fetch_add(STEP, Ordering::Relaxed);
    ENGINES.write().insert(handle, Held::new(engine));
    handle as *mut c_void
}

/// Takes an engine out of the table.
pub(crate) fn remove(handle: *mut c_void) -> Option<ClassicEngine> {
    ENGINES.write().remove(&(handle as usize)).and_then(Held::into_engine)
}

/// Takes all engines out of the table.
pub(crate) fn remove_all() -> Vec<ClassicEngine> {
    std::mem::take(&mut *ENGINES.write()).into_values().filter_map(Held::into_engine).collect()
}

/// Handle of a transport of an engine; it is never used to find anything.
pub(crate) fn transport(engine: *mut c_void, number: usize) -> *mut c_void {
    (engine as usize + 1 + number) as *mut c_void
}

/// The engine behind a handle.
pub(crate) fn engine(handle: *mut c_void) -> Result<ClassicEngine, ClassicError> {
    let engines = ENGINES.read();
    let what = match engines.get(&(handle as usize)) {
        Some(held) if held.is_here() => return Ok(ClassicEngine::clone(&held.engine)),
        Some(_) => "one of the process that this one was forked from",
        None if handle.is_null() => "a null pointer",
        None => "a handle that was destroyed, or never made",
    };
    Err(ClassicError::new(StatusCode::InvalidArgument, format!("the engine is {what}")))
}

/// An argument that makes no sense.
pub(crate) fn bad(what: &str) -> ClassicError {
    ClassicError::new(StatusCode::InvalidArgument, what)
}

/// Runs the body of a function of the API; a panic, which would be a mistake of ours, becomes the default answer.
pub(crate) fn guarded<R>(default: R, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        tracing::error!("a call ended in a panic, which is a mistake in the library; it is answered with an error");
        default
    })
}

/// As [`guarded`], for functions that answer 0 or a negative code. Refusals are logged with their reason.
pub(crate) fn answer(body: impl FnOnce() -> Result<(), ClassicError>) -> c_int {
    answer_with(|| body().map(|()| 0))
}

/// As [`answer`], for functions that answer a number.
pub(crate) fn answer_with(body: impl FnOnce() -> Result<c_int, ClassicError>) -> c_int {
    guarded(-1, || {
        body().unwrap_or_else(|error| {
            tracing::warn!("{error}");
            error.negated()
        })
    })
}
