//! The settings file: YAML or JSON, nested maps become dotted names.

use serde_json::Value as Json;

use crate::SettingsError;
use crate::setting::{Kind, Table};
use crate::values::Given;

/// Largest settings file read.
const MAX_FILE: u64 = 1 << 20;

pub(crate) fn read_file(table: &Table, path: &str) -> Result<Given, SettingsError> {
    let failed = |why: String| SettingsError::File { path: path.to_owned(), why };
    let text = bounded(path).map_err(failed)?;
    let tree = match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("json") => serde_json::from_str(&text).map_err(|e| failed(e.to_string()))?,
        Some("yaml" | "yml") if text.trim().is_empty() => Json::Null,
        Some("yaml" | "yml") => serde_saphyr::from_str(&text).map_err(|e| failed(e.to_string()))?,
        _ => return Err(failed("the name must end in .yaml, .yml or .json".to_owned())),
    };
    let mut given = Given::default();
    match tree {
        Json::Null => {}
        Json::Object(_) => collect(&File { table, path, text: &text }, "", &tree, &mut given)?,
        _ => return Err(failed("the top level must be a map of settings".to_owned())),
    }
    Ok(given)
}

/// The text of an ordinary file that is no larger than it may be.
pub(crate) fn bounded(path: &str) -> Result<String, String> {
    let found = std::fs::metadata(path).map_err(|e| e.to_string())?;
    if !found.is_file() {
        // A pipe would wait for somebody who writes, a device may never end.
        return Err("this is no ordinary file".to_owned());
    }
    if found.len() > MAX_FILE {
        return Err(format!("{} bytes are more than a settings file may have ({MAX_FILE})", found.len()));
    }
    std::fs::read_to_string(path).map_err(|e| e.to_string())
}

/// The file that is read.
struct File<'a> {
    table: &'a Table,
    path: &'a str,
    text: &'a str,
}

fn collect(file: &File, name: &str, node: &Json, given: &mut Given) -> Result<(), SettingsError> {
    if let Json::Object(map) = node {
        for (key, child) in map {
            let dotted = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
            collect(file, &dotted, child, given)?;
        }
        return Ok(());
    }
    let unknown = || file.table.unknown(&format!("key in {}", file.path), name, "");
    let setting = file.table.find(name).ok_or_else(unknown)?;
    let refused = |why: &str| SettingsError::File { path: file.path.to_owned(), why: format!("{name}: {why}") };
    let text = match node {
        Json::Null => return Ok(()),
        Json::String(text) => text.clone(),
        Json::Number(_) if setting.kind == Kind::Text && !file.has_as_written(name, node) => {
            return Err(refused("a text that looks like a number must stand in quotes"));
        }
        Json::Array(_) if setting.kind != Kind::List => return Err(refused("one value is wanted, not a list")),
        Json::Array(items) => items.iter().map(scalar).collect::<Vec<_>>().join(","),
        other => other.to_string(),
    };
    given.set(setting, &text)
}

impl File<'_> {
    /// Whether the file has this number just so after its name: `0123` is read as 123, and a text would be another one.
    fn has_as_written(&self, name: &str, number: &Json) -> bool {
        let last = name.rsplit('.').next().unwrap_or(name);
        let number = number.to_string();
        self.text.lines().any(|line| {
            let Some((key, value)) = line.split_once(':') else { return false };
            let value = value.split(" #").next().unwrap_or(value);
            key.trim().trim_matches(['"', '\'']) == last && value.trim().trim_end_matches(',') == number
        })
    }
}

fn scalar(node: &Json) -> String {
    match node {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Given, SettingsError> {
        let file = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        std::fs::write(file.path(), text).unwrap();
        read_file(&crate::master::MASTER, file.path().to_str().unwrap())
    }

    #[test]
    fn a_text_is_the_text_that_stands_there() {
        assert!(read("cluster_id: 123").is_ok());
        assert!(read("cluster_id: \"0123\"").is_ok());
        for text in
            ["cluster_id: 0123", "cluster_id: 1.10", "cluster_id: 1e3", "cluster_id: 0x1F", "{cluster_id: 0123}"]
        {
            let error = read(text).unwrap_err().to_string();
            assert!(
                error.contains("cluster_id: a text that looks like a number must stand in quotes"),
                "{text}: {error}"
            );
        }
    }

    #[test]
    fn a_list_is_no_value() {
        assert!(read("eviction_ratio: [1]").unwrap_err().to_string().contains("one value is wanted"));
    }

    #[test]
    fn only_ordinary_files_are_read() {
        let table = &crate::master::MASTER;
        for path in ["/dev/zero", "/tmp"] {
            assert!(read_file(table, path).unwrap_err().to_string().contains("no ordinary file"));
        }
    }
}
