//! Checks of the house rules that no compiler makes; the checks themselves are this crate's tests.
#![forbid(unsafe_code)]

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// What `cargo metadata` says of the workspace and all its dependencies.
///
/// # Errors
/// When cargo cannot be run or prints something that is not JSON.
pub fn metadata() -> io::Result<serde_json::Value> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version=1", "--locked", "--offline", "--filter-platform=x86_64-unknown-linux-gnu"])
        .current_dir(root())
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    serde_json::from_slice(&output.stdout).map_err(io::Error::other)
}

/// The files that git tracks and that end in `suffix`, relative to the root.
///
/// # Errors
/// When git cannot be run.
pub fn tracked(suffix: &str) -> io::Result<Vec<PathBuf>> {
    let output = Command::new("git").args(["ls-files", "-z"]).current_dir(root()).output()?;
    let names = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(names.split('\0').filter(|name| !name.is_empty() && name.ends_with(suffix)).map(PathBuf::from).collect())
}

/// The text of a tracked file, `None` if it was deleted in the work tree.
pub fn text(path: &Path) -> Option<String> {
    fs::read_to_string(root().join(path)).ok()
}
