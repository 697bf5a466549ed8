//! The listener and its thread.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::{Semaphore, watch};

use crate::door::Door;
use crate::handlers::router;
use crate::pool::Pool;

/// How the server is set up.
#[derive(Clone, Debug)]
pub struct AdminOptions {
    /// Host and port to listen on; port 0 takes a free one.
    pub listen: String,
    /// Requests served at once; further ones wait.
    pub max_requests: usize,
}

/// The server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address is taken, not this host's, or not an address.
    #[error("admin HTTP cannot listen on {listen}: {source} (setting metrics_host, metrics_port)")]
    Listen {
        /// As asked for.
        listen: String,
        /// The system's answer.
        source: io::Error,
    },
    /// No thread or runtime.
    #[error("admin HTTP cannot start its thread: {0}")]
    Thread(io::Error),
}

/// A running admin server; dropping it stops the thread.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Admin {
    /// Binds the address and starts the thread.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn start(options: &AdminOptions, pool: Arc<dyn Pool>) -> Result<Admin, AdminError> {
        let failed = |source| AdminError::Listen { listen: options.listen.clone(), source };
        let listener = TcpListener::bind(&options.listen).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (stop, stopped) = watch::channel(false);
        let limit = Arc::new(Semaphore::new(options.max_requests.max(1)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(AdminError::Thread)?;
        let thread = yb_env::spawn_thread("yb-admin", move || runtime.block_on(serve(listener, pool, limit, stopped)))
            .map_err(AdminError::Thread)?;
        Ok(Admin { address, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn serve(listener: TcpListener, pool: Arc<dyn Pool>, limit: Arc<Semaphore>, mut stopped: watch::Receiver<bool>) {
    let listener = match tokio::net::TcpListener::from_std(listener) {
        Ok(listener) => Door::new(listener),
        Err(error) => {
            tracing::error!(%error, "admin HTTP cannot take its listener");
            return;
        }
    };
    let server = async { axum::serve(listener, router(pool, limit)).await };
    tokio::select! {
        result = server => {
            if let Err(error) = result {
                tracing::error!(%error, "admin HTTP ended");
            }
        }
        // Readers of long lists are cut off: a stop must not wait for them.
        _ = stopped.wait_for(|stop| *stop) => {}
    }
}
