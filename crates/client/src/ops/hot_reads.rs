//! Where a read meets the hot cache.

use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use yb_mem::CopyHint;
use yb_transfer::Span;
use yb_types::ReplicaId;

use super::get::{Into, Read};
use crate::core::Core;
use crate::hot::HotCache;
use crate::memory::Piece;
use crate::{Error, Result};

/// New memory for an object that the cache is to keep. The bytes come here first: what is in the caller's memory, the
/// caller may change.
pub(super) struct Fill {
    bytes: Vec<u8>,
    replica: ReplicaId,
}

/// Where the bytes of a read go.
pub(super) fn target<'a>(
    into: &'a mut Into<'_>,
    fill: &'a mut Option<Fill>,
    size: u64,
) -> Result<SmallVec<[Piece<'a>; 1]>> {
    match fill {
        Some(fill) => Ok(smallvec![Piece { offset: 0, span: Span::destination(&mut fill.bytes) }]),
        None => into.pieces(size),
    }
}

impl Core {
    /// Answers a read from the cache when the master has just named the replica of a copy, or has the copy made.
    pub(super) fn consult_cache(&self, cache: &HotCache, read: &mut Read<'_>) {
        let lookup = read.lookup.as_ref().zip(read.order.first());
        let Some((lookup, first)) = lookup.filter(|_| read.outcome.is_none()) else { return };
        let Some(replica) = lookup.replicas.get(*first as usize) else { return };
        let is_own = |buffer| Some(buffer) == self.endpoint();
        if replica.memory().is_none_or(|memory| is_own(memory.transport_endpoint.as_str())) {
            return;
        }
        if let Some(block) = cache.find(read.key, &lookup.replicas) {
            let size = block.len() as u64;
            if size == read.size && read.into.pieces(size).is_ok_and(|pieces| copy_out(&block, &pieces)) {
                self.counters.hot_hits.add(1);
                // The lease does not matter: the replica is not touched.
                read.lookup = None;
                read.outcome = Some(Ok(size));
            }
            return;
        }
        let reachable = |pieces: SmallVec<[Piece<'_>; 1]>| pieces.iter().all(|piece| !piece.span.is_on_device());
        if read.into.is_whole()
            && read.into.pieces(read.size).is_ok_and(reachable)
            && cache.wants(read.key, replica.id, read.size)
        {
            read.fill = new_block(read.size).map(|bytes| Fill { bytes, replica: replica.id });
        }
    }

    /// Hands out what came while the lease lived, and keeps it.
    pub(super) fn deliver(&self, cache: &HotCache, read: &mut Read<'_>) {
        let Some(Fill { bytes, replica }) = read.fill.take().filter(|_| matches!(read.outcome, Some(Ok(_)))) else {
            return;
        };
        let copied = read.into.pieces(read.size).map(|pieces| copy_out(&bytes, &pieces));
        match copied {
            Ok(true) => {}
            Ok(false) => read.outcome = Some(Err(Error::invalid("the object cannot be copied to this memory"))),
            Err(error) => read.outcome = Some(Err(error)),
        }
        self.counters.hot_evicted.add(cache.keep(read.key, replica, Arc::new(bytes)));
        self.counters.hot_admitted.add(1);
    }
}

fn new_block(size: u64) -> Option<Vec<u8>> {
    let size = usize::try_from(size).ok()?;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(size).ok()?;
    bytes.resize(size, 0);
    Some(bytes)
}

/// Copies the pieces of an object; false when one of them cannot be written here.
fn copy_out(object: &[u8], pieces: &[Piece<'_>]) -> bool {
    let hint = CopyHint::for_total(object.len() as u64);
    pieces.iter().all(|piece| {
        let first = usize::try_from(piece.offset).unwrap_or(usize::MAX);
        let part = object.get(first..).and_then(|rest| rest.get(..piece.span.len()));
        part.is_some_and(|part| yb_mem::copy(piece.span, Span::source(part), hint).is_ok())
    })
}
