//! Connections of the admin server: how many there may be, and how long one may say nothing.
//!
//! HTTP has no need of idle connections. One that sends no request, stops in the middle of one, or does not read its
//! answer would otherwise hold a descriptor of the master for ever, and those are what its clients need.

use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Sleep, sleep};
use yb_secure::Security;

use crate::places::{DoorCounts, Place, Places};

/// Silence after which a connection ends that was not answered yet.
const BEFORE_ANSWER: Duration = Duration::from_millis(1900);
/// How long the whole of a request may take to come in, from its first byte on: bytes that trickle are no silence.
const WHOLE_REQUEST: Duration = Duration::from_secs(10);
/// Silence after which any other ends: longer than the pauses of those that collect metrics.
const AFTER_ANSWER: Duration = Duration::from_secs(75);

/// A listener that counts.
pub(crate) struct Door {
    listener: TcpListener,
    places: Places,
    security: Option<Arc<Security>>,
}

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer(pub(crate) IpAddr);

impl Connected<IncomingStream<'_, Door>> for Peer {
    fn connect_info(stream: IncomingStream<'_, Door>) -> Self {
        Peer(stream.remote_addr().ip().to_canonical())
    }
}

impl Door {
    pub(crate) fn new(listener: TcpListener, security: Option<Arc<Security>>, counts: DoorCounts) -> Self {
        Door { listener, places: Places::new(counts), security }
    }
}

impl Listener for Door {
    type Io = Visitor;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Visitor, SocketAddr) {
        loop {
            let (stream, peer) = Listener::accept(&mut self.listener).await;
            if self.security.as_ref().is_some_and(|security| !security.takes_plain("http", peer.ip())) {
                continue;
            }
            let Some(place) = self.places.take(peer.ip()) else { continue };
            // Only latency suffers when this fails.
            let _ = stream.set_nodelay(true);
            let patience = Box::pin(sleep(BEFORE_ANSWER));
            return (Visitor { stream, patience, request: None, answered: false, _place: place }, peer);
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when nothing moves.
pub(crate) struct Visitor {
    stream: TcpStream,
    patience: Pin<Box<Sleep>>,
    /// Ends the connection while a request is coming in; none once it is answered.
    request: Option<Pin<Box<Sleep>>>,
    answered: bool,
    _place: Place,
}

impl Visitor {
    /// Passes `moved` on, and turns waiting into an error when it has lasted too long.
    fn watch<T>(&mut self, moved: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if moved.is_ready() {
            let patience = if self.answered { AFTER_ANSWER } else { BEFORE_ANSWER };
            self.patience.set(sleep(patience));
            return moved;
        }
        ready!(self.patience.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl Visitor {
    /// Whether the request that is coming in has taken too long.
    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        self.request.as_mut().is_some_and(|end| end.as_mut().poll(context).is_ready())
    }
}

impl AsyncRead for Visitor {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.is_late(context) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        let before = into.filled().len();
        let moved = Pin::new(&mut self.stream).poll_read(context, into);
        if into.filled().len() > before && self.request.is_none() {
            self.request = Some(Box::pin(sleep(WHOLE_REQUEST)));
        }
        self.watch(moved, context)
    }
}

impl AsyncWrite for Visitor {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        (self.answered, self.request) = (true, None);
        let moved = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.watch(moved, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        (self.answered, self.request) = (true, None);
        let moved = Pin::new(&mut self.stream).poll_write_vectored(context, pieces);
        self.watch(moved, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
