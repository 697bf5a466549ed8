//! libibverbs, found at run time.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use libloading::Library;

use crate::VerbsError;
use crate::abi::*;

/// The name that every Linux distribution installs.
const LIBRARY: &str = "libibverbs.so.1";

type RegMr = unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, c_int) -> *mut ibv_mr;
type RegMrIova2 = unsafe extern "C" fn(*mut ibv_pd, *mut c_void, usize, u64, c_uint) -> *mut ibv_mr;
type RegDmabufMr = unsafe extern "C" fn(*mut ibv_pd, u64, usize, u64, c_int, c_int) -> *mut ibv_mr;
type CreateCq = unsafe extern "C" fn(*mut ibv_context, c_int, *mut c_void, *mut ibv_comp_channel, c_int) -> *mut ibv_cq;

/// The functions used, by the library's names without `ibv_`.
pub(crate) struct Functions {
    pub get_device_list: unsafe extern "C" fn(*mut c_int) -> *mut *mut ibv_device,
    pub free_device_list: unsafe extern "C" fn(*mut *mut ibv_device),
    pub get_device_name: unsafe extern "C" fn(*mut ibv_device) -> *const c_char,
    pub open_device: unsafe extern "C" fn(*mut ibv_device) -> *mut ibv_context,
    pub close_device: unsafe extern "C" fn(*mut ibv_context) -> c_int,
    pub query_device: unsafe extern "C" fn(*mut ibv_context, *mut ibv_device_attr) -> c_int,
    pub query_port: unsafe extern "C" fn(*mut ibv_context, u8, *mut ibv_port_attr) -> c_int,
    pub query_gid: unsafe extern "C" fn(*mut ibv_context, u8, c_int, *mut ibv_gid) -> c_int,
    pub get_async_event: unsafe extern "C" fn(*mut ibv_context, *mut ibv_async_event) -> c_int,
    pub ack_async_event: unsafe extern "C" fn(*mut ibv_async_event),
    pub alloc_pd: unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_pd,
    pub dealloc_pd: unsafe extern "C" fn(*mut ibv_pd) -> c_int,
    pub reg_mr: RegMr,
    pub dereg_mr: unsafe extern "C" fn(*mut ibv_mr) -> c_int,
    pub create_comp_channel: unsafe extern "C" fn(*mut ibv_context) -> *mut ibv_comp_channel,
    pub destroy_comp_channel: unsafe extern "C" fn(*mut ibv_comp_channel) -> c_int,
    pub create_cq: CreateCq,
    pub destroy_cq: unsafe extern "C" fn(*mut ibv_cq) -> c_int,
    pub get_cq_event: unsafe extern "C" fn(*mut ibv_comp_channel, *mut *mut ibv_cq, *mut *mut c_void) -> c_int,
    pub ack_cq_events: unsafe extern "C" fn(*mut ibv_cq, c_uint),
    pub create_qp: unsafe extern "C" fn(*mut ibv_pd, *mut ibv_qp_init_attr) -> *mut ibv_qp,
    pub modify_qp: unsafe extern "C" fn(*mut ibv_qp, *mut ibv_qp_attr, c_int) -> c_int,
    pub destroy_qp: unsafe extern "C" fn(*mut ibv_qp) -> c_int,
    /// Registration with optional flags; libraries before 1.8 lack it.
    pub reg_mr_iova2: Option<RegMrIova2>,
    /// Registration of a dma-buf; libraries before 1.12 lack it.
    pub reg_dmabuf_mr: Option<RegDmabufMr>,
    /// Keeps the code mapped.
    _library: Library,
}

/// The library, loaded. Clones share it.
#[derive(Clone)]
pub struct Verbs(pub(crate) Arc<Functions>);

impl std::fmt::Debug for Verbs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Verbs").field("features", &self.features()).finish()
    }
}

/// What the library found on this host can do beyond the basics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Features {
    /// Memory can be registered with relaxed ordering.
    pub relaxed_ordering: bool,
    /// Device memory can be registered through a dma-buf.
    pub dmabuf: bool,
}

impl Verbs {
    /// Opens the library.
    ///
    /// # Errors
    /// [`VerbsError::Library`] when it is not installed or lacks a function.
    pub fn load() -> Result<Verbs, VerbsError> {
        Self::load_from(LIBRARY)
    }

    /// Opens the library under another name.
    ///
    /// # Errors
    /// As [`Verbs::load`].
    pub fn load_from(name: &str) -> Result<Verbs, VerbsError> {
        let failed =
            |error: libloading::Error| VerbsError::Library { name: name.to_owned(), reason: error.to_string() };
        // SAFETY: libibverbs' initialiser only prepares its own state; a library of another make under this name is the
        // installer's decision, as with every shared library of a process.
        let library = unsafe { Library::new(name) }.map_err(failed)?;
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the type is the one that the library's header declares for this name (see `abi`).
                *unsafe { library.get($name.as_bytes()) }.map_err(failed)?
            };
        }
        macro_rules! optional {
            ($name:literal) => {
                // SAFETY: as above; a library that lacks the name gives `None`.
                unsafe { library.get($name.as_bytes()) }.ok().map(|symbol| *symbol)
            };
        }
        Ok(Verbs(Arc::new(Functions {
            get_device_list: function!("ibv_get_device_list"),
            free_device_list: function!("ibv_free_device_list"),
            get_device_name: function!("ibv_get_device_name"),
            open_device: function!("ibv_open_device"),
            close_device: function!("ibv_close_device"),
            query_device: function!("ibv_query_device"),
            query_port: function!("ibv_query_port"),
            query_gid: function!("ibv_query_gid"),
            get_async_event: function!("ibv_get_async_event"),
            ack_async_event: function!("ibv_ack_async_event"),
            alloc_pd: function!("ibv_alloc_pd"),
            dealloc_pd: function!("ibv_dealloc_pd"),
            reg_mr: function!("ibv_reg_mr"),
            dereg_mr: function!("ibv_dereg_mr"),
            create_comp_channel: function!("ibv_create_comp_channel"),
            destroy_comp_channel: function!("ibv_destroy_comp_channel"),
            create_cq: function!("ibv_create_cq"),
            destroy_cq: function!("ibv_destroy_cq"),
            get_cq_event: function!("ibv_get_cq_event"),
            ack_cq_events: function!("ibv_ack_cq_events"),
            create_qp: function!("ibv_create_qp"),
            modify_qp: function!("ibv_modify_qp"),
            destroy_qp: function!("ibv_destroy_qp"),
            reg_mr_iova2: optional!("ibv_reg_mr_iova2"),
            reg_dmabuf_mr: optional!("ibv_reg_dmabuf_mr"),
            _library: library,
        })))
    }

    /// What this library can do.
    pub fn features(&self) -> Features {
        Features { relaxed_ordering: self.0.reg_mr_iova2.is_some(), dmabuf: self.0.reg_dmabuf_mr.is_some() }
    }
}
