//! From the settings that hold to those that are wanted now, while the process runs.

use crate::explain::shown;
use crate::setting::Table;
use crate::values::Values;

/// One setting that is wanted otherwise.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its name.
    pub name: &'static str,
    /// What holds, as a user would type it.
    pub old: String,
    /// What is wanted.
    pub new: String,
}

/// What a reload can do, and what it cannot.
#[derive(Clone, Debug)]
pub struct Reload {
    /// The values to run with: the old ones with what may change.
    pub values: Values,
    /// What changes.
    pub applied: Vec<Change>,
    /// What would need a restart; it stays as it is.
    pub refused: Vec<Change>,
}

/// Compares what holds with what is wanted.
pub fn reload(table: &Table, old: &Values, wanted: &Values) -> Reload {
    let mut result = Reload { values: old.clone(), applied: Vec::new(), refused: Vec::new() };
    for setting in table.settings() {
        let (Some(before), Some(after)) = (old.get(setting.name), wanted.get(setting.name)) else { continue };
        if before == after {
            continue;
        }
        let change = Change { name: setting.name, old: shown(setting, before), new: shown(setting, after) };
        if setting.live {
            result.values.put(setting.name, after.clone(), wanted.source(setting.name));
            result.applied.push(change);
        } else {
            result.refused.push(change);
        }
    }
    result
}
