//! The library as C and C++ programs see it: compiled by the system's compilers, linked with the shared library.
#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Every function of the header.
const API: [&str; 27] = [
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

/// Compiles a program against the header and the library, with warnings as errors; `None` without a compiler.
fn compile(compiler: &str, standard: &str, source: &str, out: &Path) -> Option<PathBuf> {
    let program = out.join(Path::new(source).file_stem().unwrap());
    let folder = library_folder();
    let output = system(
        Command::new(compiler)
            .args([standard, "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-pedantic", "-D_POSIX_C_SOURCE=200809L"])
            .arg("-I")
            .arg(here("include"))
            .arg(here("tests/c").join(source))
            .arg("-L")
            .arg(&folder)
            .arg(format!("-Wl,-rpath,{}", folder.display()))
            .args(["-ltransfer_engine", "-o"])
            .arg(&program),
    )?;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}

fn run(compiler: &str, standard: &str, source: &str, says: &str) {
    let out = tempfile::tempdir().unwrap();
    let Some(program) = compile(compiler, standard, source, out.path()) else { return };
    let output = Command::new(program).env("MC_LOG_LEVEL", "ERROR").output().unwrap();
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

#[test]
fn the_header_is_cpp_too() {
    run("c++", "-std=c++11", "header.cpp", "header");
}

#[test]
fn the_library_exports_the_api_and_nothing_else() {
    let library = library_folder().join("libtransfer_engine.so");
    let Some(output) = system(Command::new("nm").args(["-D", "--defined-only", "-P"]).arg(library)) else { return };
    let text = String::from_utf8(output.stdout).unwrap();
    let mut exported: Vec<&str> = text.lines().filter_map(|line| line.split_whitespace().next()).collect();
    exported.sort_unstable();
    assert_eq!(exported, API);
}

#[test]
fn the_header_declares_what_the_library_exports() {
    let header = std::fs::read_to_string(here("include/transfer_engine_c.h")).unwrap();
    for function in API {
        assert!(header.contains(&format!(" {function}(")) || header.contains(&format!("*{function}(")), "{function}");
    }
}
