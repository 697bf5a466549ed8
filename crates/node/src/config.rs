//! What a node is told.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use yb_client::ClientConfig;
use yb_daemon::{BadUsers, DaemonSettings, Users};
use yb_secure::{Security, SecurityError, SecuritySettings};
use yb_settings::Values;

use crate::MasterWait;

/// How a node is set up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeConfig {
    /// `host:port` of the master.
    pub master_address: String,
    /// Address to listen on.
    pub listen_host: String,
    /// Host that others are told to connect to; empty takes `listen_host`, or where that is any address, the one from
    /// which this machine reaches the master.
    pub advertise_host: String,
    /// Port at which dummy clients call, and of the node's name; 0 takes any free one.
    pub port: u16,
    /// Handshake port; 0 takes any free one.
    pub handshake_port: u16,
    /// Data port; 0 takes any free one.
    pub data_port: u16,
    /// `P2PHANDSHAKE`, or where the store of names is.
    pub metadata_server: String,
    /// `tcp`.
    pub protocol: String,
    /// Bytes to lend.
    pub segment_bytes: u64,
    /// Touch every page in the background from the start on.
    pub populate: bool,
    /// Let other processes of this host map the memory.
    pub shared_memory: bool,
    /// The memory is this file, and outlives the process; empty: it goes with it.
    pub segment_file: String,
    /// How long what the node holds is moved elsewhere when it is asked to end; zero: not at all.
    pub drain: Duration,
    /// Whose keys dummy clients name.
    pub tenant_id: String,
    /// How dummy clients are served; `None`: not at all.
    pub dummies: Option<DummyService>,
    /// Port of the HTTP page at `listen_host`; `None`: none is served.
    pub page_port: Option<u16>,
    /// How long it waits for a master that does not answer when the node starts.
    pub master_wait: MasterWait,
    /// Who may connect, and how; `None`: everybody, over the plain wire.
    pub security: Option<Arc<Security>>,
}

/// How dummy clients are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DummyService {
    /// RPC threads.
    pub threads: usize,
    /// Who may attach.
    pub users: Users,
}

/// Why the addresses of a node do not work out.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// No address of this machine reaches the master.
    #[error(
        "cannot tell by which address this machine reaches the master at {master} ({source}); give --advertise_host"
    )]
    NoRoute {
        /// The master.
        master: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The host to listen on has no address.
    #[error("cannot listen on {host:?}: {source}")]
    Listen {
        /// The host.
        host: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The users that may attach are not named.
    #[error("dummy_users: {0}")]
    Users(#[from] BadUsers),
    /// Connections cannot be secured as asked for.
    #[error(transparent)]
    Security(#[from] SecurityError),
}

/// Memory that outlives the process stays as it is: another process comes with it.
fn drain_time(values: &Values) -> Duration {
    let stays = !values.text("segment_file").is_empty();
    Duration::from_secs(if stays { 0 } else { values.number("drain_seconds") })
}

fn master_wait(values: &Values) -> MasterWait {
    match u64::try_from(values.signed("master_wait_seconds")) {
        Ok(seconds) => MasterWait::Limited(Duration::from_secs(seconds)),
        Err(_) => MasterWait::Unlimited,
    }
}

impl NodeConfig {
    /// From settings of [`crate::NODE`].
    ///
    /// # Errors
    /// [`ConfigError::Users`], [`ConfigError::Security`].
    pub fn from_values(values: &Values) -> Result<Self, ConfigError> {
        let dummies = DummyService {
            threads: usize::try_from(values.number("threads")).unwrap_or(1),
            users: values.text("dummy_users").parse()?,
        };
        // The table keeps ports within 0..=65535.
        let port = |name| u16::try_from(values.number(name)).unwrap_or(0);
        Ok(NodeConfig {
            master_address: values.text("master_server_address").to_owned(),
            listen_host: values.text("host").to_owned(),
            advertise_host: values.text("advertise_host").to_owned(),
            port: port("port"),
            handshake_port: port("handshake_port"),
            data_port: port("data_port"),
            metadata_server: values.text("metadata_server").to_owned(),
            protocol: values.text("protocol").to_owned(),
            segment_bytes: values.number("global_segment_size"),
            populate: values.flag("populate"),
            shared_memory: values.flag("shared_memory") && ClientConfig::default().shared_memory,
            drain: drain_time(values),
            segment_file: values.text("segment_file").to_owned(),
            tenant_id: values.text("tenant_id").to_owned(),
            dummies: values.flag("serve_dummies").then_some(dummies),
            page_port: values.flag("enable_http_server").then(|| port("http_port")),
            master_wait: master_wait(values),
            security: Security::open(&SecuritySettings::from_values(values, |name| std::env::var(name).ok())?)?,
        })
    }

    /// The client under the node.
    ///
    /// # Errors
    /// [`ConfigError`] when the host to advertise cannot be found out.
    pub(crate) fn client(&self) -> Result<ClientConfig, ConfigError> {
        let host = self.advertised()?;
        let name = |host: &str| if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        // A name in a store has a port at which the node's handshake listens; at `port` its daemon does.
        let in_store = !self.metadata_server.eq_ignore_ascii_case(yb_client::P2P_HANDSHAKE);
        let local_hostname = match self.port {
            _ if in_store && self.handshake_port != 0 => format!("{}:{}", name(&host), self.handshake_port),
            port if port == 0 || in_store => name(&host),
            port => format!("{}:{port}", name(&host)),
        };
        let page = self.page_at()?;
        Ok(ClientConfig {
            local_hostname,
            page,
            metadata_server: self.metadata_server.clone(),
            global_segment_size: self.segment_bytes,
            local_buffer_size: 0,
            protocol: self.protocol.clone(),
            master_address: self.master_address.clone(),
            listen_host: Some(self.listen_host.clone()),
            listen_port: self.handshake_port,
            tenant_id: self.tenant_id.clone(),
            data_port: self.data_port,
            shared_memory: self.shared_memory,
            populate_segment: self.populate,
            security: self.security.clone(),
            segment_file: (!self.segment_file.is_empty()).then(|| self.segment_file.clone().into()),
            ..ClientConfig::default()
        })
    }

    /// What is needed to ask whether the master is there.
    pub(crate) fn probe(&self) -> ClientConfig {
        ClientConfig {
            master_address: self.master_address.clone(),
            tenant_id: self.tenant_id.clone(),
            security: self.security.clone(),
            ..ClientConfig::default()
        }
    }

    /// Where the HTTP page is; `None`: there is none.
    ///
    /// # Errors
    /// [`ConfigError::Listen`].
    pub(crate) fn page_at(&self) -> Result<Option<SocketAddr>, ConfigError> {
        self.page_port.map(|port| self.listen_at(port)).transpose()
    }

    /// The daemon beside it; `None`: dummy clients are not served.
    ///
    /// # Errors
    /// [`ConfigError::Listen`].
    pub(crate) fn daemon(&self) -> Result<Option<DaemonSettings>, ConfigError> {
        let Some(DummyService { threads, users }) = self.dummies.clone() else { return Ok(None) };
        let listen = self.listen_at(self.port)?;
        Ok(Some(DaemonSettings { threads, users, security: self.security.clone(), ..DaemonSettings::at(listen) }))
    }

    fn listen_at(&self, port: u16) -> Result<SocketAddr, ConfigError> {
        let failed = |source| ConfigError::Listen { host: self.listen_host.clone(), source };
        let mut found = (self.listen_host.as_str(), port).to_socket_addrs().map_err(failed)?;
        found.next().ok_or_else(|| failed(std::io::Error::other("it has no address")))
    }

    fn advertised(&self) -> Result<String, ConfigError> {
        if !self.advertise_host.is_empty() {
            return Ok(self.advertise_host.clone());
        }
        match self.listen_host.parse::<IpAddr>() {
            Ok(any) if any.is_unspecified() => self.towards_the_master(any),
            _ => Ok(self.listen_host.clone()),
        }
    }

    /// A datagram socket that is connected, and sends nothing, knows the address it would send from.
    fn towards_the_master(&self, any: IpAddr) -> Result<String, ConfigError> {
        let find = || {
            let socket = UdpSocket::bind((any, 0))?;
            let master = self.master_address.to_socket_addrs()?.find(|to| to.is_ipv4() == any.is_ipv4());
            socket.connect(master.ok_or_else(|| std::io::Error::other("it has no address of this kind"))?)?;
            Ok(socket.local_addr()?.ip().to_string())
        };
        find().map_err(|source| ConfigError::NoRoute { master: self.master_address.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yb_settings::{Arguments, parse_arguments};

    fn config(arguments: &[&str]) -> NodeConfig {
        let arguments: Vec<String> = arguments.iter().map(|&a| a.to_owned()).collect();
        let Ok(Arguments::Run(given)) = parse_arguments(&crate::NODE, &arguments, &|_| None) else {
            panic!("{arguments:?}")
        };
        NodeConfig::from_values(&crate::NODE.resolve(given, &|_| None).unwrap()).unwrap()
    }

    #[test]
    fn defaults_are_the_peers() {
        let config = config(&[]);
        assert_eq!((config.port, config.segment_bytes), (50052, 4 << 30));
        assert_eq!(config.listen_host, "0.0.0.0");
        assert_eq!(config.master_address, "127.0.0.1:50051");
    }

    #[test]
    fn memory_that_outlives_the_node_is_not_drained() {
        let seconds = |arguments: &[&str]| config(arguments).drain.as_secs();
        assert_eq!((seconds(&[]), seconds(&["--drain_seconds=0"]), seconds(&["--drain_seconds=60"])), (3, 0, 60));
        assert_eq!(seconds(&["--segment_file=/dev/shm/x", "--drain_seconds=60"]), 0);
    }

    #[test]
    fn a_node_waits_for_its_master_unless_told_otherwise() {
        let wait = |arguments: &[&str]| config(arguments).master_wait;
        assert_eq!(wait(&[]), MasterWait::Unlimited);
        assert_eq!(wait(&["--master_wait_seconds=0"]), MasterWait::NONE);
        assert_eq!(wait(&["--master_wait_seconds=90"]), MasterWait::Limited(Duration::from_secs(90)));
    }

    #[test]
    fn a_node_that_listens_everywhere_names_the_address_towards_the_master() {
        let client = config(&["--port=1234"]).client().unwrap();
        assert_eq!(client.local_hostname, "127.0.0.1:1234");
        assert_eq!(client.listen_host.as_deref(), Some("0.0.0.0"));
        let named = config(&["--host=0.0.0.0", "--advertise_host=node7", "--port=0"]).client().unwrap();
        assert_eq!(named.local_hostname, "node7");
        // In a store the name has the port of the handshake.
        let store =
            |port| config(&["--metadata_server=http://127.0.0.1:1/metadata", "--handshake_port", port]).client();
        assert_eq!(store("77").unwrap().local_hostname, "127.0.0.1:77");
        assert_eq!(store("0").unwrap().local_hostname, "127.0.0.1");
    }

    #[test]
    fn features_of_the_daemon_are_refused_by_name() {
        let given = |text: &str| match parse_arguments(&crate::NODE, &[text.to_owned()], &|_| None) {
            Ok(Arguments::Run(given)) => crate::NODE.resolve(given, &|_| None).map(|_| ()),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        assert!(given("--enable_offload=true").unwrap_err().to_string().contains("disk"));
        assert!(given("--threads=4").is_ok() && given("--threads=0").is_err());
        assert!(given("--global_segment_sise=1GB").unwrap_err().to_string().contains("global_segment_size"));
        assert!(given("--global_segment_size=1000").is_err());
    }
}
