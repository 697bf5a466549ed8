//! Setting up, closing, and how the store stands.

use std::sync::Arc;

use pyo3::prelude::*;
use yb_client::Health;

use super::Store;
use crate::last_error::{self, INVALID};
use crate::live::Live;
use crate::setup::SetupArguments;

#[pymethods]
impl Store {
    #[new]
    fn new() -> Self {
        Store::default()
    }

    /// Sets the client up from checked arguments; drops a client that was set up before. 0, or a code.
    fn _setup(&self, py: Python<'_>, arguments: SetupArguments) -> i64 {
        crate::logs::start();
        py.detach(|| {
            if let Some(old) = self.live.write().take() {
                old.close();
            }
            match arguments.connect() {
                Ok(made) => {
                    *self.live.write() = Some(Arc::new(Live::new(made)));
                    last_error::succeed();
                    0
                }
                Err(error) => {
                    tracing::error!(%error, "setup failed");
                    last_error::fail(error);
                    INVALID
                }
            }
        })
    }

    /// Says in the log what is strange about a setup that is not refused for it.
    fn _warn_setup(&self, text: &str) {
        crate::logs::start();
        tracing::warn!("{text}");
    }

    /// Keeps why a setup was refused before any client was made.
    fn _refuse_setup(&self, text: &str) {
        crate::logs::start();
        tracing::error!(reason = text, "setup refused");
        last_error::refuse(text.to_owned());
    }

    /// Leaves the pool: unmounts what was lent, ends the client's threads. Always 0; may be called again.
    fn close(&self, py: Python<'_>) -> i64 {
        let live = self.live.write().take();
        if let Some(live) = live {
            py.detach(|| live.close());
        }
        0
    }

    /// Lets the client go without ending it: in a child process made by fork its sockets and its segment are the
    /// parent's, and its threads are not there. The store is as if never set up.
    fn _forget(&self) {
        // A thread of the parent may have held the lock; then nobody in the child can use the store either.
        if let Some(mut live) = self.live.try_write() {
            std::mem::forget(live.take());
        }
    }

    /// Why this thread's last call on a store failed, in words; empty when it succeeded. `mooncake.store.last_error()` has
    /// its parts. Not in the peer.
    #[staticmethod]
    fn last_error() -> String {
        last_error::last_words()
    }

    /// 0: healthy; 1: not set up, or closed; 2: the master does not answer.
    fn health_check(&self, py: Python<'_>) -> i64 {
        self.with(py, 1, |live, _| match live.backend().health() {
            Health::Healthy => 0,
            _ => 2,
        })
    }

    /// `host:port`: the name of this client and of the segment it lends; `""` when not set up.
    fn get_hostname(&self) -> String {
        self.live().map_or(String::new(), |live| live.backend().hostname())
    }
}
