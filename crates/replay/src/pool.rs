//! What a replay needs of a pool.

/// One client of a pool, with a place for the bytes of so many blocks.
///
/// The place belongs to the client so that it can be registered memory: bytes go from there to the pool and back
/// without a copy in between.
pub trait Pool: Send {
    /// How many blocks fit in one call. At least 1.
    fn slots(&self) -> usize;

    /// Which of these keys can be read now, in order.
    ///
    /// # Errors
    /// When the pool cannot answer.
    fn lookup(&mut self, keys: &[String]) -> Result<Vec<bool>, PoolError>;

    /// Reads key `i` into slot `i`, whole; one outcome a key. At most [`slots`](Self::slots) keys.
    fn read(&mut self, keys: &[String]) -> Vec<ReadOutcome>;

    /// Stores slot `i` under key `i`; one outcome a key. At most [`slots`](Self::slots) keys.
    fn write(&mut self, keys: &[String]) -> Vec<WriteOutcome>;

    /// The bytes of a slot, one block long.
    fn slot(&self, index: usize) -> &[u8];

    /// The bytes of a slot, to fill.
    fn slot_mut(&mut self, index: usize) -> &mut [u8];
}

/// A call that the pool could not serve; the text says what, where and whether to retry.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PoolError(pub String);

/// What became of one block that was to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// All bytes of the block are in the slot.
    Read,
    /// It is not there: never was, or evicted since the lookup.
    Miss,
    /// The object has another size than a block, in bytes: somebody else's key.
    OtherSize(u64),
    /// It is there and could not be read.
    Failed(PoolError),
}

/// What became of one block that was to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WriteOutcome {
    /// Stored.
    Stored,
    /// Another client had stored it, or is storing it now.
    Exists,
    /// The pool has no space now.
    NoSpace,
    /// It could not be stored.
    Failed(PoolError),
}
