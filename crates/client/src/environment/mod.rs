//! The environment variables of the peer's client and of ours: what each does here.
//!
//! The problem: the peer reads some three hundred names, most of which mean nothing to another program, and takes bad values
//! for unset. Whoever sets one must be able to see what became of it. So every name is in one table, as honoured, as
//! ignored for a reason, or as refused, and the page `docs/settings-client.md` is made of it.
//!
//! Invariants: a variable that is set and not honoured is named in the log or in an error; a value that cannot be
//! read is an error, never a silent default.

mod table;
mod values;

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use yb_secure::{Security, SecuritySettings};
use yb_transfer::{HugePages, SegmentOptions};

pub use table::{Treatment, VARIABLES, Variable, page};
pub use values::Lookup;
use values::Reader;

use crate::config::NAME_PORTS;
use crate::{CallLimits, ClientConfig, Error, HotCacheConfig, MetricsConfig, Result};

impl ClientConfig {
    /// The defaults, changed by environment variables: those of [`VARIABLES`] that are honoured, except those that
    /// [`ClientConfig::load`] reads. `lookup` gives the value of a variable, `None` when it is not set.
    ///
    /// # Errors
    /// [`Error::Invalid`] names the first variable whose value cannot be read or that is refused.
    pub fn from_env(lookup: &Lookup<'_>) -> Result<ClientConfig> {
        let read = Reader(lookup);
        refuse(&read)?;
        let usual = ClientConfig::default();
        let flag = |name, otherwise| Ok::<bool, Error>(read.flag(name)?.unwrap_or(otherwise));
        let base = match read.signed("MC_RPC_TIMEOUT_MS")? {
            // Negative: no limit, for the peer. Here a call always ends; an hour stands for it.
            Some(millis) => u64::try_from(millis).map_or(Duration::from_secs(3600), Duration::from_millis),
            None => usual.limits.base,
        };
        let connect = read.number("MC_RPC_CONNECT_TIMEOUT_MS", 1..=3_600_000)?;
        Ok(ClientConfig {
            shared_memory: flag("YB_SHM", true)?,
            checksum: flag("MOONCAKE_STORE_CHECKSUM", true)?,
            local_first: flag("YB_LOCAL_FIRST", false)?,
            least_replicas: read.number("YB_REPLICAS", 1..=16)?.unwrap_or(1),
            placement_host: read.text("YB_HOST_ID"),
            segment_memory: segment_memory(&read)?,
            populate_segment: flag("YB_POPULATE", false)?,
            hot_cache: hot_cache(&read)?,
            metrics: metrics(&read)?,
            limits: CallLimits { base, ..usual.limits },
            connect_timeout: connect.map_or(usual.connect_timeout, Duration::from_millis),
            port_range: port_range(&read)?,
            security: security(lookup)?,
            page_host: read.parsed("YB_CLIENT_HTTP_HOST", "an IP address")?.unwrap_or(usual.page_host),
            ..usual
        })
    }

    /// As [`ClientConfig::from_env`], and from the file that `MOONCAKE_CONFIG_PATH` names, or else from `MOONCAKE_MASTER`
    /// and its kin: all that a client needs to join a pool.
    ///
    /// # Errors
    /// As there; the file cannot be read, lacks a field or has one that makes no sense; neither variable is set.
    pub fn load(lookup: &Lookup<'_>) -> Result<ClientConfig> {
        let config = ClientConfig::from_env(lookup)?;
        match Reader(lookup).text("MOONCAKE_CONFIG_PATH") {
            Some(path) => values::from_file(config, &path),
            None => values::from_variables(config, lookup),
        }
    }
}

/// One line in the log for every variable that is set and does nothing here.
pub fn report_ignored(lookup: &Lookup<'_>) {
    for variable in VARIABLES {
        if let Treatment::Ignored(why) = variable.treatment
            && lookup(variable.name).is_some()
        {
            tracing::warn!(variable = variable.name, "this environment variable does nothing here: {why}");
        }
    }
}

/// One line in the log for every variable of ours among `names` that nothing reads, with the nearest that something does.
pub fn report_unknown(names: impl IntoIterator<Item = String>) {
    for unknown in yb_settings::unknown_variables(names) {
        tracing::warn!(variable = unknown.name, "{unknown}");
    }
}

/// One line in the log for every variable among `names` that looks like a misspelt one of a client of the peer's. Those that
/// resemble none may be of parts of the peer that are not here.
pub fn report_misspelt(names: impl IntoIterator<Item = String>) {
    let peers = |name: &String| name.starts_with("MOONCAKE_") || name.starts_with("MC_STORE_");
    let known: HashSet<&str> = VARIABLES.iter().map(|variable| variable.name).collect();
    for name in names.into_iter().filter(|name| peers(name) && !known.contains(name.as_str())) {
        if let Some(meant) = yb_settings::misspelt(&name, known.iter().copied()) {
            tracing::warn!(variable = name, "the environment variable {name} does nothing; did you mean {meant}?");
        }
    }
}

fn refuse(read: &Reader<'_, '_>) -> Result<()> {
    for variable in VARIABLES {
        let Treatment::Refused { harmless, why } = variable.treatment else { continue };
        if let Some(value) = read.text(variable.name).filter(|value| !harmless.contains(&value.to_lowercase().as_str()))
        {
            return Err(Error::invalid(format!("{}={value} in the environment: {why}", variable.name)));
        }
    }
    Ok(())
}

fn security(lookup: &Lookup<'_>) -> Result<Option<Arc<Security>>> {
    let settings = SecuritySettings::from_env(lookup);
    settings.and_then(|settings| Security::open(&settings)).map_err(|error| Error::invalid(error.to_string()))
}

fn hot_cache(read: &Reader<'_, '_>) -> Result<HotCacheConfig> {
    let usual = HotCacheConfig::default();
    let threshold = read.number("MC_STORE_LOCAL_HOT_ADMISSION_THRESHOLD", 1..=255)?;
    Ok(HotCacheConfig {
        bytes: read.size("MC_STORE_LOCAL_HOT_CACHE_SIZE")?.unwrap_or(usual.bytes),
        threshold: threshold.map_or(usual.threshold, |reads| reads as u8),
    })
}

fn metrics(read: &Reader<'_, '_>) -> Result<MetricsConfig> {
    let seconds = read.number("MC_STORE_CLIENT_METRIC_INTERVAL", 0..=86_400)?;
    Ok(MetricsConfig {
        enabled: read.flag("MC_STORE_CLIENT_METRIC")?.unwrap_or(true),
        report_every: seconds.map_or(Duration::ZERO, Duration::from_secs),
        cluster_id: read.text("MC_STORE_CLUSTER_ID").unwrap_or_default(),
    })
}

fn segment_memory(read: &Reader<'_, '_>) -> Result<SegmentOptions> {
    let size = read.text("MC_STORE_HUGEPAGE_SIZE").unwrap_or_else(|| "2MB".to_owned()).to_uppercase();
    let huge = match size.as_str() {
        "2MB" | "2M" => HugePages::Reserved2M,
        "1GB" | "1G" => HugePages::Reserved1G,
        other => return Err(Error::invalid(format!("MC_STORE_HUGEPAGE_SIZE={other} in the environment: 2MB or 1GB"))),
    };
    let usual = SegmentOptions::default();
    Ok(SegmentOptions {
        // The peer looks only whether it is set; a plain "no" is taken for one here.
        huge_pages: if read.flag_if_set("MC_STORE_USE_HUGEPAGE") { huge } else { usual.huge_pages },
        numa_node: read.number("MC_STORE_NUMA_SOCKET_ID", 0..=1023)?.map(|node| node as u32),
        ..usual
    })
}

fn port_range(read: &Reader<'_, '_>) -> Result<Option<RangeInclusive<u16>>> {
    let ports = 1..=u64::from(u16::MAX);
    let first = read.number("MC_STORE_CLIENT_MIN_PORT", ports.clone())?;
    let last = read.number("MC_STORE_CLIENT_MAX_PORT", ports)?;
    if first.is_none() && last.is_none() {
        return Ok(None);
    }
    let first = first.unwrap_or(u64::from(*NAME_PORTS.start())) as u16;
    let last = last.map_or(first.max(*NAME_PORTS.end()), |last| last as u16);
    if first > last {
        return Err(Error::invalid(format!(
            "MC_STORE_CLIENT_MIN_PORT {first} is above MC_STORE_CLIENT_MAX_PORT {last}"
        )));
    }
    Ok(Some(first..=last))
}
