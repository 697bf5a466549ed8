//! Registered buffers on loan: memory for zero-copy calls that is registered once and used again and again.
//!
//! A pool is one registered range of its whole capacity, cut on demand. Pages are taken from the system when they are
//! first touched and stay with the pool, so that a lease costs neither a registration nor page faults once it is warm.
//! Whoever waits is served in the order of asking, so that a large request is not starved by small ones.
//!
//! Invariants: a lease's bytes belong to nobody else until it ends; a closed pool has no leases; nobody waits for ever
//! for what the pool could never hold.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use yb_alloc::{Alignment, NodeId, OffsetAllocator};
use yb_transfer::{MemorySegment, SegmentOptions};
use yb_types::ByteLen;

use crate::{Client, Error, MemoryRange};

/// How a pool is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Bytes of all leases together, each rounded up to `granule`.
    pub capacity: u64,
    /// Leases start at multiples of this, a power of two from 64 on; their length is rounded up to it.
    pub granule: u64,
    /// The range starts at a multiple of this power of two.
    pub alignment: u64,
    /// Most leases at a time; `None`: as many as have room.
    pub most_leases: Option<u64>,
}

/// Why there is no lease.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// It would not fit if the pool were empty.
    #[error("requested buffer size exceeds pool capacity")]
    TooLarge,
    /// Not now, and the caller does not wait; or somebody waits already, and comes first.
    #[error("buffer pool is exhausted")]
    Exhausted,
    /// Not within the caller's time.
    #[error("timed out waiting for buffer")]
    TimedOut,
    /// The pool was closed.
    #[error("buffer pool is closed")]
    Closed,
    /// The pool cannot be closed yet.
    #[error("cannot close buffer pool with active leases")]
    Leased,
    /// More is to be warmed up than the pool can hold.
    #[error("buffer pool capacity exceeded")]
    CapacityExceeded,
    /// The client does not give the memory.
    #[error("{0}")]
    Client(#[from] Error),
}

struct State {
    pieces: OffsetAllocator,
    leases: u64,
    /// Those who wait, in order.
    queue: VecDeque<u64>,
    next_ticket: u64,
    closed: bool,
}

struct Inner {
    client: Client,
    memory: Arc<MemorySegment>,
    config: PoolConfig,
    state: Mutex<State>,
    changed: Condvar,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BufferPool").field("config", &self.config).finish_non_exhaustive()
    }
}

/// A pool. Clones are the same pool.
#[derive(Clone, Debug)]
pub struct BufferPool(Arc<Inner>);

impl BufferPool {
    /// Registers the pool's memory with the client. Its pages are taken when they are used.
    ///
    /// # Errors
    /// [`PoolError::Client`] when the client is closed, or the system has no address space; a capacity of zero and a
    /// granule that is no power of two are [`Error::Invalid`].
    pub fn new(client: &Client, config: PoolConfig) -> Result<Self, PoolError> {
        let granule = Alignment::new(config.granule).filter(|_| config.granule >= 64);
        let granule = granule.ok_or_else(|| Error::invalid("the granule of a buffer pool has to be a power of two"))?;
        let capacity = config.capacity.checked_next_multiple_of(config.granule).unwrap_or(u64::MAX);
        let config = PoolConfig { capacity, ..config };
        let options = SegmentOptions { alignment: config.alignment, ..SegmentOptions::default() };
        let memory = client.allocate_buffer_with(config.capacity, options)?;
        let pieces = OffsetAllocator::new(ByteLen(config.capacity), granule);
        let state = State { pieces, leases: 0, queue: VecDeque::new(), next_ticket: 0, closed: false };
        Ok(BufferPool(Arc::new(Inner {
            client: client.clone(),
            memory,
            config,
            state: Mutex::new(state),
            changed: Condvar::new(),
        })))
    }

    /// A buffer of `size` bytes, now.
    ///
    /// # Errors
    /// [`PoolError::TooLarge`], [`PoolError::Exhausted`], [`PoolError::Closed`].
    pub fn try_acquire(&self, size: u64) -> Result<BufferLease, PoolError> {
        let taken = self.0.bytes_of(size)?;
        let mut state = self.0.state.lock();
        if state.closed {
            return Err(PoolError::Closed);
        }
        if !state.queue.is_empty() {
            return Err(PoolError::Exhausted);
        }
        self.take(&mut state, size, taken).ok_or(PoolError::Exhausted)
    }

    /// A buffer of `size` bytes, after waiting for it.
    ///
    /// # Errors
    /// [`PoolError::TooLarge`], [`PoolError::TimedOut`], [`PoolError::Closed`].
    pub fn acquire(&self, size: u64, patience: Duration) -> Result<BufferLease, PoolError> {
        self.queue(size)?.wait(patience).unwrap_or(Err(PoolError::TimedOut))
    }

    /// Queues for a buffer of `size` bytes. The place in the queue is kept until the turn is dropped.
    ///
    /// # Errors
    /// [`PoolError::TooLarge`], [`PoolError::Closed`].
    pub fn queue(&self, size: u64) -> Result<Turn, PoolError> {
        let taken = self.0.bytes_of(size)?;
        let mut state = self.0.state.lock();
        if state.closed {
            return Err(PoolError::Closed);
        }
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.queue.push_back(ticket);
        Ok(Turn { pool: self.clone(), ticket, size, taken })
    }

    /// Touches the pages of `count` buffers of `size` bytes, so that later leases of this size find them there.
    ///
    /// # Errors
    /// [`PoolError::CapacityExceeded`] when so many do not fit beside the leases; [`PoolError::Closed`].
    pub fn prewarm(&self, size: u64, count: u64) -> Result<(), PoolError> {
        let mut leases = Vec::new();
        for _ in 0..count {
            match self.try_acquire(size) {
                Ok(lease) => leases.push(lease),
                Err(PoolError::Exhausted | PoolError::TooLarge) => return Err(PoolError::CapacityExceeded),
                Err(other) => return Err(other),
            }
        }
        for lease in &leases {
            let offset = lease.address() - self.0.memory.address();
            if let Err(error) = self.0.memory.populate_part(offset, lease.taken) {
                tracing::debug!(%error, "the pages of the buffer pool are made at first use");
                break;
            }
        }
        Ok(())
    }

    /// Gives the memory back. Whoever waits is told that the pool is closed. Closing twice does nothing.
    ///
    /// # Errors
    /// [`PoolError::Leased`], and the pool goes on.
    pub fn close(&self) -> Result<(), PoolError> {
        let mut state = self.0.state.lock();
        if state.closed {
            return Ok(());
        }
        if state.leases > 0 {
            return Err(PoolError::Leased);
        }
        state.closed = true;
        drop(state);
        self.0.changed.notify_all();
        self.0.release();
        Ok(())
    }

    /// Bytes that leases can have together.
    pub fn capacity(&self) -> u64 {
        self.0.config.capacity
    }

    /// Leases at present.
    pub fn leases(&self) -> u64 {
        self.0.state.lock().leases
    }

    fn take(&self, state: &mut State, size: u64, taken: u64) -> Option<BufferLease> {
        if self.0.config.most_leases.is_some_and(|most| state.leases >= most) {
            return None;
        }
        let extent = state.pieces.allocate(ByteLen(taken), 0)?;
        state.leases += 1;
        let range = MemoryRange { address: self.0.memory.address() + extent.offset, len: size };
        Some(BufferLease { pool: Arc::clone(&self.0), range, node: extent.node, taken })
    }
}

impl Inner {
    /// What a buffer of `size` bytes takes.
    fn bytes_of(&self, size: u64) -> Result<u64, PoolError> {
        let taken = size.max(1).checked_next_multiple_of(self.config.granule);
        taken.filter(|taken| *taken <= self.config.capacity).ok_or(PoolError::TooLarge)
    }

    /// The registration ends; the pages go when the last lease, if there is one, is dropped.
    fn release(&self) {
        // A client that was closed has let go of it already.
        if let Err(error) = self.client.unregister_buffer(self.memory.address()) {
            tracing::debug!(%error, "the memory of a buffer pool was not unregistered");
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.state.get_mut().closed {
            self.release();
        }
    }
}

/// A place in the queue of a pool.
#[derive(Debug)]
pub struct Turn {
    pool: BufferPool,
    ticket: u64,
    size: u64,
    taken: u64,
}

impl Turn {
    /// Waits for the buffer; `None` when it has not come within `patience`, and the place is kept. To be asked again
    /// only while it is `None`.
    pub fn wait(&mut self, patience: Duration) -> Option<Result<BufferLease, PoolError>> {
        let inner = Arc::clone(&self.pool.0);
        let clock = yb_env::Clock::real();
        let end = clock.now() + patience;
        let mut state = inner.state.lock();
        loop {
            if state.closed {
                return Some(Err(PoolError::Closed));
            }
            if state.queue.front() == Some(&self.ticket)
                && let Some(lease) = self.pool.take(&mut state, self.size, self.taken)
            {
                state.queue.pop_front();
                // There may be room for the next one too.
                inner.changed.notify_all();
                return Some(Ok(lease));
            }
            let left = end.since(clock.now());
            if left.is_zero() {
                return None;
            }
            inner.changed.wait_for(&mut state, left);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = self.pool.0.state.lock();
        if let Some(at) = state.queue.iter().position(|ticket| *ticket == self.ticket) {
            state.queue.remove(at);
            self.pool.0.changed.notify_all();
        }
    }
}

/// Registered memory on loan; it goes back when dropped.
#[derive(Debug)]
pub struct BufferLease {
    pool: Arc<Inner>,
    range: MemoryRange,
    node: NodeId,
    taken: u64,
}

impl BufferLease {
    /// First address.
    pub fn address(&self) -> u64 {
        self.range.address
    }

    /// Bytes asked for.
    pub fn len(&self) -> u64 {
        self.range.len
    }

    /// True for a buffer of no bytes.
    pub fn is_empty(&self) -> bool {
        self.range.len == 0
    }

    /// For the calls of the client that take registered memory.
    pub fn range(&self) -> MemoryRange {
        self.range
    }
}

impl Drop for BufferLease {
    fn drop(&mut self) {
        let mut state = self.pool.state.lock();
        state.leases -= 1;
        // The node is that of this lease, in use until now.
        let _ = state.pieces.free(self.node);
        self.pool.changed.notify_all();
    }
}
