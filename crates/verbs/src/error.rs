//! What can go wrong.

use std::io;

/// A verb that failed.
#[derive(Debug, thiserror::Error)]
pub enum VerbsError {
    /// The library cannot be used on this host.
    #[error("RDMA is not available: {name} cannot be opened ({reason}); install libibverbs1 and ibverbs-providers")]
    Library {
        /// Its file name.
        name: String,
        /// The loader's words.
        reason: String,
    },
    /// No device has this name.
    #[error("there is no RDMA device {0}")]
    NoDevice(String),
    /// The library or the device lacks something.
    #[error("{0} is not supported here")]
    Unsupported(&'static str),
    /// A call was refused.
    #[error("{device}: {call}: {source}")]
    Call {
        /// The device.
        device: String,
        /// The verb.
        call: &'static str,
        /// The system's reason.
        source: io::Error,
    },
}

impl VerbsError {
    /// The system's number, where there is one.
    pub fn errno(&self) -> Option<i32> {
        match self {
            VerbsError::Call { source, .. } => source.raw_os_error(),
            _ => None,
        }
    }
}
