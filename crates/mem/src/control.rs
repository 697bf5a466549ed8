//! The page that an owner shares with its peers on the host.
//!
//! ```text
//! offset 0    u64 counter, moved whenever the owner's regions change
//! offset 64   16 random bytes: whoever reads them at the owner's address through the kernel has the right process
//! offset 128  2 x u32 per peer: how many copies it has under way in the owner's own allocations, that were begun while
//!             the counter was even, and odd
//! ```
//! A peer enters before it reads the counter, and the owner moves the counter before it looks who is inside: one of the
//! two sees the other, so that memory which is not registered any more is not copied to. Those who come after the counter
//! moved count on the other side, so the owner waits only for those who came before.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use rustix::fs::{MemfdFlags, SealFlags};

use crate::mapping::PAGE;
use crate::{MapError, Mapping};

/// Bytes of the nonce.
pub const NONCE_LEN: usize = 16;
const NONCE_AT: usize = 64;
const SEATS_AT: usize = 128;
const SEAT: usize = 8;

/// One shared page with a counter, by which an owner tells its peers that its regions changed.
#[derive(Debug)]
pub struct ControlPage {
    file: OwnedFd,
    mapping: Mapping,
}

impl ControlPage {
    /// How many peers can have a seat.
    pub const SEATS: u32 = ((PAGE - SEATS_AT) / SEAT) as u32;

    /// A new page with the counter at 1. `nonce` should be unpredictable.
    ///
    /// # Errors
    /// The system's.
    pub fn create(nonce: [u8; NONCE_LEN]) -> Result<Self, MapError> {
        let file = rustix::fs::memfd_create("yuebing-control", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
            .map_err(MapError::os("creating a control page"))?;
        rustix::fs::ftruncate(&file, PAGE as u64).map_err(MapError::os("sizing a control page"))?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
            .map_err(MapError::os("sealing a control page"))?;
        let mapping = Mapping::of_file(file.as_fd(), PAGE)?;
        let page = ControlPage { file, mapping };
        for (word, bytes) in page.nonce_words().into_iter().zip(nonce.chunks_exact(8)) {
            word.store(bytes.try_into().map_or(0, u64::from_ne_bytes), Ordering::Relaxed);
        }
        page.bump();
        Ok(page)
    }

    /// The peer's page.
    ///
    /// # Errors
    /// When the file is not a sealed page, or the system refuses.
    pub fn of_peer(file: OwnedFd) -> Result<Self, MapError> {
        let mapping = Mapping::of_peer(&file, 0, PAGE as u64)?.into_mapping();
        Ok(ControlPage { file, mapping })
    }

    /// The descriptor to hand over.
    pub fn file(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// The counter now.
    pub fn counter(&self) -> u64 {
        self.word(0).load(Ordering::SeqCst)
    }

    /// Moves the counter.
    pub fn bump(&self) {
        self.word(0).fetch_add(1, Ordering::SeqCst);
    }

    /// Where the nonce is in this process.
    pub fn nonce_address(&self) -> u64 {
        self.mapping.address() + NONCE_AT as u64
    }

    /// The nonce.
    pub fn nonce(&self) -> [u8; NONCE_LEN] {
        let mut nonce = [0; NONCE_LEN];
        for (word, bytes) in self.nonce_words().into_iter().zip(nonce.chunks_exact_mut(8)) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        nonce
    }

    /// Says that the peer of this seat copies, by a list from when the counter was `counter`, until the pass is dropped.
    /// The list is still right if the counter is the same after this. `None` for a seat that does not exist.
    pub fn enter(&self, seat: u32, counter: u64) -> Option<Pass<'_>> {
        let inside = self.seat(seat, counter)?;
        inside.fetch_add(1, Ordering::SeqCst);
        Some(Pass { inside })
    }

    /// Empties a seat whose peer has gone, or before it is given out.
    pub fn clear(&self, seat: u32) {
        for inside in [self.seat(seat, 0), self.seat(seat, 1)].into_iter().flatten() {
            inside.store(0, Ordering::SeqCst);
        }
    }

    /// True when nobody is inside who came while the counter was odd, or even, as `counter` is.
    pub fn is_empty(&self, counter: u64) -> bool {
        (0..Self::SEATS).filter_map(|seat| self.seat(seat, counter)).all(|inside| inside.load(Ordering::SeqCst) == 0)
    }

    fn nonce_words(&self) -> [&AtomicU64; 2] {
        [self.word(NONCE_AT), self.word(NONCE_AT + 8)]
    }

    fn seat(&self, seat: u32, counter: u64) -> Option<&AtomicU32> {
        if seat >= Self::SEATS {
            return None;
        }
        let offset = SEATS_AT + seat as usize * SEAT + (counter % 2) as usize * size_of::<u32>();
        // SAFETY: the offset is inside the page, which is mapped for the life of self, and a multiple of 4; every process
        // reaches the seats only through atomics.
        Some(unsafe { AtomicU32::from_ptr(self.mapping.pointer().as_ptr().add(offset).cast()) })
    }

    /// The word at one of the offsets above.
    fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset < SEATS_AT && offset.is_multiple_of(8), "no such word");
        // SAFETY: the offset is inside the page and a multiple of 8, the page is mapped for the life of self, and every
        // process reaches these words only through atomics.
        unsafe { AtomicU64::from_ptr(self.mapping.pointer().as_ptr().add(offset).cast()) }
    }
}

/// A peer's say that it copies.
#[derive(Debug)]
pub struct Pass<'a> {
    inside: &'a AtomicU32,
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        // Not below zero: an owner that took the peer for gone has emptied the seat.
        let _ = self.inside.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |inside| inside.checked_sub(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (ControlPage, ControlPage) {
        let page = ControlPage::create(*b"sixteen bytes ok").unwrap();
        let peer = ControlPage::of_peer(page.file().try_clone_to_owned().unwrap()).unwrap();
        (page, peer)
    }

    #[test]
    fn a_peer_sees_the_counter_move_and_the_nonce() {
        let (page, peer) = pair();
        let before = peer.counter();
        page.bump();
        assert_eq!(peer.counter(), before + 1);
        assert_eq!(&peer.nonce(), b"sixteen bytes ok");
        assert_ne!(peer.nonce_address(), page.nonce_address());
    }

    #[test]
    fn an_owner_sees_who_is_inside() {
        let (page, peer) = pair();
        let (first, last) = (peer.enter(0, 1).unwrap(), peer.enter(ControlPage::SEATS - 1, 3).unwrap());
        assert!(peer.enter(ControlPage::SEATS, 1).is_none());
        drop(first);
        assert!(!page.is_empty(1) && page.is_empty(2), "who came while the counter was odd");
        drop(last);
        assert!(page.is_empty(1));
        let stuck = peer.enter(7, 2).unwrap();
        page.clear(7);
        assert!(page.is_empty(2));
        drop(stuck);
        assert!(page.is_empty(2) && peer.counter() == 1, "a late pass leaves nothing behind");
    }
}
