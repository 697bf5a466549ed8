//! The arguments of a setup, already told apart and defaulted by the Python face.

use std::sync::{Arc, Once};

use pyo3::prelude::*;
use yb_client::{Client, ClientConfig, Error, environment};
use yb_daemon::{Daemon, DaemonSettings, Doors, StartError};

use crate::convert::{Text, Unsigned};
use crate::engine::{EngineLive, InnerTransferEngine};

/// What the environment of the process has that nobody reads is said with its first store.
static UNKNOWN_SAID: Once = Once::new();

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
    enable_client_http_server: bool,
    client_http_port: Unsigned,
    engine: Option<Py<InnerTransferEngine>>,
    /// Name of the side channel of dummy clients; empty: none are served.
    ipc_socket_path: Text,
    /// Whether a value of no bytes may be stored.
    allow_empty: bool,
}

/// What a setup made.
pub(crate) struct Made {
    pub(crate) client: Client,
    /// The engine that the client uses with others.
    pub(crate) engine: Option<Arc<EngineLive>>,
    /// Serves dummy clients.
    pub(crate) daemon: Option<Daemon>,
    /// Whether a value of no bytes may be stored.
    pub(crate) allow_empty: bool,
}

impl SetupArguments {
    /// The client and what goes with it. Nothing is left behind when this fails.
    pub(crate) fn connect(self) -> Result<Made, Error> {
        let engine = self.engine.as_ref().map(|engine| engine.get().live());
        let (allow_empty, side_channel) = (self.allow_empty, self.ipc_socket_path.0.clone());
        let config = self.into_config()?;
        // Before the master hears of the client: a side channel that another has is no reason to come and go.
        let doors = if side_channel.is_empty() { None } else { Some(open_doors(&side_channel, &config)?) };
        let client = match &engine {
            None => Client::connect(config)?,
            Some(engine) if engine.is_open() => Client::connect_on(engine.classic().engine().clone(), config)?,
            Some(_) => return Err(Error::Invalid("the engine is closed, or of the parent process".into())),
        };
        let daemon = doors.map(|doors| serve_dummies(doors, &side_channel, &client)).transpose()?;
        Ok(Made { client, engine, daemon, allow_empty })
    }

    fn into_config(self) -> Result<ClientConfig, Error> {
        let variable = |name: &str| std::env::var(name).ok();
        environment::report_ignored(&variable);
        UNKNOWN_SAID.call_once(|| {
            let names = || std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
            environment::report_unknown(names());
            environment::report_misspelt(names());
        });
        let config = ClientConfig::from_env(&variable)?;
        let page = match (self.enable_client_http_server, u16::try_from(self.client_http_port.0)) {
            (false, _) => None,
            (true, Ok(port)) => Some((config.page_host, port).into()),
            (true, Err(_)) => {
                return Err(Error::Invalid(format!("client_http_port {} is no port", self.client_http_port.0).into()));
            }
        };
        Ok(ClientConfig {
            local_hostname: self.local_hostname.0,
            metadata_server: self.metadata_server.0,
            global_segment_size: self.global_segment_size.0,
            local_buffer_size: self.local_buffer_size.0,
            protocol: self.protocol.0,
            device_names: self.rdma_devices.0,
            master_address: self.master_server_addr.0,
            tenant_id: self.tenant_id.0,
            page,
            ..config
        })
    }
}

fn no_dummies(error: &StartError) -> Error {
    Error::Setup { stage: "serving dummy clients", reason: error.to_string() }
}

/// The doors for dummies take the same secret and certificates as those of the store itself.
fn open_doors(side_channel: &str, config: &ClientConfig) -> Result<Doors, Error> {
    let settings = DaemonSettings { security: config.security.clone(), ..DaemonSettings::behind(side_channel) };
    Doors::open(&settings).map_err(|error| no_dummies(&error))
}

fn serve_dummies(doors: Doors, side_channel: &str, client: &Client) -> Result<Daemon, Error> {
    let daemon = doors.serve(client.clone()).map_err(|error| {
        client.close();
        no_dummies(&error)
    })?;
    tracing::info!(rpc = %daemon.address(), side_channel, "dummy clients are served");
    Ok(daemon)
}
