//! Batches: allocated, submitted to, polled, freed.
#![allow(non_snake_case, reason = "the names of the C API")]

use std::ffi::{c_int, c_void};

use yb_classic::{BatchId, ClassicError, Opcode, SubmitOptions};

use crate::handles::{answer, bad, engine, guarded};
use crate::memory::list;
use crate::notify::notification;
use crate::segments::number;
use crate::{NotifyMsg, TransferRequest, TransferStatus};

/// No batch.
const INVALID_BATCH: u64 = u64::MAX;

/// A batch with room for so many tasks, or `INVALID_BATCH`.
#[unsafe(no_mangle)]
pub extern "C" fn allocateBatchID(handle: *mut c_void, batch_size: usize) -> u64 {
    guarded(INVALID_BATCH, || match engine(handle).and_then(|engine| engine.allocate_batch(batch_size)) {
        Ok(batch) => batch.0,
        Err(error) => {
            tracing::warn!("{error}");
            INVALID_BATCH
        }
    })
}

/// Adds tasks to a batch and starts them.
///
/// # Safety
/// `entries` has `count` elements; the memory they name stays mapped until their tasks are terminal.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn submitTransfer(
    handle: *mut c_void,
    batch_id: u64,
    entries: *mut TransferRequest,
    count: usize,
) -> c_int {
    // SAFETY: the caller's promise.
    answer(|| unsafe { submit(handle, batch_id, entries, count, SubmitOptions::default()) })
}

/// As [`submitTransfer`], with a message for the owner of the first entry's segment.
///
/// # Safety
/// As [`submitTransfer`]; the texts of the message end with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn submitTransferWithNotify(
    handle: *mut c_void,
    batch_id: u64,
    entries: *mut TransferRequest,
    count: usize,
    notify_msg: NotifyMsg,
) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let notify = Some(unsafe { notification(&notify_msg) }?);
        // SAFETY: the caller's promise.
        unsafe { submit(handle, batch_id, entries, count, SubmitOptions { notify, ..SubmitOptions::default() }) }
    })
}

/// # Safety
/// As [`submitTransfer`].
unsafe fn submit(
    handle: *mut c_void,
    batch: u64,
    entries: *mut TransferRequest,
    count: usize,
    options: SubmitOptions,
) -> Result<(), ClassicError> {
    let engine = engine(handle)?;
    // SAFETY: the caller's promise.
    let entries = unsafe { list(entries, count, "entries") }?;
    let requests = entries.iter().map(request).collect::<Result<Vec<_>, _>>()?;
    // SAFETY: the caller's promise.
    unsafe { engine.submit(BatchId(batch), &requests, &options) }.map(drop)
}

fn request(entry: &TransferRequest) -> Result<yb_classic::TransferRequest, ClassicError> {
    let opcode = match entry.opcode {
        0 => Opcode::Read,
        1 => Opcode::Write,
        other => return Err(bad(&format!("opcode {other} is neither 0 (read) nor 1 (write)"))),
    };
    Ok(yb_classic::TransferRequest {
        opcode,
        source: entry.source as u64,
        target: number(entry.target_id.into())?,
        target_offset: entry.target_offset,
        length: entry.length,
    })
}

/// Where a task stands.
///
/// # Safety
/// `status` is null or may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getTransferStatus(
    handle: *mut c_void,
    batch_id: u64,
    task_id: usize,
    status: *mut TransferStatus,
) -> c_int {
    answer(|| {
        if status.is_null() {
            return Err(bad("status is a null pointer"));
        }
        let found = engine(handle)?.task_status(BatchId(batch_id), task_id)?;
        let written = TransferStatus { status: found.state.number(), transferred_bytes: found.bytes };
        // SAFETY: not null, and the caller's promise.
        unsafe { status.write(written) };
        Ok(())
    })
}

/// Frees a terminal batch.
#[unsafe(no_mangle)]
pub extern "C" fn freeBatchID(handle: *mut c_void, batch_id: u64) -> c_int {
    answer(|| engine(handle)?.free_batch(BatchId(batch_id)))
}
