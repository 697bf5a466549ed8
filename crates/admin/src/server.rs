//! The listener and its thread.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;

use axum::Router;
use tokio::sync::{Semaphore, watch};
use yb_secure::Security;

use crate::access::{Gate, Rule, WriteRules};
use crate::desk::Parts;
use crate::door::{Door, Peer};
use crate::handlers::router;
use crate::places::DoorCounts;

/// How the server is set up.
#[derive(Clone, Debug)]
pub struct AdminOptions {
    /// Host and port to listen on; port 0 takes a free one.
    pub listen: String,
    /// Requests served at once; further ones wait.
    pub max_requests: usize,
    /// Who may call what changes the pool.
    pub write: WriteRules,
}

/// The server could not be started.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address is taken, not this host's, or not an address.
    #[error(
        "{what} HTTP cannot listen on {listen}: {source} (settings {}_host, {}_port)",
        setting(what),
        setting(what)
    )]
    Listen {
        /// Which of the servers.
        what: &'static str,
        /// As asked for.
        listen: String,
        /// The system's answer.
        source: io::Error,
    },
    /// No thread or runtime.
    #[error("an HTTP server cannot start its thread: {0}")]
    Thread(io::Error),
}

/// How the settings of a server begin.
fn setting(what: &str) -> &'static str {
    match what {
        "admin" => "metrics",
        "write" => "admin_write",
        _ => "http_metadata_server",
    }
}

/// A running admin server; dropping it stops the thread.
#[derive(Debug)]
pub struct Admin {
    site: Site,
    write_site: Option<Site>,
}

impl Admin {
    /// Binds the address and starts the thread.
    ///
    /// # Errors
    /// See [`AdminError`].
    pub fn start(options: &AdminOptions, parts: Parts) -> Result<Admin, AdminError> {
        let limit = Arc::new(Semaphore::new(options.max_requests.max(1)));
        let rule = Rule::Open(options.write.token.as_deref().map(Arc::from));
        let open = Gate { rule, counts: parts.door.clone() };
        let mut gate = open.clone();
        let mut write_site = None;
        if let Some(listen) = &options.write.listen {
            let pages = router(parts.clone(), &open, Arc::clone(&limit));
            let counts = parts.door.clone();
            let (thread, what) = ("yb-admin-write", "write");
            let site = Site::start(SiteOptions { thread, what, listen, security: None, counts, pages })?;
            gate.rule = Rule::Elsewhere(Arc::from(site.address.to_string()));
            write_site = Some(site);
        }
        let (listen, counts) = (&options.listen, parts.door.clone());
        let (thread, what, pages) = ("yb-admin", "admin", router(parts, &gate, limit));
        let site = Site::start(SiteOptions { thread, what, listen, security: None, counts, pages })?;
        Ok(Admin { site, write_site })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.site.address
    }

    /// Where calls that change something are answered.
    pub fn write_address(&self) -> SocketAddr {
        self.write_site.as_ref().map_or(self.site.address, |site| site.address)
    }
}

/// A listener and the thread that serves it; dropping it stops the thread.
#[derive(Debug)]
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

/// A listener to open.
pub(crate) struct SiteOptions<'a> {
    /// Name of its thread.
    pub(crate) thread: &'a str,
    /// Its word in messages: `admin`, `write` or `metadata`.
    pub(crate) what: &'static str,
    /// Host and port.
    pub(crate) listen: &'a str,
    /// From where connections are taken; `None`: from everywhere.
    pub(crate) security: Option<Arc<Security>>,
    /// Of its connections.
    pub(crate) counts: DoorCounts,
    /// What is served.
    pub(crate) pages: Router,
}

impl Site {
    pub(crate) fn start(options: SiteOptions<'_>) -> Result<Site, AdminError> {
        let SiteOptions { thread, what, listen, security, counts, pages } = options;
        let failed = |source| AdminError::Listen { what, listen: listen.to_owned(), source };
        let listener = TcpListener::bind(listen).map_err(failed)?;
        yb_env::end_when_vanished(&listener).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (stop, stopped) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(AdminError::Thread)?;
        let thread = yb_env::spawn_thread(thread, move || {
            runtime.block_on(serve(Opened { listener, what, security, counts }, pages, stopped))
        })
        .map_err(AdminError::Thread)?;
        Ok(Site { address, stop, thread: Some(thread) })
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Opened {
    listener: TcpListener,
    what: &'static str,
    security: Option<Arc<Security>>,
    counts: DoorCounts,
}

async fn serve(opened: Opened, pages: Router, mut stopped: watch::Receiver<bool>) {
    let what = opened.what;
    let listener = match tokio::net::TcpListener::from_std(opened.listener) {
        Ok(listener) => Door::new(listener, opened.security, opened.counts),
        Err(error) => {
            tracing::error!(%error, what, "an HTTP server cannot take its listener");
            return;
        }
    };
    let pages = pages.into_make_service_with_connect_info::<Peer>();
    let server = async { axum::serve(listener, pages).await };
    tokio::select! {
        result = server => {
            if let Err(error) = result {
                tracing::error!(%error, what, "an HTTP server ended");
            }
        }
        // Readers of long lists are cut off: a stop must not wait for them.
        _ = stopped.wait_for(|stop| *stop) => {}
    }
}
