//! From what was given to what holds.

use std::collections::BTreeMap;

use crate::SettingsError;
use crate::explain::shown;
use crate::file::read_file;
use crate::setting::{Class, Kind, Setting, Table};
use crate::value::Value;

/// Where a value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// An environment variable.
    Environment,
    /// The settings file.
    File,
    /// An argument.
    Argument,
    /// Somebody set it while the process ran.
    Running,
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Source::Default => "default",
            Source::Environment => "environment",
            Source::File => "file",
            Source::Argument => "flag",
            Source::Running => "http",
        })
    }
}

/// Texts that were given for settings, by name.
#[derive(Clone, Debug, Default)]
pub struct Given {
    texts: BTreeMap<&'static str, String>,
}

impl Given {
    /// Sets a setting as if it had been given as an argument. A list grows, anything else is replaced.
    ///
    /// # Errors
    /// The text is not legal for the setting.
    pub fn set(&mut self, setting: &'static Setting, text: &str) -> Result<(), SettingsError> {
        setting.parse(text)?;
        match self.texts.get_mut(setting.name) {
            Some(old) if setting.kind == Kind::List => {
                old.push(',');
                old.push_str(text);
            }
            _ => {
                self.texts.insert(setting.name, text.to_owned());
            }
        }
        Ok(())
    }

    /// The text given for a setting.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.texts.get(name).map(String::as_str)
    }
}

/// The value of every setting of a table.
#[derive(Clone, Debug)]
pub struct Values {
    values: BTreeMap<&'static str, (Value, Source)>,
}

impl Table {
    /// The value of every setting: argument, else file (`config_path`), else environment, else default.
    /// `environment` looks a variable up.
    ///
    /// # Errors
    /// The file cannot be read or names an unknown key; a value is illegal; a feature that is not built is asked for.
    pub fn resolve(
        &self,
        arguments: Given,
        environment: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Values, SettingsError> {
        let file = match arguments.get("config_path").filter(|path| !path.is_empty()) {
            Some(path) => read_file(self, path)?,
            None => Given::default(),
        };
        let mut values = BTreeMap::new();
        for setting in self.settings() {
            let from_environment = setting.env.and_then(environment).filter(|text| !text.is_empty());
            let (text, source) = match (arguments.get(setting.name), file.get(setting.name), &from_environment) {
                (Some(text), _, _) => (text, Source::Argument),
                (None, Some(text), _) => (text, Source::File),
                (None, None, Some(text)) => (text.as_str(), Source::Environment),
                (None, None, None) => (setting.default, Source::Default),
            };
            let value = setting.parse(text)?;
            check_built(setting, &value, text)?;
            values.insert(setting.name, (value, source));
        }
        Ok(Values { values })
    }
}

/// Reading values. The name must be one of the table's and the method must fit its type: a mistake there is a mistake
/// of the program, found by the first test that reads the setting, hence a panic.
impl Values {
    fn value(&self, name: &str) -> &Value {
        match self.values.get(name) {
            Some((value, _)) => value,
            None => panic!("no setting is named {name}"),
        }
    }

    /// Where the value came from; `Default` for a name that is not in the table.
    pub fn source(&self, name: &str) -> Source {
        self.values.get(name).map_or(Source::Default, |(_, source)| *source)
    }

    /// Of a `Bool`.
    pub fn flag(&self, name: &str) -> bool {
        match self.value(name) {
            Value::Bool(value) => *value,
            other => panic!("setting {name} is {other:?}, not a bool"),
        }
    }

    /// Of a whole number, `Duration` (milliseconds) or `Bytes`; a negative one reads as 0.
    pub fn number(&self, name: &str) -> u64 {
        u64::try_from(self.signed(name)).unwrap_or(0)
    }

    /// Of a whole number.
    pub fn signed(&self, name: &str) -> i128 {
        match self.value(name) {
            Value::Number(value) => *value,
            other => panic!("setting {name} is {other:?}, not a number"),
        }
    }

    /// Of an `F64`.
    pub fn double(&self, name: &str) -> f64 {
        match self.value(name) {
            Value::Double(value) => *value,
            other => panic!("setting {name} is {other:?}, not a double"),
        }
    }

    /// Of a `Text`.
    pub fn text(&self, name: &str) -> &str {
        match self.value(name) {
            Value::Text(value) => value,
            other => panic!("setting {name} is {other:?}, not a text"),
        }
    }

    /// Of a `List`.
    pub fn list(&self, name: &str) -> &[String] {
        match self.value(name) {
            Value::List(value) => value,
            other => panic!("setting {name} is {other:?}, not a list"),
        }
    }

    /// The value of a setting of any type; `None` for a name that is not in the table.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.values.get(name).map(|(value, _)| value)
    }

    pub(crate) fn put(&mut self, name: &'static str, value: Value, source: Source) {
        self.values.insert(name, (value, source));
    }

    /// These values with others for some settings, given as text while the process runs.
    ///
    /// # Errors
    /// A name that is not in the table, a value that is not legal, a feature that is not built.
    pub fn with(&self, table: &Table, changes: &[(String, String)]) -> Result<Values, SettingsError> {
        let mut values = self.clone();
        for (name, text) in changes {
            let setting = table.find(name).ok_or_else(|| table.unknown("setting", name, ""))?;
            let value = setting.parse(text)?;
            check_built(setting, &value, text)?;
            values.put(setting.name, value, Source::Running);
        }
        Ok(values)
    }

    /// `name=value` of every setting that is not at its default, for the line a daemon logs at start.
    pub fn changed(&self, table: &Table) -> String {
        let changed = table.settings().filter(|setting| self.source(setting.name) != Source::Default);
        let shown = changed.filter_map(|setting| {
            let text = shown(setting, self.get(setting.name)?);
            let quoted = matches!(setting.kind, Kind::Text);
            Some(if quoted { format!("{}={text:?}", setting.name) } else { format!("{}={text}", setting.name) })
        });
        shown.collect::<Vec<_>>().join(" ")
    }
}

/// Refuses a setting off its default whose feature is not built.
fn check_built(setting: &Setting, value: &Value, text: &str) -> Result<(), SettingsError> {
    let Class::NotBuilt(feature) = setting.class else { return Ok(()) };
    if *value == setting.parse(setting.default)? {
        return Ok(());
    }
    Err(SettingsError::NotBuilt {
        name: setting.name,
        text: text.to_owned(),
        feature,
        default: if setting.default.is_empty() { "empty" } else { setting.default },
    })
}
