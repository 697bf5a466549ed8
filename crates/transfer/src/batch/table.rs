//! The open batches of an engine.
//!
//! A slab of slots; an id is slot, engine and generation, so the id of a released batch never names a later one, and
//! that of another engine none of ours. Slots are made in blocks that never move: looking one up takes only the lock of
//! that slot.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};

use crate::batch::tasks::Batch;
use crate::batch::{BatchError, BatchId, MAX_BATCHES};

const BLOCK: usize = 1024;
const BLOCKS: usize = MAX_BATCHES / BLOCK;

/// The number of the next engine of this process; they differ, so ids of one engine mean nothing to another.
static NEXT_ENGINE: AtomicU16 = AtomicU16::new(1);

#[derive(Default)]
struct Slot {
    /// Of the batch that is here, or of the last one that was.
    generation: AtomicU32,
    batch: RwLock<Option<Arc<Batch>>>,
}

#[derive(Default)]
struct Free {
    slots: Vec<usize>,
    made: usize,
}

pub(crate) struct BatchTable {
    engine: u16,
    blocks: [OnceLock<Box<[Slot]>>; BLOCKS],
    free: Mutex<Free>,
    closed: AtomicBool,
}

impl Default for BatchTable {
    fn default() -> Self {
        BatchTable {
            engine: NEXT_ENGINE.fetch_add(1, Ordering::Relaxed),
            blocks: [const { OnceLock::new() }; BLOCKS],
            free: Mutex::default(),
            closed: AtomicBool::new(false),
        }
    }
}

impl BatchTable {
    fn slot(&self, index: usize) -> Option<&Slot> {
        self.blocks.get(index / BLOCK)?.get()?.get(index % BLOCK)
    }

    /// A free slot, made if there is none.
    fn take_slot(&self) -> Result<usize, BatchError> {
        let mut free = self.free.lock();
        if let Some(index) = free.slots.pop() {
            return Ok(index);
        }
        let index = free.made;
        let block = self.blocks.get(index / BLOCK).ok_or(BatchError::TooMany)?;
        block.get_or_init(|| (0..BLOCK).map(|_| Slot::default()).collect());
        free.made += 1;
        Ok(index)
    }

    /// Gives a batch its id.
    pub(crate) fn insert(&self, batch: Arc<Batch>) -> Result<BatchId, BatchError> {
        let index = self.take_slot()?;
        let slot = self.slot(index).ok_or(BatchError::TooMany)?;
        let mut place = slot.batch.write();
        if self.closed.load(Ordering::SeqCst) {
            self.free.lock().slots.push(index);
            return Err(BatchError::Closed);
        }
        let generation = slot.generation.load(Ordering::Relaxed) + 1;
        slot.generation.store(generation, Ordering::Relaxed);
        *place = Some(batch);
        Ok(BatchId::new(index, self.engine, generation))
    }

    /// Looks at a batch. It is not released meanwhile.
    pub(crate) fn with<T>(&self, id: BatchId, look: impl FnOnce(&Arc<Batch>) -> T) -> Result<T, BatchError> {
        let slot = self.slot_of(id)?;
        let place = slot.batch.read();
        let generation = slot.generation.load(Ordering::Relaxed);
        match &*place {
            Some(batch) if id.generation() == generation => Ok(look(batch)),
            _ => Err(missing(id, generation)),
        }
    }

    fn slot_of(&self, id: BatchId) -> Result<&Slot, BatchError> {
        if id.engine() != self.engine {
            return Err(if id.engine() == 0 { BatchError::Unknown } else { BatchError::OtherEngine });
        }
        self.slot(id.slot()).ok_or(BatchError::Unknown)
    }

    pub(crate) fn get(&self, id: BatchId) -> Result<Arc<Batch>, BatchError> {
        self.with(id, Arc::clone)
    }

    /// Forgets a terminal batch; its id is stale from now on.
    pub(crate) fn release(&self, id: BatchId) -> Result<(), BatchError> {
        let slot = self.slot_of(id)?;
        let mut place = slot.batch.write();
        let generation = slot.generation.load(Ordering::Relaxed);
        match &*place {
            Some(batch) if id.generation() == generation => {
                if !batch.progress().is_terminal() {
                    return Err(BatchError::Busy);
                }
            }
            _ => return Err(missing(id, generation)),
        }
        let released = place.take();
        drop(place);
        drop(released);
        // A slot that has used up its generations is left alone: an id is never given out twice.
        if generation < u32::MAX {
            self.free.lock().slots.push(id.slot());
        }
        Ok(())
    }

    /// Takes no more batches, and gives back those that are open.
    pub(crate) fn close(&self) -> Vec<Arc<Batch>> {
        self.closed.store(true, Ordering::SeqCst);
        let slots = self.blocks.iter().filter_map(OnceLock::get).flatten();
        slots.filter_map(|slot| slot.batch.read().clone()).collect()
    }
}

fn missing(id: BatchId, generation: u32) -> BatchError {
    if (1..=generation).contains(&id.generation()) { BatchError::Released } else { BatchError::Unknown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_given_out_once() {
        let (table, other) = (BatchTable::default(), BatchTable::default());
        let open = |table: &BatchTable| table.insert(Arc::new(Batch::new(4))).unwrap();
        let first = open(&table);
        table.release(first).unwrap();
        let second = open(&table);
        assert_eq!((second.slot(), second != first), (first.slot(), true), "the slot is used again");
        let of = |id| table.with(id, |_| ()).unwrap_err();
        assert_eq!((of(first), table.release(first)), (BatchError::Released, Err(BatchError::Released)));
        assert_eq!(of(open(&other)), BatchError::OtherEngine);
        let later = BatchId::new(second.slot(), table.engine, second.generation() + 1);
        let far = BatchId::new(50_000, table.engine, 1);
        for never in [BatchId(0), BatchId(7), later, far] {
            assert_eq!(of(never), BatchError::Unknown, "{never:?}");
        }
        assert!(table.with(second, |_| ()).is_ok());
    }

    #[test]
    fn a_slot_without_generations_left_is_not_used_again() {
        let table = BatchTable::default();
        let first = table.insert(Arc::new(Batch::new(1))).unwrap();
        table.slot(first.slot()).unwrap().generation.store(u32::MAX, Ordering::Relaxed);
        let last = BatchId::new(first.slot(), table.engine, u32::MAX);
        table.release(last).unwrap();
        let next = table.insert(Arc::new(Batch::new(1))).unwrap();
        assert_ne!(next.slot(), last.slot());
        assert_eq!(table.release(last), Err(BatchError::Released));
    }

    #[test]
    fn the_number_of_open_batches_is_bounded_and_a_closed_table_takes_none() {
        let table = BatchTable::default();
        let empty = Arc::new(Batch::new(0));
        for _ in 0..MAX_BATCHES {
            table.insert(Arc::clone(&empty)).unwrap();
        }
        assert_eq!(table.insert(Arc::clone(&empty)), Err(BatchError::TooMany));
        assert_eq!(table.close().len(), MAX_BATCHES);
        table.release(BatchId::new(9, table.engine, 1)).unwrap();
        assert_eq!(table.insert(empty), Err(BatchError::Closed));
    }
}
