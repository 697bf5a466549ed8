//! Where an engine's handshake is.

use serde_json::{Value, json};

/// The record under `rpc_meta/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcMeta {
    /// Address or name.
    pub host: String,
    /// Port of the handshake.
    pub port: u16,
    /// Grows with every change; `None` = written before 0.3.14.
    pub metadata_version: Option<u64>,
}

impl RpcMeta {
    /// Reads a record; `None` when it makes no sense. Numbers may come as text.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let value: Value = serde_json::from_slice(bytes).ok()?;
        let number = |key: &str| match value.get(key)? {
            Value::Number(number) => number.as_u64(),
            Value::String(text) => text.parse().ok(),
            _ => None,
        };
        let host = value.get("ip_or_host_name")?.as_str().filter(|host| !host.is_empty())?;
        let port = number("rpc_port").and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0)?;
        Some(RpcMeta { host: host.to_owned(), port, metadata_version: number("metadata_version") })
    }

    /// The record as the peer writes it, without a newline.
    pub fn to_json(&self) -> Vec<u8> {
        let host = json!(self.host);
        let version =
            self.metadata_version.map(|version| format!("\"metadata_version\":{version},")).unwrap_or_default();
        format!("{{\"ip_or_host_name\":{host},{version}\"rpc_port\":{}}}", self.port).into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_the_peers() {
        for text in [
            r#"{"ip_or_host_name":"127.0.0.1","rpc_port":16475}"#,
            r#"{"ip_or_host_name":"127.0.0.1","metadata_version":1795969765173366,"rpc_port":15086}"#,
        ] {
            assert_eq!(String::from_utf8(RpcMeta::parse(text.as_bytes()).unwrap().to_json()).unwrap(), text);
        }
        assert_eq!(RpcMeta::parse(b"{\"ip_or_host_name\":\"::1\",\"rpc_port\":\"7\",\"x\":1}\n").unwrap().port, 7);
        for bad in
            ["", "{}", "[]", "{\"ip_or_host_name\":\"\",\"rpc_port\":1}", "{\"ip_or_host_name\":\"h\",\"rpc_port\":0}"]
        {
            assert_eq!(RpcMeta::parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
