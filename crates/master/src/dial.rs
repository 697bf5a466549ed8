//! Dial-back: does anybody answer at the data address that a node announces?
//!
//! A wrong `--host` of a node is the commonest mistake of a first set-up, and without this check it shows only when the
//! first reader fails. One thread tries all connections concurrently.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc};
use yb_env::spawn_thread;

/// Checks that may wait or run.
const QUEUE: usize = 1024;
/// Connections tried at once.
const CONCURRENT: usize = 64;

/// What becomes of a check: the address that did not answer and why, or nothing.
pub(crate) type Verdict = Result<(), String>;

struct Check {
    endpoints: Vec<String>,
    then: Box<dyn FnOnce(Verdict) + Send>,
}

/// The thread that tries connections.
pub(crate) struct Dialer {
    queue: Mutex<Option<mpsc::Sender<Check>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    timeout_ms: Arc<AtomicU64>,
}

impl Dialer {
    pub(crate) fn start(timeout: Duration) -> io::Result<Dialer> {
        let (queue, checks) = mpsc::channel(QUEUE);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let timeout_ms = Arc::new(AtomicU64::new(0));
        let patience = Arc::clone(&timeout_ms);
        let thread = spawn_thread("yb-dial", move || runtime.block_on(work(checks, patience)))?;
        let dialer = Dialer { queue: Mutex::new(Some(queue)), thread: Mutex::new(Some(thread)), timeout_ms };
        dialer.set_timeout(timeout);
        Ok(dialer)
    }

    /// How long connections that are tried from now on may take.
    pub(crate) fn set_timeout(&self, timeout: Duration) {
        self.timeout_ms.store(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Tries all addresses, then tells `then` on the dialer's thread. False: too many checks wait, `then` is dropped.
    pub(crate) fn check(&self, endpoints: Vec<String>, then: impl FnOnce(Verdict) + Send + 'static) -> bool {
        let check = Check { endpoints, then: Box::new(then) };
        self.queue.lock().as_ref().is_some_and(|queue| queue.try_send(check).is_ok())
    }

    /// Checks that wait to be begun.
    pub(crate) fn depth(&self) -> usize {
        self.queue.lock().as_ref().map_or(0, |queue| queue.max_capacity() - queue.capacity())
    }

    /// Stops without waiting for connections that are being tried.
    pub(crate) fn stop(&self) {
        drop(self.queue.lock().take());
        if let Some(thread) = self.thread.lock().take()
            && thread.join().is_err()
        {
            tracing::error!("the dialer panicked");
        }
    }
}

async fn work(mut checks: mpsc::Receiver<Check>, timeout_ms: Arc<AtomicU64>) {
    let slots = Arc::new(Semaphore::new(CONCURRENT));
    // Tasks that still run at the end are dropped with the runtime.
    let local = tokio::task::LocalSet::new();
    local
        .run_until(async {
            while let Some(check) = checks.recv().await {
                let Ok(slot) = slots.clone().acquire_owned().await else { return };
                let timeout = Duration::from_millis(timeout_ms.load(Ordering::Relaxed));
                tokio::task::spawn_local(async move {
                    let _slot = slot;
                    (check.then)(try_all(&check.endpoints, timeout).await);
                });
            }
        })
        .await;
}

async fn try_all(endpoints: &[String], timeout: Duration) -> Verdict {
    for endpoint in endpoints {
        let said = match tokio::time::timeout(timeout, TcpStream::connect(endpoint.as_str())).await {
            Ok(Ok(_socket)) => continue,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} ms", timeout.as_millis()),
        };
        return Err(format!("{endpoint}: {said}"));
    }
    Ok(())
}

/// Whether a transport endpoint is a `host:port` that can be dialled; names of other metadata back ends are not.
pub(crate) fn can_dial(endpoint: &str) -> bool {
    endpoint.rsplit_once(':').is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|p| p > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_endpoints_can_be_dialled() {
        assert!(can_dial("127.0.0.1:12345"));
        assert!(can_dial("[::1]:1"));
        for not in ["", "node-7", "host:", ":5", "host:0", "host:99999"] {
            assert!(!can_dial(not), "{not}");
        }
    }
}
