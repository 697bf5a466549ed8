//! On which node of memory a page is, and on which it is to be.

use std::ffi::{c_int, c_ulong, c_void};
use std::io;

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

/// Nodes that the kernel can name.
const NODES: usize = 1024;
/// Pages are made on this node while it has room (`MPOL_PREFERRED`).
const PREFERRED: c_int = 1;

/// A set of one node, as the kernel reads it.
fn only(node: u32) -> io::Result<[c_ulong; NODES / c_ulong::BITS as usize]> {
    let mut mask = [0; NODES / c_ulong::BITS as usize];
    let word = mask.get_mut(node as usize / c_ulong::BITS as usize);
    let word = word.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no such NUMA node"))?;
    *word = 1 << (node % c_ulong::BITS);
    Ok(mask)
}

/// Makes the pages of the span on the node from now on; pages that are there stay where they are.
///
/// # Errors
/// The system's: no such node, or a container that may not choose.
pub(crate) fn prefer(span: &Span<'_>, node: u32) -> io::Result<()> {
    let mask = only(node)?;
    let first = span.pointer().cast::<c_void>();
    // SAFETY: the call changes where pages of the span will be made, not what is in them, and reads the mask.
    let result =
        unsafe { libc::syscall(libc::SYS_mbind, first, span.len(), PREFERRED, mask.as_ptr(), NODES as c_ulong + 1, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Runs the calling thread on the processors of a node from now on, and makes the memory that it touches first there.
///
/// # Errors
/// The system's: no such node, or a container that may not choose. Nothing is changed then, except that the processors
/// may be chosen already when the memory cannot.
pub fn bind_thread(node: u32) -> io::Result<()> {
    let list = std::fs::read_to_string(format!("/sys/devices/system/node/node{node}/cpulist"))?;
    // SAFETY: a set of processors is plain numbers; zero is the empty set.
    let mut processors: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for processor in cpu_list(&list).filter(|processor| *processor < libc::CPU_SETSIZE as usize) {
        // SAFETY: the number is below the size of the set.
        unsafe { libc::CPU_SET(processor, &mut processors) };
    }
    // SAFETY: the set is read for its whole size; 0 is the calling thread.
    if unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const processors) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let mask = only(node)?;
    // SAFETY: the mask is read for the number of bits that is given.
    let result = unsafe { libc::syscall(libc::SYS_set_mempolicy, PREFERRED, mask.as_ptr(), NODES as c_ulong + 1) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The numbers of a list such as `0-3,8`; what is no number is left out.
fn cpu_list(text: &str) -> impl Iterator<Item = usize> {
    text.trim().split(',').flat_map(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse(), last.parse()) {
            (Ok(first), Ok(last)) => first..=last,
            #[expect(clippy::reversed_empty_ranges, reason = "an empty range")]
            _ => 1..=0,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors() {
        let numbers = |text| cpu_list(text).collect::<Vec<usize>>();
        assert_eq!(numbers("0-2,5\n"), [0, 1, 2, 5]);
        assert_eq!(numbers("7"), [7]);
        assert_eq!(numbers("\n"), [0_usize; 0]);
    }

    #[test]
    fn a_thread_runs_where_it_was_bound() {
        // On a thread of its own: the binding stays with it.
        let bound = std::thread::scope(|scope| scope.spawn(|| (bind_thread(9999), bind_thread(0))).join().unwrap());
        assert!(bound.0.is_err());
        if let Err(error) = bound.1 {
            println!("not bound: {error}");
        }
    }

    #[test]
    fn a_touched_page_has_a_node_where_the_kernel_tells() {
        let bytes = vec![1_u8; 3 * PAGE as usize];
        let node = numa_node(&Span::source(&bytes));
        assert!(node.is_none_or(|node| node < 4096), "{node:?}");
        assert_eq!(numa_node(&Span::source(&[])), None);
    }
}
