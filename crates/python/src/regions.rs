//! Which memory the caller has registered.
//!
//! The problem: zero-copy calls name memory by number. A number that lies in registered memory but reaches over its end
//! is a mistake that would otherwise overwrite a stranger's bytes; memory never registered is allowed, as with the peer
//! on TCP, and is the caller's word.

use std::collections::BTreeMap;

/// Registered ranges; none overlaps another.
#[derive(Debug, Default)]
pub(crate) struct Regions {
    /// First address to bytes.
    by_start: BTreeMap<u64, u64>,
}

/// Why a range was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadRange {
    /// Null, empty, or past the end of the address space.
    Nothing,
    /// It shares bytes with a registered range.
    Overlaps,
    /// It starts in registered memory and reaches over its end.
    ReachesOver,
}

impl BadRange {
    /// For `last_error`.
    pub(crate) fn text(self) -> &'static str {
        match self {
            BadRange::Nothing => "a null or impossible memory range",
            BadRange::Overlaps => "the range overlaps registered memory",
            BadRange::ReachesOver => "the range reaches over the end of the registered memory it starts in",
        }
    }
}

/// One past the last address of a range that can exist.
fn end_of(address: u64, len: u64) -> Result<u64, BadRange> {
    if address == 0 { Err(BadRange::Nothing) } else { address.checked_add(len).ok_or(BadRange::Nothing) }
}

impl Regions {
    /// Adds a range.
    pub(crate) fn add(&mut self, address: u64, len: u64) -> Result<(), BadRange> {
        let end = end_of(address, len)?;
        if len == 0 {
            return Err(BadRange::Nothing);
        }
        let before = self.by_start.range(..end).next_back();
        if before.is_some_and(|(start, bytes)| start + bytes > address) {
            return Err(BadRange::Overlaps);
        }
        self.by_start.insert(address, len);
        Ok(())
    }

    /// Takes the range that starts here out; false when there is none.
    pub(crate) fn remove(&mut self, address: u64) -> bool {
        self.by_start.remove(&address).is_some()
    }

    /// Whether a call may touch the range: registered as a whole (neighbours count as one), or not at all at its start.
    pub(crate) fn check(&self, address: u64, len: u64) -> Result<(), BadRange> {
        let end = end_of(address, len)?;
        let mut covered = address;
        while covered < end {
            let holder = self.by_start.range(..=covered).next_back();
            match holder.map(|(start, bytes)| start + bytes).filter(|holder_end| *holder_end > covered) {
                Some(holder_end) => covered = holder_end,
                None if covered == address => return Ok(()),
                None => return Err(BadRange::ReachesOver),
            }
        }
        Ok(())
    }
}
