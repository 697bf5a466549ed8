//! Lists that stay where they are: in the frame when decoded, in the caller's slice when encoded.

use crate::{DecodeError, Limits, Literal, Pack, Reader, SizeWidth, Unpack, Version, Writer};

/// A sequence of cheap elements (keys, numbers, ids) without a `Vec`.
///
/// Decoded, it points into the frame; its elements were checked once and are read again while iterating. Elements
/// with compatible members cannot be in one, since those travel elsewhere; use a `Vec`.
#[derive(Clone, Debug)]
pub struct List<'a, T>(Source<'a, T>);

#[derive(Clone, Debug)]
enum Source<'a, T> {
    Wire { payload: &'a [u8], count: usize, version: Version, width: SizeWidth },
    Slice(&'a [T]),
}

impl<'a, T> From<&'a [T]> for List<'a, T> {
    fn from(items: &'a [T]) -> Self {
        List(Source::Slice(items))
    }
}

impl<'a, T> From<&'a Vec<T>> for List<'a, T> {
    fn from(items: &'a Vec<T>) -> Self {
        List(Source::Slice(items))
    }
}

impl<'a, T, const N: usize> From<&'a [T; N]> for List<'a, T> {
    fn from(items: &'a [T; N]) -> Self {
        List(Source::Slice(items))
    }
}

impl<T> Default for List<'_, T> {
    fn default() -> Self {
        List(Source::Slice(&[]))
    }
}

impl<T> List<'_, T> {
    /// Elements.
    pub fn len(&self) -> usize {
        match &self.0 {
            Source::Wire { count, .. } => *count,
            Source::Slice(items) => items.len(),
        }
    }

    /// True without elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'a, T: Unpack<'a> + Copy> List<'a, T> {
    /// The elements in order.
    pub fn iter(&self) -> ListIter<'a, T> {
        match &self.0 {
            Source::Wire { payload, count, version, width } => ListIter {
                reader: Reader::new(payload, *version, *width, Limits::default()),
                slice: [].iter(),
                left: *count,
            },
            Source::Slice(items) => ListIter {
                reader: Reader::new(&[], Version(0), SizeWidth::One, Limits::default()),
                slice: items.iter(),
                left: items.len(),
            },
        }
    }

    /// The elements in a `Vec`: one allocation.
    pub fn to_vec(&self) -> Vec<T> {
        self.iter().collect()
    }
}

impl<'a, T: Unpack<'a> + Copy> IntoIterator for &List<'a, T> {
    type Item = T;
    type IntoIter = ListIter<'a, T>;
    fn into_iter(self) -> ListIter<'a, T> {
        self.iter()
    }
}

impl<'a, T: Unpack<'a> + Copy + PartialEq> PartialEq for List<'a, T> {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

/// Iterates a [`List`].
#[derive(Clone, Debug)]
pub struct ListIter<'a, T> {
    reader: Reader<'a>,
    slice: std::slice::Iter<'a, T>,
    left: usize,
}

impl<'a, T: Unpack<'a> + Copy> Iterator for ListIter<'a, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        if self.left == 0 {
            return None;
        }
        self.left -= 1;
        match self.slice.next() {
            Some(item) => Some(*item),
            // Checked when the list was decoded, so this reads again what was read before.
            None => T::read(&mut self.reader).ok(),
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<'a, T: Unpack<'a> + Copy> ExactSizeIterator for ListIter<'a, T> {}

impl<'a, T: Unpack<'a> + Copy> Pack for List<'a, T> {
    const MIN_BYTES: usize = 1;
    fn literal(version: Version, out: &mut Literal) {
        T::sequence_literal(version, out);
    }
    fn describe(version: Version, out: &mut String) {
        T::describe_sequence(version, out);
    }
    fn write(&self, w: &mut Writer<'_>) {
        w.size(self.len());
        for item in self {
            item.write(w);
        }
    }
}

impl<'a, T: Unpack<'a> + Copy> Unpack<'a> for List<'a, T> {
    fn read(r: &mut Reader<'a>) -> Result<Self, DecodeError> {
        let count = r.count(T::MIN_BYTES)?;
        let from = r.position();
        T::skip_sequence(r, count)?;
        let payload = r.slice(from, r.position());
        Ok(List(Source::Wire { payload, count, version: r.version(), width: r.width() }))
    }
}
