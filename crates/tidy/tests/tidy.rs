//! Sizes, islands of unsafe code, purity of crates, words that must not be left behind.

use std::collections::{BTreeMap, BTreeSet};

use yb_tidy::{metadata, text, tracked};

/// Crates that may hold `unsafe`: memory, io_uring, verbs, and the FFI edge (where addresses and pointers of callers in
/// other languages come in: the classic API, its C library, the Python module).
const ISLANDS: &[&str] = &[
    "crates/mem/",
    "crates/uring/",
    "crates/verbs/",
    "crates/cuda/",
    "crates/classic/",
    "crates/capi/",
    "crates/python/",
];

/// Crates without I/O, clock or threads; they may depend on each other only.
const PURE: &[&str] = &[
    "yb-types",
    "yb-pack",
    "yb-pack-derive",
    "yb-wire",
    "yb-alloc",
    "yb-evict",
    "yb-jobs",
    "yb-journal",
    "yb-catalog",
    "yb-settings",
    "yb-sched",
    "yb-history",
];

const LINES_MAX: usize = 800;

#[test]
fn source_files_are_short() {
    let mut long = Vec::new();
    for suffix in [".rs", ".py", ".sh"] {
        for path in tracked(suffix).expect("git ls-files") {
            let lines = text(&path).map_or(0, |t| t.lines().count());
            if lines > LINES_MAX {
                long.push(format!("{}: {lines} lines", path.display()));
            }
        }
    }
    assert!(long.is_empty(), "files over {LINES_MAX} lines, one noun each?\n{}", long.join("\n"));
}

#[test]
fn unsafe_code_stays_on_its_islands() {
    let mut wrong = Vec::new();
    for path in tracked(".rs").expect("git ls-files") {
        let name = path.to_string_lossy().into_owned();
        if ISLANDS.iter().any(|island| name.starts_with(island)) {
            continue;
        }
        let is_root = name.ends_with("src/lib.rs") || name.ends_with("src/main.rs");
        if is_root && text(&path).is_some_and(|t| !t.contains("#![forbid(unsafe_code)]")) {
            wrong.push(name);
        }
    }
    assert!(wrong.is_empty(), "crate roots without #![forbid(unsafe_code)]:\n{}", wrong.join("\n"));
}

#[test]
fn pure_crates_depend_on_pure_crates_only() {
    let metadata = metadata().expect("cargo metadata");
    let packages = metadata["packages"].as_array().expect("packages");
    let mut edges: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let dependencies = package["dependencies"].as_array().into_iter().flatten();
        let ours = dependencies
            .filter(|d| d["kind"].is_null())
            .filter_map(|d| d["name"].as_str())
            .filter(|n| n.starts_with("yb-"));
        edges.insert(name, ours.collect());
    }
    for pure in PURE {
        let impure: Vec<_> = edges[pure].iter().filter(|d| !PURE.contains(d)).collect();
        assert!(impure.is_empty(), "{pure} is pure but depends on {impure:?}");
    }
}

#[test]
fn nothing_unfinished_is_left() {
    // Split so that this file does not find itself.
    let marks = [concat!("FIX", "ME"), concat!("XX", "X "), concat!("TO", "DO"), concat!("unimple", "mented!(")];
    let mut found = Vec::new();
    for suffix in [".rs", ".py", ".sh", ".toml", ".md", "Makefile"] {
        for path in tracked(suffix).expect("git ls-files") {
            for (number, line) in text(&path).unwrap_or_default().lines().enumerate() {
                if marks.iter().any(|m| line.contains(m)) {
                    found.push(format!("{}:{}: {line}", path.display(), number + 1));
                }
            }
        }
    }
    assert!(found.is_empty(), "unfinished marks:\n{}", found.join("\n"));
}
