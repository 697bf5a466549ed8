//! The future of a call: a result that another thread brings.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use super::core::ReplyBody;
use super::error::RpcError;

#[derive(Debug, Default)]
struct Cell {
    result: Option<Result<ReplyBody, RpcError>>,
    waker: Option<Waker>,
}

/// Resolves to the reply's body. Needs no particular executor.
#[derive(Debug)]
pub struct CallFuture(Arc<Mutex<Cell>>);

/// The other end of a [`CallFuture`].
pub(super) struct Promise(Arc<Mutex<Cell>>);

impl CallFuture {
    pub(super) fn pair() -> (CallFuture, Promise) {
        let cell = Arc::new(Mutex::new(Cell::default()));
        (CallFuture(Arc::clone(&cell)), Promise(cell))
    }
}

impl Promise {
    pub(super) fn keep(self, result: Result<ReplyBody, RpcError>) {
        let waker = {
            let mut cell = self.0.lock();
            cell.result = Some(result);
            cell.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Future for CallFuture {
    type Output = Result<ReplyBody, RpcError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut cell = self.0.lock();
        match cell.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                cell.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
