//! Writing objects: what the daemon reaches goes as it is, everything else over a staging place.

use std::collections::BTreeMap;

use smallvec::{SmallVec, smallvec};
use yb_client::{Duplicates, Error, LocalBuffer, PutItem, Result};
use yb_mem::CopyHint;
use yb_types::ReplicateConfig;
use yb_wire::messages::{ErrorOr, LocalBatchPutFromArgs, LocalBatchPutFromBuffersArgs, LocalBatchUpsertFromArgs};
use yb_wire::{List, call};

use crate::core::Core;
use crate::link::{Repeat, may_go_on};
use crate::stage::Place;

/// The memory of one object as the daemon finds it.
pub(crate) type Pieces = SmallVec<[(u64, u64); 1]>;

/// What becomes of an object that is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    /// It stays.
    Put,
    /// It is replaced.
    Upsert,
}

/// How the objects of one call are written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Writing<'c> {
    pub(crate) config: &'c ReplicateConfig,
    pub(crate) manner: Manner,
    pub(crate) repeated: Duplicates,
}

/// Objects that go in one request.
#[derive(Default)]
struct Group {
    /// Places in the caller's list.
    indexes: Vec<usize>,
    pieces: Vec<Pieces>,
    places: Vec<Place>,
    bytes: u64,
}

impl Core {
    /// Writes objects.
    pub(crate) fn write(&self, items: &[PutItem<'_>], writing: Writing<'_>) -> Vec<Result<()>> {
        if let Err(error) = self.open() {
            return items.iter().map(|_| Err(error.clone())).collect();
        }
        let leaders = leaders(items, writing.repeated);
        let mut answers: Vec<Option<Result<()>>> = items.iter().map(|_| None).collect();
        let mut group = Group::default();
        for (index, item) in items.iter().enumerate() {
            if leaders.get(index) != Some(&index) {
                continue;
            }
            match self.join(&mut group, index, item) {
                Ok(true) => {}
                Ok(false) => {
                    // The stage is full: what is in it goes first.
                    self.send(std::mem::take(&mut group), items, writing, &mut answers);
                    if let Err(error) = self.join_alone(&mut group, index, item) {
                        answers[index] = Some(Err(error));
                    }
                }
                Err(error) => answers[index] = Some(Err(error)),
            }
        }
        self.send(group, items, writing, &mut answers);
        let answer = |leader: &usize| answers.get(*leader).cloned().flatten().unwrap_or(Err(Error::Closed));
        leaders.iter().map(answer).collect()
    }

    /// Adds an object to a group. False: there is no room to stage it at the moment.
    fn join(&self, group: &mut Group, index: usize, item: &PutItem<'_>) -> Result<bool> {
        let total = check(item)?;
        if let Some(pieces) = self.in_windows(&item.from) {
            group.add(index, pieces, total);
            return Ok(true);
        }
        let Some(place) = self.place(total) else { return Ok(false) };
        group.stage(index, item, place)?;
        Ok(true)
    }

    /// Adds an object to an empty group, in a window of its own if it fits nowhere else.
    fn join_alone(&self, group: &mut Group, index: usize, item: &PutItem<'_>) -> Result<()> {
        if self.join(group, index, item)? {
            return Ok(());
        }
        let place = self.own_place(check(item)?)?;
        group.stage(index, item, place)
    }

    /// The parts as the daemon finds them; `None`: some lie outside its windows.
    pub(crate) fn in_windows(&self, parts: &[LocalBuffer<'_>]) -> Option<Pieces> {
        let with_bytes = parts.iter().map(LocalBuffer::span).filter(|span| !span.is_empty());
        let pieces = with_bytes.map(|span| (span.address(), span.len() as u64));
        pieces.map(|(address, len)| self.reaches(address, len).then_some((address, len))).collect()
    }

    /// Sends a group and notes the answers.
    fn send(&self, mut group: Group, items: &[PutItem<'_>], writing: Writing<'_>, answers: &mut [Option<Result<()>>]) {
        if group.indexes.is_empty() {
            return;
        }
        let keys: Vec<&[u8]> =
            group.indexes.iter().filter_map(|index| items.get(*index)).map(|item| item.key).collect();
        let config = writing.config.only(&group.indexes, items.len());
        let request = Request { keys: &keys, pieces: &group.pieces, bytes: group.bytes, config: &config };
        match self.again_if_forgotten(|| self.request(request, writing.manner)) {
            Ok(codes) => {
                for (index, code) in group.indexes.iter().zip(codes) {
                    let rpc = match writing.manner {
                        Manner::Put => "batch_put_from_dummy_helper",
                        Manner::Upsert => "batch_upsert_from_dummy_helper",
                    };
                    answers[*index] = Some(code.map_err(|code| Error::from_master(rpc, code)));
                }
            }
            Err(error) => {
                if may_go_on(&error) {
                    self.lose(&mut group.places);
                }
                group.indexes.iter().for_each(|index| answers[*index] = Some(Err(error.clone())));
            }
        }
        self.give_back(group.places);
    }

    fn request(&self, request: Request<'_>, manner: Manner) -> Result<Vec<ErrorOr<()>>> {
        let Request { keys, pieces, bytes, config } = request;
        let expected = (keys.len(), bytes);
        // A second put of the same bytes finds the first and leaves it; a second upsert could undo somebody else's.
        let repeat = Repeat::Harmless;
        let keys = List::from(keys);
        let config = config.clone();
        if pieces.iter().all(|pieces| pieces.len() == 1) {
            let (addresses, sizes): (Vec<u64>, Vec<u64>) = pieces.iter().flatten().copied().unzip();
            let (dummy_buffers, sizes) = (List::from(&addresses), List::from(&sizes));
            return match manner {
                Manner::Put => {
                    let args =
                        LocalBatchPutFromArgs { keys, dummy_buffers, sizes, config, device_id: 0, client_id: self.id };
                    self.link.ask_each::<call::BatchPutFromDummyHelper, ()>(&args, expected, repeat)
                }
                Manner::Upsert => {
                    let args = LocalBatchUpsertFromArgs { keys, dummy_buffers, sizes, config, client_id: self.id };
                    self.link.ask_each::<call::BatchUpsertFromDummyHelper, ()>(&args, expected, Repeat::Never)
                }
            };
        }
        let split = |part: fn(&(u64, u64)) -> u64| -> Vec<Vec<u64>> {
            pieces.iter().map(|pieces| pieces.iter().map(part).collect()).collect()
        };
        let (addresses, sizes) = (split(|piece| piece.0), split(|piece| piece.1));
        let args = LocalBatchPutFromBuffersArgs {
            keys,
            dummy_all_buffers: addresses.iter().map(List::from).collect(),
            all_sizes: sizes.iter().map(List::from).collect(),
            config,
            device_id: 0,
            client_id: self.id,
        };
        match manner {
            Manner::Put => self.link.ask_each::<call::BatchPutFromMultiBuffersDummyHelper, ()>(&args, expected, repeat),
            Manner::Upsert => {
                self.link.ask_each::<call::BatchUpsertFromMultiBuffersDummyHelper, ()>(&args, expected, Repeat::Never)
            }
        }
    }
}

/// One request in the making.
#[derive(Clone, Copy)]
struct Request<'r> {
    keys: &'r [&'r [u8]],
    pieces: &'r [Pieces],
    bytes: u64,
    config: &'r ReplicateConfig,
}

impl Group {
    fn add(&mut self, index: usize, pieces: Pieces, bytes: u64) {
        self.indexes.push(index);
        self.pieces.push(pieces);
        self.bytes += bytes;
    }

    /// Copies an object's bytes to its place.
    fn stage(&mut self, index: usize, item: &PutItem<'_>, place: Place) -> Result<()> {
        let total = place.len();
        let mut offset = 0;
        for part in &item.from {
            if !place.fill(offset, part.span(), CopyHint::for_total(total)) {
                return Err(Error::Invalid("the bytes cannot be read by the CPU".into()));
            }
            offset += part.len();
        }
        self.add(index, smallvec![(place.address(), total)], total);
        self.places.push(place);
        Ok(())
    }
}

/// Bytes of an object that can be written.
fn check(item: &PutItem<'_>) -> Result<u64> {
    if item.key.is_empty() {
        return Err(Error::Invalid("the key is empty".into()));
    }
    match item.from.iter().map(LocalBuffer::len).sum::<u64>() {
        0 => Err(Error::Invalid("an object of no bytes cannot be stored through a daemon".into())),
        total => Ok(total),
    }
}

/// For each item the item that is written for its key.
fn leaders(items: &[PutItem<'_>], repeated: Duplicates) -> Vec<usize> {
    let mut by_key: BTreeMap<&[u8], usize> = BTreeMap::new();
    for (index, item) in items.iter().enumerate() {
        match repeated {
            Duplicates::FirstWins => {
                by_key.entry(item.key).or_insert(index);
            }
            Duplicates::LastWins => {
                by_key.insert(item.key, index);
            }
        }
    }
    items.iter().enumerate().map(|(index, item)| by_key.get(item.key).copied().unwrap_or(index)).collect()
}
