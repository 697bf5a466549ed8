//! Simulated memory: cells that remember whose bytes lie in them.

/// Bytes of a cell. Objects are whole cells, and extents begin at multiples of it.
pub const CELL: u64 = 64;

/// One attempt to write an object: a reservation of the master and the bytes that go into it. 0 is nobody.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WriteId(pub u32);

/// Whose bytes a cell holds, and which part of the object they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// The write.
    pub write: WriteId,
    /// Cell of the object, from 0.
    pub part: u32,
}

/// The memory of one life of a node.
#[derive(Clone, Debug)]
pub struct Memory {
    /// Address of the first cell.
    pub base: u64,
    cells: Vec<Mark>,
}

impl Memory {
    /// Empty memory.
    pub fn new(base: u64, cells: u32) -> Self {
        Memory { base, cells: vec![Mark::default(); cells as usize] }
    }

    /// Bytes.
    pub fn size(&self) -> u64 {
        self.cells.len() as u64 * CELL
    }

    /// The first cell of an address; `None` outside, or where no cell begins.
    pub fn cell(&self, address: u64, count: u32) -> Option<usize> {
        let offset = address.checked_sub(self.base)?;
        let first = usize::try_from(offset / CELL).ok()?;
        (offset % CELL == 0 && first + count as usize <= self.cells.len()).then_some(first)
    }

    /// Writes parts `from..to` of an object that begins at a cell.
    pub fn write(&mut self, first: usize, write: WriteId, from: u32, to: u32) {
        for part in from..to {
            if let Some(cell) = self.cells.get_mut(first + part as usize) {
                *cell = Mark { write, part };
            }
        }
    }

    /// What lies in the cells of parts `from..to`.
    pub fn read(&self, first: usize, from: u32, to: u32) -> impl Iterator<Item = Mark> + '_ {
        (from..to).map(move |part| self.cells.get(first + part as usize).copied().unwrap_or_default())
    }

    /// Whether the cells from here on hold the whole object.
    pub fn holds(&self, first: usize, write: WriteId, count: u32) -> bool {
        self.read(first, 0, count).zip(0..).all(|(mark, part)| mark == Mark { write, part })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torn_objects_are_seen() {
        let mut memory = Memory::new(1 << 30, 8);
        let first = memory.cell((1 << 30) + 2 * CELL, 4).unwrap();
        memory.write(first, WriteId(1), 0, 4);
        assert!(memory.holds(first, WriteId(1), 4) && !memory.holds(first, WriteId(2), 4));
        memory.write(first, WriteId(2), 0, 2);
        assert!(!memory.holds(first, WriteId(1), 4) && !memory.holds(first, WriteId(2), 4));
        assert_eq!(memory.cell((1 << 30) + 5 * CELL, 4), None);
        assert_eq!(memory.cell((1 << 30) + 1, 1), None);
    }
}
