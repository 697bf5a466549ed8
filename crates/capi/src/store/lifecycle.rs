//! Stores: made, set up, asked how they are, destroyed.

use std::ffi::{c_char, c_int, c_void};
use std::sync::{Arc, Once};

use yb_client::{Client, ClientConfig, Error, Health};

use super::arguments::{optional, required};
use super::{Live, STORES, Store, int, on_client, on_store};
use crate::handles::guarded;
use crate::lifecycle::logs;
use crate::text;

/// Makes a store, which is connected to nothing yet. It leaves the pool when it is destroyed, or when the process exits.
#[unsafe(no_mangle)]
pub extern "C" fn mooncake_store_create() -> *mut c_void {
    static ONCE: Once = Once::new();
    guarded(std::ptr::null_mut(), || {
        logs();
        ONCE.call_once(|| {
            // SAFETY: the function stays loaded: a library with threads of its own is never unloaded.
            if unsafe { libc::atexit(at_exit) } != 0 {
                tracing::warn!("stores that are not destroyed will not leave the pool when the process exits");
            }
        });
        STORES.add(Arc::new(Store::default()))
    })
}

extern "C" fn at_exit() {
    guarded((), || STORES.remove_all().iter().for_each(|store| close(store)));
}

/// Leaves the pool and forgets the handle.
#[unsafe(no_mangle)]
pub extern "C" fn mooncake_store_destroy(store: *mut c_void) {
    guarded((), || {
        if let Some(store) = STORES.remove(store) {
            close(&store);
        }
    });
}

fn close(store: &Store) {
    let live = store.live.write().take();
    if let Some(live) = live {
        live.client.close();
    }
}

/// Joins a pool: 0 or a code. A store that was set up before leaves its pool first.
///
/// # Safety
/// Pointers that are not null point to text that ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mooncake_store_setup(
    store: *mut c_void,
    local_hostname: *const c_char,
    metadata_server: *const c_char,
    global_segment_size: u64,
    local_buffer_size: u64,
    protocol: *const c_char,
    device_name: *const c_char,
    master_server_addr: *const c_char,
) -> c_int {
    int(on_store(store, |store| {
        let texts = || {
            // SAFETY: the caller's promise.
            unsafe {
                Ok::<_, Error>(ClientConfig {
                    local_hostname: required(local_hostname, "local_hostname")?.to_owned(),
                    metadata_server: required(metadata_server, "metadata_server")?.to_owned(),
                    global_segment_size,
                    local_buffer_size,
                    protocol: required(protocol, "protocol")?.to_owned(),
                    device_names: optional(device_name, "device_name")?.to_owned(),
                    master_address: required(master_server_addr, "master_server_addr")?.to_owned(),
                    ..ClientConfig::default()
                })
            }
        };
        close(store);
        match texts().and_then(Client::connect) {
            Ok(client) => {
                *store.live.write() = Some(Live { client, allow_empty: allow_empty() });
                0
            }
            Err(error) => store.refuse(&error),
        }
    }))
}

/// Whether `YB_ALLOW_EMPTY` lets objects of no bytes be stored.
fn allow_empty() -> bool {
    let text = std::env::var("YB_ALLOW_EMPTY").unwrap_or_default();
    matches!(text.trim().to_ascii_lowercase().as_str(), "1" | "true" | "yes" | "on")
}

/// The peer's helper with addresses of its own in it; always -600: `mooncake_store_setup` does this.
///
/// # Safety
/// The pointers are not read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mooncake_store_init_all(
    store: *mut c_void,
    protocol: *const c_char,
    device_name: *const c_char,
    mount_segment_size: u64,
) -> c_int {
    let _ = (protocol, device_name, mount_segment_size);
    int(on_store(store, |store| {
        store.refuse(&Error::Invalid("init_all has no address of a master: use mooncake_store_setup".into()))
    }))
}

/// 0: the master answers; 1: not set up; 2: it does not answer.
#[unsafe(no_mangle)]
pub extern "C" fn mooncake_store_health_check(store: *mut c_void) -> c_int {
    int(on_store(store, |store| match store.live() {
        Ok(live) if live.client.health() == Health::Healthy => 0,
        Ok(_) => 2,
        Err(_) => 1,
    }))
}

/// Writes `host:port`, the name of this client and of the segment it lends.
///
/// # Safety
/// A buffer that is not null has `buf_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mooncake_store_get_hostname(
    store: *mut c_void,
    buf_out: *mut c_char,
    buf_len: usize,
) -> c_int {
    int(on_client(store, |live| {
        // SAFETY: the caller's promise.
        let written = unsafe { text::write(live.client.hostname(), buf_out, buf_len) };
        written.map(|()| 0).map_err(|error| Error::Invalid(error.to_string().into()))
    }))
}

/// Writes the last failure of the store in words, cut to the buffer, and answers how many bytes they have. Not in the
/// peer.
///
/// # Safety
/// A buffer that is not null has `buf_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mooncake_store_last_error(store: *mut c_void, buf_out: *mut c_char, buf_len: usize) -> i64 {
    on_store(store, |store| {
        let words = store.last.lock().clone();
        let room = buf_len.saturating_sub(1).min(words.len());
        let fits = (0..=room).rev().find(|end| words.is_char_boundary(*end)).unwrap_or(0);
        if !buf_out.is_null() && buf_len > 0 {
            // SAFETY: the caller's promise; what fits was cut to the buffer.
            let _ = unsafe { text::write(&words[..fits], buf_out, buf_len) };
        }
        words.len() as i64
    })
}
