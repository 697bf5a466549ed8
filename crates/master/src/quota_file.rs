//! The file in which policies of tenants are kept, in the peer's form:
//!
//! ```yaml
//! version: 1
//! tenants:
//!   - name: "alice"
//!     quota: 8MB
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use yb_catalog::is_valid_tenant_name;

/// Names and bytes.
pub(crate) type Policies = BTreeMap<String, u64>;

/// Largest file that is read.
const MAX_FILE: u64 = 16 << 20;

/// The policies cannot be read or kept.
#[derive(Debug, thiserror::Error)]
pub enum QuotaFileError {
    /// Reading or writing failed.
    #[error("tenant quotas {path}: {source} (setting tenant_quota_connector_uri)")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The content is not what it should be.
    #[error("tenant quotas {path}: {why}")]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
}

/// What tells one state of a file from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// The file.
#[derive(Clone, Debug)]
pub(crate) struct QuotaFile {
    path: PathBuf,
}

impl QuotaFile {
    pub(crate) fn new(path: &Path) -> QuotaFile {
        QuotaFile { path: path.to_owned() }
    }

    fn io(&self, source: io::Error) -> QuotaFileError {
        QuotaFileError::Io { path: self.path.clone(), source }
    }

    /// Which state of the file this is; `None` while there is none.
    pub(crate) fn stamp(&self) -> Option<Stamp> {
        let found = fs::metadata(&self.path).ok()?;
        Some(Stamp { inode: found.ino(), bytes: found.len(), modified: (found.mtime(), found.mtime_nsec()) })
    }

    pub(crate) fn load(&self) -> Result<Policies, QuotaFileError> {
        let found = fs::metadata(&self.path).map_err(|error| self.io(error))?;
        if !found.is_file() {
            // Reading a pipe would wait for somebody who writes.
            return Err(QuotaFileError::Content {
                path: self.path.clone(),
                why: "this is no ordinary file".to_owned(),
            });
        }
        let bytes = found.len();
        if bytes > MAX_FILE {
            let why = format!("{bytes} bytes are more than such a file may have ({MAX_FILE})");
            return Err(QuotaFileError::Content { path: self.path.clone(), why });
        }
        let text = fs::read_to_string(&self.path).map_err(|error| self.io(error))?;
        parse(&text).map_err(|why| QuotaFileError::Content { path: self.path.clone(), why })
    }

    /// Replaces the file as a whole: whoever reads it meets the old or the new one, also after a crash.
    pub(crate) fn save(&self, policies: &Policies) -> Result<(), QuotaFileError> {
        let mut aside = self.path.clone().into_os_string();
        aside.push(format!(".{}.tmp", std::process::id()));
        let written = write_and_move(Path::new(&aside), &self.path, &render(policies));
        written.map_err(|error| {
            let _ = fs::remove_file(&aside);
            self.io(error)
        })
    }
}

fn write_and_move(aside: &Path, path: &Path, text: &str) -> io::Result<()> {
    let mut file = File::create(aside)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(aside, path)?;
    let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    File::open(directory)?.sync_all()
}

/// As the peer writes it: sorted by name, plain numbers, names in quotes.
fn render(policies: &Policies) -> String {
    let mut text = String::from("version: 1\n\ntenants:");
    if policies.is_empty() {
        text.push_str(" []\n");
        return text;
    }
    text.push('\n');
    for (name, quota) in policies {
        let quoted = name.replace('\\', "\\\\").replace('"', "\\\"");
        let _ = write!(text, "  - name: \"{quoted}\"\n    quota: {quota}\n");
    }
    text
}

fn parse(text: &str) -> Result<Policies, String> {
    let tree: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    if tree.get("version").and_then(Value::as_u64) != Some(1) {
        return Err("`version: 1` is missing".to_owned());
    }
    only(&tree, &["version", "tenants"])?;
    let tenants = match tree.get("tenants") {
        None | Some(Value::Null) => return Ok(Policies::new()),
        Some(Value::Array(tenants)) => tenants,
        Some(_) => return Err("`tenants` must be a list".to_owned()),
    };
    let mut policies = Policies::new();
    for (at, tenant) in (1..).zip(tenants) {
        let (name, quota) = item(tenant).map_err(|why| format!("tenant {at}: {why}"))?;
        if policies.insert(name.clone(), quota).is_some() {
            return Err(format!("tenant {at}: the name {name:?} comes twice"));
        }
    }
    Ok(policies)
}

/// Refuses names that mean nothing: a slip in one would take every quota away.
fn only(map: &Value, known: &[&str]) -> Result<(), String> {
    let names = map.as_object().into_iter().flatten().map(|(name, _)| name);
    match names.into_iter().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(format!("`{name}` is not known here, only {}", known.join(", "))),
        None => Ok(()),
    }
}

fn item(tenant: &Value) -> Result<(String, u64), String> {
    only(tenant, &["name", "quota"])?;
    let name = match tenant.get("name") {
        Some(Value::String(name)) => name.clone(),
        Some(Value::Number(number)) => number.to_string(),
        _ => return Err("`name` is missing or no text".to_owned()),
    };
    if !is_valid_tenant_name(name.as_bytes()) {
        return Err(format!("{name:?} cannot be a tenant's name"));
    }
    let quota = match tenant.get("quota") {
        Some(Value::Number(number)) => number.as_u64(),
        Some(Value::String(text)) => size(text),
        _ => None,
    };
    let quota = quota.filter(|quota| (1..=i64::MAX as u64).contains(quota));
    let quota = quota.ok_or("`quota` must be bytes in [1, 2^63 - 1], or a number with B, KB, MB, GB or TB")?;
    Ok((name, quota))
}

/// A whole number with a unit of 1024.
fn size(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim().to_ascii_uppercase().as_str() {
        "" | "B" => 0,
        "KB" => 10,
        "MB" => 20,
        "GB" => 30,
        "TB" => 40,
        _ => return None,
    };
    number.parse::<u64>().ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policies(all: &[(&str, u64)]) -> Policies {
        all.iter().map(|(name, quota)| ((*name).to_owned(), *quota)).collect()
    }

    #[test]
    fn reads_what_people_write() {
        let text = "# ours\nversion: 1\ntenants:\n  - name: alice # a\n    quota: 8MB\n  - {name: 'b c', quota: 100}\n  \
                    - name: \"c\\\"d\"\n    quota: 2 TB\n";
        assert_eq!(parse(text), Ok(policies(&[("alice", 8 << 20), ("b c", 100), ("c\"d", 2 << 40)])));
        assert_eq!(parse("version: 1\n"), Ok(Policies::new()));
        assert_eq!(parse("version: 1\ntenants: []\n"), Ok(Policies::new()));
    }

    #[test]
    fn says_what_is_wrong() {
        for (text, why) in [
            ("tenants: []", "version"),
            ("version: 2", "version"),
            ("version: 1\ntenants: 7", "list"),
            ("version: 1\ntenant: [{name: a, quota: 1}]", "`tenant` is not known"),
            ("version: 1\ntenants: [{name: a, quota: 1, qouta: 2}]", "tenant 1: `qouta` is not known"),
            ("version: 1\ntenants: [{name: a}]", "tenant 1: `quota`"),
            ("version: 1\ntenants: [{name: a, quota: 0}]", "tenant 1: `quota`"),
            ("version: 1\ntenants: [{name: a, quota: 1XB}]", "tenant 1: `quota`"),
            ("version: 1\ntenants: [{name: a, quota: 9999999TB}]", "tenant 1: `quota`"),
            ("version: 1\ntenants: [{name: a, quota: 1}, {name: _b, quota: 1}]", "tenant 2"),
            ("version: 1\ntenants: [{name: a, quota: 1}, {name: a, quota: 1}]", "twice"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(parse(": : [").is_err());
    }

    #[test]
    fn what_is_written_is_read_again() {
        for all in [policies(&[]), policies(&[("a\\\"b", 1), ("default", u64::MAX >> 1), ("é #", 5)])] {
            assert_eq!(parse(&render(&all)), Ok(all));
        }
        assert_eq!(
            render(&policies(&[("alice", 8_388_608)])),
            "version: 1\n\ntenants:\n  - name: \"alice\"\n    quota: 8388608\n",
            "as the peer"
        );
    }
}
