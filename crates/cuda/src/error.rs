//! Why a call of the driver failed.

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// The library is not there, or lacks something.
    #[error("the CUDA driver cannot be used: {0}")]
    Library(String),
    /// The driver refused.
    #[error("{call} failed with CUDA error {code} ({name})")]
    Call {
        /// The function.
        call: &'static str,
        /// `CUresult`.
        code: i32,
        /// The driver's name for it.
        name: String,
    },
    /// The GPU or the range does not exist.
    #[error("{0}")]
    Invalid(String),
}
