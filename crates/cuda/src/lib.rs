//! Memory of NVIDIA GPUs: the CUDA driver (`libcuda.so.1`), opened at run time and never linked.
//!
//! ```text
//! Driver (the library) ─┬─ gpus()            what there is
//!                       ├─ locate()          which GPU an address belongs to
//!                       ├─ scope() ─ copy()  asynchronous copies that have ended when the scope ends
//!                       ├─ allocate(), pin() memory on a GPU; host memory that it copies from and to at full speed
//!                       └─ export(), import() memory of another process; export_dmabuf() for a NIC
//! ```
//!
//! Invariants that make the face safe:
//! - a copy is between spans that outlive the scope it was started in, and the scope does not end, nor unwind, before the
//!   GPU has let go of them;
//! - memory on a GPU is never reached by the CPU: its spans are marked ([`yb_mem::Span::is_on_device`]), and everything in
//!   `yb-mem` refuses them;
//! - the primary context of a GPU is held from its first use on, and is current only during a call.
//!
//! A process without the driver loaded pays nothing: [`Driver::loaded`] looks whether somebody has loaded it, for no memory
//! of this process can be on a GPU otherwise.

mod driver;
mod error;
mod memory;
mod stream;
mod symbols;

pub use driver::{Driver, Gpu};
pub use error::CudaError;
pub use memory::{GpuMemory, ImportedMemory, IpcHandle, PinnedMemory};
pub use stream::Scope;
