//! Handles: numbers in a table. One whose thing was destroyed names nothing, for ever.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;

/// Handles of all tables count upwards, in steps that leave room for the handles of transports.
static NEXT: AtomicUsize = AtomicUsize::new(STEP);
const STEP: usize = 16;

/// Things of one kind, by handle.
pub(crate) struct Table<T>(RwLock<BTreeMap<usize, Held<T>>>);

/// A thing, and the process that its threads are in. A child made by fork has a copy of the table, but none of the
/// threads: it cannot even end the thing.
struct Held<T> {
    process: u32,
    thing: ManuallyDrop<T>,
}

impl<T> Held<T> {
    fn is_here(&self) -> bool {
        self.process == std::process::id()
    }

    fn into_thing(self) -> Option<T> {
        self.is_here().then(|| ManuallyDrop::into_inner(self.thing))
    }
}

impl<T: Clone> Table<T> {
    pub(crate) const fn new() -> Self {
        Table(RwLock::new(BTreeMap::new()))
    }

    /// Puts a thing in; its handle.
    pub(crate) fn add(&self, thing: T) -> *mut c_void {
        let handle = NEXT.fetch_add(STEP, Ordering::Relaxed);
        let held = Held { process: std::process::id(), thing: ManuallyDrop::new(thing) };
        self.0.write().insert(handle, held);
        handle as *mut c_void
    }

    /// Takes a thing out.
    pub(crate) fn remove(&self, handle: *mut c_void) -> Option<T> {
        self.0.write().remove(&(handle as usize)).and_then(Held::into_thing)
    }

    /// Takes everything out.
    pub(crate) fn remove_all(&self) -> Vec<T> {
        std::mem::take(&mut *self.0.write()).into_values().filter_map(Held::into_thing).collect()
    }

    /// The thing behind a handle, or what the handle is instead.
    pub(crate) fn get(&self, handle: *mut c_void) -> Result<T, &'static str> {
        match self.0.read().get(&(handle as usize)) {
            Some(held) if held.is_here() => Ok(T::clone(&held.thing)),
            Some(_) => Err("one of the process that this one was forked from"),
            None if handle.is_null() => Err("a null pointer"),
            None => Err("a handle that was destroyed, or never made"),
        }
    }
}
