//! Engines: made, described, destroyed.
#![allow(non_snake_case, reason = "the names of the C API")]

use std::ffi::{c_char, c_int, c_void};
use std::io::IsTerminal;
use std::sync::Once;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use yb_classic::{ClassicEngine, ClassicError, ClassicOptions, StatusCode};

use crate::handles::{self, ENGINES, answer, engine, guarded};
use crate::text;

/// Starts an engine; null on failure.
///
/// # Safety
/// Pointers that are not null point to text that ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn createTransferEngine(
    metadata_conn_string: *const c_char,
    local_server_name: *const c_char,
    ip_or_host_name: *const c_char,
    rpc_port: u64,
    auto_discover: c_int,
) -> *mut c_void {
    guarded(std::ptr::null_mut(), || {
        logs();
        // The peer ignores these two as well, unless it binds the name itself.
        let _ = (ip_or_host_name, rpc_port);
        // SAFETY: the caller's promise.
        let options = unsafe { options(metadata_conn_string, local_server_name, auto_discover != 0) };
        match options.and_then(ClassicEngine::start) {
            Ok(engine) => ENGINES.add(engine),
            Err(error) => {
                tracing::error!("the engine did not start: {error}");
                std::ptr::null_mut()
            }
        }
    })
}

/// # Safety
/// As [`createTransferEngine`].
unsafe fn options(
    metadata: *const c_char,
    name: *const c_char,
    auto_discover: bool,
) -> Result<ClassicOptions, ClassicError> {
    // SAFETY: the caller's promise.
    let (metadata, name) =
        unsafe { (text::required(metadata, "the metadata string")?, text::required(name, "the server name")?) };
    Ok(ClassicOptions { auto_discover, ..ClassicOptions::new(metadata, name) })
}

/// Log lines go to standard error from the level of `MC_LOG_LEVEL` on (WARNING when it is not set), unless the process
/// has its own subscriber.
pub(crate) fn logs() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let level = match std::env::var("MC_LOG_LEVEL").unwrap_or_default().to_ascii_uppercase().as_str() {
            "TRACE" => tracing::Level::TRACE,
            "INFO" => tracing::Level::INFO,
            "ERROR" => tracing::Level::ERROR,
            _ => tracing::Level::WARN,
        };
        let log = tracing_subscriber::fmt()
            .with_max_level(level)
            .with_writer(std::io::stderr)
            // A line that cannot be written is lost; by default it would panic the thread that logs.
            .log_internal_errors(false);
        let _ = log.with_ansi(std::io::stderr().is_terminal()).try_init();
    });
}

/// Stops an engine and forgets its handle.
#[unsafe(no_mangle)]
pub extern "C" fn destroyTransferEngine(engine: *mut c_void) {
    guarded((), || {
        if let Some(engine) = ENGINES.remove(engine) {
            engine.shutdown();
        }
    });
}

/// Installs, once for the process, handlers that stop all engines on SIGTERM, SIGINT and at exit.
#[unsafe(no_mangle)]
pub extern "C" fn enableGracefulShutdown(engine: *mut c_void) {
    static ONCE: Once = Once::new();
    let _ = engine;
    guarded((), || {
        ONCE.call_once(|| {
            // SAFETY: the function stays loaded: a library with threads of its own is never unloaded.
            let registered = unsafe { libc::atexit(at_exit) };
            let signals = Signals::new([SIGTERM, SIGINT]);
            let watched = signals.and_then(|mut signals| {
                yb_env::spawn_thread("yb-signals", move || {
                    if let Some(signal) = signals.forever().next() {
                        stop_all();
                        // SAFETY: ends the process as the caller asked for; its own exit handlers run.
                        unsafe { libc::exit(128 + signal) };
                    }
                })
            });
            if let (Err(error), _) | (Ok(_), Err(error)) = (watched, check(registered)) {
                tracing::warn!(%error, "engines will not be stopped when the process ends");
            }
        });
    });
}

fn check(registered: c_int) -> std::io::Result<()> {
    if registered == 0 { Ok(()) } else { Err(std::io::Error::other("no room for another exit handler")) }
}

extern "C" fn at_exit() {
    guarded((), stop_all);
}

fn stop_all() {
    for engine in ENGINES.remove_all() {
        engine.shutdown();
    }
}

/// Devices are looked for when the engine starts; asking again changes nothing.
#[unsafe(no_mangle)]
pub extern "C" fn discoverTopology(engine: *mut c_void) -> c_int {
    answer(|| handles::engine(engine).map(drop))
}

/// Writes `host:port` of the engine.
///
/// # Safety
/// A buffer that is not null has `buf_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getLocalIpAndPort(handle: *mut c_void, buf_out: *mut c_char, buf_len: usize) -> c_int {
    answer(|| {
        let engine = engine(handle)?;
        // SAFETY: the caller's promise.
        unsafe { text::write(engine.local_ip_and_port(), buf_out, buf_len) }
    })
}

/// A handle when the transport is there, else null.
///
/// # Safety
/// `proto` is null or text that ends with a NUL. `args` is not read: devices are chosen when the engine starts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn installTransport(
    handle: *mut c_void,
    proto: *const c_char,
    args: *mut *mut c_void,
) -> *mut c_void {
    guarded(std::ptr::null_mut(), || {
        let _ = args;
        // SAFETY: the caller's promise.
        match unsafe { transport(handle, proto) } {
            Ok(number) => handles::transport(handle, number),
            Err(error) => {
                tracing::warn!("{error}");
                std::ptr::null_mut()
            }
        }
    })
}

/// # Safety
/// As [`installTransport`].
unsafe fn transport(handle: *mut c_void, proto: *const c_char) -> Result<usize, ClassicError> {
    let engine = engine(handle)?;
    // SAFETY: the caller's promise.
    let proto = unsafe { text::required(proto, "the transport's name") }?;
    engine.require_transport(proto)?;
    Ok(usize::from(proto != "tcp"))
}

/// Transports stay as long as the engine; -8 for one that is not there.
///
/// # Safety
/// `proto` is null or text that ends with a NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uninstallTransport(handle: *mut c_void, proto: *const c_char) -> c_int {
    answer(|| {
        // SAFETY: the caller's promise.
        let found = unsafe { transport(handle, proto) };
        found.map(drop).map_err(|error| match error.code() {
            StatusCode::DeviceNotFound => ClassicError::new(StatusCode::NotSupportedTransport, error),
            _ => error,
        })
    })
}
