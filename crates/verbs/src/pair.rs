//! Reliable-connected queue pairs.

use std::ffi::c_int;
use std::ptr::NonNull;
use std::sync::Arc;
use std::{mem, ptr};

use crate::abi::*;
use crate::{CompletionQueue, ProtectionDomain, VerbsError};

/// Sizes of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairSizes {
    /// Work requests that may be outstanding to send.
    pub send: u32,
    /// Receives that may be posted.
    pub receive: u32,
    /// Pieces of a work request.
    pub pieces: u32,
    /// Bytes that may be sent inside of a work request.
    pub inline: u32,
}

/// The way to the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Path {
    /// Our port.
    pub port: u8,
    /// Place of our GID in its table.
    pub gid_index: u8,
    /// The peer's GID.
    pub peer_gid: [u8; 16],
    /// The peer's local identifier; 0 on Ethernet.
    pub peer_lid: u16,
    /// The peer's queue pair.
    pub peer_qp: u32,
    /// Largest packet in bytes: 256, 512, 1024, 2048 or 4096.
    pub mtu: u32,
    /// Traffic class.
    pub traffic_class: u8,
    /// Service level.
    pub service_level: u8,
    /// Outstanding reads that each side takes.
    pub reads: u8,
}

/// How patient a queue pair is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// An answer may take 4.096 microseconds times two to this power.
    pub timeout: u8,
    /// How often an unanswered packet is sent again, up to 7.
    pub retries: u8,
}

/// What a work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// Writes into the peer's memory.
    Write,
    /// Reads the peer's memory.
    Read,
    /// Sends a message.
    Send,
}

/// Where the local bytes of a work request are.
#[derive(Clone, Copy, Debug)]
pub enum LocalBytes<'a> {
    /// In registered memory.
    Registered {
        /// First address.
        address: u64,
        /// Bytes.
        len: u32,
        /// The region's local key on this device.
        lkey: u32,
    },
    /// Copied into the work request when it is posted; not for reads.
    Inline(&'a [u8]),
}

/// One work request.
#[derive(Clone, Copy, Debug)]
pub struct WorkRequest<'a> {
    /// Comes back in its completion.
    pub id: u64,
    /// What is done.
    pub kind: WorkKind,
    /// Our side.
    pub local: LocalBytes<'a>,
    /// The peer's first address; not for messages.
    pub remote: u64,
    /// The peer's key; not for messages.
    pub rkey: u32,
    /// Whether success is told too. Failures always are.
    pub signalled: bool,
}

/// A posted receive: where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receive {
    /// Comes back in its completion.
    pub id: u64,
    /// First address.
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// The region's local key on this device.
    pub lkey: u32,
}

/// A list of which not everything was posted.
#[derive(Debug, thiserror::Error)]
#[error("{posted} of {asked} work requests posted: {source}")]
pub struct PostError {
    /// How many were.
    pub posted: usize,
    /// How many were asked for.
    pub asked: usize,
    /// The device's reason.
    pub source: VerbsError,
}

/// A reliable-connected queue pair.
pub struct QueuePair {
    domain: Arc<ProtectionDomain>,
    queue: Arc<CompletionQueue>,
    raw: NonNull<ibv_qp>,
    number: u32,
    sizes: PairSizes,
    post_send: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_send_wr, *mut *mut ibv_send_wr) -> c_int,
    post_recv: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_recv_wr, *mut *mut ibv_recv_wr) -> c_int,
}

// SAFETY: the library may be called from any thread, also at the same time.
unsafe impl Send for QueuePair {}
// SAFETY: as above.
unsafe impl Sync for QueuePair {}

impl std::fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueuePair").field("number", &self.number).finish_non_exhaustive()
    }
}

fn mtu_code(bytes: u32) -> c_int {
    match bytes {
        4096.. => 5,
        2048.. => 4,
        1024.. => 3,
        512.. => 2,
        _ => 1,
    }
}

impl QueuePair {
    /// Makes one, whose completions go to `queue`.
    ///
    /// # Errors
    /// The system's: `ENOMEM` when the device has none left, `EINVAL` for sizes beyond its limits.
    pub fn new(
        domain: &Arc<ProtectionDomain>,
        queue: &Arc<CompletionQueue>,
        sizes: PairSizes,
    ) -> Result<Self, VerbsError> {
        let context = &domain.context;
        // SAFETY: the context is open.
        let ops = unsafe { &(*context.raw.as_ptr()).ops };
        let (Some(post_send), Some(post_recv)) = (ops.post_send, ops.post_recv) else {
            return Err(VerbsError::Unsupported("posting of work"));
        };
        let mut init = ibv_qp_init_attr {
            qp_context: ptr::null_mut(),
            send_cq: queue.raw.as_ptr(),
            recv_cq: queue.raw.as_ptr(),
            srq: ptr::null_mut(),
            cap: ibv_qp_cap {
                max_send_wr: sizes.send,
                max_recv_wr: sizes.receive,
                max_send_sge: sizes.pieces,
                max_recv_sge: sizes.pieces.min(sizes.receive.max(1)),
                max_inline_data: sizes.inline,
            },
            qp_type: IBV_QPT_RC,
            sq_sig_all: 0,
        };
        // SAFETY: domain and queue are alive and of one context by construction of the callers; the library checks it.
        let raw = NonNull::new(unsafe { (context.verbs.0.create_qp)(domain.raw.as_ptr(), &mut init) });
        let raw = raw.ok_or_else(|| context.error("ibv_create_qp"))?;
        // SAFETY: the pair was made above; its number does not change.
        let number = unsafe { (*raw.as_ptr()).qp_num };
        let sizes = PairSizes { inline: init.cap.max_inline_data, ..sizes };
        let (domain, queue) = (Arc::clone(domain), Arc::clone(queue));
        Ok(QueuePair { domain, queue, raw, number, sizes, post_send, post_recv })
    }

    /// The number that the peer needs.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// The sizes that the device gave: at least those asked for.
    pub fn sizes(&self) -> PairSizes {
        self.sizes
    }

    /// Where its completions go.
    pub fn queue(&self) -> &Arc<CompletionQueue> {
        &self.queue
    }

    fn modify(&self, call: &'static str, attr: &mut ibv_qp_attr, mask: c_int) -> Result<(), VerbsError> {
        let context = &self.domain.context;
        // SAFETY: the pair is alive and the structure the library's; `mask` names the fields that were set.
        let number = unsafe { (context.verbs.0.modify_qp)(self.raw.as_ptr(), attr, mask) };
        context.check(call, number)
    }

    fn attributes(state: c_int) -> ibv_qp_attr {
        // SAFETY: plain numbers, for which zero is a value.
        let mut attr: ibv_qp_attr = unsafe { mem::zeroed() };
        attr.qp_state = state;
        attr
    }

    /// Reset → INIT.
    ///
    /// # Errors
    /// The system's.
    pub fn initialise(&self, port: u8, pkey_index: u16) -> Result<(), VerbsError> {
        let mut attr = Self::attributes(IBV_QPS_INIT);
        attr.port_num = port;
        attr.pkey_index = pkey_index;
        attr.qp_access_flags =
            (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)
                as u32;
        let mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
        self.modify("ibv_modify_qp to INIT", &mut attr, mask)
    }

    /// INIT → ready to receive.
    ///
    /// # Errors
    /// The system's; `ETIMEDOUT`, `EINVAL`, `ENETUNREACH` and `EHOSTUNREACH` mean that the way does not exist.
    pub fn ready_to_receive(&self, path: &Path) -> Result<(), VerbsError> {
        let mut attr = Self::attributes(IBV_QPS_RTR);
        attr.path_mtu = mtu_code(path.mtu);
        attr.dest_qp_num = path.peer_qp;
        attr.rq_psn = 0;
        attr.max_dest_rd_atomic = path.reads;
        attr.min_rnr_timer = 12;
        attr.ah_attr = ibv_ah_attr {
            grh: ibv_global_route {
                dgid: ibv_gid { raw: path.peer_gid },
                flow_label: 0,
                sgid_index: path.gid_index,
                hop_limit: 16,
                traffic_class: path.traffic_class,
            },
            dlid: path.peer_lid,
            sl: path.service_level,
            src_path_bits: 0,
            static_rate: 0,
            is_global: 1,
            port_num: path.port,
        };
        let mask = IBV_QP_STATE
            | IBV_QP_AV
            | IBV_QP_PATH_MTU
            | IBV_QP_DEST_QPN
            | IBV_QP_RQ_PSN
            | IBV_QP_MAX_DEST_RD_ATOMIC
            | IBV_QP_MIN_RNR_TIMER;
        self.modify("ibv_modify_qp to RTR", &mut attr, mask)
    }

    /// Ready to receive → ready to send.
    ///
    /// # Errors
    /// The system's.
    pub fn ready_to_send(&self, patience: Patience, reads: u8) -> Result<(), VerbsError> {
        let mut attr = Self::attributes(IBV_QPS_RTS);
        attr.timeout = patience.timeout;
        attr.retry_cnt = patience.retries;
        attr.rnr_retry = 7;
        attr.sq_psn = 0;
        attr.max_rd_atomic = reads;
        let mask = IBV_QP_STATE
            | IBV_QP_TIMEOUT
            | IBV_QP_RETRY_CNT
            | IBV_QP_RNR_RETRY
            | IBV_QP_SQ_PSN
            | IBV_QP_MAX_QP_RD_ATOMIC;
        self.modify("ibv_modify_qp to RTS", &mut attr, mask)
    }

    /// Any state → error: everything that is outstanding comes back as [`crate::WorkStatus::Flushed`], and when it has,
    /// the device no longer touches its memory.
    ///
    /// # Errors
    /// The system's.
    pub fn stop(&self) -> Result<(), VerbsError> {
        self.modify("ibv_modify_qp to ERR", &mut Self::attributes(IBV_QPS_ERR), IBV_QP_STATE)
    }

    /// Posts a list of work requests with one call, one doorbell.
    ///
    /// # Errors
    /// [`PostError`] says how many of the list were posted before the device refused one.
    pub fn post(&self, list: &[WorkRequest<'_>]) -> Result<(), PostError> {
        if list.is_empty() {
            return Ok(());
        }
        let mut pieces: Vec<ibv_sge> = list.iter().map(|request| piece(&request.local)).collect();
        let mut raw: Vec<ibv_send_wr> = list.iter().map(raw_request).collect();
        let (first, piece) = (raw.as_mut_ptr(), pieces.as_mut_ptr());
        for index in 0..raw.len() {
            // SAFETY: `index` is inside both lists, which are not moved or grown any more.
            unsafe {
                let request = first.add(index);
                (*request).sg_list = piece.add(index);
                (*request).next = if index + 1 < raw.len() { first.add(index + 1) } else { ptr::null_mut() };
            }
        }
        let mut refused: *mut ibv_send_wr = ptr::null_mut();
        // SAFETY: the pair is alive, the function its device's, and the list well-formed until the call returns. Inline
        // bytes are copied by the call; other addresses are only reached through the keys of registered regions.
        let number = unsafe { (self.post_send)(self.raw.as_ptr(), first, &mut refused) };
        self.domain.context.check("ibv_post_send", number).map_err(|source| {
            let index = (refused as usize).wrapping_sub(first as usize) / size_of::<ibv_send_wr>();
            let posted = if refused.is_null() { 0 } else { index.min(list.len()) };
            PostError { posted, asked: list.len(), source }
        })
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// The device's.
    pub fn post_receive(&self, receive: &Receive) -> Result<(), VerbsError> {
        let mut piece = ibv_sge { addr: receive.address, length: receive.len, lkey: receive.lkey };
        let mut request = ibv_recv_wr { wr_id: receive.id, next: ptr::null_mut(), sg_list: &mut piece, num_sge: 1 };
        let mut refused: *mut ibv_recv_wr = ptr::null_mut();
        // SAFETY: as in `post`.
        let number = unsafe { (self.post_recv)(self.raw.as_ptr(), &mut request, &mut refused) };
        self.domain.context.check("ibv_post_recv", number)
    }
}

fn piece(local: &LocalBytes<'_>) -> ibv_sge {
    match *local {
        LocalBytes::Registered { address, len, lkey } => ibv_sge { addr: address, length: len, lkey },
        LocalBytes::Inline(bytes) => ibv_sge { addr: bytes.as_ptr() as u64, length: bytes.len() as u32, lkey: 0 },
    }
}

fn raw_request(request: &WorkRequest<'_>) -> ibv_send_wr {
    let mut send_flags = 0;
    if request.signalled {
        send_flags |= IBV_SEND_SIGNALED;
    }
    // A read cannot be inline: without the flag, its key of zero is refused by the device.
    if matches!(request.local, LocalBytes::Inline(_)) && request.kind != WorkKind::Read {
        send_flags |= IBV_SEND_INLINE;
    }
    let opcode = match request.kind {
        WorkKind::Write => IBV_WR_RDMA_WRITE,
        WorkKind::Read => IBV_WR_RDMA_READ,
        WorkKind::Send => IBV_WR_SEND,
    };
    ibv_send_wr {
        wr_id: request.id,
        next: ptr::null_mut(),
        sg_list: ptr::null_mut(),
        num_sge: 1,
        opcode,
        send_flags,
        imm_data: 0,
        wr: wr_rdma { remote_addr: request.remote, rkey: request.rkey, rest: [0; 2] },
        remote_srqn: 0,
        unused: [0; 6],
    }
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: made by `new`, destroyed once. Events of the pair are acknowledged as they are read, so the call returns;
        // afterwards the device does not touch memory for it.
        unsafe { (self.domain.context.verbs.0.destroy_qp)(self.raw.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_take_the_librarys_form() {
        let request = WorkRequest {
            id: 7,
            kind: WorkKind::Write,
            local: LocalBytes::Inline(b"abc"),
            remote: 0x1000,
            rkey: 5,
            signalled: true,
        };
        let raw = raw_request(&request);
        assert_eq!(
            (raw.wr_id, raw.opcode, raw.send_flags),
            (7, IBV_WR_RDMA_WRITE, IBV_SEND_SIGNALED | IBV_SEND_INLINE)
        );
        assert_eq!((raw.wr.remote_addr, raw.wr.rkey), (0x1000, 5));
        assert_eq!(piece(&request.local).length, 3);
        let read = WorkRequest { kind: WorkKind::Read, signalled: false, ..request };
        assert_eq!(raw_request(&read).send_flags, 0, "a read is never inline");
    }

    #[test]
    fn packet_sizes_are_rounded_down() {
        assert_eq!([256, 512, 1024, 1500, 4096, 9000].map(mtu_code), [1, 2, 3, 3, 5, 5]);
    }
}
