//! The Python extension module `mooncake._native`.
//!
//! The problem: consumers call the peer's package with bare addresses, from many threads, and know its answers by
//! number. This crate is the edge between the interpreter and the client: it converts arguments, releases the
//! interpreter, and turns errors into the peer's numbers. What needs no native code is in `python/mooncake`.
//!
//! Invariants: no call crashes the process, whether the store is set up or not; the interpreter is never held while a
//! call waits; null addresses and ranges over the end of registered memory are refused.

mod allocator;
mod backend;
mod convert;
mod descriptors;
mod engine;
mod enums;
mod handle;
mod last_error;
mod live;
mod logs;
mod memory;
mod pool;
mod ranges;
mod replicate_config;
mod setup;
mod store;

#[pyo3::pymodule]
mod _native {
    #[pymodule_export]
    use super::allocator::{MooncakeHostMemAllocator, bind_to_numa_node, get_alloc_func_addr, get_free_func_addr};
    #[pymodule_export]
    use super::descriptors::{Descriptor, DiskDescriptor, LocalDiskDescriptor, MemoryDescriptor, ReplicaDescriptor};
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::engine::{
        InnerTransferEngine, ReceivedData, ReceivedTensor, RpcInterface, ScatterTransferTicket, SharedSegment,
        TransferEngine, TransferNotify, settle,
    };
    #[pymodule_export]
    use super::enums::{ObjectDataType, ReplicaStatus, SoftPinAction, TaskStatus, TaskType};
    #[pymodule_export]
    use super::enums::{ScatterTransferCompletionStatus, TransferOpcode};
    #[pymodule_export]
    use super::handle::BufferHandle;
    #[pymodule_export]
    use super::last_error::{_enter_call, _leave_call, LastError, last_error};
    #[pymodule_export]
    use super::pool::{BufferLease, BufferLeaseView, BufferPool};
    #[pymodule_export]
    use super::replicate_config::ReplicateConfig;
    #[pymodule_export]
    use super::store::{ExistOptions, QueryTaskResponse, RangedReadSnapshot, Store, capsule_of};

    /// Asks the system to bring new memory in large pages, if it is large enough to be worth it.
    #[pyfunction]
    fn _expect_large_pages(address: u64, len: u64) {
        super::store::framed::expect_large_pages(address, len);
    }

    /// An interface whose client is ready to send.
    #[pyfunction]
    fn _rpc_client() -> RpcInterface {
        super::engine::client()
    }

    /// An interface whose server is ready to be started.
    #[pyfunction]
    fn _rpc_server() -> RpcInterface {
        super::engine::server()
    }

    /// Ends every engine and every server of the process.
    #[pyfunction]
    fn _close_engines(py: Python<'_>) {
        py.detach(|| {
            super::engine::stop_all();
            super::engine::close_all();
        });
    }
}
