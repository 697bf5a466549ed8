//! Reading ranges of objects into windows of a dummy.

use std::collections::BTreeMap;

use yb_client::{Fragment, GetItem, Parts, RangesItem};
use yb_types::ErrorCode;
use yb_wire::List;
use yb_wire::messages::{
    ErrorOr, KeyLists, LocalGetIntoRangeArgs, LocalGetIntoRangesArgs, LocalGetIntoRangesStagedArgs, RangeLists,
};

use crate::service::{Shared, code, signed};
use crate::window::Windows;

/// One range of one object: bytes read. With `size_is_buffer_capacity` the memory may be longer than what is there to
/// read.
pub(super) fn into_range(shared: &Shared, args: LocalGetIntoRangeArgs<'_>) -> ErrorOr<i64> {
    let windows = shared.dummies.get(args.client_id)?.windows();
    let address = args.buffer.checked_add(args.dst_offset).ok_or(ErrorCode::INVALID_PARAMS)?;
    let memory = |len: u64| windows.buffer(address, len).ok_or(ErrorCode::INVALID_PARAMS);
    if args.size_is_buffer_capacity && args.src_offset == 0 {
        let into = Parts::from_iter([memory(args.size)?]);
        return only(shared.client.batch_get_items([GetItem { key: args.key, into }])).map(signed);
    }
    let len = match args.size_is_buffer_capacity {
        true => {
            let size = shared.client.size(args.key).map_err(|error| code(&error))?;
            size.checked_sub(args.src_offset).ok_or(ErrorCode::INVALID_PARAMS)?.min(args.size)
        }
        false => args.size,
    };
    let fragments = vec![Fragment { offset: args.src_offset, memory: memory(len)? }];
    let mut answers = shared.client.batch_get_ranges(vec![RangesItem { key: args.key, fragments }]);
    only(answers.pop().unwrap_or_default()).map(signed)
}

fn only(answers: Vec<Result<u64, yb_client::Error>>) -> ErrorOr<u64> {
    let answer = answers.into_iter().next().ok_or(ErrorCode::INTERNAL_ERROR)?;
    answer.map_err(|error| code(&error))
}

/// Ranges as a call names them: per buffer, per key of the buffer, per range of the key.
struct Wanted<'a> {
    buffers: Vec<u64>,
    keys: Vec<Vec<&'a [u8]>>,
    dst_offsets: Numbers,
    src_offsets: Numbers,
    sizes: Numbers,
}

/// Numbers per buffer, key and range.
type Numbers = Vec<Vec<Vec<u64>>>;

fn numbers(lists: &RangeLists<'_>) -> Numbers {
    lists.iter().map(|keys| keys.iter().map(List::to_vec).collect()).collect()
}

fn names<'a>(lists: &KeyLists<'a>) -> Vec<Vec<&'a [u8]>> {
    lists.iter().map(List::to_vec).collect()
}

/// Answers in the same nesting.
type Answers = Vec<Vec<Vec<ErrorOr<i64>>>>;

/// Lookups that the dummy has cached are not used: those here are fresh.
pub(super) fn into_ranges(shared: &Shared, args: LocalGetIntoRangesArgs<'_>) -> Answers {
    let client_id = args.client_id;
    let wanted = Wanted {
        buffers: args.dummy_buffers.to_vec(),
        keys: names(&args.all_keys),
        dst_offsets: numbers(&args.all_dst_offsets),
        src_offsets: numbers(&args.all_src_offsets),
        sizes: numbers(&args.all_sizes),
    };
    read(shared, client_id, &wanted)
}

/// As [`into_ranges`]; the daemon needs no staging memory of the dummy.
pub(super) fn into_ranges_staged(shared: &Shared, args: LocalGetIntoRangesStagedArgs<'_>) -> Answers {
    let client_id = args.client_id;
    let wanted = Wanted {
        buffers: args.dummy_buffers.to_vec(),
        keys: names(&args.all_keys),
        dst_offsets: numbers(&args.all_dst_offsets),
        src_offsets: numbers(&args.all_src_offsets),
        sizes: numbers(&args.all_sizes),
    };
    read(shared, client_id, &wanted)
}

/// What is wanted of one key, and where each answer goes.
type OfKey<'a> = (Vec<Fragment<'a>>, Vec<[usize; 3]>);

fn read(shared: &Shared, client_id: yb_types::ClientId, wanted: &Wanted<'_>) -> Answers {
    let mut answers = wanted.refused();
    let windows = match shared.dummies.get(client_id) {
        Ok(dummy) => dummy.windows(),
        Err(_) => return answers,
    };
    // An object is read once, whatever buffers its ranges go to.
    let mut by_key: BTreeMap<&[u8], OfKey<'_>> = BTreeMap::new();
    for place in wanted.places() {
        if let Some((key, fragment)) = wanted.fragment(place, &windows) {
            let (fragments, places) = by_key.entry(key).or_default();
            fragments.push(fragment);
            places.push(place);
        }
    }
    let mut places = Vec::with_capacity(by_key.len());
    let items = by_key.into_iter().map(|(key, (fragments, of_key))| {
        places.push(of_key);
        RangesItem { key, fragments }
    });
    let read = shared.client.batch_get_ranges(items.collect());
    for (place, answer) in places.into_iter().flatten().zip(read.into_iter().flatten()) {
        let [buffer, key, range] = place;
        let found = answers.get_mut(buffer).and_then(|keys| keys.get_mut(key)).and_then(|ranges| ranges.get_mut(range));
        if let Some(found) = found {
            *found = answer.map(signed).map_err(|error| code(&error));
        }
    }
    answers
}

impl<'a> Wanted<'a> {
    /// Ranges of a key of a buffer, if the lists agree.
    fn ranges(&self, buffer: usize, key: usize) -> usize {
        let len = |lists: &Numbers| lists.get(buffer).and_then(|keys| keys.get(key)).map_or(0, Vec::len);
        len(&self.dst_offsets).max(len(&self.src_offsets)).max(len(&self.sizes))
    }

    /// An answer for every range: refused.
    fn refused(&self) -> Answers {
        let of_key = |buffer, key| (0..self.ranges(buffer, key)).map(|_| Err(ErrorCode::INVALID_PARAMS)).collect();
        let of_buffer = |(buffer, keys): (usize, &Vec<&[u8]>)| (0..keys.len()).map(|key| of_key(buffer, key)).collect();
        self.keys.iter().enumerate().map(of_buffer).collect()
    }

    /// Buffer, key and range of each.
    fn places(&self) -> impl Iterator<Item = [usize; 3]> {
        self.keys.iter().enumerate().flat_map(move |(buffer, keys)| {
            (0..keys.len()).flat_map(move |key| (0..self.ranges(buffer, key)).map(move |range| [buffer, key, range]))
        })
    }

    /// One range and where it goes; `None`: the lists differ in length there, or it goes into no window.
    fn fragment<'w>(&self, [buffer, key, range]: [usize; 3], windows: &'w Windows) -> Option<(&'a [u8], Fragment<'w>)> {
        let number = |lists: &Numbers| lists.get(buffer)?.get(key)?.get(range).copied();
        let base = self.buffers.get(buffer)?;
        let address = base.checked_add(number(&self.dst_offsets)?)?;
        let memory = windows.buffer(address, number(&self.sizes)?)?;
        let name = self.keys.get(buffer)?.get(key)?;
        Some((name, Fragment { offset: number(&self.src_offsets)?, memory }))
    }
}
