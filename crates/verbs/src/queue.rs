//! Completion queues.

use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::{mem, ptr};

use crate::abi::*;
use crate::device::set_nonblocking;
use crate::{Context, VerbsError};

/// Most completions taken by one call of the library.
const POLL: usize = 64;

/// Why a work request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkStatus {
    /// It was done.
    Done,
    /// It was not, because its queue pair broke before or was told to stop.
    Flushed,
    /// The fault is on this side: a wrong length, key or state.
    Local(i32),
    /// The peer refused: an unknown key, a range outside of its memory, an operation that it does not allow.
    Refused(i32),
    /// The peer did not answer.
    NoAnswer(i32),
    /// The device failed.
    Device(i32),
}

impl WorkStatus {
    fn of(number: c_int) -> Self {
        match number {
            0 => WorkStatus::Done,
            5 => WorkStatus::Flushed,
            1..=4 | 6 | 8 | 14 => WorkStatus::Local(number),
            7 | 9..=11 | 15 | 16 => WorkStatus::Refused(number),
            12 | 13 | 20 => WorkStatus::NoAnswer(number),
            other => WorkStatus::Device(other),
        }
    }
}

/// The end of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The number given with the work request.
    pub id: u64,
    /// How it ended.
    pub status: WorkStatus,
    /// True for a receive.
    pub received: bool,
    /// Bytes received.
    pub len: u32,
    /// The queue pair.
    pub qp_num: u32,
    /// The device's own number for a failure.
    pub vendor_error: u32,
}

/// A completion queue with a channel that becomes readable when a completion comes after [`CompletionQueue::arm`].
pub struct CompletionQueue {
    pub(crate) context: Arc<Context>,
    pub(crate) raw: NonNull<ibv_cq>,
    channel: NonNull<ibv_comp_channel>,
    poll: unsafe extern "C" fn(*mut ibv_cq, c_int, *mut ibv_wc) -> c_int,
    request_notification: unsafe extern "C" fn(*mut ibv_cq, c_int) -> c_int,
    entries: u32,
}

// SAFETY: the library may be called from any thread, also at the same time.
unsafe impl Send for CompletionQueue {}
// SAFETY: as above.
unsafe impl Sync for CompletionQueue {}

impl std::fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CompletionQueue").field("device", &self.context.name()).finish_non_exhaustive()
    }
}

impl CompletionQueue {
    /// Makes one with room for `entries` completions.
    ///
    /// # Errors
    /// The system's.
    pub fn new(context: &Arc<Context>, entries: u32) -> Result<Arc<Self>, VerbsError> {
        let functions = &context.verbs.0;
        // SAFETY: the context is open.
        let ops = unsafe { &(*context.raw.as_ptr()).ops };
        let (Some(poll), Some(request_notification)) = (ops.poll_cq, ops.req_notify_cq) else {
            return Err(VerbsError::Unsupported("polling of completions"));
        };
        // SAFETY: the context is open.
        let channel = NonNull::new(unsafe { (functions.create_comp_channel)(context.raw.as_ptr()) });
        let channel = channel.ok_or_else(|| context.error("ibv_create_comp_channel"))?;
        // SAFETY: context and channel are alive; vector 0 exists on every device.
        let raw = unsafe {
            (functions.create_cq)(context.raw.as_ptr(), entries as c_int, ptr::null_mut(), channel.as_ptr(), 0)
        };
        let Some(raw) = NonNull::new(raw) else {
            let error = context.error("ibv_create_cq");
            // SAFETY: made above, given back once.
            unsafe { (functions.destroy_comp_channel)(channel.as_ptr()) };
            return Err(error);
        };
        // SAFETY: the queue was made above; its size does not change.
        let entries = unsafe { (*raw.as_ptr()).cqe }.max(0) as u32;
        let queue = CompletionQueue { context: Arc::clone(context), raw, channel, poll, request_notification, entries };
        set_nonblocking(queue.fd()).map_err(|error| context.failed("O_NONBLOCK on the completion channel", error))?;
        Ok(Arc::new(queue))
    }

    /// Completions that fit.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// The file that becomes readable after a completion, once for each [`CompletionQueue::arm`].
    pub fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is alive, and its descriptor open as long as it is.
        unsafe { BorrowedFd::borrow_raw((*self.channel.as_ptr()).fd) }
    }

    /// Asks for a notification at the next completion. Poll once more afterwards: one may have come in between.
    ///
    /// # Errors
    /// The device's.
    pub fn arm(&self) -> Result<(), VerbsError> {
        // SAFETY: the queue is alive and the function its device's.
        let number = unsafe { (self.request_notification)(self.raw.as_ptr(), 0) };
        self.context.check("ibv_req_notify_cq", number)
    }

    /// Takes the notifications that are waiting.
    pub fn take_notifications(&self) {
        let (mut queue, mut user) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: the channel is alive; its file does not block.
        while unsafe { (self.context.verbs.0.get_cq_event)(self.channel.as_ptr(), &mut queue, &mut user) } == 0 {
            // SAFETY: the event was got for this queue (the only one of the channel), acknowledged once.
            unsafe { (self.context.verbs.0.ack_cq_events)(queue, 1) };
        }
    }

    /// Appends up to 64 completions and says how many.
    ///
    /// # Errors
    /// The device's, when the queue is broken.
    pub fn poll(&self, into: &mut Vec<Completion>) -> Result<usize, VerbsError> {
        // SAFETY: plain numbers, for which zero is a value.
        let mut entries: [ibv_wc; POLL] = unsafe { mem::zeroed() };
        // SAFETY: the queue is alive, the function its device's, and the array has room for what is asked.
        let got = unsafe { (self.poll)(self.raw.as_ptr(), POLL as c_int, entries.as_mut_ptr()) };
        let got = usize::try_from(got)
            .map_err(|_| self.context.failed("ibv_poll_cq", std::io::Error::other("the completion queue is broken")))?;
        into.extend(entries.iter().take(got).map(|wc| Completion {
            id: wc.wr_id,
            status: WorkStatus::of(wc.status),
            received: wc.status == 0 && wc.opcode & 128 != 0,
            len: wc.byte_len,
            qp_num: wc.qp_num,
            vendor_error: wc.vendor_err,
        }));
        Ok(got)
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        self.take_notifications();
        // SAFETY: made by `new`, destroyed once; queue pairs hold the queue, so none is left, and every notification has
        // been acknowledged.
        unsafe { (self.context.verbs.0.destroy_cq)(self.raw.as_ptr()) };
        // SAFETY: as above; its only queue is gone.
        unsafe { (self.context.verbs.0.destroy_comp_channel)(self.channel.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_told_apart() {
        assert_eq!(WorkStatus::of(0), WorkStatus::Done);
        assert_eq!(WorkStatus::of(5), WorkStatus::Flushed);
        assert_eq!(WorkStatus::of(4), WorkStatus::Local(4));
        assert_eq!(WorkStatus::of(10), WorkStatus::Refused(10));
        assert_eq!(WorkStatus::of(12), WorkStatus::NoAnswer(12));
        assert_eq!(WorkStatus::of(19), WorkStatus::Device(19));
    }
}
