//! Reading objects. A read over the stage goes into a place large enough for most objects; one that did not fit is asked
//! for its size and read once more.

use std::sync::Arc;

use yb_client::{Error, GetItem, LocalBuffer, Result};
use yb_mem::CopyHint;
use yb_types::ErrorCode;
use yb_wire::messages::{ErrorOr, LocalBatchGetIntoArgs, LocalBatchGetIntoBuffersArgs};
use yb_wire::{List, call};

use crate::core::Core;
use crate::keys::count;
use crate::link::{Repeat, may_go_on};
use crate::put::Pieces;
use crate::stage::Place;

/// Bytes of a place whose object has an unknown size.
const LEAST_GUESS: u64 = 4 << 10;
const MOST_GUESS: u64 = 1 << 20;

/// An object that has arrived in a staging place.
#[derive(Debug)]
pub struct Found {
    core: Arc<Core>,
    place: Option<Place>,
    size: u64,
}

impl Found {
    /// Bytes of the object.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Copies the object into `parts`, which must have room for it; how many bytes.
    ///
    /// # Errors
    /// [`Error::BufferTooSmall`].
    pub fn read(&self, parts: &[LocalBuffer<'_>]) -> Result<u64> {
        let place = self.place.as_ref().ok_or(Error::Closed)?;
        scatter(place, self.size, parts)
    }
}

impl Drop for Found {
    fn drop(&mut self) {
        self.core.give_back(self.place.take().into_iter().collect());
    }
}

/// Copies the first `size` bytes of a place into the parts, one after the other.
fn scatter(place: &Place, size: u64, parts: &[LocalBuffer<'_>]) -> Result<u64> {
    let room = total(parts);
    if room < size {
        return Err(Error::BufferTooSmall { object: size, buffer: room });
    }
    let hint = CopyHint::for_total(size);
    let mut offset = 0;
    for part in parts {
        let len = part.len().min(size - offset);
        if len == 0 {
            continue;
        }
        let to = part.span().slice(0, usize::try_from(len).unwrap_or(usize::MAX));
        let poured = to.is_ok_and(|to| place.pour(offset, to, hint));
        if !poured {
            return Err(Error::Invalid("the memory cannot be written by the CPU".into()));
        }
        offset += len;
    }
    Ok(size)
}

fn total(parts: &[LocalBuffer<'_>]) -> u64 {
    parts.iter().map(LocalBuffer::len).sum()
}

/// Objects that are read with one request.
#[derive(Default)]
struct Group {
    indexes: Vec<usize>,
    pieces: Vec<Pieces>,
    /// The staging place of each object; `None`: straight into the caller's memory.
    places: Vec<Option<Place>>,
}

impl Group {
    fn add(&mut self, index: usize, pieces: Pieces, place: Option<Place>) {
        self.indexes.push(index);
        self.pieces.push(pieces);
        self.places.push(place);
    }

    fn bytes(&self) -> u64 {
        self.pieces.iter().flatten().map(|(_, len)| len).sum()
    }
}

/// What became of one object of a group.
type Arrived = (usize, Result<u64>, Option<Place>);

impl Core {
    /// Bytes of a place for each of `keys` objects whose size is not known.
    fn guess(&self, keys: usize) -> u64 {
        (self.stage_bytes / (4 * keys.max(1) as u64)).clamp(LEAST_GUESS, MOST_GUESS)
    }

    /// Reads objects into the caller's memory; bytes of each.
    pub(crate) fn read<'a>(&self, items: impl IntoIterator<Item = GetItem<'a>>) -> Vec<Result<u64>> {
        let items: Vec<GetItem<'a>> = items.into_iter().collect();
        if let Err(error) = self.open() {
            return items.iter().map(|_| Err(error.clone())).collect();
        }
        let guess = self.guess(items.len());
        let keys: Vec<&[u8]> = items.iter().map(|item| item.key).collect();
        let mut answers: Vec<Result<u64>> = items.iter().map(|_| Err(Error::Closed)).collect();
        let mut group = Group::default();
        for (index, item) in items.iter().enumerate() {
            match self.in_windows(&item.into) {
                Some(pieces) if !pieces.is_empty() => group.add(index, pieces, None),
                _ => {
                    let len = total(&item.into).min(guess).max(1);
                    let place = match self.place(len) {
                        Some(place) => Ok(place),
                        None => {
                            self.finish(std::mem::take(&mut group), &keys, &items, &mut answers);
                            self.place(len).map_or_else(|| self.own_place(len), Ok)
                        }
                    };
                    match place {
                        Ok(place) => group.add(index, Pieces::from_iter([(place.address(), len)]), Some(place)),
                        Err(error) => answers[index] = Err(error),
                    }
                }
            }
        }
        self.finish(group, &keys, &items, &mut answers);
        answers
    }

    /// Reads a group and brings what was staged to its destination.
    fn finish(&self, group: Group, keys: &[&[u8]], items: &[GetItem<'_>], answers: &mut [Result<u64>]) {
        for (index, answer, place) in self.fetch(group, keys) {
            let Some(place) = place else {
                answers[index] = answer;
                continue;
            };
            let into = &items[index].into;
            answers[index] = match answer {
                Ok(size) => scatter(&place, size, into),
                Err(error) if is_too_small(&error) => {
                    let room = total(into);
                    self.read_whole(keys[index], room).and_then(|(place, size)| {
                        let scattered = scatter(&place, size, into);
                        self.give_back(vec![place]);
                        scattered
                    })
                }
                Err(error) => Err(error),
            };
            self.give_back(vec![place]);
        }
    }

    /// Reads an object into a staging place of its own choice.
    pub(crate) fn find(self: &Arc<Self>, key: &[u8]) -> Result<Found> {
        self.find_each(&[key]).pop().unwrap_or(Err(Error::Closed))
    }

    /// Reads objects into new memory.
    pub(crate) fn read_new(self: &Arc<Self>, keys: &[&[u8]]) -> Vec<Result<Vec<u8>>> {
        let taken = |found: Found| {
            let len =
                usize::try_from(found.size).map_err(|_| Error::Invalid("larger than the address space".into()))?;
            let mut bytes = Vec::new();
            let room = bytes.try_reserve_exact(len);
            room.map_err(|_| Error::Invalid(format!("no memory for an object of {len} bytes").into()))?;
            bytes.resize(len, 0);
            found.read(&[LocalBuffer::destination(&mut bytes)])?;
            Ok(bytes)
        };
        // In parts, so that what has arrived makes room for what has not.
        let part = usize::try_from(self.stage_bytes / (4 * self.guess(keys.len()))).unwrap_or(1).max(1);
        let found = keys
            .chunks(part)
            .flat_map(|keys| self.find_each(keys).into_iter().map(|found| found.and_then(taken)).collect::<Vec<_>>());
        found.collect()
    }

    fn find_each(self: &Arc<Self>, keys: &[&[u8]]) -> Vec<Result<Found>> {
        if let Err(error) = self.open() {
            return keys.iter().map(|_| Err(error.clone())).collect();
        }
        let guess = self.guess(keys.len());
        let mut answers: Vec<Result<Found>> = keys.iter().map(|_| Err(Error::Closed)).collect();
        let mut group = Group::default();
        for (index, answer) in answers.iter_mut().enumerate() {
            match self.place(guess).map_or_else(|| self.own_place(guess), Ok) {
                Ok(place) => group.add(index, Pieces::from_iter([(place.address(), guess)]), Some(place)),
                Err(error) => *answer = Err(error),
            }
        }
        for (index, answer, place) in self.fetch(group, keys) {
            let core = Arc::clone(self);
            answers[index] = match (answer, place) {
                (Ok(size), place) => Ok(Found { core, place, size }),
                (Err(error), Some(place)) => {
                    self.give_back(vec![place]);
                    if is_too_small(&error) {
                        let whole = self.read_whole(keys[index], u64::MAX);
                        whole.map(|(place, size)| Found { core, place: Some(place), size })
                    } else {
                        Err(error)
                    }
                }
                (Err(error), None) => Err(error),
            };
        }
        answers
    }

    /// Reads an object that did not fit into its place, and must fit into `room`.
    fn read_whole(&self, key: &[u8], room: u64) -> Result<(Place, u64)> {
        let size = self.size(key)?;
        if size > room {
            return Err(Error::BufferTooSmall { object: size, buffer: room });
        }
        let place = self.place(size).map_or_else(|| self.own_place(size), Ok)?;
        let mut group = Group::default();
        group.add(0, Pieces::from_iter([(place.address(), place.len())]), Some(place));
        match self.fetch(group, &[key]).pop() {
            Some((_, Ok(size), Some(place))) => Ok((place, size)),
            Some((_, Err(error), place)) => {
                self.give_back(place.into_iter().collect());
                Err(error)
            }
            _ => Err(Error::Closed),
        }
    }

    /// One request for a group; each object's place comes back with its answer. A place that the daemon may still write
    /// to does not.
    fn fetch(&self, mut group: Group, keys: &[&[u8]]) -> Vec<Arrived> {
        if group.indexes.is_empty() {
            return Vec::new();
        }
        let wanted: Vec<&[u8]> = group.indexes.iter().filter_map(|index| keys.get(*index).copied()).collect();
        let bytes = group.bytes();
        let sent = self.again_if_forgotten(|| self.request_read(&wanted, &group.pieces, bytes));
        let named = |code: ErrorCode| Error::from_master("batch_get_into_dummy_helper", code);
        match sent {
            Ok(codes) => {
                let arrived = group.indexes.into_iter().zip(codes).zip(group.places);
                let answer = |code: ErrorOr<i64>| code.map_err(named).and_then(count::<call::BatchGetIntoDummyHelper>);
                arrived.map(|((index, code), place)| (index, answer(code), place)).collect()
            }
            Err(error) => {
                let mut places: Vec<Place> = group.places.drain(..).flatten().collect();
                if may_go_on(&error) {
                    self.lose(&mut places);
                }
                self.give_back(places);
                group.indexes.into_iter().map(|index| (index, Err(error.clone()), None)).collect()
            }
        }
    }

    fn request_read(&self, keys: &[&[u8]], pieces: &[Pieces], bytes: u64) -> Result<Vec<ErrorOr<i64>>> {
        let expected = (keys.len(), bytes);
        let keys = List::from(keys);
        if pieces.iter().all(|pieces| pieces.len() == 1) {
            let (addresses, sizes): (Vec<u64>, Vec<u64>) = pieces.iter().flatten().copied().unzip();
            let (buffers, sizes) = (List::from(&addresses), List::from(&sizes));
            let args = LocalBatchGetIntoArgs { keys, buffers, sizes, device_id: 0, client_id: self.id };
            return self.link.ask_each::<call::BatchGetIntoDummyHelper, i64>(&args, expected, Repeat::Harmless);
        }
        let split = |part: fn(&(u64, u64)) -> u64| -> Vec<Vec<u64>> {
            pieces.iter().map(|pieces| pieces.iter().map(part).collect()).collect()
        };
        let (addresses, sizes) = (split(|piece| piece.0), split(|piece| piece.1));
        let args = LocalBatchGetIntoBuffersArgs {
            keys,
            dummy_all_buffers: addresses.iter().map(List::from).collect(),
            all_sizes: sizes.iter().map(List::from).collect(),
            prefer_alloc_in_same_node: false,
            device_id: 0,
            client_id: self.id,
        };
        self.link.ask_each::<call::BatchGetIntoMultiBuffersDummyHelper, i64>(&args, expected, Repeat::Harmless)
    }
}

/// Whether a read was refused because its place is too small, as far as the daemon's number tells.
fn is_too_small(error: &Error) -> bool {
    error.code() == ErrorCode::INVALID_PARAMS
}
