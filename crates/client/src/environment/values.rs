//! Reading values: of variables, and of the configuration file of the peer.

use std::ops::RangeInclusive;

use serde_json::{Map, Value};

use crate::{ClientConfig, Error, Result};

/// Gives the value of an environment variable.
pub type Lookup<'a> = dyn Fn(&str) -> Option<String> + 'a;

/// Bytes lent when nothing says how many, as the peer has it.
const SEGMENT: u64 = 3_355_443_200;
/// Bytes of the local buffer when nothing says how many, as the peer has it.
const LOCAL_BUFFER: u64 = 1 << 30;

/// Reads variables. Blank ones count as not set.
pub(super) struct Reader<'r, 'a>(pub(super) &'r Lookup<'a>);

impl Reader<'_, '_> {
    pub(super) fn text(&self, name: &str) -> Option<String> {
        (self.0)(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty())
    }

    fn read<T>(&self, name: &str, wanted: &str, read: impl FnOnce(&str) -> Option<T>) -> Result<Option<T>> {
        let Some(text) = self.text(name) else { return Ok(None) };
        let wrong = || Error::invalid(format!("{name}={text} in the environment is not {wanted}"));
        read(&text).map(Some).ok_or_else(wrong)
    }

    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>> {
        self.read(name, "true or false", truth)
    }

    /// Set, and not to a plain "no".
    pub(super) fn flag_if_set(&self, name: &str) -> bool {
        (self.0)(name).is_some_and(|text| truth(text.trim()) != Some(false))
    }

    pub(super) fn number(&self, name: &str, range: RangeInclusive<u64>) -> Result<Option<u64>> {
        let wanted = format!("a number from {} to {}", range.start(), range.end());
        self.read(name, &wanted, |text| text.parse().ok().filter(|number| range.contains(number)))
    }

    pub(super) fn parsed<T: std::str::FromStr>(&self, name: &str, wanted: &str) -> Result<Option<T>> {
        self.read(name, wanted, |text| text.parse().ok())
    }

    pub(super) fn signed(&self, name: &str) -> Result<Option<i64>> {
        self.read(name, "a number", |text| text.parse().ok())
    }

    pub(super) fn size(&self, name: &str) -> Result<Option<u64>> {
        self.read(name, "a size such as 512MB", size)
    }
}

fn truth(text: &str) -> Option<bool> {
    match text.to_lowercase().as_str() {
        "1" | "true" | "yes" | "on" | "enable" => Some(true),
        "0" | "false" | "no" | "off" | "disable" => Some(false),
        _ => None,
    }
}

/// Bytes of `4096`, `16MB`, `1.5 gb`.
fn size(text: &str) -> Option<u64> {
    let text = text.trim().to_lowercase();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let shift = match unit.trim() {
        "" | "b" => 0,
        "k" | "kb" => 10,
        "m" | "mb" => 20,
        "g" | "gb" => 30,
        "t" | "tb" => 40,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(1 << shift);
    }
    let bytes = number.parse::<f64>().ok()? * (1_u64 << shift) as f64;
    (bytes.is_finite() && bytes < u64::MAX as f64).then_some(bytes as u64)
}

/// Where a field comes from.
trait Fields {
    fn text(&self, field: &'static str) -> Result<Option<String>>;
    /// How the field is called in an error.
    fn name(&self, field: &'static str) -> String;
}

struct File(Map<String, Value>);

impl Fields for File {
    fn text(&self, field: &'static str) -> Result<Option<String>> {
        match self.0.get(field) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other @ (Value::Number(_) | Value::Bool(_))) => Ok(Some(other.to_string())),
            Some(other) => Err(Error::invalid(format!("{}: {other} makes no sense", self.name(field)))),
        }
    }

    fn name(&self, field: &'static str) -> String {
        format!("field {field:?} of the file that MOONCAKE_CONFIG_PATH names")
    }
}

struct Variables<'r, 'a>(&'r Lookup<'a>);

/// The variable of each field.
const NAMES: [(&str, &str); 11] = [
    ("local_hostname", "MOONCAKE_LOCAL_HOSTNAME"),
    ("metadata_server", "MOONCAKE_TE_META_DATA_SERVER"),
    ("master_server_address", "MOONCAKE_MASTER"),
    ("global_segment_size", "MOONCAKE_GLOBAL_SEGMENT_SIZE"),
    ("local_buffer_size", "MOONCAKE_LOCAL_BUFFER_SIZE"),
    ("protocol", "MOONCAKE_PROTOCOL"),
    ("device_name", "MOONCAKE_DEVICE"),
    ("tenant_id", "MOONCAKE_TENANT_ID"),
    ("enable_ssd_offload", "MOONCAKE_OFFLOAD_ENABLED"),
    ("enable_client_http_server", "MOONCAKE_ENABLE_CLIENT_HTTP_SERVER"),
    ("client_http_port", "MOONCAKE_CLIENT_HTTP_PORT"),
];

impl Fields for Variables<'_, '_> {
    fn text(&self, field: &'static str) -> Result<Option<String>> {
        Ok(Reader(self.0).text(&self.name(field)))
    }

    fn name(&self, field: &'static str) -> String {
        NAMES.iter().find(|(name, _)| *name == field).map_or(field, |(_, variable)| variable).to_owned()
    }
}

pub(super) fn from_file(config: ClientConfig, path: &str) -> Result<ClientConfig> {
    let wrong = |reason: &dyn std::fmt::Display| Error::invalid(format!("MOONCAKE_CONFIG_PATH {path}: {reason}"));
    let text = std::fs::read_to_string(path).map_err(|error| wrong(&error))?;
    let fields: Map<String, Value> = serde_json::from_str(&text).map_err(|error| wrong(&error))?;
    report_misspelt(&fields, path);
    let file = File(fields);
    for required in ["local_hostname", "metadata_server", "master_server_address"] {
        if file.text(required)?.is_none() {
            return Err(Error::invalid(format!("Missing required config field: {required}")));
        }
    }
    fill(config, &file)
}

/// A field that nothing reads is for another program, unless it looks like one of ours that is not there.
fn report_misspelt(fields: &Map<String, Value>, path: &str) {
    let absent: Vec<&str> = NAMES.iter().map(|(name, _)| *name).filter(|name| !fields.contains_key(*name)).collect();
    let known = |field: &str| NAMES.iter().any(|(name, _)| *name == field);
    for field in fields.keys().filter(|field| !known(field)) {
        if let Some(meant) = yb_settings::nearest(field, absent.iter().copied()) {
            tracing::warn!(field, path, "this field of the configuration does nothing; did you mean {meant}?");
        }
    }
}

pub(super) fn from_variables(config: ClientConfig, lookup: &Lookup<'_>) -> Result<ClientConfig> {
    if Reader(lookup).text("MOONCAKE_MASTER").is_none() {
        let text = "neither MOONCAKE_CONFIG_PATH nor MOONCAKE_MASTER is set in the environment";
        return Err(Error::invalid(text));
    }
    fill(config, &Variables(lookup))
}

fn fill(usual: ClientConfig, fields: &impl Fields) -> Result<ClientConfig> {
    let or = |field, default: &str| Ok::<String, Error>(fields.text(field)?.unwrap_or_else(|| default.to_owned()));
    let wrong =
        |field, text: &str, wanted: &str| Error::invalid(format!("{} {text:?} is not {wanted}", fields.name(field)));
    let bytes = |field, default| match fields.text(field)? {
        Some(text) => size(&text).ok_or_else(|| wrong(field, &text, "a size")),
        None => Ok(default),
    };
    let flag = |field| match fields.text(field)?.filter(|text| !text.trim().is_empty()) {
        Some(text) => truth(text.trim()).ok_or_else(|| wrong(field, &text, "true or false")),
        None => Ok(false),
    };
    if flag("enable_ssd_offload")? {
        return Err(Error::invalid(format!("{}: offload to a disk is not built", fields.name("enable_ssd_offload"))));
    }
    let page = if flag("enable_client_http_server")? {
        let text = or("client_http_port", "9300")?;
        let port: u16 = text.trim().parse().map_err(|_| wrong("client_http_port", &text, "a port"))?;
        Some((usual.page_host, port).into())
    } else {
        None
    };
    let config = ClientConfig {
        local_hostname: or("local_hostname", "localhost")?,
        metadata_server: or("metadata_server", crate::P2P_HANDSHAKE)?,
        master_address: or("master_server_address", "")?,
        global_segment_size: bytes("global_segment_size", SEGMENT)?,
        local_buffer_size: bytes("local_buffer_size", LOCAL_BUFFER)?,
        protocol: or("protocol", "tcp")?.trim().to_lowercase(),
        device_names: or("device_name", "")?,
        tenant_id: or("tenant_id", yb_types::DEFAULT_TENANT)?,
        page,
        ..usual
    };
    config.check(None)?;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_truths() {
        assert_eq!(size("4096"), Some(4096));
        assert_eq!(size("1.5 GB"), Some(3 << 29));
        assert_eq!(size("2kb"), Some(2048));
        for wrong in ["", "MB", "-1", "5%", "1e3", "1..5", "99999999999tb"] {
            assert_eq!(size(wrong), None, "{wrong}");
        }
        assert_eq!((truth("On"), truth("disable"), truth("maybe")), (Some(true), Some(false), None));
    }

    #[test]
    fn a_file_is_checked_field_by_field() {
        let folder = tempfile::tempdir().unwrap();
        let load = |text: &str| {
            let path = folder.path().join("config.json");
            std::fs::write(&path, text).unwrap();
            let path = path.to_str().unwrap().to_owned();
            ClientConfig::load(&|name| (name == "MOONCAKE_CONFIG_PATH").then(|| path.clone()))
        };
        let good = r#"{"local_hostname": "10.0.0.5", "metadata_server": "P2PHANDSHAKE", "master_server_address": "m:50051",
            "global_segment_size": "1.5GB", "local_buffer_size": 4096, "protocol": " TCP ", "tenant_id": "a",
            "enable_client_http_server": true, "client_http_port": 0}"#;
        let config = load(good).unwrap();
        assert_eq!((config.global_segment_size, config.local_buffer_size), (3 << 29, 4096));
        assert_eq!((config.master_address.as_str(), config.protocol.as_str()), ("m:50051", "tcp"));
        assert_eq!((config.tenant_id.as_str(), config.page.unwrap().port()), ("a", 0));
        let refused = |text: &str| load(text).unwrap_err().to_string();
        assert!(refused("{").contains("MOONCAKE_CONFIG_PATH"));
        assert!(refused(r#"{"local_hostname": "a"}"#).contains("Missing required config field: metadata_server"));
        for (field, wrong) in [
            ("global_segment_size", "\"12 parsecs\""),
            ("global_segment_size", "[1]"),
            ("protocol", "\"tpc\""),
            ("enable_ssd_offload", "true"),
            ("enable_client_http_server", "\"perhaps\""),
            ("client_http_port", "70000"),
        ] {
            let text = good.replace('}', &format!(", \"{field}\": {wrong}}}"));
            let text = if field == "client_http_port" {
                good.replace("\"client_http_port\": 0", "\"client_http_port\": 70000")
            } else {
                text
            };
            assert!(refused(&text).contains(field), "{field} {wrong}: {}", refused(&text));
        }
        assert!(ClientConfig::load(&|_| None).unwrap_err().to_string().contains("MOONCAKE_MASTER"));
    }
}
