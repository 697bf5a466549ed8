//! From a master's address to a client, and from a client's errors to exit codes.

use yb_client::{Client, ClientConfig, Error};
use yb_secure::Security;

use crate::args::{MasterAddress, Tenant};
use crate::failure::{Exit, Failure, Outcome};

/// A client that lends no memory.
///
/// # Errors
/// [`Exit::Unreachable`] if no master answers there.
pub fn connect(master: &MasterAddress, tenant: &Tenant) -> Outcome<Client> {
    let master = master.address()?;
    connect_with(&master, |config| match tenant.name() {
        Some(name) => ClientConfig { tenant_id: name.to_owned(), ..config },
        None => config,
    })
}

/// The same for an address that is known, as the default tenant.
pub fn connect_to(master: &str) -> Outcome<Client> {
    connect_with(master, |config| config)
}

fn connect_with(master: &str, change: impl FnOnce(ClientConfig) -> ClientConfig) -> Outcome<Client> {
    let config = ClientConfig {
        master_address: master.to_owned(),
        local_hostname: "127.0.0.1".to_owned(),
        security: Security::from_env().map_err(|error| Failure::new(Exit::Usage, error.to_string()))?,
        ..ClientConfig::default()
    };
    Client::connect(change(config)).map_err(|e| failure(&format!("master {master}"), &e))
}

/// What a call that failed means for the command.
pub fn failure(what: &str, error: &Error) -> Failure {
    let exit = match error {
        Error::NotFound => Exit::Miss,
        Error::NoSpace => Exit::NoSpace,
        Error::MasterUnreachable(_) => Exit::Unreachable,
        Error::Invalid(_) => Exit::Usage,
        _ => Exit::Failed,
    };
    let hint = match error {
        Error::MasterUnreachable(_) => "\nName the master with --master host:port, or start a pool with: yuebing up",
        Error::Refused { code, .. } if *code == yb_types::ErrorCode::OBJECT_HAS_LEASE => {
            "\nSomebody read it a moment ago: try again later, or use --force"
        }
        _ => "",
    };
    Failure::new(exit, format!("{what}: {error}{hint}"))
}
