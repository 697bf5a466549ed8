//! The library as C and C++ programs see it: compiled by the system's compilers, linked with the shared library.
#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use yb_client::{Client, Error};
use yb_master::{Master, MasterConfig};
use yb_types::ReplicateConfig;

/// Every function of the engine's header.
const ENGINE: [&str; 27] = [
    "allocateBatchID",
    "closeSegment",
    "createTransferEngine",
    "destroyTransferEngine",
    "discoverTopology",
    "enableGracefulShutdown",
    "freeBatchID",
    "freeNotifsMsgBuf",
    "genNotifyInEngine",
    "getLocalIpAndPort",
    "getNicLoadStats",
    "getNotifsFromEngine",
    "getTransferStatus",
    "installTransport",
    "openSegment",
    "openSegmentNoCache",
    "registerLocalMemory",
    "registerLocalMemoryBatch",
    "removeLocalSegment",
    "showLinks",
    "submitTransfer",
    "submitTransferWithNotify",
    "syncSegmentCache",
    "uninstallTransport",
    "unregisterLocalMemory",
    "unregisterLocalMemoryBatch",
    "warmupEfaSegment",
];

/// Every function of the store's header.
const STORE: [&str; 20] = [
    "mooncake_store_batch_get_into",
    "mooncake_store_batch_is_exist",
    "mooncake_store_batch_put_from",
    "mooncake_store_create",
    "mooncake_store_destroy",
    "mooncake_store_get_hostname",
    "mooncake_store_get_into",
    "mooncake_store_get_size",
    "mooncake_store_health_check",
    "mooncake_store_init_all",
    "mooncake_store_is_exist",
    "mooncake_store_last_error",
    "mooncake_store_put",
    "mooncake_store_put_from",
    "mooncake_store_register_buffer",
    "mooncake_store_remove",
    "mooncake_store_remove_all",
    "mooncake_store_remove_by_regex",
    "mooncake_store_setup",
    "mooncake_store_unregister_buffer",
];

/// The folder with the shared library that cargo has built for this test.
fn library_folder() -> PathBuf {
    let folder = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    assert!(folder.join("libtransfer_engine.so").exists(), "{} has no libtransfer_engine.so", folder.display());
    folder
}

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Runs a program of the system; without it, one line says so, and with `CI=true` the test fails.
fn system(command: &mut Command) -> Option<Output> {
    match command.output() {
        Ok(output) => Some(output),
        Err(error) => {
            let name = command.get_program().to_string_lossy().into_owned();
            assert!(std::env::var("CI").as_deref() != Ok("true"), "{name}: {error}");
            eprintln!("skipped: there is no {name} on this machine");
            None
        }
    }
}

/// Compiles a program against the headers and the library, which is found under both its names, with warnings as errors;
/// `None` without a compiler.
fn compile(compiler: &str, standard: &str, source: &str, out: &Path) -> Option<PathBuf> {
    let program = out.join(Path::new(source).file_stem().unwrap());
    for name in ["libtransfer_engine.so", "libmooncake_store.so"] {
        std::os::unix::fs::symlink(library_folder().join("libtransfer_engine.so"), out.join(name)).unwrap();
    }
    let library = if source.starts_with("store") { "-lmooncake_store" } else { "-ltransfer_engine" };
    let output = system(
        Command::new(compiler)
            .args([standard, "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "-D_POSIX_C_SOURCE=200809L"])
            .arg("-I")
            .arg(here("include"))
            .arg(here("tests/c").join(source))
            .arg("-L")
            .arg(out)
            .arg(format!("-Wl,-rpath,{}", out.display()))
            .args([library, "-o"])
            .arg(&program),
    )?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

fn run(compiler: &str, standard: &str, source: &str, says: &str) {
    run_with(compiler, standard, source, says, &[]);
}

fn run_with(compiler: &str, standard: &str, source: &str, says: &str, arguments: &[&str]) {
    let out = tempfile::tempdir().unwrap();
    let Some(program) = compile(compiler, standard, source, out.path()) else { return };
    let mut command = Command::new(program);
    // Cargo's search path would find the library of an earlier build first.
    command.args(arguments).env("MC_LOG_LEVEL", "ERROR").env_remove("LD_LIBRARY_PATH");
    let output = command.output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{:?}\n{stdout}\n{stderr}", output.status);
    assert_eq!(stdout, format!("{says}: ok\n"));
}

#[test]
fn two_engines_write_read_and_notify() {
    run("cc", "-std=c99", "sequence.c", "sequence");
}

#[test]
fn misuse_is_answered_with_errors() {
    run("cc", "-std=c99", "misuse.c", "misuse");
}

/// Runs a program of the store, which gets the address of a master and lends memory to it until it ends.
fn run_store(source: &str, says: &str) {
    let master = Master::start(MasterConfig::embedded()).unwrap();
    let address = master.rpc_address().to_string();
    run_with("cc", "-std=c99", source, says, &[&address]);
    let client = Client::builder().local_hostname("127.0.0.1").master(&address).connect().unwrap();
    let left = client.put("k", b"v", &ReplicateConfig::default());
    assert!(matches!(left, Err(Error::NoSpace(_))), "the program has left the pool");
}

#[test]
fn the_calls_of_the_go_package_work() {
    run_store("store.c", "store");
}

#[test]
fn misuse_of_the_store_is_answered_with_errors() {
    run_store("store_misuse.c", "store_misuse");
}

#[test]
fn the_headers_are_cpp_too() {
    run("c++", "-std=c++11", "header.cpp", "header");
}

#[test]
fn the_library_exports_the_api_and_nothing_else() {
    let library = library_folder().join("libtransfer_engine.so");
    let Some(output) = system(Command::new("nm").args(["-D", "--defined-only", "-P"]).arg(library)) else { return };
    let text = String::from_utf8(output.stdout).unwrap();
    let mut exported: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    exported.sort_unstable();
    let mut api = [&ENGINE[..], &STORE[..]].concat();
    api.sort_unstable();
    assert_eq!(exported, api);
}

#[test]
fn the_headers_declare_what_the_library_exports() {
    for (header, functions) in [("transfer_engine_c.h", &ENGINE[..]), ("store_c.h", &STORE[..])] {
        let text = std::fs::read_to_string(here("include").join(header)).unwrap();
        for function in functions {
            assert!(text.contains(&format!(" {function}(")) || text.contains(&format!("*{function}(")), "{function}");
        }
    }
}
