//! The command lines that work on single objects.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::{AdminAddress, MasterAddress};

/// Whose objects.
#[derive(Clone, Debug, Args)]
pub struct Tenant {
    /// Tenant whose objects these are [default: the one without a name; masters without tenants ignore it]
    #[arg(long, env = "MOONCAKE_TENANT_ID", value_name = "NAME")]
    tenant: Option<String>,
}

impl Tenant {
    /// Its name, if one is given that is not that of the default tenant.
    pub fn name(&self) -> Option<&str> {
        self.tenant.as_deref().filter(|name| !name.is_empty() && *name != yb_types::DEFAULT_TENANT)
    }
}

/// `put`
#[derive(Debug, Args)]
pub struct PutArgs {
    /// The key
    pub key: OsString,
    /// File to store, - for standard input
    pub file: PathBuf,
    /// Copies on different nodes, fewer if not so many have room
    #[arg(long, default_value_t = 1)]
    pub replicas: u64,
    /// Whose object
    #[command(flatten)]
    pub tenant: Tenant,
    /// Where the pool is
    #[command(flatten)]
    pub master: MasterAddress,
    /// Print what was done as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `get`
#[derive(Debug, Args)]
pub struct GetArgs {
    /// The key
    pub key: OsString,
    /// File to write [default: standard output]
    pub file: Option<PathBuf>,
    /// Whose object
    #[command(flatten)]
    pub tenant: Tenant,
    /// Where the pool is
    #[command(flatten)]
    pub master: MasterAddress,
}

/// `stat`
#[derive(Debug, Args)]
pub struct StatArgs {
    /// The key
    pub key: OsString,
    /// Whose object
    #[command(flatten)]
    pub tenant: Tenant,
    /// Where the pool is
    #[command(flatten)]
    pub master: MasterAddress,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `ls`
#[derive(Debug, Args)]
pub struct LsArgs {
    /// Only keys that begin with this
    #[arg(long)]
    pub prefix: Option<OsString>,
    /// Only keys in which this is found
    #[arg(long)]
    pub regex: Option<String>,
    /// Whose keys
    #[command(flatten)]
    pub tenant: Tenant,
    /// Where to ask
    #[command(flatten)]
    pub admin: AdminAddress,
    /// Print one JSON array
    #[arg(long)]
    pub json: bool,
}

/// What an empty variable of a script leaves must not remove everything.
fn some_text(text: &str) -> Result<String, String> {
    if text.is_empty() {
        return Err("it is empty and would remove every key; to remove all, say --all".to_owned());
    }
    Ok(text.to_owned())
}

/// `rm`
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["keys", "prefix", "regex", "all"]))]
pub struct RmArgs {
    /// The keys
    #[arg(value_name = "KEY")]
    pub keys: Vec<OsString>,
    /// All keys that begin with this
    #[arg(long, value_parser = some_text)]
    pub prefix: Option<String>,
    /// All keys in which this ECMAScript pattern is found
    #[arg(long, value_name = "PATTERN", value_parser = some_text)]
    pub regex: Option<String>,
    /// All keys
    #[arg(long)]
    pub all: bool,
    /// Also those that somebody is reading
    #[arg(long)]
    pub force: bool,
    /// Whose object
    #[command(flatten)]
    pub tenant: Tenant,
    /// Where the pool is
    #[command(flatten)]
    pub master: MasterAddress,
    /// Print what was done as one JSON object
    #[arg(long)]
    pub json: bool,
}
