//! Settings while the master runs: what holds, and what may change without a restart.

use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value as Json;
use yb_admin::{ChangeReport, ChangeRow, Control, ControlError};
use yb_settings::master::MASTER;
use yb_settings::{Change, Given, Reload, SettingsError, Values, explain, reload};

use crate::config::MasterConfig;
use crate::log::LogHandle;
use crate::shared::{SharedRef, StorageAnswer};

/// Where the settings of a master came from: what a reload reads again.
#[derive(Clone, Debug)]
pub struct Origin {
    /// What stood on the command line.
    pub arguments: Given,
    /// What held at the start.
    pub values: Values,
    /// The log, whose level can change.
    pub log: LogHandle,
}

/// Settings of a running master.
pub(crate) struct MasterControl {
    shared: SharedRef,
    arguments: Given,
    log: LogHandle,
    values: Mutex<Values>,
}

impl MasterControl {
    pub(crate) fn new(shared: SharedRef, origin: Origin) -> MasterControl {
        let Origin { arguments, values, log } = origin;
        MasterControl { shared, arguments, log, values: Mutex::new(values) }
    }

    /// Lets a comparison take effect, unless what comes of it contradicts itself: then nothing changes.
    fn apply(&self, values: &mut Values, change: Reload) -> Result<ChangeReport, SettingsError> {
        let conflict = |error: &dyn std::fmt::Display| SettingsError::Conflict(error.to_string());
        if !change.applied.is_empty() {
            let config = MasterConfig::from_values(&change.values)?;
            self.shared.catalog.retune(config.catalog.clone()).map_err(|error| conflict(&error))?;
            let lease_ms = u64::try_from(config.catalog.lease_ttl.as_millis()).unwrap_or(u64::MAX);
            self.shared.lease_ttl_ms.store(lease_ms, Ordering::Relaxed);
            self.shared.report.store(config.report, Ordering::Relaxed);
            self.shared.waiting.set_patience(config.put_wait);
            if let Some(limit) = self.shared.connection_limit.get() {
                limit.set(config.limits.max_connections);
            }
            *self.shared.storage.lock() =
                StorageAnswer { enable_disk_eviction: config.enable_disk_eviction, quota_bytes: config.quota_bytes };
            self.shared.jobs.tasks.lock().set_limits(config.jobs.tasks);
            if let Some(dialer) = &self.shared.dialer {
                dialer.set_timeout(config.dial_back.unwrap_or(Duration::from_secs(2)));
            }
            if change.applied.iter().any(|change| ["v", "minloglevel"].contains(&change.name)) {
                self.log.set_level(&change.values);
            }
            *values = change.values;
        }
        let metrics = &self.shared.metrics;
        for (at, changes) in [&change.applied, &change.refused].into_iter().enumerate() {
            metrics.shared_lane().add(metrics.settings_changes.at(at), changes.len() as u64);
        }
        for Change { name, old, new } in &change.applied {
            tracing::info!(event = "setting_changed", name, old, new, "a setting changed");
        }
        for Change { name, old, new } in &change.refused {
            tracing::warn!(event = "setting_refused", name, old, new, "a setting cannot change without a restart");
        }
        let rows = |changes: Vec<Change>| {
            let row = |change: Change| ChangeRow { name: change.name, old: change.old, new: change.new };
            changes.into_iter().map(row).collect()
        };
        Ok(ChangeReport { applied: rows(change.applied), refused: rows(change.refused) })
    }
}

impl Control for MasterControl {
    fn explain(&self, name: Option<&str>) -> Result<Vec<Json>, ControlError> {
        let found =
            explain(&MASTER, &self.values.lock(), name).map_err(|error| ControlError::Bad(error.to_string()))?;
        Ok(found.iter().map(yb_settings::Explained::json).collect())
    }

    fn reload(&self) -> Result<ChangeReport, ControlError> {
        let mut values = self.values.lock();
        let environment = |name: &str| std::env::var(name).ok();
        let wanted = MASTER.resolve(self.arguments.clone(), &environment);
        let result = wanted.and_then(|wanted| {
            let change = reload(&MASTER, &values, &wanted);
            self.apply(&mut values, change)
        });
        match result {
            Ok(report) => {
                let (applied, refused) = (report.applied.len(), report.refused.len());
                tracing::info!(event = "settings_reloaded", applied, refused, "settings were read again");
                Ok(report)
            }
            Err(error) => {
                tracing::error!(event = "reload_failed", %error, "settings stay as they are");
                Err(ControlError::Bad(error.to_string()))
            }
        }
    }

    fn set(&self, changes: &[(String, String)]) -> Result<ChangeReport, ControlError> {
        let mut values = self.values.lock();
        let bad = |error: SettingsError| ControlError::Bad(error.to_string());
        let wanted = values.with(&MASTER, changes).map_err(bad)?;
        let change = reload(&MASTER, &values, &wanted);
        if !change.refused.is_empty() {
            let names: Vec<&str> = change.refused.iter().map(|change| change.name).collect();
            return Err(ControlError::NeedsRestart(names.join(", ")));
        }
        self.apply(&mut values, change).map_err(bad)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What [`MasterControl::apply`] lets take effect: the times, ratios and pins that the catalog is retuned with, and
    /// what stands beside it.
    const TAKE_EFFECT: &[&str] = &[
        "default_kv_lease_ttl",
        "default_kv_soft_pin_ttl",
        "max_kv_soft_pin_ttl",
        "allow_evict_soft_pinned_objects",
        "eviction_ratio",
        "eviction_high_watermark_ratio",
        "tenant_eviction_high_watermark_ratio",
        "put_start_discard_timeout_sec",
        "put_start_release_timeout_sec",
        "client_ttl",
        "client_suspicion_ttl_sec",
        "repair_grace_ms",
        "put_wait",
        "max_connections",
        "max_total_finished_tasks",
        "max_total_pending_tasks",
        "max_total_processing_tasks",
        "max_key_bytes",
        "max_objects_memory",
        "max_tasks_per_address",
        "max_unfinished_per_client",
        "pending_task_timeout_sec",
        "processing_task_timeout_sec",
        "max_retry_attempts",
        "dial_back_timeout",
        "enable_metric_reporting",
        "enable_disk_eviction",
        "quota_bytes",
        "v",
        "minloglevel",
    ];

    #[test]
    fn what_is_called_live_takes_effect_and_nothing_else_is() {
        let mut live: Vec<&str> =
            MASTER.settings().filter(|setting| setting.live).map(|setting| setting.name).collect();
        let mut known = TAKE_EFFECT.to_vec();
        live.sort_unstable();
        known.sort_unstable();
        assert_eq!(live, known);
    }
}
