//! On which node of memory a page is.

use std::ffi::{c_int, c_void};

use crate::Span;

/// Pages are at least this large, so the start of one is a multiple.
const PAGE: u64 = 4096;

/// The node of the span's first page. `None` for a page that was never touched, for memory of a device, and where the
/// kernel does not tell (some containers forbid the question).
pub fn numa_node(span: &Span<'_>) -> Option<u32> {
    if span.is_empty() || span.is_on_device() {
        return None;
    }
    let mut page = (span.address() / PAGE * PAGE) as *mut c_void;
    let mut status: c_int = -1;
    let (this_process, one_page, no_flags) = (0, 1_u64, 0);
    // SAFETY: without target nodes the call moves nothing: it reads one address from `page`, which need not be mapped,
    // and writes one number to `status`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_pages,
            this_process,
            one_page,
            &raw mut page,
            std::ptr::null::<c_int>(),
            &raw mut status,
            no_flags,
        )
    };
    // A negative status is the page's own error: not there.
    if result == 0 { u32::try_from(status).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_touched_page_has_a_node_where_the_kernel_tells() {
        let bytes = vec![1_u8; 3 * PAGE as usize];
        let node = numa_node(&Span::source(&bytes));
        assert!(node.is_none_or(|node| node < 4096), "{node:?}");
        assert_eq!(numa_node(&Span::source(&[])), None);
    }
}
