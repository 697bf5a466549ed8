//! The command lines that look at a pool and change it.

use clap::{Args, Parser, Subcommand, ValueEnum};

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

/// `drain`, `node drain`
#[derive(Debug, Args)]
#[command(
    after_help = "Waits until the nodes are empty and shows how far that is; Ctrl-C ends the waiting, not the drain.\n\
                        Exit codes: 0 they are empty, 1 something stays (it says what and why, and the nodes take objects \
                        again), 2 wrong command line, 4 master unreachable, 130 interrupted."
)]
pub struct DrainArgs {
    /// Nodes to empty: names of their segments as `yuebing status` shows them (10.0.0.5:50052), hosts, or ids of clients
    #[arg(value_name = "NODE", conflicts_with = "job")]
    pub nodes: Vec<String>,
    /// Only these nodes take the objects [default: all others]
    #[arg(long, value_name = "NODE", conflicts_with_all = ["job", "cancel"])]
    pub to: Vec<String>,
    /// Moves under way at a time
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["job", "cancel"])]
    pub concurrency: u32,
    /// Give up after so many seconds; what was moved by then stays where it is [default: as long as something moves]
    #[arg(
        long,
        value_name = "SECONDS",
        value_parser = clap::value_parser!(u32).range(1..=86_400),
        conflicts_with_all = ["job", "cancel"]
    )]
    pub deadline: Option<u32>,
    /// Begin it and do not wait for its end
    #[arg(long, conflicts_with_all = ["watch", "cancel"])]
    pub no_wait: bool,
    /// Wait for the end, as without it
    #[arg(long, hide = true, conflicts_with = "cancel")]
    pub watch: bool,
    /// A drain that runs already, or has ended
    #[arg(long, value_name = "ID")]
    pub job: Option<String>,
    /// Call the drain off, or take it back when it has ended: the nodes take objects again
    #[arg(long)]
    pub cancel: bool,
    /// Where to ask
    #[command(flatten)]
    pub admin: AdminAddress,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What stands behind `yuebing node` but is no flag of a node.
#[derive(Debug, Parser)]
#[command(name = "yuebing node drain", about = "Move everything off nodes before they end")]
pub struct NodeDrain {
    /// As of `yuebing drain`
    #[command(flatten)]
    pub args: DrainArgs,
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
    /// Print what the master says as one JSON object
    #[arg(long)]
    pub json: bool,
}

/// `tenants rm`
#[derive(Debug, Args)]
pub struct TenantRmArgs {
    /// The tenant
    pub name: String,
    /// Where to ask
    #[command(flatten)]
    pub admin: AdminAddress,
    /// Print what the master says as one JSON object
    #[arg(long)]
    pub json: bool,
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
