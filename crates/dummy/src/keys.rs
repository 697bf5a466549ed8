//! Existence, size, removal.

use yb_client::{Error, ProbePolicy, Result};
use yb_wire::messages::{
    GrantLeasePolicy, LeaseMode, LocalBatchProbeKeyArgs, LocalBatchRemoveArgs, LocalForceArgs, LocalKeyArgs,
    LocalKeysArgs, LocalRemoveArgs,
};
use yb_wire::{Call, List, call};

use crate::core::Core;
use crate::link::Repeat;

fn named<C: Call, T>(answer: std::result::Result<T, yb_types::ErrorCode>) -> Result<T> {
    answer.map_err(|code| Error::from_master(C::RPC.name(), code))
}

fn repeated<T>(error: &Error, keys: usize) -> Vec<Result<T>> {
    (0..keys).map(|_| Err(error.clone())).collect()
}

impl Core {
    pub(crate) fn exists(&self, key: &[u8]) -> Result<bool> {
        self.open()?;
        self.link.ask::<call::IsExistInternal, bool>(&LocalKeyArgs { key }, Repeat::Harmless)
    }

    pub(crate) fn batch_exists(&self, keys: &[&[u8]]) -> Vec<Result<bool>> {
        let args = LocalKeysArgs { keys: List::from(keys) };
        let answers = self.open().and_then(|()| {
            self.link.ask_each::<call::BatchIsExistInternal, bool>(&args, (keys.len(), 0), Repeat::Harmless)
        });
        match answers {
            Ok(answers) => answers.into_iter().map(named::<call::BatchIsExistInternal, _>).collect(),
            Err(error) => repeated(&error, keys.len()),
        }
    }

    pub(crate) fn batch_probe(&self, keys: &[&[u8]], policy: ProbePolicy) -> Vec<Result<bool>> {
        let policy = match policy {
            ProbePolicy::None => GrantLeasePolicy { lease_mode: LeaseMode::NONE.0, candidate_size: 0 },
            ProbePolicy::LastHitOnly(candidate_size) => {
                GrantLeasePolicy { lease_mode: LeaseMode::LAST_HIT_ONLY.0, candidate_size }
            }
        };
        let args = LocalBatchProbeKeyArgs { keys: List::from(keys), policy };
        let answers = self.open().and_then(|()| {
            self.link.ask_each::<call::BatchProbeKeyInternal, bool>(&args, (keys.len(), 0), Repeat::Harmless)
        });
        match answers {
            Ok(answers) => answers.into_iter().map(named::<call::BatchProbeKeyInternal, _>).collect(),
            Err(error) => repeated(&error, keys.len()),
        }
    }

    pub(crate) fn size(&self, key: &[u8]) -> Result<u64> {
        self.open()?;
        let size = self.link.ask::<call::GetSizeInternal, i64>(&LocalKeyArgs { key }, Repeat::Harmless)?;
        count::<call::GetSizeInternal>(size)
    }

    pub(crate) fn remove(&self, key: &[u8], force: bool) -> Result<()> {
        self.open()?;
        self.link.ask::<call::RemoveInternal, ()>(&LocalRemoveArgs { key, force }, Repeat::Never)
    }

    pub(crate) fn batch_remove(&self, keys: &[&[u8]], force: bool) -> Vec<Result<()>> {
        let args = LocalBatchRemoveArgs { keys: List::from(keys), force };
        let answers = self
            .open()
            .and_then(|()| self.link.ask_each::<call::BatchRemoveInternal, ()>(&args, (keys.len(), 0), Repeat::Never));
        match answers {
            Ok(answers) => answers.into_iter().map(named::<call::BatchRemoveInternal, _>).collect(),
            Err(error) => repeated(&error, keys.len()),
        }
    }

    pub(crate) fn remove_by_regex(&self, pattern: &str, force: bool) -> Result<u64> {
        self.open()?;
        let args = LocalRemoveArgs { key: pattern.as_bytes(), force };
        let removed = self.link.ask_slowly::<call::RemoveByRegexInternal, i64>(&args)?;
        count::<call::RemoveByRegexInternal>(removed)
    }

    pub(crate) fn remove_all(&self, force: bool) -> Result<u64> {
        self.open()?;
        let removed = self.link.ask_slowly::<call::RemoveAllInternal, i64>(&LocalForceArgs { force })?;
        count::<call::RemoveAllInternal>(removed)
    }
}

/// The peer answers with negative numbers where its counts fail.
pub(crate) fn count<C: Call>(number: i64) -> Result<u64> {
    let code = || yb_types::ErrorCode(i32::try_from(number).unwrap_or(-1));
    u64::try_from(number).map_err(|_| Error::from_master(C::RPC.name(), code()))
}
