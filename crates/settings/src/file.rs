//! The settings file: YAML or JSON, nested maps become dotted names.

use serde_json::Value as Json;

use crate::SettingsError;
use crate::setting::Table;
use crate::values::Given;

/// Largest settings file read.
const MAX_FILE: u64 = 1 << 20;

pub(crate) fn read_file(table: &Table, path: &str) -> Result<Given, SettingsError> {
    let failed = |why: String| SettingsError::File { path: path.to_owned(), why };
    let length = std::fs::metadata(path).map_err(|e| failed(e.to_string()))?.len();
    if length > MAX_FILE {
        return Err(failed(format!("{length} bytes are more than a settings file may have ({MAX_FILE})")));
    }
    let text = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
    let tree = match path.rsplit_once('.').map(|(_, extension)| extension) {
        Some("json") => serde_json::from_str(&text).map_err(|e| failed(e.to_string()))?,
        Some("yaml" | "yml") if text.trim().is_empty() => Json::Null,
        Some("yaml" | "yml") => serde_saphyr::from_str(&text).map_err(|e| failed(e.to_string()))?,
        _ => return Err(failed("the name must end in .yaml, .yml or .json".to_owned())),
    };
    let mut given = Given::default();
    match tree {
        Json::Null => {}
        Json::Object(_) => collect(table, path, "", &tree, &mut given)?,
        _ => return Err(failed("the top level must be a map of settings".to_owned())),
    }
    Ok(given)
}

fn collect(table: &Table, path: &str, name: &str, node: &Json, given: &mut Given) -> Result<(), SettingsError> {
    let text = match node {
        Json::Object(map) => {
            for (key, child) in map {
                let dotted = if name.is_empty() { key.clone() } else { format!("{name}.{key}") };
                collect(table, path, &dotted, child, given)?;
            }
            return Ok(());
        }
        Json::Null => String::new(),
        Json::String(text) => text.clone(),
        Json::Bool(_) | Json::Number(_) => node.to_string(),
        Json::Array(items) => items.iter().map(scalar).collect::<Vec<_>>().join(","),
    };
    let setting = table.find(name).ok_or_else(|| table.unknown(&format!("key in {path}"), name, ""))?;
    if matches!(node, Json::Null) {
        return Ok(());
    }
    given.set(setting, &text)
}

fn scalar(node: &Json) -> String {
    match node {
        Json::String(text) => text.clone(),
        other => other.to_string(),
    }
}
