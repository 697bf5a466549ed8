//! Ranges of objects in the shape in which callers name them: by buffer, by key, by range.

use std::collections::HashMap;

use yb_client::{Error, Fragment, LocalBuffer, RangesItem};

use crate::backend::Backend;
use crate::convert::{Key, Unsigned};
use crate::last_error::{Failures, INVALID, NO_KEY};

/// For each buffer, for each key, for each range one number.
pub(crate) type PerRange<T> = Vec<Vec<Vec<T>>>;

/// Where each range comes from and goes to.
pub(crate) struct RangesCall {
    /// Registered memory; offsets count from here.
    pub(crate) buffers: Vec<Unsigned>,
    /// Keys whose ranges go to each buffer.
    pub(crate) keys: Vec<Vec<Key>>,
    /// First byte in the buffer.
    pub(crate) destinations: PerRange<Unsigned>,
    /// First byte in the object.
    pub(crate) sources: PerRange<Unsigned>,
    /// Bytes.
    pub(crate) sizes: PerRange<Unsigned>,
}

/// Place of a range in the call: buffer, key, range.
type Place = (usize, usize, usize);

/// The ranges of a call by object, each with its place.
struct Sorted<'c, 'm> {
    items: Vec<RangesItem<'m>>,
    places: Vec<Vec<Place>>,
    by_key: HashMap<&'c [u8], usize>,
}

impl RangesCall {
    /// The answer when nothing works: a code for each range, as far as the lists agree on how many there are.
    pub(crate) fn refused(&self) -> PerRange<i64> {
        if !self.is_of_one_length() {
            return vec![vec![vec![INVALID]]; self.buffers.len()];
        }
        let of_buffer = |(buffer, keys): (usize, &Vec<Key>)| {
            if !self.agrees(buffer) {
                return vec![vec![INVALID]; keys.len()];
            }
            self.destinations[buffer].iter().map(|ranges| vec![INVALID; ranges.len()]).collect()
        };
        self.keys.iter().enumerate().map(of_buffer).collect()
    }

    /// Whether every list has one entry for each buffer.
    fn is_of_one_length(&self) -> bool {
        let lens = [self.keys.len(), self.destinations.len(), self.sources.len(), self.sizes.len()];
        lens == [self.buffers.len(); 4]
    }

    /// Whether the lists of a buffer have one entry for each of its keys.
    fn agrees(&self, buffer: usize) -> bool {
        let lens = |list: &PerRange<Unsigned>| list.get(buffer).map(Vec::len);
        let keys = self.keys.get(buffer).map(Vec::len);
        [lens(&self.destinations), lens(&self.sources), lens(&self.sizes)] == [keys; 3]
    }

    /// Reads all ranges that name registered memory, with one call of `read`.
    pub(crate) fn run(
        &self,
        backend: Backend<'_>,
        last: &Failures,
        read: impl FnOnce(Vec<RangesItem<'_>>) -> Vec<Vec<Result<u64, Error>>>,
    ) -> PerRange<i64> {
        let mut numbers = self.refused();
        if !self.is_of_one_length() {
            last.set("the lists differ in length");
            return numbers;
        }
        // Pinned until the bytes are there.
        let memory: Vec<Option<LocalBuffer<'static>>> =
            self.buffers.iter().map(|buffer| last.note(NO_KEY, backend.local_rest(buffer.0))).collect();
        let mut sorted = Sorted { items: Vec::new(), places: Vec::new(), by_key: HashMap::new() };
        for (buffer, memory) in memory.iter().enumerate() {
            let Some(memory) = memory.as_ref().filter(|_| self.agrees(buffer)) else { continue };
            for key in 0..self.keys[buffer].len() {
                self.sort((buffer, key), memory, &mut sorted);
            }
        }
        let places = sorted.places;
        for (places, answers) in places.into_iter().zip(read(sorted.items)) {
            for ((buffer, key, range), answer) in places.into_iter().zip(answers) {
                let named = &self.keys[buffer][key].0;
                let answer = if named.is_empty() { Err(Error::NotFound) } else { answer };
                numbers[buffer][key][range] = last.number(named, answer, |bytes| bytes as i64);
            }
        }
        numbers
    }

    /// Adds the ranges of one key to those of its object.
    fn sort<'c: 'm, 'm>(
        &'c self,
        (buffer, key): (usize, usize),
        memory: &'m LocalBuffer<'_>,
        sorted: &mut Sorted<'c, 'm>,
    ) {
        let (destinations, sources) = (&self.destinations[buffer][key], &self.sources[buffer][key]);
        let sizes = &self.sizes[buffer][key];
        if sources.len() != destinations.len() || sizes.len() != destinations.len() {
            return;
        }
        let name = self.keys[buffer][key].0.as_slice();
        let place = *sorted.by_key.entry(name).or_insert_with(|| {
            sorted.items.push(RangesItem { key: name, fragments: Vec::with_capacity(destinations.len()) });
            sorted.places.push(Vec::with_capacity(destinations.len()));
            sorted.items.len() - 1
        });
        for (range, ((destination, source), size)) in destinations.iter().zip(sources).zip(sizes).enumerate() {
            let (Ok(at), Ok(len)) = (usize::try_from(destination.0), usize::try_from(size.0)) else { continue };
            let Ok(span) = memory.span().slice(at, len) else { continue };
            let fragment = Fragment { offset: source.0, memory: LocalBuffer::span_of(span) };
            sorted.items[place].fragments.push(fragment);
            sorted.places[place].push((buffer, key, range));
        }
    }
}
