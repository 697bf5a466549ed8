//! Helpers that make many ranges of few numbers: scattered pieces between pairs of regions, and pages of equal stride.

use std::time::Duration;

use yb_transfer::{BatchId, Opcode};

use crate::ClassicEngine;
use crate::memory::BufferEntry;
use crate::status::{ClassicError, StatusCode};
use crate::sync::{Range, SyncOptions};

/// A piece of a pair of regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScatterPiece {
    /// From the start of our region.
    pub local_offset: u64,
    /// From the start of the peer's region.
    pub remote_offset: u64,
    /// Bytes.
    pub len: u64,
}

/// A region of ours, one of the peer's, and the pieces to move between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScatterRegion {
    /// Our memory.
    pub local: BufferEntry,
    /// The peer's memory.
    pub remote: BufferEntry,
    /// What to move.
    pub pieces: Vec<ScatterPiece>,
}

/// What is known of a scattered transfer; the numbers are the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum ScatterStatus {
    /// All bytes arrived.
    Completed = 0,
    /// Something failed, and nothing is in flight.
    FailedDrained = -1,
    /// Not known: it was not waited for.
    Unknown = -2,
}

/// A scattered transfer under way, to be waited for. One that is dropped goes on by itself.
#[derive(Debug)]
pub struct ScatterTicket {
    engine: ClassicEngine,
    batch: Option<BatchId>,
    status: ScatterStatus,
    failure: Option<ClassicError>,
}

impl ScatterRegion {
    /// The ranges of the pieces.
    ///
    /// # Errors
    /// `InvalidArgument` for a piece that is not inside both regions.
    pub fn ranges(&self) -> Result<Vec<Range>, ClassicError> {
        let place = |region: &BufferEntry, offset: u64, len: u64| {
            let inside = offset.checked_add(len).is_some_and(|end| end <= region.len);
            region.address.checked_add(offset).filter(|_| inside)
        };
        let range = |piece: &ScatterPiece| {
            let local = place(&self.local, piece.local_offset, piece.len)?;
            let remote = place(&self.remote, piece.remote_offset, piece.len)?;
            Some(Range { local, remote, len: piece.len })
        };
        let refused = |piece: &ScatterPiece| {
            let detail = format!("{piece:?} is not inside regions of {} and {} bytes", self.local.len, self.remote.len);
            ClassicError::new(StatusCode::InvalidArgument, detail)
        };
        self.pieces.iter().map(|piece| range(piece).ok_or_else(|| refused(piece))).collect()
    }
}

/// The ranges of a list of regions.
fn ranges_of(regions: &[ScatterRegion]) -> Result<Vec<Range>, ClassicError> {
    let mut all = Vec::new();
    for region in regions {
        all.extend(region.ranges()?);
    }
    Ok(all)
}

impl ClassicEngine {
    /// Starts moving the pieces. A refusal is found in the ticket, which is drained then.
    ///
    /// # Safety
    /// As [`ClassicEngine::submit`], for every piece, until the ticket is drained.
    pub unsafe fn submit_scatter(&self, target: &str, op: Opcode, regions: &[ScatterRegion]) -> ScatterTicket {
        // SAFETY: the caller's promise.
        let start = |ranges: Vec<Range>| unsafe { self.transfer_async(target, op, &ranges, SyncOptions::default()) };
        let (batch, failure) = match ranges_of(regions).and_then(start) {
            Ok(batch) => (Some(batch), None),
            Err(error) => (None, Some(error)),
        };
        let status = if failure.is_some() { ScatterStatus::FailedDrained } else { ScatterStatus::Unknown };
        ScatterTicket { engine: self.clone(), batch, status, failure }
    }

    /// Moves the pieces and drains the ticket, within the budget of a synchronous call.
    ///
    /// # Safety
    /// As [`ClassicEngine::submit_scatter`].
    pub unsafe fn transfer_scatter(&self, target: &str, op: Opcode, regions: &[ScatterRegion]) -> ScatterTicket {
        // SAFETY: the caller's promise.
        let mut ticket = unsafe { self.submit_scatter(target, op, regions) };
        let bytes = regions.iter().flat_map(|r| &r.pieces).fold(0_u64, |sum, piece| sum.saturating_add(piece.len));
        ticket.drain(self.budget(bytes));
        if let Some(batch) = ticket.batch {
            // The budget is used up: what is left is stopped, so that nothing is in flight.
            let _ = self.cancel_batch(batch);
            ticket.drain(self.budget(0));
        }
        ticket
    }
}

impl ScatterTicket {
    /// What is known so far; only [`ScatterTicket::drain`] finds out more.
    pub fn status(&self) -> ScatterStatus {
        self.status
    }

    /// Whether it is known that nothing is in flight.
    pub fn is_drained(&self) -> bool {
        self.status != ScatterStatus::Unknown
    }

    /// Why it failed.
    pub fn failure(&self) -> Option<&ClassicError> {
        self.failure.as_ref()
    }

    /// Waits until nothing is in flight, at most so long.
    pub fn drain(&mut self, patience: Duration) -> ScatterStatus {
        let Some(batch) = self.batch else { return self.status };
        match self.engine.wait_batch(batch, patience) {
            Ok(status) if !status.state.is_terminal() => return self.status,
            Ok(_) => self.failure = self.engine.batch_failure(batch),
            Err(error) => self.failure = Some(error),
        }
        self.batch = None;
        self.engine.abandon(batch);
        self.status = if self.failure.is_none() { ScatterStatus::Completed } else { ScatterStatus::FailedDrained };
        self.status
    }
}

impl Drop for ScatterTicket {
    fn drop(&mut self) {
        if let Some(batch) = self.batch.take() {
            self.engine.abandon(batch);
        }
    }
}

/// How one field of a page lies in memory, here and there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageField {
    /// Address of page 0 here.
    pub local_base: u64,
    /// Bytes from page to page here.
    pub local_stride: u64,
    /// Address of page 0 there.
    pub remote_base: u64,
    /// Bytes from page to page there.
    pub remote_stride: u64,
    /// Bytes of the field.
    pub len: u64,
}

/// The ranges of every field of every pair of pages, page by page.
///
/// # Errors
/// `InvalidArgument` for lists of different lengths, or an address past the end of the address space.
pub fn expand_pages(local: &[u64], remote: &[u64], fields: &[PageField]) -> Result<Vec<Range>, ClassicError> {
    if local.len() != remote.len() {
        let detail = format!("{} pages here and {} there", local.len(), remote.len());
        return Err(ClassicError::new(StatusCode::InvalidArgument, detail));
    }
    let place = |base: u64, page: u64, stride: u64| page.checked_mul(stride).and_then(|bytes| base.checked_add(bytes));
    let mut ranges = Vec::with_capacity(local.len().saturating_mul(fields.len()));
    for (here, there) in local.iter().zip(remote) {
        for field in fields {
            let addresses = place(field.local_base, *here, field.local_stride).zip(place(
                field.remote_base,
                *there,
                field.remote_stride,
            ));
            let Some((local, remote)) = addresses else {
                let detail = format!("page {here} here or {there} there is past the end of the address space");
                return Err(ClassicError::new(StatusCode::InvalidArgument, detail));
            };
            ranges.push(Range { local, remote, len: field.len });
        }
    }
    Ok(ranges)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_expanded_field_by_field() {
        let field =
            |local_base, len| PageField { local_base, local_stride: 10, remote_base: 1000, remote_stride: 100, len };
        let ranges = expand_pages(&[0, 3], &[2, 1], &[field(100, 4), field(500, 5)]).unwrap();
        let expected = [(100, 1200, 4), (500, 1200, 5), (130, 1100, 4), (530, 1100, 5)];
        assert_eq!(ranges, expected.map(|(local, remote, len)| Range { local, remote, len }));
        assert!(expand_pages(&[0], &[], &[]).is_err());
        assert!(expand_pages(&[u64::MAX], &[0], &[field(1, 1)]).is_err());
    }

    #[test]
    fn pieces_stay_inside_their_regions() {
        let entry = |address, len| BufferEntry { address, len };
        let piece = |local_offset, remote_offset, len| ScatterPiece { local_offset, remote_offset, len };
        let region = |piece| ScatterRegion { local: entry(100, 10), remote: entry(200, 20), pieces: vec![piece] };
        assert_eq!(region(piece(2, 12, 8)).ranges().unwrap(), [Range { local: 102, remote: 212, len: 8 }]);
        for bad in [piece(3, 0, 8), piece(0, 13, 8), piece(u64::MAX, 0, 2)] {
            assert_eq!(region(bad).ranges().unwrap_err().negated(), -1);
        }
    }
}
