//! Arguments as Python callers give them.
//!
//! The problem: the peer's binding layer refuses what does not convert with `TypeError`, negative numbers included, and
//! takes `bytes` where it takes `str`; consumers rely on both. These types say so in every signature.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyFloat, PyString};

/// An object's key: text as UTF-8, or the bytes themselves.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Key(pub(crate) Vec<u8>);

impl<'py> FromPyObject<'_, 'py> for Key {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = object.cast::<PyString>() {
            return Ok(Key(text.to_cow()?.as_bytes().to_vec()));
        }
        match object.cast::<PyBytes>() {
            Ok(bytes) => Ok(Key(bytes.as_bytes().to_vec())),
            Err(_) => Err(PyTypeError::new_err("a key must be str or bytes")),
        }
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Text, also given as UTF-8 bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Text(pub(crate) String);

impl From<&str> for Text {
    fn from(text: &str) -> Self {
        Text(text.to_owned())
    }
}

impl<'py> FromPyObject<'_, 'py> for Text {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let Key(bytes) = object.extract().map_err(|_| PyTypeError::new_err("expected str"))?;
        String::from_utf8(bytes).map(Text).map_err(|_| PyTypeError::new_err("expected UTF-8 text"))
    }
}

/// A number from 0 to 2^64 - 1: a size or an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unsigned(pub(crate) u64);

impl<'py> FromPyObject<'_, 'py> for Unsigned {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if object.is_instance_of::<PyFloat>() {
            return Err(PyTypeError::new_err("expected int, got float"));
        }
        object.extract().map(Unsigned).map_err(|_| PyTypeError::new_err("expected an int from 0 to 2**64 - 1"))
    }
}

impl Unsigned {
    /// The plain numbers of a list.
    pub(crate) fn list(numbers: &[Unsigned]) -> impl ExactSizeIterator<Item = u64> {
        numbers.iter().map(|number| number.0)
    }
}

/// A number from 0 to 2^32 - 1: how many of something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Count(pub(crate) u32);

impl<'py> FromPyObject<'_, 'py> for Count {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let Unsigned(number) = object.extract()?;
        u32::try_from(number).map(Count).map_err(|_| PyTypeError::new_err("expected an int from 0 to 2**32 - 1"))
    }
}

/// A truth value as the peer's binding layer takes it: a bool, None, or a number.
pub(crate) fn truth(value: &Bound<'_, PyAny>) -> PyResult<bool> {
    if value.is_none() {
        return Ok(false);
    }
    value.extract::<bool>().or_else(|_| Ok(value.extract::<Unsigned>()?.0 != 0))
}
