//! The command lines that look at a pool and change it.

use clap::{Args, Subcommand, ValueEnum};

use super::AdminAddress;
use crate::size::Size;

/// `status`
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Where to ask
    #[command(flatten)]
    pub admin: AdminAddress,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `drain`
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// Names of the segments to empty, as `yuebing status` shows them
    #[arg(value_name = "SEGMENT", conflicts_with = "job")]
    pub segments: Vec<String>,
    /// Only these segments take the objects [default: all others]
    #[arg(long, value_name = "SEGMENT")]
    pub to: Vec<String>,
    /// Moves under way at a time; nodes of Mooncake ask for work once a second, so give them 16 or more
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub concurrency: u32,
    /// A job that runs already
    #[arg(long, value_name = "ID")]
    pub job: Option<String>,
    /// Wait for the end of the job and show how far it is
    #[arg(long)]
    pub watch: bool,
    /// Call the job off; its segments take objects again
    #[arg(long, requires = "job")]
    pub cancel: bool,
    /// Where to ask
    #[command(flatten)]
    pub admin: AdminAddress,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `top`
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Seconds between two looks
    #[arg(long, default_value_t = 1.0, value_parser = seconds, value_name = "SECONDS")]
    pub interval: f64,
    /// Print one picture of one interval and end
    #[arg(long)]
    pub once: bool,
    /// Where to ask
    #[command(flatten)]
    pub admin: AdminAddress,
    /// Print one JSON object of one interval and end
    #[arg(long)]
    pub json: bool,
}

/// An interval that a person can wait for and a master does not feel.
fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.05..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("seconds from 0.05 to 3600".to_owned()),
    }
}

/// By what segments are sorted; numbers from the largest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SegmentOrder {
    /// By name
    Name,
    /// By bytes in use
    Used,
    /// By size
    Size,
    /// By share in use
    Use,
    /// By status
    Status,
}

/// `segments`
#[derive(Debug, Args)]
pub struct SegmentsArgs {
    /// Only names that contain this
    pub name: Option<String>,
    /// Order of the rows; numbers from the largest
    #[arg(long, value_enum, default_value_t = SegmentOrder::Name)]
    pub sort: SegmentOrder,
    /// Where to ask
    #[command(flatten)]
    pub admin: AdminAddress,
    /// Print one JSON array
    #[arg(long)]
    pub json: bool,
}

/// `tenants`
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct TenantsArgs {
    /// What to change [default: nothing, all are shown]
    #[command(subcommand)]
    pub change: Option<TenantChange>,
    /// Where to ask
    #[command(flatten)]
    pub admin: AdminAddress,
    /// Print one JSON array
    #[arg(long)]
    pub json: bool,
}

/// What can be changed about a tenant.
#[derive(Debug, Subcommand)]
pub enum TenantChange {
    /// Give a tenant a quota; makes it known if it is not
    Set(TenantSetArgs),
    /// Forget a tenant that has no objects
    Rm(TenantRmArgs),
}

/// `tenants set`
#[derive(Debug, Args)]
pub struct TenantSetArgs {
    /// The tenant
    pub name: String,
    /// Bytes it may use, for example 64GiB
    pub quota: Size,
    /// Where to ask
    #[command(flatten)]
    pub admin: AdminAddress,
}

/// `tenants rm`
#[derive(Debug, Args)]
pub struct TenantRmArgs {
    /// The tenant
    pub name: String,
    /// Where to ask
    #[command(flatten)]
    pub admin: AdminAddress,
}

/// `tasks`
#[derive(Debug, Args)]
pub struct TasksArgs {
    /// Where to ask
    #[command(flatten)]
    pub admin: AdminAddress,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}
