//! The Python class around a client.
//!
//! One class, several blocks of methods, one module each: what belongs together by its noun. A block is found when the
//! class is first used (pyo3's `multiple-pymethods`), so a module that is added is all that a new block needs.
//!
//! Invariants: a call on a store that is not set up, or closed, answers like any other failure, in the shape of the
//! call; the interpreter is released around everything that can wait.

mod address;
mod capsule;
mod dummy;
pub(crate) mod framed;
mod keys;
mod life;
mod ranges;
mod replicas;
mod segments;
mod sessions;
mod value;

use std::sync::{Arc, LazyLock};

use parking_lot::RwLock;
use pyo3::prelude::*;
use yb_client::Error;
use yb_types::ReplicateConfig as Wanted;

use crate::convert::{Key, Unsigned};
use crate::last_error::{self, Failures, INVALID};
use crate::live::{Live, Ranges};
use crate::replicate_config::ReplicateConfig;

pub(crate) use capsule::capsule_of;
pub(crate) use keys::ExistOptions;
pub(crate) use ranges::RangedReadSnapshot;
pub(crate) use replicas::QueryTaskResponse;

static DEFAULT_CONFIG: LazyLock<Wanted> = LazyLock::new(Wanted::default);

/// One store: nothing at first, a client of a pool after `setup`.
#[pyclass(subclass, frozen, module = "mooncake._native")]
#[derive(Default)]
pub(crate) struct Store {
    live: RwLock<Option<Arc<Live>>>,
}

impl Store {
    /// The client, if there is one.
    fn live(&self) -> Option<Arc<Live>> {
        let live = self.live.read().clone();
        if live.is_none() {
            last_error::fail(Error::Closed);
        }
        live
    }

    /// The client of a Python object that is a store, or that has one under the name `_store` or `store` (consumers wrap
    /// it): `TypeError` for any other object, None for a store that is not set up.
    pub(crate) fn live_of(object: &Bound<'_, PyAny>) -> PyResult<Option<Arc<Live>>> {
        if let Ok(store) = object.cast::<Store>() {
            return Ok(store.get().live());
        }
        for name in ["_store", "store"] {
            let inner = object.getattr_opt(name)?;
            if let Some(store) = inner.as_ref().and_then(|inner| inner.cast::<Store>().ok()) {
                return Ok(store.get().live());
            }
        }
        Err(pyo3::exceptions::PyTypeError::new_err("expected a MooncakeDistributedStore"))
    }

    /// Runs `call` without the interpreter; `otherwise` when there is no client.
    fn with<T: Send>(&self, py: Python<'_>, otherwise: T, call: impl Send + FnOnce(&Live, &Failures) -> T) -> T {
        match self.live() {
            Some(live) => py.detach(|| Failures::of(|last| call(&live, last))),
            None => otherwise,
        }
    }

    /// As `with`, for the second part of a call: the failures of the first stay.
    fn with_more<T: Send>(&self, py: Python<'_>, otherwise: T, call: impl Send + FnOnce(&Live, &Failures) -> T) -> T {
        match self.live() {
            Some(live) => py.detach(|| Failures::of_more(|last| call(&live, last))),
            None => otherwise,
        }
    }
}

fn wanted(config: Option<&ReplicateConfig>) -> &Wanted {
    config.map_or(&DEFAULT_CONFIG, ReplicateConfig::wanted)
}

fn slices(keys: &[Key]) -> Vec<&[u8]> {
    keys.iter().map(AsRef::as_ref).collect()
}

/// One range for each object; `None` when the lists differ in length.
fn single_ranges(addresses: &[Unsigned], sizes: &[Unsigned]) -> Option<Vec<Ranges>> {
    if addresses.len() != sizes.len() {
        return differ();
    }
    let pair = |(address, size): (&Unsigned, &Unsigned)| vec![(address.0, size.0)];
    Some(addresses.iter().zip(sizes).map(pair).collect())
}

/// Several ranges for each object; `None` when the lists differ in length anywhere.
fn multi_ranges(addresses: &[Vec<Unsigned>], sizes: &[Vec<Unsigned>]) -> Option<Vec<Ranges>> {
    if addresses.len() != sizes.len() {
        return differ();
    }
    let each = |(addresses, sizes): (&Vec<Unsigned>, &Vec<Unsigned>)| {
        let pairs = Unsigned::list(addresses).zip(Unsigned::list(sizes)).collect();
        (addresses.len() == sizes.len()).then_some(pairs)
    };
    addresses.iter().zip(sizes).map(each).collect::<Option<_>>().or_else(differ)
}

/// Lists that should be of one length are not.
fn differ<T>() -> Option<T> {
    last_error::refuse("the lists differ in length");
    None
}

/// The answer of a call that looks a key up: no object has the empty key, and asking for it is no mistake for the peer.
fn looked_up<T>(key: &[u8], answer: Result<T, Error>) -> Result<T, Error> {
    if key.is_empty() { Err(Error::NotFound) } else { answer }
}

/// The one number of a batch of one.
fn one(numbers: Vec<i64>) -> i64 {
    numbers.first().copied().unwrap_or(INVALID)
}
