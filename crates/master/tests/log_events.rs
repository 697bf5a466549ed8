//! The table of log lines in docs/admin.md has every event that the master writes: operators search for them by name.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// All Rust sources below a folder.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn every_event_is_in_the_table() {
    let home = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for name in ["master", "admin", "catalog", "rpc", "secure"] {
        sources(&home.join("..").join(name).join("src"), &mut files);
    }
    let mut events = BTreeSet::new();
    for file in files {
        let text = fs::read_to_string(file).unwrap();
        events.extend(text.split("event = \"").skip(1).filter_map(|rest| rest.split('"').next().map(str::to_owned)));
    }
    assert!(events.contains("master_starts") && events.len() > 20, "{events:?}");
    let page = fs::read_to_string(home.join("../../docs/admin.md")).unwrap();
    let missing: Vec<_> = events.iter().filter(|event| !page.contains(&format!("`{event}`"))).collect();
    assert!(missing.is_empty(), "docs/admin.md does not tell of {missing:?}");
}
