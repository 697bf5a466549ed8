//! The arguments of a setup, already told apart and defaulted by the Python face.

use pyo3::prelude::*;
use yb_client::ClientConfig;

use crate::convert::{Text, Unsigned};

/// One item of a dict for each; a value of a wrong type is a `TypeError` that names it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct SetupArguments {
    local_hostname: Text,
    metadata_server: Text,
    global_segment_size: Unsigned,
    local_buffer_size: Unsigned,
    protocol: Text,
    rdma_devices: Text,
    master_server_addr: Text,
    tenant_id: Text,
    /// Whether a value of no bytes may be stored.
    pub(crate) allow_empty: bool,
}

impl SetupArguments {
    /// For the client. `rpc_only` is the peer's name for a client that moves no bytes; here it is one that does not need
    /// to.
    pub(crate) fn into_config(self) -> ClientConfig {
        ClientConfig {
            local_hostname: self.local_hostname.0,
            metadata_server: self.metadata_server.0,
            global_segment_size: self.global_segment_size.0,
            local_buffer_size: self.local_buffer_size.0,
            protocol: if self.protocol.0 == "rpc_only" { "tcp".to_owned() } else { self.protocol.0 },
            device_names: self.rdma_devices.0,
            master_address: self.master_server_addr.0,
            tenant_id: self.tenant_id.0,
            ..ClientConfig::default()
        }
    }
}
