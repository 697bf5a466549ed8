//! Buffers that the engine makes: registered memory, cut into pieces on demand.
//!
//! Memory is taken from the system in arenas that grow with the demand, each registered once; a large buffer has an
//! arena to itself. An arena that is empty again is given back, but for the last one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use yb_alloc::{Alignment, NodeId, OffsetAllocator};
use yb_mem::{Access, MemorySegment, SegmentOptions};
use yb_transfer::Engine;
use yb_types::ByteLen;

const FIRST_ARENA: u64 = 16 << 20;
const LARGEST_ARENA: u64 = 256 << 20;
/// Buffers start at a page.
const PAGE: u64 = 4096;
/// How long the memory of a buffer that is given back may still be used by a transfer.
const PATIENCE: Duration = Duration::from_secs(1);

struct Arena {
    segment: Arc<MemorySegment>,
    pieces: OffsetAllocator,
}

#[derive(Clone, Copy)]
struct Given {
    size: u64,
    arena: u64,
    node: NodeId,
}

#[derive(Default)]
struct State {
    /// By first address.
    arenas: BTreeMap<u64, Arena>,
    given: BTreeMap<u64, Given>,
}

/// All buffers of one engine.
#[derive(Default)]
pub(crate) struct Managed(Mutex<State>);

impl Managed {
    /// Address of a new buffer of `size` bytes; `None` when the system has no memory for it.
    pub(crate) fn allocate(&self, engine: &Engine, size: u64) -> Option<u64> {
        let mut state = self.0.lock();
        let (arena, extent) = match state.piece(size) {
            Some(found) => found,
            None => {
                let arena = state.add_arena(engine, size)?;
                state.piece_of(arena, size)?
            }
        };
        let address = arena + extent.0;
        state.given.insert(address, Given { size, arena, node: extent.1 });
        Some(address)
    }

    /// Takes a buffer back; false when there is none of that address and size.
    pub(crate) fn free(&self, engine: &Engine, address: u64, size: u64) -> bool {
        let mut state = self.0.lock();
        let Some(given) = state.given.get(&address).copied().filter(|given| given.size == size) else { return false };
        state.given.remove(&address);
        let arenas = state.arenas.len();
        let Some(arena) = state.arenas.get_mut(&given.arena) else { return false };
        // The handle is that of the buffer, which was in use until now.
        let _ = arena.pieces.free(given.node);
        let empty = arena.pieces.used() == ByteLen(0);
        if empty && arenas > 1 && engine.unregister(given.arena, PATIENCE).is_ok() {
            state.arenas.remove(&given.arena);
        }
        true
    }
}

impl State {
    fn piece(&mut self, size: u64) -> Option<(u64, (u64, NodeId))> {
        let arenas: Vec<u64> = self.arenas.keys().copied().collect();
        arenas.into_iter().find_map(|arena| self.piece_of(arena, size))
    }

    fn piece_of(&mut self, arena: u64, size: u64) -> Option<(u64, (u64, NodeId))> {
        let extent = self.arenas.get_mut(&arena)?.pieces.allocate(ByteLen(size), 0)?;
        Some((arena, (extent.offset, extent.node)))
    }

    /// An arena that holds at least `size` bytes: as much again as there is, within bounds.
    fn add_arena(&mut self, engine: &Engine, size: u64) -> Option<u64> {
        let present = self.arenas.values().map(|arena| arena.pieces.capacity().0).sum::<u64>();
        let len = present.clamp(FIRST_ARENA, LARGEST_ARENA).max(size.checked_next_multiple_of(PAGE)?);
        let segment = engine.allocate(len, SegmentOptions::default(), Access::Remote).map_err(|error| {
            tracing::error!(%error, len, "no memory for a managed buffer");
        });
        let segment = segment.ok()?;
        let address = segment.address();
        let pieces = OffsetAllocator::new(ByteLen(len), Alignment::new(PAGE)?);
        self.arenas.insert(address, Arena { segment, pieces });
        Some(address)
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        tracing::debug!(address = self.segment.address(), "an arena of managed buffers is given back");
    }
}
