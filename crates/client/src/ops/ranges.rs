//! Reading ranges of objects: fragments of any number of objects into any memory, in one transfer batch.
//!
//! All fragments of one object come from one replica as it was at one lookup, or are read again together.

use smallvec::SmallVec;
use yb_transfer::LocalBuffer;

use crate::core::Core;
use crate::memory::Piece;
use crate::ops::Lookup;
use crate::ops::get::{Into, Read};
use crate::{Error, Result};

/// A range of an object, and memory of the same length.
#[derive(Debug)]
pub struct Fragment<'a> {
    /// First byte of the range in the object.
    pub offset: u64,
    /// The memory.
    pub memory: LocalBuffer<'a>,
}

impl Fragment<'_> {
    /// Whether an object of `size` bytes has the range.
    pub(crate) fn is_inside(&self, size: u64) -> bool {
        self.offset.checked_add(self.memory.len()).is_some_and(|end| end <= size)
    }

    /// Refuses a range that an object of `size` bytes does not have.
    pub(crate) fn check(&self, size: u64) -> Result<()> {
        match self.is_inside(size) {
            true => Ok(()),
            false => {
                let (first, len) = (self.offset, self.memory.len());
                Err(Error::invalid(format!("bytes {first}..+{len} of an object of {size} bytes")))
            }
        }
    }
}

/// Ranges of one object.
#[derive(Debug)]
pub struct RangesItem<'a> {
    /// Its name.
    pub key: &'a [u8],
    /// Which.
    pub fragments: Vec<Fragment<'a>>,
}

impl RangesItem<'_> {
    /// Bytes of all ranges.
    pub(crate) fn bytes(&self) -> u64 {
        self.fragments.iter().map(|fragment| fragment.memory.len()).sum()
    }
}

/// What is known of an object before it is read.
pub(crate) enum Known {
    /// Nothing: it is looked up.
    Nothing,
    /// What was said of it a while ago; it is looked up again when the lease has ended.
    Before(Lookup),
    /// As before, and nothing that was said later counts: another lookup could find another object.
    Only(Lookup),
}

/// The pieces of the fragments that are inside an object of `size` bytes.
pub(crate) fn covered<'a>(fragments: &'a [Fragment<'_>], size: u64) -> SmallVec<[Piece<'a>; 1]> {
    let wanted = fragments.iter().filter(|fragment| !fragment.memory.is_empty() && fragment.is_inside(size));
    wanted.map(|fragment| Piece { offset: fragment.offset, span: fragment.memory.span() }).collect()
}

impl Core {
    /// Reads ranges; for each fragment its bytes or why not. What concerns the object is the answer of all its fragments.
    pub(crate) fn get_ranges<'a>(
        &self,
        items: impl IntoIterator<Item = (RangesItem<'a>, Known)>,
    ) -> Vec<Vec<Result<u64>>> {
        let reads = items.into_iter().map(|(item, known)| {
            let mut read = Read::new(item.key, Into::Ranges(item.fragments));
            match known {
                Known::Nothing => {}
                Known::Before(lookup) => self.start_known(&mut read, lookup),
                Known::Only(lookup) => {
                    self.start_known(&mut read, lookup);
                    read.never_look_again();
                }
            }
            read
        });
        self.read_all(reads).into_iter().map(answers).collect()
    }
}

fn answers(read: Read<'_>) -> Vec<Result<u64>> {
    let Into::Ranges(fragments) = read.into else { return Vec::new() };
    let object = read.outcome.unwrap_or(Err(Error::Closed));
    let answer = |fragment: &Fragment<'_>| match &object {
        Ok(size) => fragment.check(*size).map(|()| fragment.memory.len()),
        Err(error) => Err(error.clone()),
    };
    fragments.iter().map(answer).collect()
}
