//! A master that may not be there yet: whether it answers, and a page that says that somebody waits for it.

use std::net::SocketAddr;
use std::time::Duration;

use yb_env::Clock;
use yb_rpc::RpcAddress;
use yb_types::ClientId;

use crate::deadline::{CallLimits, Deadline};
use crate::heartbeat::check_version;
use crate::link::MasterLink;
use crate::page::{Book, PageServer, listen};
use crate::setup::link_settings;
use crate::{ClientConfig, Error, Result};

/// Time that a master has to answer when it is asked whether it is there.
const PATIENCE: Duration = Duration::from_secs(2);

/// The words of the resolver when it found nobody to ask: the name may be right.
const NO_RESOLVER: &str = "Temporary failure in name resolution";

/// The master that a client is to join, before there is a client.
#[derive(Clone, Debug)]
pub struct AwaitedMaster {
    config: ClientConfig,
    clock: Clock,
}

impl AwaitedMaster {
    /// The master of a configuration: its address, and how connections to it are secured.
    pub fn of(config: ClientConfig) -> Self {
        AwaitedMaster { config, clock: Clock::real() }
    }

    /// `host:port` as it was given.
    pub fn address(&self) -> &str {
        &self.config.master_address
    }

    /// Asks it once, for two seconds at most. `None`: it answers and is of this version; else why it cannot be reached
    /// now, by which nothing is said about later.
    ///
    /// # Errors
    /// What waiting does not mend: [`Error::Setup`], an address that is none; [`Error::MasterUnreachable`] with `refused`,
    /// another secret or certificate, or no master; [`Error::Incompatible`].
    pub fn absence(&self) -> Result<Option<String>> {
        // Each time anew: a name may get another address while it is waited for.
        if let Err(error) = RpcAddress::resolve(&self.config.master_address) {
            let reason = error.to_string();
            return if reason.contains(NO_RESOLVER) {
                Ok(Some(reason))
            } else {
                Err(Error::setup("the master's address", format!("{:?}: {reason}", self.config.master_address)))
            };
        }
        let link = MasterLink::new(link_settings(&self.config, ClientId::default(), 1), self.clock.clone())?;
        let limits = CallLimits { base: PATIENCE, ..CallLimits::default() };
        let answer = check_version(&link, &Deadline::start(&self.clock, &limits, 0));
        link.shutdown();
        match answer {
            Ok(()) => Ok(None),
            Err(Error::MasterUnreachable(failure)) if !failure.refused => Ok(Some(failure.reason)),
            Err(error) => Err(error),
        }
    }
}

/// A page at the place of a client's: `/health` says that the master is waited for. Ends when it is dropped.
#[derive(Debug)]
pub struct AwaitingPage {
    _server: PageServer,
}

impl AwaitingPage {
    /// Takes the port.
    ///
    /// # Errors
    /// [`Error::Setup`]: the port cannot be had, or no thread.
    pub fn at(address: SocketAddr) -> Result<Self> {
        Ok(AwaitingPage { _server: PageServer::start(listen(address)?, Book::Awaiting)? })
    }
}
