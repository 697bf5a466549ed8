//! The peer's enums: a number with a name.
//!
//! They behave as its binding layer makes them: equal only to members of the same enum, hashable, usable where an index
//! is, `str()` gives `Enum.MEMBER`, a number without a name is `???`, and they pickle.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

/// Defines one such enum.
macro_rules! named_numbers {
    ($(#[$doc:meta])* $Enum:ident { $($MEMBER:ident = $value:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[pyclass(module = "mooncake.store", frozen, eq, hash, from_py_object)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) struct $Enum(pub(crate) u32);

        impl $Enum {
            /// Name of the member; `???` for a number that has none.
            pub(crate) fn label(self) -> &'static str {
                match self.0 {
                    $($value => stringify!($MEMBER),)+
                    _ => "???",
                }
            }
        }

        #[pymethods]
        impl $Enum {
            $(
                #[classattr]
                const $MEMBER: $Enum = $Enum($value);
            )+

            #[new]
            fn new(value: $crate::convert::Unsigned) -> PyResult<Self> {
                u32::try_from(value.0)
                    .map($Enum)
                    .map_err(|_| PyTypeError::new_err(concat!(stringify!($Enum), "() needs a small int")))
            }

            #[classattr]
            fn __members__(py: Python<'_>) -> PyResult<Py<PyDict>> {
                let members = PyDict::new(py);
                $(members.set_item(stringify!($MEMBER), $Enum($value))?;)+
                Ok(members.unbind())
            }

            /// Name of the member.
            #[getter]
            fn name(&self) -> &'static str {
                self.label()
            }

            /// Number of the member.
            #[getter]
            fn value(&self) -> u32 {
                self.0
            }

            fn __int__(&self) -> u32 {
                self.0
            }

            fn __index__(&self) -> u32 {
                self.0
            }

            fn __str__(&self) -> String {
                format!(concat!(stringify!($Enum), ".{}"), self.label())
            }

            fn __repr__(&self) -> String {
                format!(concat!("<", stringify!($Enum), ".{}: {}>"), self.label(), self.0)
            }

            fn __reduce__(&self, py: Python<'_>) -> (Py<PyType>, (u32,)) {
                (py.get_type::<$Enum>().unbind(), (self.0,))
            }
        }
    };
}

named_numbers! {
    /// What the bytes of an object are. The master keeps and shows it.
    ObjectDataType {
        UNKNOWN = 0,
        KVCACHE = 1,
        TENSOR = 2,
        WEIGHT = 3,
        SAMPLE = 4,
        ACTIVATION = 5,
        GRADIENT = 6,
        OPTIMIZER_STATE = 7,
        METADATA = 8,
        GENERAL = 9,
    }
}

named_numbers! {
    /// Where a replica stands in its life.
    ReplicaStatus {
        UNDEFINED = 0,
        INITIALIZED = 1,
        PROCESSING = 2,
        COMPLETE = 3,
        REMOVED = 4,
        FAILED = 5,
    }
}

named_numbers! {
    /// What a task does with a replica.
    TaskType {
        REPLICA_COPY = 0,
        REPLICA_MOVE = 1,
    }
}

named_numbers! {
    /// Where a task stands.
    TaskStatus {
        PENDING = 0,
        PROCESSING = 1,
        FAILED = 2,
        SUCCESS = 3,
    }
}

named_numbers! {
    /// What a put does to the soft pin of its object.
    SoftPinAction {
        PRESERVE = 0,
        ENABLE = 1,
        DISABLE = 2,
    }
}
