//! Objects of a head and elements in strided memory: what the tensor calls of the Python layer are made of.
//!
//! The problem: a tensor's header is made by the Python layer, its elements lie in the tensor's own memory, and a piece
//! that is cut out of a tensor is many equal runs of bytes at equal distances. Writing gathers them and reading scatters
//! them in the transfer itself, so that no tensor is copied to be sent. Only runs too many to be worth a part of a
//! transfer each are copied together first.
//!
//! Memory: the Python layer holds the tensors while a call runs, and checks memory that the caller only named (`_peek`).

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;
use smallvec::smallvec;
use yb_client::{
    Duplicates, ForeignMemory, Fragment, GetItem, LocalBuffer, Lookup, Parts, PutItem, PutOutcome, RangesItem,
};

use super::{Store, slices, wanted};
use crate::convert::{Key, Unsigned};
use crate::last_error::{self, Failures, INVALID};
use crate::live::Live;
use crate::replicate_config::ReplicateConfig;

/// Runs of one object that become parts of a transfer; more are copied together.
const MOST_PARTS: u64 = 1024;
/// New memory of so many bytes is worth large pages.
const LARGE: u64 = 4 << 20;
/// What memory is advised in.
const PAGE: u64 = 4096;

/// Asks the system to bring new memory in large pages: bringing it page by page takes longer than the copy into it. Asking
/// is all: where it cannot be had, nothing changes.
pub(crate) fn expect_large_pages(address: u64, len: u64) {
    let Some(end) = address.checked_add(len).filter(|_| address != 0 && len >= LARGE) else { return };
    let (first, end) = (address.next_multiple_of(PAGE), end - end % PAGE);
    let advice = rustix::mm::Advice::LinuxHugepage;
    // SAFETY: the advice changes how pages are brought, never what is in them; the caller owns the memory.
    let _ = unsafe { rustix::mm::madvise(first as *mut std::ffi::c_void, (end - first) as usize, advice) };
}

/// Equal runs of memory at equal distances, from Python: address of the first, bytes of each, bytes from one to the next,
/// how many.
type RunArgument = (Unsigned, Unsigned, Unsigned, Unsigned);

/// Runs of an object and where they go, from Python: offset of the first in the object, address, bytes of each, bytes from
/// one to the next in the object, in memory, how many.
type MoveArgument = (Unsigned, Unsigned, Unsigned, Unsigned, Unsigned, Unsigned);

/// Equal runs of memory at equal distances.
#[derive(Clone, Copy, Debug)]
struct Run {
    address: u64,
    length: u64,
    stride: u64,
    count: u64,
}

impl Run {
    fn of(argument: &RunArgument) -> Self {
        let (address, length, stride, count) = argument;
        Run { address: address.0, length: length.0, stride: stride.0, count: count.0 }
    }

    /// Bytes of all runs; `None` for more than an address space holds.
    fn bytes(&self) -> Option<usize> {
        self.length.checked_mul(self.count).and_then(|bytes| usize::try_from(bytes).ok())
    }

    /// Whether the memory can exist: not null, not over the end of the address space.
    fn is_possible(&self) -> bool {
        let last = self.count.saturating_sub(1).checked_mul(self.stride).and_then(|span| span.checked_add(self.length));
        let end = last.and_then(|span| self.address.checked_add(span));
        self.bytes().is_some_and(|bytes| bytes == 0 || (self.address != 0 && end.is_some()))
    }

    /// The address of each run.
    fn addresses(self) -> impl Iterator<Item = u64> {
        (0..self.count).map(move |index| self.address + index * self.stride)
    }
}

/// The elements of one object to write.
enum Elements {
    /// Where they lie.
    Parts(Vec<ForeignMemory>),
    /// Copied together.
    Gathered(Vec<u8>),
}

impl Elements {
    /// # Safety
    /// The runs must be readable memory as long as this lives.
    unsafe fn of(run: Run) -> Option<Self> {
        if !run.is_possible() {
            return None;
        }
        if run.bytes() == Some(0) {
            return Some(Elements::Parts(Vec::new()));
        }
        if run.count <= MOST_PARTS {
            // SAFETY: passed on; null was refused above.
            let parts = run.addresses().map(|address| unsafe { ForeignMemory::new(address, run.length) });
            return Some(Elements::Parts(parts.collect()));
        }
        let mut gathered = Vec::with_capacity(run.bytes()?);
        for address in run.addresses() {
            // SAFETY: passed on. Nobody writes to the memory during a put, as documented for the calls.
            gathered
                .extend_from_slice(unsafe { std::slice::from_raw_parts(address as *const u8, run.length as usize) });
        }
        Some(Elements::Gathered(gathered))
    }

    /// The head and the elements, for a transfer.
    fn behind<'a>(&'a self, head: &'a [u8]) -> Parts<'a> {
        let mut parts: Parts<'a> = smallvec![];
        if !head.is_empty() {
            parts.push(LocalBuffer::source(head));
        }
        match self {
            Elements::Parts(memory) => parts.extend(memory.iter().map(ForeignMemory::lend)),
            Elements::Gathered(bytes) => parts.push(LocalBuffer::source(bytes)),
        }
        parts
    }
}

/// Runs of an object, and where they go.
struct Scatter {
    offset: u64,
    source_stride: u64,
    to: Run,
    /// The memory of each run, or of all of them when they are fetched with what lies between them.
    memory: Vec<ForeignMemory>,
    /// What was fetched with what lies between.
    fetched: Vec<u8>,
}

impl Scatter {
    /// # Safety
    /// The memory must be writable as long as this lives, and nobody else's.
    unsafe fn of(argument: &MoveArgument) -> Option<Self> {
        let (offset, address, length, source_stride, target_stride, count) = argument;
        let to = Run { address: address.0, length: length.0, stride: target_stride.0, count: count.0 };
        let from = Run { address: 1, stride: source_stride.0, ..to };
        if !to.is_possible() || !from.is_possible() || offset.0.checked_add(source_stride.0).is_none() {
            return None;
        }
        let mut made =
            Scatter { offset: offset.0, source_stride: source_stride.0, to, memory: Vec::new(), fetched: Vec::new() };
        if to.bytes() == Some(0) {
            made.to.count = 0;
        } else if to.count <= MOST_PARTS {
            // SAFETY: passed on; null was refused above.
            made.memory = to.addresses().map(|address| unsafe { ForeignMemory::new(address, to.length) }).collect();
        } else {
            let span = usize::try_from((to.count - 1) * source_stride.0 + to.length).ok()?;
            made.fetched.try_reserve_exact(span).ok()?;
            made.fetched.resize(span, 0);
        }
        Some(made)
    }

    fn fragments(&mut self) -> impl Iterator<Item = Fragment<'_>> {
        let (offset, stride) = (self.offset, self.source_stride);
        let whole = (!self.fetched.is_empty())
            .then(|| Fragment { offset, memory: LocalBuffer::destination(&mut self.fetched) });
        let each = self.memory.iter().enumerate();
        whole.into_iter().chain(each.map(move |(index, memory)| Fragment {
            offset: offset.saturating_add(stride.saturating_mul(index as u64)),
            memory: memory.lend(),
        }))
    }

    /// Puts what was fetched with what lies between where it belongs.
    fn settle(&self) {
        if self.fetched.is_empty() {
            return;
        }
        for (index, address) in self.to.addresses().enumerate() {
            let first = index * self.source_stride as usize;
            let Some(run) = self.fetched.get(first..first + self.to.length as usize) else { return };
            // SAFETY: `of` was promised that the memory is writable and nobody else's.
            unsafe { std::ptr::copy_nonoverlapping(run.as_ptr(), address as *mut u8, run.len()) };
        }
    }
}

/// Head and size of an object that was read, or its code.
type Found = Result<(Vec<u8>, u64), i64>;

/// What goes to Python for one object: `(head, bytes of the object)`, or a code.
#[derive(IntoPyObject)]
enum Answer<'py> {
    Found((Bound<'py, PyBytes>, u64)),
    Code(i64),
}

fn answers(py: Python<'_>, found: Vec<Found>) -> Vec<Answer<'_>> {
    let answer = |found: Found| match found {
        Ok((head, size)) => Answer::Found((PyBytes::new(py, &head), size)),
        Err(code) => Answer::Code(code),
    };
    found.into_iter().map(answer).collect()
}

/// What is known of each object before it is read, or its code.
fn look_up(live: &Live, last: &Failures, keys: &[Key]) -> Vec<Result<Lookup, i64>> {
    let found = live.backend().batch_query(&slices(keys));
    let code = |(answer, key): (yb_client::Result<Lookup>, &Key)| answer.map_err(|error| last.code(&key.0, error));
    found.into_iter().zip(keys).map(code).collect()
}

/// The size of an object that can be read.
fn size_of(lookup: &Result<Lookup, i64>) -> Option<u64> {
    lookup.as_ref().ok().and_then(Lookup::size)
}

/// One object of a call that can be read.
struct Open<T> {
    /// Its place in the call.
    index: usize,
    lookup: Lookup,
    size: u64,
    /// Memory for its first bytes.
    head: Vec<u8>,
    /// Where the rest goes.
    rest: T,
}

/// The objects that can be read, and the answers of all so far. `rest` says where an object's bytes behind the head go, by
/// its place and their number; `None` leaves it out.
fn open<T>(
    lookups: Vec<Result<Lookup, i64>>,
    head: usize,
    mut rest: impl FnMut(usize, u64) -> Option<T>,
) -> (Vec<Found>, Vec<Open<T>>) {
    let found = lookups.iter().map(|lookup| Err(lookup.as_ref().err().copied().unwrap_or(INVALID))).collect();
    let opened = lookups.into_iter().enumerate().filter_map(|(index, lookup)| {
        let size = size_of(&lookup)?;
        let rest = rest(index, size.checked_sub(head as u64)?)?;
        Some(Open { index, lookup: lookup.ok()?, size, head: vec![0; head], rest })
    });
    (found, opened.collect())
}

/// Reads whole objects: the first `head` bytes into memory of their own, the rest to the addresses.
fn read_framed(live: &Live, last: &Failures, objects: Framed<'_>) -> Vec<Found> {
    let Framed { keys, lookups, head, addresses } = objects;
    let (mut found, mut opened) = open(lookups, head, |index, bytes| {
        let address = addresses.get(index)?.0;
        if bytes == 0 {
            return Some(None);
        }
        // SAFETY: the Python layer made this memory for the call and holds it.
        (address != 0).then(|| Some(unsafe { ForeignMemory::new(address, bytes) }))
    });
    let items = opened.iter_mut().map(|object| {
        let mut into: Parts<'_> = smallvec![LocalBuffer::destination(&mut object.head)];
        into.extend(object.rest.iter().map(ForeignMemory::lend));
        (GetItem { key: &keys[object.index].0, into }, object.lookup.clone())
    });
    let read = live.backend().batch_get_known(items);
    for (object, answer) in opened.into_iter().zip(read) {
        found[object.index] = match answer {
            Ok(size) => Ok((object.head, size)),
            Err(error) => Err(last.code(&keys[object.index].0, error)),
        };
    }
    found
}

/// Whole objects to read.
struct Framed<'a> {
    keys: &'a [Key],
    lookups: Vec<Result<Lookup, i64>>,
    /// Bytes of a head.
    head: usize,
    addresses: Vec<Unsigned>,
}

/// Reads the first `head` bytes of each object and what its plan names, all in one transfer batch.
fn read_pieces(live: &Live, last: &Failures, keys: &[Key], head: usize, plans: &[Vec<MoveArgument>]) -> Vec<Found> {
    let (mut found, mut opened) = open(look_up(live, last, keys), head, |index, _| {
        // SAFETY: the Python layer holds the memory during the call, or had it checked.
        let scatters: Option<Vec<Scatter>> =
            plans.get(index)?.iter().map(|step| unsafe { Scatter::of(step) }).collect();
        if scatters.is_none() {
            last.set("a null or impossible memory range");
        }
        scatters
    });
    let items = opened.iter_mut().map(|object| {
        let mut fragments = Vec::with_capacity(1 + object.rest.len());
        if head > 0 {
            fragments.push(Fragment { offset: 0, memory: LocalBuffer::destination(&mut object.head) });
        }
        fragments.extend(object.rest.iter_mut().flat_map(Scatter::fragments));
        (RangesItem { key: &keys[object.index].0, fragments }, object.lookup.clone())
    });
    let read = live.backend().batch_get_ranges_known(items);
    for (object, fragments) in opened.into_iter().zip(read) {
        found[object.index] = match fragments.into_iter().find_map(Result::err) {
            Some(error) => Err(last.code(&keys[object.index].0, error)),
            None => {
                object.rest.iter().for_each(Scatter::settle);
                Ok((object.head, object.size))
            }
        };
    }
    found
}

#[pymethods]
impl Store {
    /// Stores objects of a head and runs of memory: for each 0, 1 when it was there already, or a code. `replace` stores in
    /// the place of what is there. Of a repeated key the first counts, with `replace` the last.
    fn _put_framed(
        &self,
        py: Python<'_>,
        keys: Vec<Key>,
        heads: Vec<PyBackedBytes>,
        runs: Vec<RunArgument>,
        config: Option<ReplicateConfig>,
        replace: bool,
    ) -> Vec<i64> {
        self.with(py, vec![INVALID; keys.len()], |live, last| {
            // SAFETY: the Python layer holds the memory during the call, or had it checked.
            let elements: Option<Vec<Elements>> =
                runs.iter().map(|run| unsafe { Elements::of(Run::of(run)) }).collect();
            let Some(elements) = elements.filter(|all| all.len() == keys.len() && heads.len() == keys.len()) else {
                return vec![last.refuse("a null or impossible memory range"); keys.len()];
            };
            let framed = keys.iter().zip(&heads).zip(&elements);
            let items: Vec<PutItem<'_>> =
                framed.map(|((key, head), elements)| PutItem { key: &key.0, from: elements.behind(head) }).collect();
            let config = wanted(config.as_ref());
            if replace {
                let answers = live.backend().batch_upsert_items(&items, config, Duplicates::LastWins).into_iter();
                return answers.zip(&keys).map(|(answer, key)| last.number(&key.0, answer, |()| 0)).collect();
            }
            let answers = live.backend().batch_put_items(&items, config, Duplicates::FirstWins).into_iter();
            let was_there = |outcome| i64::from(outcome == PutOutcome::AlreadyExists);
            answers.zip(&keys).map(|(answer, key)| last.number(&key.0, answer, was_there)).collect()
        })
    }

    /// Reads whole objects, one lookup and one transfer: for each its first `head` bytes and its size, or a code. `room` is
    /// called between the two with the size of the rest of each object (None: it is missing or shorter than a head) and
    /// gives the addresses where the rest goes; 0 leaves an object out.
    fn _get_framed<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Key>,
        head: usize,
        room: &Bound<'py, PyAny>,
    ) -> PyResult<Vec<Answer<'py>>> {
        let nothing = keys.iter().map(|_| Err(INVALID)).collect();
        let lookups = self.with(py, nothing, |live, last| look_up(live, last, &keys));
        let rest = |lookup| size_of(lookup).and_then(|size: u64| size.checked_sub(head as u64));
        let rests: Vec<Option<u64>> = lookups.iter().map(rest).collect();
        let addresses: Vec<Unsigned> = room.call1((rests,))?.extract()?;
        let nothing = keys.iter().map(|_| Err(INVALID)).collect();
        let objects = Framed { keys: &keys, lookups, head, addresses };
        Ok(answers(py, self.with_more(py, nothing, |live, last| read_framed(live, last, objects))))
    }

    /// Reads pieces of objects, one lookup and one transfer: for each object its first `head` bytes and its size, or a
    /// code; the pieces go where the plan of the object says.
    fn _get_pieces<'py>(
        &self,
        py: Python<'py>,
        keys: Vec<Key>,
        head: usize,
        plans: Vec<Vec<MoveArgument>>,
    ) -> Vec<Answer<'py>> {
        let nothing = keys.iter().map(|_| Err(INVALID)).collect();
        answers(py, self.with(py, nothing, |live, last| read_pieces(live, last, &keys, head, &plans)))
    }

    /// The first `wanted` of the `size` bytes at an address that the caller named; None when the address is null or the
    /// range reaches over the end of the registered memory it starts in.
    fn _peek<'py>(
        &self,
        py: Python<'py>,
        address: Unsigned,
        size: Unsigned,
        wanted: Unsigned,
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let checked = self.with(py, false, |live, last| live.check(last, address.0, size.0));
        if !checked || wanted.0 > size.0 {
            return Ok(None);
        }
        // SAFETY: the caller of a zero-copy method promises that the range is memory during the call.
        let bytes = unsafe { std::slice::from_raw_parts(address.0 as *const u8, wanted.0 as usize) };
        Ok(Some(PyBytes::new(py, bytes)))
    }

    /// Keeps why arguments cannot work, and answers -600.
    fn _refuse(&self, why: &str) -> i64 {
        last_error::refuse(why.to_owned())
    }
}
