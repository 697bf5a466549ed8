//! The side channel: data and tensors to and from other processes, with Python callbacks.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use pyo3::types::PyBytes;
use yb_courier::{Client, ClientLimits, DATA, Receiver, Server, TENSOR, Taken, data, tensor};
use yb_rpc::Payload;
use yb_secure::Security;

use crate::convert::{Count, Text};
use crate::engine::received::{ReceivedTensor, data_dict};
use crate::engine::tensor::TensorBytes;
use crate::engine::wait::{SLICE, on_main_thread, outcome};

/// Where a server of `create_rpc_server` listens.
const DEFAULT_ADDRESS: &str = "0.0.0.0:8080";
const DEFAULT_TIMEOUT: u32 = 30;
const DEFAULT_THREADS: u32 = 8;
const FAILED: i64 = -1;

/// Interfaces to be ended with the interpreter.
static ALL: Mutex<Vec<Weak<Shared>>> = Mutex::new(Vec::new());

/// Stops every server of the process: their threads must not ask for an interpreter that is going.
pub(crate) fn stop_all() {
    let all: Vec<Arc<Shared>> = ALL.lock().drain(..).filter_map(|shared| shared.upgrade()).collect();
    for shared in all {
        shared.stop();
    }
}

#[derive(Clone, Debug)]
struct ServerPlan {
    address: String,
    threads: u32,
}

#[derive(Default)]
struct State {
    client: Option<Client>,
    plan: Option<ServerPlan>,
    server: Option<Server>,
}

/// What callbacks and calls of one interface share.
struct Shared {
    state: Mutex<State>,
    stopped: Condvar,
    callbacks: Arc<Callbacks>,
    process: u32,
}

#[derive(Default)]
struct Callbacks {
    data: Mutex<Option<Py<PyAny>>>,
    tensor: Mutex<Option<Py<PyAny>>>,
}

impl Receiver for Callbacks {
    fn receive(&self, message: Taken) {
        // Nobody is left to call while the interpreter goes.
        Python::try_attach(|py| self.hand_over(py, message));
    }
}

impl Callbacks {
    fn hand_over(&self, py: Python<'_>, message: Taken) {
        let of = |slot: &Mutex<Option<Py<PyAny>>>| slot.lock().as_ref().map(|callback| callback.clone_ref(py));
        let called = match (message.head.clone(), of(&self.tensor), of(&self.data)) {
            (Some(head), Some(callback), _) => callback.call1(py, (ReceivedTensor::of(py, &message, head),)),
            (_, _, Some(callback)) => data_dict(py, &message).and_then(|dict| callback.call1(py, (dict,))),
            (_, _, None) => return,
        };
        if let Err(error) = called {
            tracing::error!(%error, "a receive callback raised");
        }
    }
}

impl Shared {
    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    /// Stops the server, if one runs, without the interpreter.
    fn stop(&self) {
        let server = self.state.lock().server.take();
        self.stopped.notify_all();
        if self.is_here() {
            drop(server);
        } else {
            // Its threads are the parent's.
            std::mem::forget(server);
        }
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.is_here() {
            let state = self.state.get_mut();
            std::mem::forget((state.client.take(), state.server.take()));
        }
    }
}

/// Sends and receives data and tensors over the peer's RPC frames. Nothing before one of the `initialize` calls.
#[pyclass(module = "mooncake.engine", frozen, weakref)]
pub(crate) struct RpcInterface(Arc<Shared>);

impl Drop for RpcInterface {
    fn drop(&mut self) {
        // A callback that is under way needs the interpreter to end.
        Python::try_attach(|py| py.detach(|| self.0.stop()));
    }
}

/// The functions of the module that make an interface.
pub(crate) fn client() -> RpcInterface {
    let made = RpcInterface::new();
    made.set_client(DEFAULT_TIMEOUT, 100);
    made
}

/// As `client`, with a server on port 8080 to be started.
pub(crate) fn server() -> RpcInterface {
    let made = client();
    made.set_server(DEFAULT_ADDRESS, DEFAULT_THREADS);
    made
}

/// As the environment says; `None`: that cannot be had, which the log says.
fn security() -> Option<Option<Arc<Security>>> {
    let security = Security::from_env();
    security.inspect_err(|error| tracing::error!(%error, "messages cannot be secured as asked for")).ok()
}

impl RpcInterface {
    fn set_client(&self, timeout: u32, connections: u32) {
        let limits = ClientLimits {
            connections: connections.max(1) as usize,
            timeout: Duration::from_secs(u64::from(if timeout == 0 { DEFAULT_TIMEOUT } else { timeout })),
        };
        self.0.state.lock().client = security().map(|security| Client::secured(limits, security));
    }

    fn set_server(&self, address: &str, threads: u32) {
        let threads = if threads == 0 { DEFAULT_THREADS } else { threads };
        self.0.state.lock().plan = Some(ServerPlan { address: address.to_owned(), threads });
    }

    fn client(&self) -> Option<Client> {
        self.0.state.lock().client.clone().filter(|_| self.0.is_here())
    }

    /// Sends and waits, with signals let through. 0 or -1.
    fn send(&self, py: Python<'_>, target: &str, function: u32, payload: Payload) -> PyResult<i64> {
        let Some(client) = self.client() else { return Ok(FAILED) };
        let (giver, taker) = outcome();
        py.detach(|| client.send(target, function, payload, move |result| giver.give(result)));
        match taker.wait(py)? {
            Ok(()) => Ok(0),
            Err(error) => {
                tracing::warn!(%error, "a message was not taken");
                Ok(FAILED)
            }
        }
    }

    /// A future of `event_loop` that gets what `send` would answer.
    fn send_later<'py>(
        &self,
        event_loop: &Bound<'py, PyAny>,
        target: &str,
        message: Option<(u32, Payload)>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = event_loop.py();
        let event_loop = if event_loop.is_none() { running_loop(py)? } else { event_loop.clone() };
        let future = event_loop.call_method0("create_future")?;
        let Some(client) = self.client() else {
            let error = PyRuntimeError::new_err("Communicator not initialized");
            future.call_method1("set_exception", (error,))?;
            return Ok(future);
        };
        let Some((function, payload)) = message else {
            future.call_method1("set_result", (FAILED,))?;
            return Ok(future);
        };
        let settle = py.import("mooncake._native")?.getattr("_settle")?.unbind();
        let (waiting, event_loop) = (future.clone().unbind(), event_loop.unbind());
        py.detach(|| {
            client.send(target, function, payload, move |result| {
                let answer = if result.is_ok() { 0 } else { FAILED };
                Python::try_attach(move |py| {
                    // A loop that was closed meanwhile has nobody waiting.
                    let _ = event_loop.call_method1(py, "call_soon_threadsafe", (settle, waiting, answer));
                });
            });
        });
        Ok(future)
    }
}

fn running_loop(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    py.import("asyncio")?.call_method0("get_running_loop")
}

/// Gives a future its result, unless it has one or was cancelled. Called on the thread of its loop.
#[pyfunction]
#[pyo3(name = "_settle")]
pub(crate) fn settle(future: &Bound<'_, PyAny>, answer: i64) -> PyResult<()> {
    if !future.call_method0("done")?.is_truthy()? {
        future.call_method1("set_result", (answer,))?;
    }
    Ok(())
}

fn callable(callback: &Bound<'_, PyAny>) -> PyResult<Py<PyAny>> {
    if callback.is_callable() {
        Ok(callback.clone().unbind())
    } else {
        Err(PyTypeError::new_err("a callback is callable"))
    }
}

#[pymethods]
impl RpcInterface {
    #[new]
    fn new() -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            stopped: Condvar::new(),
            callbacks: Arc::default(),
            process: std::process::id(),
        });
        let mut all = ALL.lock();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&shared));
        RpcInterface(shared)
    }

    /// Prepares the client, and the server when there is an address (`host:port`). True.
    #[pyo3(signature = (listen_address=Text::default(), thread_count=Count(0), timeout_seconds=Count(30), pool_size=Count(100)), text_signature = "($self, listen_address='', thread_count=0, timeout_seconds=30, pool_size=100)")]
    fn initialize(&self, listen_address: Text, thread_count: Count, timeout_seconds: Count, pool_size: Count) -> bool {
        self.set_client(timeout_seconds.0, pool_size.0);
        if !listen_address.0.is_empty() {
            self.set_server(&listen_address.0, thread_count.0);
        }
        true
    }

    /// Prepares the client: connections to one receiver (at most 16 of each kind are used), and how long a message may
    /// take. True.
    #[pyo3(signature = (pool_size=Count(100), timeout_seconds=Count(30)), text_signature = "($self, pool_size=100, timeout_seconds=30)")]
    fn initialize_client(&self, pool_size: Count, timeout_seconds: Count) -> bool {
        self.set_client(timeout_seconds.0, pool_size.0);
        true
    }

    /// Prepares the server; nothing listens before a start. True.
    #[pyo3(signature = (listen_address, thread_count=Count(8), timeout_seconds=Count(30)), text_signature = "($self, listen_address, thread_count=8, timeout_seconds=30)")]
    fn initialize_server(&self, listen_address: Text, thread_count: Count, timeout_seconds: Count) -> bool {
        let _ = timeout_seconds;
        self.set_server(&listen_address.0, thread_count.0);
        if self.client().is_none() {
            self.set_client(timeout_seconds.0, 100);
        }
        true
    }

    /// Starts the server and returns when it has been stopped; False when it cannot start.
    fn start_server(&self, py: Python<'_>) -> PyResult<bool> {
        if !self.start_server_async(py) {
            return Ok(false);
        }
        loop {
            let running = py.detach(|| {
                let mut state = self.0.state.lock();
                if state.server.is_some() {
                    self.0.stopped.wait_for(&mut state, SLICE);
                }
                state.server.is_some()
            });
            if !running {
                return Ok(true);
            }
            if on_main_thread()
                && let Err(signal) = py.check_signals()
            {
                self.stop_server(py);
                return Err(signal);
            }
        }
    }

    /// Starts the server and returns at once; False when it runs already or cannot start.
    fn start_server_async(&self, py: Python<'_>) -> bool {
        crate::logs::start();
        if !self.0.is_here() {
            return false;
        }
        py.detach(|| {
            let mut state = self.0.state.lock();
            let Some(plan) = state.plan.clone().filter(|_| state.server.is_none()) else { return false };
            let receiver: Arc<dyn Receiver> = Arc::clone(&self.0.callbacks) as _;
            let Some(security) = security() else { return false };
            match Server::start_secured(&plan.address, plan.threads as usize, receiver, security) {
                Ok(server) => {
                    state.server = Some(server);
                    true
                }
                Err(error) => {
                    tracing::error!(%error, "the server cannot start");
                    false
                }
            }
        })
    }

    /// Stops the server, if it runs; no callback runs when this returns, but for the one that calls it.
    fn stop_server(&self, py: Python<'_>) {
        py.detach(|| self.0.stop());
    }

    /// Port of the running server, 0 without one. Not in the peer.
    fn get_port(&self) -> u16 {
        self.0.state.lock().server.as_ref().map_or(0, Server::port)
    }

    /// Sends bytes. 0 when the receiver has taken them, else -1.
    #[pyo3(signature = (target_address, data))]
    fn send_data(&self, py: Python<'_>, target_address: Text, data: &Bound<'_, PyBytes>) -> PyResult<i64> {
        self.send(py, &target_address.0, DATA, payload_of(data))
    }

    /// As `send_data`, as a future of the loop.
    #[pyo3(signature = (target_address, data, r#loop))]
    fn send_data_async<'py>(
        &self,
        target_address: Text,
        data: &Bound<'py, PyBytes>,
        r#loop: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.send_later(r#loop, &target_address.0, Some((DATA, payload_of(data))))
    }

    /// Sends a tensor, or an array with a `dtype` and a `shape`. 0 when the receiver has taken it, else -1.
    #[pyo3(signature = (target_address, tensor))]
    fn send_tensor(&self, py: Python<'_>, target_address: Text, tensor: &Bound<'_, PyAny>) -> PyResult<i64> {
        match tensor_payload(tensor) {
            Some(payload) => self.send(py, &target_address.0, TENSOR, payload),
            None => Ok(FAILED),
        }
    }

    /// As `send_tensor`, as a future of the loop.
    #[pyo3(signature = (target_address, tensor, r#loop))]
    fn send_tensor_async<'py>(
        &self,
        target_address: Text,
        tensor: &Bound<'py, PyAny>,
        r#loop: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.send_later(r#loop, &target_address.0, tensor_payload(tensor).map(|payload| (TENSOR, payload)))
    }

    /// Called with `{"source": "host:port", "data": bytes}` for data, and for tensors when nobody takes those.
    #[pyo3(signature = (callback, /))]
    fn set_data_receive_callback(&self, callback: &Bound<'_, PyAny>) -> PyResult<()> {
        *self.0.callbacks.data.lock() = Some(callable(callback)?);
        Ok(())
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        for slot in [&self.0.callbacks.data, &self.0.callbacks.tensor] {
            // A callback that is being changed keeps the object alive until the next look.
            if let Some(callback) = slot.try_lock() {
                visit.call(&*callback)?;
            }
        }
        Ok(())
    }

    fn __clear__(&self) {
        for slot in [&self.0.callbacks.data, &self.0.callbacks.tensor] {
            let callback = slot.lock().take();
            drop(callback);
        }
    }

    /// Called with a `ReceivedTensor`.
    #[pyo3(signature = (callback, /))]
    fn set_tensor_receive_callback(&self, callback: &Bound<'_, PyAny>) -> PyResult<()> {
        *self.0.callbacks.tensor.lock() = Some(callable(callback)?);
        Ok(())
    }
}

fn payload_of(bytes: &Bound<'_, PyBytes>) -> Payload {
    data(bytes.as_bytes())
}

fn tensor_payload(of: &Bound<'_, PyAny>) -> Option<Payload> {
    let bytes = TensorBytes::of(of)?;
    Some(tensor(bytes.head.as_ref(), &bytes.elements))
}
