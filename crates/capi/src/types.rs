//! The structs of the header, in C's layout.

use std::ffi::{c_char, c_int, c_void};

/// `transfer_request`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TransferRequest {
    /// 0 read, 1 write.
    pub opcode: c_int,
    /// Our memory.
    pub source: *mut c_void,
    /// Number of the segment.
    pub target_id: i32,
    /// Address in the owner's process.
    pub target_offset: u64,
    /// Bytes.
    pub length: u64,
}

/// `transfer_status`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct TransferStatus {
    /// Number of the state.
    pub status: c_int,
    /// Bytes moved so far.
    pub transferred_bytes: u64,
}

/// `buffer_entry`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct BufferEntry {
    /// First address.
    pub addr: *mut c_void,
    /// Bytes.
    pub length: usize,
}

/// `notify_msg`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NotifyMsg {
    /// Sender.
    pub name: *mut c_char,
    /// Text.
    pub msg: *mut c_char,
}

/// `nic_load_stat`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NicLoadStat {
    /// Name of the device, with a NUL.
    pub device_name: [c_char; 64],
    /// Bytes handed to the device and not confirmed.
    pub inflight_bytes: u64,
    /// Bandwidth seen lately.
    pub ewma_bandwidth_bps: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_peers_header() {
        assert_eq!((size_of::<TransferRequest>(), align_of::<TransferRequest>()), (40, 8));
        assert_eq!(std::mem::offset_of!(TransferRequest, target_id), 16);
        assert_eq!(std::mem::offset_of!(TransferRequest, target_offset), 24);
        assert_eq!((size_of::<TransferStatus>(), std::mem::offset_of!(TransferStatus, transferred_bytes)), (16, 8));
        assert_eq!((size_of::<BufferEntry>(), size_of::<NotifyMsg>(), size_of::<NicLoadStat>()), (16, 16, 80));
    }
}
