//! The peer's enums: a number with a name.
//!
//! They behave as its binding layer makes them: equal only to members of the same enum, hashable, usable where an index
//! is, `str()` gives `Enum.MEMBER`, a number without a name is `???`, and they pickle.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyType};

/// Defines one such enum, of a module and with a kind of number; `ordered` ones compare by their numbers.
macro_rules! named_numbers {
    (
        $(#[$doc:meta])* $module:literal $Number:ident;
        $Enum:ident { $($MEMBER:ident = $value:literal),+ $(,)? }
    ) => {
        $(#[$doc])*
        #[pyo3::pyclass(module = $module, frozen, eq, hash, from_py_object)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub(crate) struct $Enum(pub(crate) $Number);

        named_numbers! { @methods $Number; $Enum { $($MEMBER = $value),+ } }
    };
    (
        $(#[$doc:meta])* $module:literal $Number:ident ordered;
        $Enum:ident { $($MEMBER:ident = $value:literal),+ $(,)? }
    ) => {
        $(#[$doc])*
        #[pyo3::pyclass(module = $module, frozen, eq, ord, hash, from_py_object)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Hash)]
        pub(crate) struct $Enum(pub(crate) $Number);

        named_numbers! { @methods $Number; $Enum { $($MEMBER = $value),+ } }
    };
    (@methods $Number:ident; $Enum:ident { $($MEMBER:ident = $value:literal),+ }) => {
        impl $Enum {
            /// Name of the member; `???` for a number that has none.
            pub(crate) fn label(self) -> &'static str {
                match self.0 {
                    $($value => stringify!($MEMBER),)+
                    _ => "???",
                }
            }
        }

        #[pyo3::pymethods]
        #[allow(non_upper_case_globals, reason = "the names are the peer's")]
        impl $Enum {
            $(
                #[classattr]
                const $MEMBER: $Enum = $Enum($value);
            )+

            #[new]
            fn new(value: &Bound<'_, PyAny>) -> PyResult<Self> {
                value
                    .extract()
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
            fn value(&self) -> $Number {
                self.0
            }

            fn __int__(&self) -> $Number {
                self.0
            }

            fn __index__(&self) -> $Number {
                self.0
            }

            fn __str__(&self) -> String {
                format!(concat!(stringify!($Enum), ".{}"), self.label())
            }

            fn __repr__(&self) -> String {
                format!(concat!("<", stringify!($Enum), ".{}: {}>"), self.label(), self.0)
            }

            fn __reduce__(&self, py: Python<'_>) -> (Py<PyType>, ($Number,)) {
                (py.get_type::<$Enum>().unbind(), (self.0,))
            }
        }
    };
}

named_numbers! {
    /// What the bytes of an object are. The master keeps and shows it.
    "mooncake.store" u32;
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
    "mooncake.store" u32;
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
    "mooncake.store" u32;
    TaskType {
        REPLICA_COPY = 0,
        REPLICA_MOVE = 1,
    }
}

named_numbers! {
    /// Where a task stands.
    "mooncake.store" u32;
    TaskStatus {
        PENDING = 0,
        PROCESSING = 1,
        FAILED = 2,
        SUCCESS = 3,
    }
}

named_numbers! {
    /// What a put does to the soft pin of its object.
    "mooncake.store" u32;
    SoftPinAction {
        PRESERVE = 0,
        ENABLE = 1,
        DISABLE = 2,
    }
}

named_numbers! {
    /// Which way bytes go: `Read` from the peer, `Write` to it.
    "mooncake.engine" i32 ordered;
    TransferOpcode {
        Read = 0,
        Write = 1,
    }
}

named_numbers! {
    /// What is known of a scattered transfer.
    "mooncake.engine" i32;
    ScatterTransferCompletionStatus {
        COMPLETED = 0,
        FAILED_DRAINED = -1,
        COMPLETION_UNKNOWN = -2,
    }
}
