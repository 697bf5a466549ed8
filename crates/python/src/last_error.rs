//! Why calls failed, beside the peer's numbers and empty bytes, which cannot say it.
//!
//! A store's failures belong to the thread that made the call: the worst of one call is kept until the next call of that
//! thread on any store, and a call that succeeds leaves nothing. Nothing is put into words before somebody asks, and a call
//! that succeeds costs a look at a thread-local flag.

use std::cell::{Cell, RefCell};

use parking_lot::Mutex;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use yb_client::{Error, Reason};
use yb_types::ErrorCode;

/// What every argument that cannot work answers.
pub(crate) const INVALID: i64 = ErrorCode::INVALID_PARAMS.0 as i64;

/// In the place of a key, where a failure is about no object.
pub(crate) const NO_KEY: &[u8] = b"";

thread_local! {
    static LAST: RefCell<Option<LastError>> = const { RefCell::new(None) };
    /// Calls of the Python layer that this thread is in, each made of several calls of a store.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Why the last call of this thread on a store failed. Not in the peer.
#[pyclass(module = "mooncake.store", frozen)]
#[derive(Clone, Debug)]
pub(crate) struct LastError {
    error: Error,
    key: Vec<u8>,
}

#[pymethods]
impl LastError {
    /// The peer's number: -704 missing, -800 not moved, -900 and -901 no answer from the master, ...
    #[getter]
    fn code(&self) -> i32 {
        self.error.code().0
    }

    /// Why, in one word: "missing", "transfer", "master_unreachable", "daemon_unreachable", "busy", "no_room", "lease_ended",
    /// "no_replica", "corrupt", "leased", "refused", "invalid", "setup", "closed". The metric
    /// `yuebing_client_failures_total` and the lines of the log have the same words.
    #[getter]
    fn reason(&self) -> &'static str {
        self.error.reason().word()
    }

    /// All of it in words.
    #[getter]
    fn message(&self) -> String {
        match &self.error {
            Error::Closed => "the store is not set up, or closed".to_owned(),
            error => error.to_string(),
        }
    }

    /// `host:port` of whoever did not answer or could not move the bytes: a node, the master, a daemon; of "busy" the data
    /// address of the node that is silent; else None.
    #[getter]
    fn peer(&self) -> Option<&str> {
        self.error.peer()
    }

    /// What was being done: "connect", "read", "write" or "deadline" with a node; the request to the master or the daemon;
    /// the step of a setup; else None.
    #[getter]
    fn stage(&self) -> Option<&str> {
        self.error.stage()
    }

    /// Whether the same call may succeed when it is made again.
    #[getter]
    fn retryable(&self) -> bool {
        self.error.retryable()
    }

    /// Seconds from the start of the call to the failure, where somebody was waited for; else None.
    #[getter]
    fn elapsed(&self) -> Option<f64> {
        self.error.elapsed().map(|elapsed| elapsed.as_secs_f64())
    }

    /// What stood in the way when the master was asked, right after the call, in one word: "writer", "own_write", "silent_node",
    /// "hidden_node", "lease", "copy", "in_use", "quota", "own_share", "full", "pieces", "too_large", "no_segment", "resting",
    /// "nothing_now"; None when it was not asked, or is Mooncake's.
    #[getter]
    fn cause(&self) -> Option<&'static str> {
        self.error.cause()
    }

    /// Name of the node's segment, `host:port`: of "silent_node" and "hidden_node" the node that has the object, of "writer" and
    /// "own_write" where the bytes go; else None.
    #[getter]
    fn node(&self) -> Option<&str> {
        self.error.finding()?.node.as_deref()
    }

    /// Client id of who writes, copies or moves the object; else None.
    #[getter]
    fn writer(&self) -> Option<String> {
        self.error.finding()?.writer.map(|writer| writer.to_string())
    }

    /// Where that client is, `host:port`: the name of what it lends, or the address that it calls the master from; else None.
    #[getter]
    fn writer_host(&self) -> Option<&str> {
        self.error.finding()?.writer_host.as_deref()
    }

    /// Seconds since the write began, or since the node was heard of; else None.
    #[getter]
    fn age(&self) -> Option<f64> {
        self.error.finding()?.age.map(|age| age.as_secs_f64())
    }

    /// Seconds until the last read lease ends ("lease"), or until the time for a copy is over ("copy"); else None.
    #[getter]
    fn left(&self) -> Option<f64> {
        self.error.finding()?.left.map(|left| left.as_secs_f64())
    }

    /// Bytes of what there is too little of: in use ("full", "quota"), begun and not ended by this client ("own_share"), of the
    /// object ("too_large", "pieces"); else None.
    #[getter]
    fn amount(&self) -> Option<u64> {
        self.error.usage().map(|(bytes, _)| bytes)
    }

    /// Bytes of it that may be: of the pool, of the quota, of one client, of the largest segment or free piece; else None.
    #[getter]
    fn limit(&self) -> Option<u64> {
        self.error.usage().map(|(_, limit)| limit)
    }

    /// The object that it is about: str, or bytes if they are no UTF-8; None when it is about none.
    #[getter]
    fn key<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        match std::str::from_utf8(&self.key) {
            _ if self.key.is_empty() => None,
            Ok(text) => Some(PyString::new(py, text).into_any()),
            Err(_) => Some(PyBytes::new(py, &self.key).into_any()),
        }
    }

    fn __str__(&self) -> String {
        self.message()
    }

    fn __repr__(&self) -> String {
        format!("<LastError {} {}: {}>", self.code(), self.reason(), self.message())
    }
}

/// Why this thread's last call on a store failed; None when it succeeded, or there was none.
///
/// Of a call for many objects it is the first failure that is no miss, else the first miss. "No, there is no such object" is
/// what `is_exist` is asked for, not a failure.
#[pyfunction]
pub(crate) fn last_error() -> Option<LastError> {
    LAST.with_borrow(Clone::clone)
}

/// The same in words; empty when there is none.
pub(crate) fn last_words() -> String {
    LAST.with_borrow(|last| last.as_ref().map_or(String::new(), LastError::message))
}

/// A call of the Python layer begins: until its end all that fails belongs to it.
#[pyfunction]
pub(crate) fn _enter_call() {
    if DEPTH.replace(DEPTH.get() + 1) == 0 {
        LAST.take();
    }
}

/// It ends. One that succeeded leaves nothing, whatever it met on its way.
#[pyfunction]
pub(crate) fn _leave_call(succeeded: bool) {
    DEPTH.set(DEPTH.get().saturating_sub(1));
    if DEPTH.get() == 0 && succeeded {
        LAST.take();
    }
}

/// Keeps a failure for this thread.
pub(crate) fn fail(error: Error) {
    Failures::of(|last| last.add(NO_KEY, error));
}

/// A call has succeeded.
pub(crate) fn succeed() {
    Failures::of(|_| ());
}

/// Keeps why a call cannot work as it was made, and answers its number.
pub(crate) fn refuse(text: impl Into<std::borrow::Cow<'static, str>>) -> i64 {
    fail(Error::Invalid(text.into()));
    INVALID
}

/// The failures of one call.
#[derive(Debug, Default)]
pub(crate) struct Failures(RefCell<Option<LastError>>);

impl Failures {
    /// Makes a call, and keeps for this thread how it failed, if it did.
    pub(crate) fn of<T>(call: impl FnOnce(&Failures) -> T) -> T {
        if DEPTH.get() > 0 { Failures::of_more(call) } else { Failures::default().collect(call) }
    }

    /// The same with a call that goes on where this thread's last one ended: what that one met stays.
    pub(crate) fn of_more<T>(call: impl FnOnce(&Failures) -> T) -> T {
        Failures(RefCell::new(LAST.take())).collect(call)
    }

    fn collect<T>(self, call: impl FnOnce(&Failures) -> T) -> T {
        let answer = call(&self);
        let met = self.0.into_inner();
        LAST.with_borrow_mut(|last| {
            if met.is_some() || last.is_some() {
                *last = met;
            }
        });
        answer
    }

    fn add(&self, key: &[u8], error: Error) {
        let mut met = self.0.borrow_mut();
        let is_worse = |known: &LastError| known.error == Error::NotFound && error.reason() != Reason::Missing;
        if met.as_ref().is_none_or(is_worse) {
            *met = Some(LastError { error, key: key.to_vec() });
        }
    }

    /// Keeps why the call cannot work as it was made.
    pub(crate) fn set(&self, text: impl Into<std::borrow::Cow<'static, str>>) {
        self.add(NO_KEY, Error::Invalid(text.into()));
    }

    /// The same, and the number for it.
    pub(crate) fn refuse(&self, text: impl Into<std::borrow::Cow<'static, str>>) -> i64 {
        self.set(text);
        INVALID
    }

    /// The number of a failure about `key`.
    pub(crate) fn code(&self, key: &[u8], error: Error) -> i64 {
        let code = i64::from(error.code().0);
        self.add(key, error);
        code
    }

    /// An answer about `key`, if there is one.
    pub(crate) fn note<T>(&self, key: &[u8], answer: Result<T, Error>) -> Option<T> {
        answer.map_err(|error| self.add(key, error)).ok()
    }

    /// An answer about `key` as the peer's number.
    pub(crate) fn number<T>(&self, key: &[u8], answer: Result<T, Error>, ok: impl FnOnce(T) -> i64) -> i64 {
        match answer {
            Ok(value) => ok(value),
            Err(error) => self.code(key, error),
        }
    }
}

/// The last failure of one engine in words.
#[derive(Debug, Default)]
pub(crate) struct LastWords(Mutex<String>);

impl LastWords {
    /// Keeps the words.
    pub(crate) fn set(&self, text: impl Into<String>) {
        *self.0.lock() = text.into();
    }

    /// The words; empty before the first failure.
    pub(crate) fn get(&self) -> String {
        self.0.lock().clone()
    }
}
