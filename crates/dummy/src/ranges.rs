//! Reading ranges of objects.

use yb_client::{Error, LocalBuffer, RangesItem, Result};
use yb_mem::CopyHint;
use yb_pack::PackMap;
use yb_types::ErrorCode;
use yb_wire::messages::{ErrorOr, LocalGetIntoRangesArgs};
use yb_wire::{List, call};

use crate::core::Core;
use crate::keys::count;
use crate::link::{Repeat, may_go_on};
use crate::stage::Place;

/// One range in the request.
struct Wanted<'i, 'a> {
    key: &'a [u8],
    offset: u64,
    memory: &'i LocalBuffer<'a>,
    /// Where the daemon writes it.
    address: u64,
    /// Place in `places`, when that is not the caller's memory.
    staged: Option<usize>,
}

impl Core {
    /// Reads ranges; for each its bytes or why not.
    pub(crate) fn read_ranges<'a>(&self, items: &[RangesItem<'a>]) -> Vec<Vec<Result<u64>>> {
        let mut places = Vec::new();
        let read = self.open().and_then(|()| {
            let mut wanted = Vec::new();
            for item in items {
                for fragment in &item.fragments {
                    wanted.push(self.want(item.key, fragment.offset, &fragment.memory, &mut places)?);
                }
            }
            self.fetch_ranges(&wanted, &mut places)
        });
        self.give_back(places);
        let mut read = read.map(Vec::into_iter);
        let answer = |answers: &mut Result<std::vec::IntoIter<Result<u64>>>| match answers {
            Ok(answers) => answers.next().unwrap_or(Err(Error::Closed)),
            Err(error) => Err(error.clone()),
        };
        items.iter().map(|item| item.fragments.iter().map(|_| answer(&mut read)).collect()).collect()
    }

    fn want<'i, 'a>(
        &self,
        key: &'a [u8],
        offset: u64,
        memory: &'i LocalBuffer<'a>,
        places: &mut Vec<Place>,
    ) -> Result<Wanted<'i, 'a>> {
        let (span, len) = (memory.span(), memory.len());
        if len > 0 && self.reaches(span.address(), len) {
            return Ok(Wanted { key, offset, memory, address: span.address(), staged: None });
        }
        let place = self.place(len).map_or_else(|| self.own_place(len), Ok)?;
        let (address, staged) = (place.address(), Some(places.len()));
        places.push(place);
        Ok(Wanted { key, offset, memory, address, staged })
    }

    fn fetch_ranges(&self, wanted: &[Wanted<'_, '_>], places: &mut [Place]) -> Result<Vec<Result<u64>>> {
        if wanted.is_empty() {
            return Ok(Vec::new());
        }
        let sent = self.again_if_forgotten(|| self.request_ranges(wanted));
        let codes = sent.inspect_err(|error| {
            if may_go_on(error) {
                self.lose(places);
            }
        })?;
        let settle = |(wanted, code): (&Wanted<'_, '_>, ErrorOr<i64>)| {
            let named = |code: ErrorCode| Error::from_master("get_into_ranges_shm_helper", code);
            let bytes = code.map_err(named).and_then(count::<call::GetIntoRangesShmHelper>)?;
            let Some(place) = wanted.staged.and_then(|at| places.get(at)) else { return Ok(bytes) };
            let hint = CopyHint::for_total(bytes);
            let poured = bytes == wanted.memory.len() && place.pour(0, wanted.memory.span(), hint);
            if poured { Ok(bytes) } else { Err(Error::Invalid("the memory cannot be written by the CPU".into())) }
        };
        Ok(wanted.iter().zip(codes).map(settle).collect())
    }

    /// One buffer for each range: ranges of any keys may go anywhere.
    fn request_ranges(&self, wanted: &[Wanted<'_, '_>]) -> Result<Vec<ErrorOr<i64>>> {
        let one =
            |number: fn(&Wanted<'_, '_>) -> u64| -> Vec<[u64; 1]> { wanted.iter().map(|w| [number(w)]).collect() };
        let (dst, src, sizes) = (one(|_| 0), one(|w| w.offset), one(|w| w.memory.len()));
        let keys: Vec<[&[u8]; 1]> = wanted.iter().map(|w| [w.key]).collect();
        let buffers: Vec<u64> = wanted.iter().map(|w| w.address).collect();
        let args = LocalGetIntoRangesArgs {
            dummy_buffers: List::from(&buffers),
            all_keys: keys.iter().map(List::from).collect(),
            all_dst_offsets: nested(&dst),
            all_src_offsets: nested(&src),
            all_sizes: nested(&sizes),
            cached_query_results: PackMap(Vec::new()),
            device_id: -1,
            client_id: self.id,
        };
        let bytes = wanted.iter().map(|w| w.memory.len()).sum();
        let answers =
            self.link.call::<call::GetIntoRangesShmHelper, _>(&args, bytes, Repeat::Harmless, |reply| reply)?;
        // A buffer that the daemon did not understand has an answer less.
        let first = |of_buffer: Vec<Vec<ErrorOr<i64>>>| {
            of_buffer.into_iter().flatten().next().unwrap_or(Err(ErrorCode::INVALID_PARAMS))
        };
        let mut codes: Vec<ErrorOr<i64>> = answers.into_iter().map(first).collect();
        codes.resize(wanted.len(), Err(ErrorCode::INVALID_PARAMS));
        Ok(codes)
    }
}

/// One key with one range for each buffer.
fn nested(numbers: &[[u64; 1]]) -> Vec<Vec<List<'_, u64>>> {
    numbers.iter().map(|of_key| vec![List::from(of_key)]).collect()
}
