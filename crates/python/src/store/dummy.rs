//! The store as a dummy client of this host's daemon, and memory shared with it.

use std::sync::Arc;

use pyo3::prelude::*;
use yb_client::{Client, ClientConfig};
use yb_dummy::{Dummy, DummyConfig};
use yb_secure::Security;
use yb_types::ErrorCode;

use super::Store;
use crate::convert::{Text, Unsigned};
use crate::last_error::{self, NO_KEY};
use crate::live::Live;

/// What the peer answers to a dummy that cannot be set up.
const REFUSED: i64 = ErrorCode::INTERNAL_ERROR.0 as i64;

#[pymethods]
impl Store {
    /// Attaches to a daemon; drops a client that was set up before. 0, or -1.
    fn _setup_dummy(&self, py: Python<'_>, local_buffer_size: Unsigned, server_address: Text) -> i64 {
        crate::logs::start();
        py.detach(|| {
            if let Some(old) = self.live.write().take() {
                old.close();
            }
            // What a dummy cannot do is answered as by a client that is closed.
            let closed = Client::connect(ClientConfig { offline: true, ..ClientConfig::default() });
            let security = match Security::from_env() {
                Ok(security) => security,
                Err(error) => {
                    tracing::error!(%error, "setup_dummy failed");
                    last_error::fail(yb_client::Error::Invalid(error.to_string().into()));
                    return REFUSED;
                }
            };
            let config = DummyConfig { security, ..DummyConfig::new(server_address.0, local_buffer_size.0) };
            let attached = Dummy::attach(&config);
            match attached.and_then(|dummy| Ok((dummy, closed?))) {
                Ok((dummy, closed)) => {
                    *self.live.write() = Some(Arc::new(Live::attached(dummy, closed)));
                    last_error::succeed();
                    0
                }
                Err(error) => {
                    tracing::error!(%error, "setup_dummy failed");
                    last_error::fail(error);
                    REFUSED
                }
            }
        })
    }

    /// Address of `size` new bytes, all zero, that are shared with the daemon: a dummy client registers any range of them
    /// with `register_buffer` and names it in the zero-copy calls. 0 for a client that is no dummy, and when there is no
    /// memory. The memory stays until the process ends, or `MooncakeHostMemAllocator.free`.
    #[pyo3(signature = (size, /))]
    fn alloc_from_mem_pool(&self, py: Python<'_>, size: Unsigned) -> u64 {
        self.with(py, 0, |live, last| {
            let memory = live.dummy().map(|dummy| dummy.allocate_shared(size.0));
            memory.and_then(|made| last.note(NO_KEY, made)).map_or(0, |segment| segment.address())
        })
    }
}
