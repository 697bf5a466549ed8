//! What a setting is, what holds, and why: for people who ask.

use serde_json::{Value as Json, json};

use crate::setting::{Class, Kind, Setting, Since, Table, Validity};
use crate::values::{Source, Values};
use crate::{SettingsError, Value};

/// A setting and its value.
#[derive(Clone, Debug)]
pub struct Explained {
    /// The row of the table.
    pub setting: &'static Setting,
    /// The value that holds.
    pub value: Value,
    /// Where it came from.
    pub source: Source,
}

/// Everything, or the settings whose name or alias is `name`, or contains it.
///
/// # Errors
/// No such name; the nearest known one is named.
pub fn explain(table: &Table, values: &Values, name: Option<&str>) -> Result<Vec<Explained>, SettingsError> {
    let all = || table.settings().filter_map(|setting| explained(setting, values));
    let Some(name) = name else { return Ok(all().collect()) };
    if let Some(setting) = table.find(name) {
        return Ok(explained(setting, values).into_iter().collect());
    }
    let part = name.replace('-', "_");
    let matching: Vec<Explained> = all().filter(|e| e.setting.name.contains(&part)).collect();
    if matching.is_empty() { Err(table.unknown("setting", name, "")) } else { Ok(matching) }
}

fn explained(setting: &'static Setting, values: &Values) -> Option<Explained> {
    let value = values.get(setting.name)?.clone();
    Some(Explained { setting, value, source: values.source(setting.name) })
}

impl Explained {
    /// The value as a user would type it; not that of a secret.
    pub fn shown(&self) -> String {
        shown(self.setting, &self.value)
    }

    /// Honoured, not built, or without effect.
    pub fn class(&self) -> String {
        match self.setting.class {
            Class::Honoured => "honoured".to_owned(),
            Class::NotBuilt(feature) => format!("refused off its default: {feature} is not built"),
            Class::NoEffect(why) => format!("ignored: {why}"),
        }
    }

    /// The peer's name for it.
    pub fn peer(&self) -> String {
        let names = std::iter::once(self.setting.name).chain(self.setting.aliases.iter().copied());
        match self.setting.since {
            Since::Ours => "none".to_owned(),
            Since::V0_3_13 => names.map(|n| format!("--{n}")).collect::<Vec<_>>().join(", "),
            Since::V0_3_14 => names.map(|n| format!("--{n} (since 0.3.14)")).collect::<Vec<_>>().join(", "),
        }
    }

    /// All of it as JSON; whoever shows it to people takes it from there.
    pub fn json(&self) -> Json {
        json!({
            "name": self.setting.name, "aliases": self.setting.aliases, "value": self.shown(),
            "source": self.source.to_string(), "default": self.setting.default, "legal": legal(self.setting),
            "meaning": self.setting.doc, "peer": self.peer(), "class": self.class(), "live": self.setting.live,
            "environment": self.setting.env,
        })
    }
}

/// A value as a user would type it; of a secret only whether there is one.
pub(crate) fn shown(setting: &Setting, value: &Value) -> String {
    match value {
        Value::Text(text) if setting.secret && !text.is_empty() => "(secret)".to_owned(),
        other => other.to_string(),
    }
}

fn legal(setting: &Setting) -> String {
    let kind = match setting.kind {
        Kind::Duration => "milliseconds, or a number with ms, s, m or h",
        Kind::Bytes => "bytes, or a number with KiB, MiB, GiB or TiB",
        Kind::List => "texts with commas between them",
        Kind::Text => "text",
        Kind::Bool => "true or false",
        Kind::F64 => "number",
        _ => "whole number",
    };
    match setting.validity {
        Validity::Any => kind.to_owned(),
        Validity::Range(low, high) => format!("{kind}, {low} to {high}"),
        Validity::Ratio(low, high) => format!("{kind}, {low} to {high}"),
        Validity::OneOf(legal) => legal.join(", "),
    }
}
