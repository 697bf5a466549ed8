//! Counters of an engine, one cache line per transport.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Opcode, TransportKind};

/// What one transport has moved since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransportStats {
    /// Bytes that arrived here.
    pub read_bytes: u64,
    /// Bytes that left from here.
    pub written_bytes: u64,
    /// Requests that succeeded.
    pub requests: u64,
    /// Requests that failed.
    pub failures: u64,
}

/// A snapshot of an engine's counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TransferStats {
    /// Inside the process.
    pub local: TransportStats,
    /// Through mapped memory of a peer on this host.
    pub shm: TransportStats,
    /// Through the kernel from or to a peer on this host.
    pub process_vm: TransportStats,
    /// Through a shared memory device.
    pub cxl: TransportStats,
    /// By a GPU, from and to memory on GPUs of processes on this host.
    pub cuda_ipc: TransportStats,
    /// Over verbs, started here.
    pub rdma: TransportStats,
    /// From and to files.
    pub file: TransportStats,
    /// Over TCP, started here.
    pub tcp: TransportStats,
    /// Over TCP, started by peers. `read_bytes` are bytes that peers read from us.
    pub served: TransportStats,
    /// Connections that the servers refused or closed for breaking a rule: limit, silence, bad frame.
    pub refused_connections: u64,
    /// Connections to the data port that are open now.
    pub data_connections: u64,
    /// Peers that have our memory mapped now.
    pub shm_peers: u64,
    /// Requests that failed over one transport and were tried over another.
    pub rerouted: u64,
    /// Bytes from and to files that went past the page cache.
    pub file_direct_bytes: u64,
    /// Those of them from and to memory whose pages are fixed for io_uring.
    pub file_fixed_bytes: u64,
    /// Calls that used plain reads and writes, because there is no io_uring here or it is switched off.
    pub file_plain_calls: u64,
    /// Calls that fell back from shared memory to TCP, counted once a peer.
    pub shm_fallbacks: u64,
}

impl TransferStats {
    /// What one transport has moved.
    pub fn of(&self, kind: TransportKind) -> TransportStats {
        match kind {
            TransportKind::Local => self.local,
            TransportKind::Shm => self.shm,
            TransportKind::ProcessVm => self.process_vm,
            TransportKind::Cxl => self.cxl,
            TransportKind::CudaIpc => self.cuda_ipc,
            TransportKind::Rdma => self.rdma,
            TransportKind::File => self.file,
            TransportKind::Tcp => self.tcp,
        }
    }
}

#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct Counters {
    read_bytes: AtomicU64,
    written_bytes: AtomicU64,
    requests: AtomicU64,
    failures: AtomicU64,
}

impl Counters {
    pub(crate) fn succeeded(&self, op: Opcode, bytes: u64) {
        let counter = match op {
            Opcode::Read => &self.read_bytes,
            Opcode::Write => &self.written_bytes,
        };
        counter.fetch_add(bytes, Ordering::Relaxed);
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn failed(&self) {
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    fn snapshot(&self) -> TransportStats {
        TransportStats {
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            written_bytes: self.written_bytes.load(Ordering::Relaxed),
            requests: self.requests.load(Ordering::Relaxed),
            failures: self.failures.load(Ordering::Relaxed),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct EngineCounters {
    pub(crate) local: Counters,
    pub(crate) shm: Counters,
    pub(crate) process_vm: Counters,
    pub(crate) cxl: Counters,
    pub(crate) cuda_ipc: Counters,
    pub(crate) rdma: Counters,
    pub(crate) file: Counters,
    pub(crate) tcp: Counters,
    pub(crate) served: Counters,
    pub(crate) rerouted: AtomicU64,
    pub(crate) refused: AtomicU64,
    pub(crate) data_connections: AtomicU64,
    pub(crate) shm_peers: AtomicU64,
    pub(crate) file_direct_bytes: AtomicU64,
    pub(crate) file_fixed_bytes: AtomicU64,
    pub(crate) file_plain_calls: AtomicU64,
    pub(crate) shm_fallbacks: AtomicU64,
}

impl EngineCounters {
    pub(crate) fn of(&self, kind: TransportKind) -> &Counters {
        match kind {
            TransportKind::Local => &self.local,
            TransportKind::Shm => &self.shm,
            TransportKind::ProcessVm => &self.process_vm,
            TransportKind::Cxl => &self.cxl,
            TransportKind::CudaIpc => &self.cuda_ipc,
            TransportKind::Rdma => &self.rdma,
            TransportKind::File => &self.file,
            TransportKind::Tcp => &self.tcp,
        }
    }

    pub(crate) fn snapshot(&self) -> TransferStats {
        TransferStats {
            local: self.local.snapshot(),
            shm: self.shm.snapshot(),
            process_vm: self.process_vm.snapshot(),
            cxl: self.cxl.snapshot(),
            cuda_ipc: self.cuda_ipc.snapshot(),
            rdma: self.rdma.snapshot(),
            file: self.file.snapshot(),
            tcp: self.tcp.snapshot(),
            served: self.served.snapshot(),
            rerouted: self.rerouted.load(Ordering::Relaxed),
            refused_connections: self.refused.load(Ordering::Relaxed),
            data_connections: self.data_connections.load(Ordering::Relaxed),
            shm_peers: self.shm_peers.load(Ordering::Relaxed),
            file_direct_bytes: self.file_direct_bytes.load(Ordering::Relaxed),
            file_fixed_bytes: self.file_fixed_bytes.load(Ordering::Relaxed),
            file_plain_calls: self.file_plain_calls.load(Ordering::Relaxed),
            shm_fallbacks: self.shm_fallbacks.load(Ordering::Relaxed),
        }
    }
}
