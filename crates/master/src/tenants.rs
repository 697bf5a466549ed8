//! Tenants for operators: policies over HTTP, kept in a file that people may edit as well.

use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use yb_admin::TenantRow;
use yb_catalog::{Catalog, TenantQuota, Tenants};
use yb_types::{ErrorCode, MonotonicTime};

use crate::quota_file::{Policies, QuotaFile, QuotaFileError, Stamp};
use crate::shared::Shared;

/// Where policies are kept. Changes come one after another.
pub(crate) struct PolicyStore {
    file: QuotaFile,
    /// The state of the file that was looked at last.
    seen: Mutex<Option<Stamp>>,
}

impl PolicyStore {
    /// Reads the policies and applies them.
    pub(crate) fn open(path: &Path, catalog: &Catalog, now: MonotonicTime) -> Result<PolicyStore, QuotaFileError> {
        let file = QuotaFile::new(path);
        let seen = file.stamp();
        apply(catalog.tenants(), &file.load()?, now);
        Ok(PolicyStore { file, seen: Mutex::new(seen) })
    }

    /// Reads the file again if it is another one than before. One that cannot be read as a whole changes nothing.
    pub(crate) fn look_again(&self, catalog: &Catalog, now: MonotonicTime) {
        let mut seen = self.seen.lock();
        let stamp = self.file.stamp();
        if *seen == stamp {
            return;
        }
        *seen = stamp;
        match self.file.load() {
            Ok(policies) => {
                tracing::info!(tenants = policies.len(), "tenant quotas have changed and are read again");
                apply(catalog.tenants(), &policies, now);
            }
            Err(error) => tracing::warn!(%error, "the quotas stay as they are"),
        }
    }

    /// Keeps the policies as `change` leaves them. What was edited by hand meanwhile is not overwritten unseen.
    fn keep(&self, catalog: &Catalog, now: MonotonicTime, change: impl FnOnce(&mut Policies)) -> Result<(), ErrorCode> {
        self.look_again(catalog, now);
        let mut seen = self.seen.lock();
        let known = catalog.tenants().policies();
        let mut policies: Policies = known.iter().map(|(name, quota)| (name.to_string(), *quota)).collect();
        change(&mut policies);
        let saved = self.file.save(&policies);
        *seen = self.file.stamp();
        saved.map_err(|error| {
            tracing::error!(%error, "a change of tenant quotas cannot be kept");
            ErrorCode::PERSISTENT_FAIL
        })
    }
}

fn apply(tenants: &Tenants, policies: &Policies, now: MonotonicTime) {
    match tenants.set_policies(policies, now) {
        Ok(left_out) if left_out.is_empty() => {}
        Ok(left_out) => tracing::warn!(?left_out, "too many tenants: these have no quota"),
        Err(refusal) => tracing::warn!(%refusal, "the quotas stay as they are"),
    }
}

/// The tenants as the admin server sees them.
pub(crate) struct TenantDesk(pub(crate) Arc<Shared>);

fn row(quota: TenantQuota) -> TenantRow {
    TenantRow {
        tenant_id: quota.name.to_string(),
        requested_quota_bytes: quota.requested,
        effective_quota_bytes: quota.effective,
        charged_bytes: quota.charged,
        admission_closed: quota.closed,
        over_quota: quota.over,
        has_explicit_policy: quota.has_policy,
    }
}

impl TenantDesk {
    fn tenants(&self) -> Result<(&Tenants, MonotonicTime), ErrorCode> {
        let tenants = self.0.catalog.tenants();
        if tenants.is_multi() { Ok((tenants, self.0.clock.now())) } else { Err(ErrorCode::UNAVAILABLE_IN_CURRENT_MODE) }
    }

    /// Keeps a change, where policies are kept at all.
    fn keep(&self, now: MonotonicTime, change: impl FnOnce(&mut Policies)) -> Result<(), ErrorCode> {
        self.0.policies.as_ref().map_or(Ok(()), |store| store.keep(&self.0.catalog, now, change))
    }
}

impl yb_admin::Tenants for TenantDesk {
    fn quotas(&self) -> Result<Vec<TenantRow>, ErrorCode> {
        let (tenants, now) = self.tenants()?;
        Ok(tenants.quotas(now).into_iter().map(row).collect())
    }

    fn quota(&self, name: &str) -> Result<TenantRow, ErrorCode> {
        let (tenants, now) = self.tenants()?;
        tenants.quota(name, now).map(row).ok_or(ErrorCode::OBJECT_NOT_FOUND)
    }

    fn set(&self, name: &str, bytes: u64) -> Result<TenantRow, ErrorCode> {
        let (tenants, now) = self.tenants()?;
        tenants.check_policy(name.as_bytes(), bytes).map_err(|refusal| refusal.code())?;
        self.keep(now, |policies| {
            policies.insert(name.to_owned(), bytes);
        })?;
        tenants.set_policy(name, bytes, now).map_err(|refusal| refusal.code())?;
        tracing::info!(tenant = name, bytes, "tenant quota set");
        self.quota(name)
    }

    fn delete(&self, name: &str) -> Result<Option<TenantRow>, ErrorCode> {
        let (tenants, now) = self.tenants()?;
        tenants.block(name).map_err(|refusal| refusal.code())?;
        let kept = self.keep(now, |policies| {
            policies.remove(name);
        });
        if let Err(code) = kept {
            tenants.unblock(name);
            return Err(code);
        }
        tenants.forget(name, now);
        tracing::info!(tenant = name, "tenant quota deleted");
        Ok(tenants.quota(name, now).map(row))
    }
}
