//! The listener of the page, and its visitors.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::request::{LONGEST, Wish, read};
use super::{Answer, Book};
use crate::{Error, Result};

/// Visitors at a time; more are turned away.
const MOST_VISITORS: usize = 16;
/// How long a visitor may take to ask, and to take the answer.
const PATIENCE: Duration = Duration::from_secs(2);

const STAGE: &str = "the client's HTTP page";

/// Takes the port.
pub(crate) fn listen(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).map_err(|error| Error::setup(STAGE, format!("{address}: {error}")))
}

/// A page that is served until this is dropped.
#[derive(Debug)]
pub(crate) struct PageServer {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PageServer {
    /// Serves what the book says at an open port.
    pub(crate) fn start(listener: TcpListener, book: Book) -> Result<Self> {
        let failed = |error: std::io::Error| Error::setup(STAGE, error);
        let address = listener.local_addr().map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let of_thread = Arc::clone(&stop);
        let thread = yb_env::spawn_thread("yb-page", move || serve(&listener, &of_thread, &book)).map_err(failed)?;
        Ok(PageServer { address, stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for PageServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        // The listener waits for a visitor: this is one.
        let mut own = self.address;
        if own.ip().is_unspecified() {
            own.set_ip(if own.is_ipv4() {
                std::net::Ipv4Addr::LOCALHOST.into()
            } else {
                std::net::Ipv6Addr::LOCALHOST.into()
            });
        }
        let woken = TcpStream::connect_timeout(&own, PATIENCE);
        if let Some(thread) = self.thread.take().filter(|_| woken.is_ok())
            && thread.join().is_err()
        {
            tracing::error!("the thread of the client's HTTP page panicked");
        }
    }
}

fn serve(listener: &TcpListener, stop: &AtomicBool, book: &Book) {
    let visitors = Arc::new(AtomicUsize::new(0));
    while !stop.load(Ordering::SeqCst) {
        let Ok((stream, _)) = listener.accept() else {
            // Out of descriptors, as a rule: they come back.
            yb_env::sleep(Duration::from_millis(50));
            continue;
        };
        if stop.load(Ordering::SeqCst) {
            return;
        }
        if visitors.fetch_add(1, Ordering::SeqCst) >= MOST_VISITORS {
            visitors.fetch_sub(1, Ordering::SeqCst);
            continue;
        }
        let (counted, book) = (Arc::clone(&visitors), book.clone());
        let started = yb_env::spawn_thread("yb-visitor", move || {
            // Who leaves early is no error.
            let _ = receive(stream, &book);
            counted.fetch_sub(1, Ordering::SeqCst);
        });
        if started.is_err() {
            visitors.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

fn receive(mut stream: TcpStream, book: &Book) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let clock = yb_env::Clock::real();
    let end = clock.now() + PATIENCE;
    let mut bytes = Vec::new();
    let mut part = [0; 1024];
    let (answer, head_only) = loop {
        match read(&bytes) {
            Wish::Incomplete if bytes.len() < LONGEST && clock.now() < end => {}
            Wish::Incomplete => return Ok(()),
            Wish::Get { path, head_only } => match book.answer(path) {
                Some(answer) => break (answer, head_only),
                None => return Ok(()),
            },
            Wish::OtherMethod => break (Answer::text("405 Method Not Allowed", "only GET\n"), false),
            Wish::Nonsense => break (Answer::text("400 Bad Request", "no HTTP request\n"), false),
        }
        let len = stream.read(&mut part)?;
        if len == 0 {
            return Ok(());
        }
        bytes.extend_from_slice(part.get(..len).unwrap_or_default());
    };
    stream.write_all(&answer.to_bytes(head_only))
}
