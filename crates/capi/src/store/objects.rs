//! Objects: stored and read.

use std::ffi::{c_char, c_int, c_void};

use smallvec::smallvec;
use yb_client::{Duplicates, Error, GetItem, LocalBuffer, PutItem};

use super::arguments::{ReplicateConfig, array, config, key, keys, lend, memory};
use super::{int, on_client, on_store};

fn no_bytes() -> Error {
    Error::Invalid("an object of no bytes (YB_ALLOW_EMPTY=1 allows it)".into())
}

/// The one answer of a batch of one.
fn only<T>(answers: Vec<Result<T, Error>>) -> Result<T, Error> {
    answers.into_iter().next().unwrap_or(Err(Error::Closed))
}

/// Stores a copy of the value: 0, also when the key is there already, whose bytes stay; or a code.
///
/// # Safety
/// Pointers that are not null are what their types say; `value` has `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mooncake_store_put(
    store: *mut c_void,
    object: *const c_char,
    value: *const c_void,
    size: usize,
    wanted: *const ReplicateConfig,
) -> c_int {
    int(on_client(store, |live| {
        // SAFETY: the caller's promise.
        let (key, value, config) =
            unsafe { (key(object)?, array(value.cast::<u8>(), size, "value")?, config(wanted)?) };
        if value.is_empty() && !live.allow_empty {
            return Err(no_bytes());
        }
        live.client.put(key, value, &config).map(|_| 0)
    }))
}

/// As [`mooncake_store_put`] without a copy in this process; of size 0: 0, and nothing is stored.
///
/// # Safety
/// Pointers that are not null are what their types say; `buffer` is memory of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mooncake_store_put_from(
    store: *mut c_void,
    object: *const c_char,
    buffer: *mut c_void,
    size: usize,
    wanted: *const ReplicateConfig,
) -> c_int {
    int(on_client(store, |live| {
        // SAFETY: the caller's promise.
        let (key, config) = unsafe { (key(object)?, config(wanted)?) };
        if size == 0 && !live.allow_empty {
            return Ok(0);
        }
        // SAFETY: the caller's promise.
        let item = PutItem { key, from: smallvec![unsafe { lend(live, buffer, size) }?] };
        only(live.client.batch_put_items(&[item], &config, Duplicates::LastWins)).map(|_| 0)
    }))
}

/// Stores many objects: 0 when the call could be made, and for each object 0 or a code. Of a key that is there twice the
/// last buffer is stored.
///
/// # Safety
/// Pointers that are not null are what their types say; the arrays have `count` elements, each buffer its size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mooncake_store_batch_put_from(
    store: *mut c_void,
    objects: *const *const c_char,
    buffers: *const *mut c_void,
    sizes: *const usize,
    count: usize,
    wanted: *const ReplicateConfig,
    results_out: *mut c_int,
) -> c_int {
    let out = Out { first: results_out, count };
    // SAFETY: the caller's promise.
    int(unsafe {
        out.batch(store, int, |live| {
            let (keys, config) = (keys(objects, count)?, config(wanted)?);
            let mut memory = memory(live, buffers, sizes, count)?;
            for buffer in &mut memory {
                if !live.allow_empty && buffer.as_ref().is_ok_and(LocalBuffer::is_empty) {
                    *buffer = Err(no_bytes());
                }
            }
            Ok(each(keys, memory, |ready| {
                let items: Vec<PutItem<'_>> =
                    ready.into_iter().map(|(key, buffer)| PutItem { key, from: smallvec![buffer] }).collect();
                let stored = live.client.batch_put_items(&items, &config, Duplicates::LastWins);
                stored.into_iter().map(|answer| answer.map(|_| 0)).collect()
            }))
        })
    })
}

/// Reads an object: its bytes, or a code: -704 missing, -600 when the buffer is smaller.
///
/// # Safety
/// Pointers that are not null are what their types say; `buffer` is memory of `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mooncake_store_get_into(
    store: *mut c_void,
    object: *const c_char,
    buffer: *mut c_void,
    size: usize,
) -> i64 {
    on_client(store, |live| {
        // SAFETY: the caller's promise.
        let (key, buffer) = unsafe { (key(object)?, lend(live, buffer, size)?) };
        if key.is_empty() {
            return Err(Error::NotFound);
        }
        only(live.client.batch_get_items([GetItem { key, into: smallvec![buffer] }])).map(|bytes| bytes as i64)
    })
}

/// Reads many objects: 0 when the call could be made, and for each object its bytes or a code.
///
/// # Safety
/// As [`mooncake_store_batch_put_from`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mooncake_store_batch_get_into(
    store: *mut c_void,
    objects: *const *const c_char,
    buffers: *const *mut c_void,
    sizes: *const usize,
    count: usize,
    results_out: *mut i64,
) -> c_int {
    let out = Out { first: results_out, count };
    // SAFETY: the caller's promise.
    int(unsafe {
        out.batch(
            store,
            |number| number,
            |live| {
                let keys = keys(objects, count)?;
                let mut memory = memory(live, buffers, sizes, count)?;
                for (key, buffer) in keys.iter().zip(&mut memory) {
                    if key.is_empty() {
                        *buffer = Err(Error::NotFound);
                    }
                }
                Ok(each(keys, memory, |ready| {
                    let items = ready.into_iter().map(|(key, buffer)| GetItem { key, into: smallvec![buffer] });
                    let read = live.client.batch_get_items(items);
                    read.into_iter().map(|answer| answer.map(|bytes| bytes as i64)).collect()
                }))
            },
        )
    })
}

/// Runs a batch over the objects whose memory can be used; the others keep their refusal.
fn each<'k>(
    keys: Vec<&'k [u8]>,
    memory: Vec<Result<LocalBuffer<'static>, Error>>,
    batch: impl FnOnce(Vec<(&'k [u8], LocalBuffer<'static>)>) -> Vec<Result<i64, Error>>,
) -> Vec<Result<i64, Error>> {
    let mut ready = Vec::with_capacity(keys.len());
    let mut refused = Vec::new();
    for (index, (key, buffer)) in keys.into_iter().zip(memory).enumerate() {
        match buffer {
            Ok(buffer) => ready.push((key, buffer)),
            Err(error) => refused.push((index, error)),
        }
    }
    let mut answers = batch(ready);
    // In ascending order, each insertion lands where its object was.
    for (index, error) in refused {
        answers.insert(index.min(answers.len()), Err(error));
    }
    answers
}

/// Where the answers of a batch go.
pub(super) struct Out<T> {
    pub(super) first: *mut T,
    pub(super) count: usize,
}

impl<T> Out<T> {
    /// Runs a batch and writes an answer for each object, also when the call as a whole is refused.
    ///
    /// # Safety
    /// `first` is null or has `count` elements that may be written.
    pub(super) unsafe fn batch(
        self,
        store: *mut c_void,
        form: impl Fn(i64) -> T,
        call: impl FnOnce(&super::Live) -> Result<Vec<Result<i64, Error>>, Error>,
    ) -> i64 {
        if self.first.is_null() && self.count > 0 {
            let refusal = Error::Invalid("results_out is a null pointer".into());
            return on_store(store, |store| store.refuse(&refusal));
        }
        // SAFETY: the caller's promise; not null.
        let write = |index: usize, number: i64| unsafe { self.first.add(index).write(form(number)) };
        let answer = on_store(store, |store| match store.live().and_then(|live| call(&live)) {
            Ok(answers) => {
                for (index, answer) in answers.into_iter().enumerate().take(self.count) {
                    write(index, answer.unwrap_or_else(|error| store.refuse(&error)));
                }
                0
            }
            Err(error) => store.refuse(&error),
        });
        if answer != 0 {
            (0..self.count).for_each(|index| write(index, answer));
        }
        answer
    }
}
