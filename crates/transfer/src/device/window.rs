//! The body of a request that a peer makes over TCP: memory of the host as it is, memory of a GPU through a window.

use std::io;
use std::sync::Arc;

use yb_cuda::PinnedMemory;
use yb_mem::{RegionPin, Span};

use crate::device::Gpus;

/// A pinned range whose bytes can be sent or received.
#[derive(Debug)]
pub(crate) struct Body {
    pin: RegionPin,
    window: Option<Window>,
}

/// Host memory that shows a part of the range.
#[derive(Debug)]
struct Window {
    gpus: Arc<Gpus>,
    /// There until the window is dropped.
    memory: Option<PinnedMemory>,
    /// First byte of the range that it shows, and how many bytes of it count.
    first: usize,
    len: usize,
}

impl Body {
    /// # Errors
    /// When memory on a GPU is asked for, and no host memory is left for its window.
    pub(crate) fn new(pin: RegionPin, gpus: &Arc<Gpus>) -> io::Result<Self> {
        if !pin.span().is_on_device() {
            return Ok(Body { pin, window: None });
        }
        let driver = gpus.driver().ok_or_else(|| io::Error::other(super::no_driver()))?;
        let ordinal =
            driver.locate(pin.address()).ok_or_else(|| io::Error::other("the memory is on no GPU any more"))?;
        let memory = gpus.window(ordinal).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Body { pin, window: Some(Window { gpus: Arc::clone(gpus), memory: Some(memory), first: 0, len: 0 }) })
    }

    /// Bytes of the range.
    pub(crate) fn len(&self) -> u64 {
        self.pin.len()
    }

    /// True when the region is to be released.
    pub(crate) fn is_wanted_back(&self) -> bool {
        self.pin.is_wanted_back()
    }

    /// The bytes from `from` on, as many as are at hand: all of them but for a window, which is filled first.
    pub(crate) fn outgoing(&mut self, from: usize) -> io::Result<Span<'_>> {
        let rest = self.pin.span().skip(from).map_err(io::Error::other)?;
        let Some(window) = &mut self.window else { return Ok(rest) };
        if rest.is_empty() {
            return Ok(Span::source(&[]));
        }
        if from < window.first || from >= window.first + window.len {
            let len = rest.len().min(window.span().len());
            let shown = rest.slice(0, len).map_err(io::Error::other)?;
            let host = window.span().slice(0, len).map_err(io::Error::other)?;
            window.gpus.copy(host, shown).map_err(io::Error::other)?;
            (window.first, window.len) = (from, len);
        }
        let skip = from - window.first;
        window.span().slice(skip, window.len - skip).map_err(io::Error::other)
    }

    /// Room for the bytes from `from` on, which must follow those that have arrived. Less than all of it for a window.
    pub(crate) fn room(&self, from: usize) -> io::Result<Span<'_>> {
        let rest = self.pin.span().skip(from).map_err(io::Error::other)?;
        let Some(window) = &self.window else { return Ok(rest) };
        let space = window.span();
        let end = rest.len().saturating_add(window.len).min(space.len());
        space.slice(window.len, end - window.len).map_err(io::Error::other)
    }

    /// `bytes` have arrived in the room at `from`. A window that is full, or holds the last of the range, is copied to the
    /// GPU.
    pub(crate) fn arrived(&mut self, from: usize, bytes: usize) -> io::Result<()> {
        let total = self.pin.len() as usize;
        let Some(window) = &mut self.window else { return Ok(()) };
        window.len += bytes;
        if window.len == window.span().len() || from + bytes == total {
            let first = (from + bytes).saturating_sub(window.len);
            let target = self.pin.span().slice(first, window.len).map_err(io::Error::other)?;
            let host = window.span().slice(0, window.len).map_err(io::Error::other)?;
            window.gpus.copy(target, host).map_err(io::Error::other)?;
            window.len = 0;
        }
        Ok(())
    }
}

impl Window {
    fn span(&self) -> Span<'_> {
        self.memory.as_ref().map_or(Span::source(&[]), PinnedMemory::span)
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.gpus.window_closed(memory);
        }
    }
}
