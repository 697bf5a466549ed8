//! The engines of this process, and how a function of the API answers.

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use yb_classic::{ClassicEngine, ClassicError, StatusCode};

use crate::table::Table;

/// Engines by handle.
pub(crate) static ENGINES: Table<ClassicEngine> = Table::new();

/// Handle of a transport of an engine; it is never used to find anything.
pub(crate) fn transport(engine: *mut c_void, number: usize) -> *mut c_void {
    (engine as usize + 1 + number) as *mut c_void
}

/// The engine behind a handle.
pub(crate) fn engine(handle: *mut c_void) -> Result<ClassicEngine, ClassicError> {
    let refused = |what| ClassicError::new(StatusCode::InvalidArgument, format!("the engine is {what}"));
    ENGINES.get(handle).map_err(refused)
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
