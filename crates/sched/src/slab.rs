//! Values in numbered places that are used again, with keys that know when their value is gone.

/// A place with the generation of what it holds.
#[derive(Debug)]
struct Entry<T> {
    generation: u32,
    value: Option<T>,
}

/// Values by key: index in the low half, generation in the high half. Keys are never zero.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { entries: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> u64 {
        let index = self.free.pop().unwrap_or_else(|| {
            self.entries.push(Entry { generation: 0, value: None });
            (self.entries.len() - 1) as u32
        });
        let Some(entry) = self.entries.get_mut(index as usize) else { return 0 };
        entry.generation = entry.generation.wrapping_add(1).max(1);
        entry.value = Some(value);
        u64::from(entry.generation) << 32 | u64::from(index)
    }

    pub(crate) fn get(&self, key: u64) -> Option<&T> {
        let entry = self.entries.get((key & 0xffff_ffff) as usize)?;
        entry.value.as_ref().filter(|_| u64::from(entry.generation) == key >> 32)
    }

    pub(crate) fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let entry = self.entries.get_mut((key & 0xffff_ffff) as usize)?;
        entry.value.as_mut().filter(|_| u64::from(entry.generation) == key >> 32)
    }

    pub(crate) fn remove(&mut self, key: u64) -> Option<T> {
        self.get(key)?;
        let entry = self.entries.get_mut((key & 0xffff_ffff) as usize)?;
        self.free.push((key & 0xffff_ffff) as u32);
        entry.value.take()
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = u64> + '_ {
        let used = self.entries.iter().enumerate().filter(|(_, entry)| entry.value.is_some());
        used.map(|(index, entry)| u64::from(entry.generation) << 32 | index as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_ends_with_its_value() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert("a"), slab.insert("b"));
        assert_eq!((slab.remove(a), slab.remove(a), slab.get(b)), (Some("a"), None, Some(&"b")));
        let c = slab.insert("c");
        assert_eq!(c & 0xffff_ffff, a & 0xffff_ffff, "the place is used again");
        assert_eq!((slab.get(a), slab.get(c), slab.get(0), slab.len()), (None, Some(&"c"), None, 2));
        assert_eq!(slab.keys().collect::<Vec<_>>(), [c, b]);
    }
}
