//! Existence, lookup, removal.

use smallvec::SmallVec;
use yb_types::ReplicaDescriptor;

use crate::core::Core;
use crate::deadline::Deadline;
use crate::link::PerKey;
use crate::ops::Lookup;
use crate::ops::portions::portions;
use crate::room::Wanted;
use crate::why::Failed;
use crate::{Error, Result};

impl Core {
    /// Asks something of all keys that are not empty, in one request or in as many as so many keys need, and gives every
    /// key its answer.
    pub(super) fn ask<T>(
        &self,
        rpc: &'static str,
        keys: &[&[u8]],
        mut request: impl FnMut(&[&[u8]], &Deadline) -> Result<PerKey<T>>,
    ) -> Vec<Result<T>> {
        let asked: SmallVec<[&[u8]; 32]> = keys.iter().copied().filter(|key| !key.is_empty()).collect();
        let mut ask_some = |asked: &[&[u8]]| {
            let deadline = match asked {
                [] => return Vec::new(),
                _ => self.start_for(asked.len()),
            };
            let answers = deadline.as_ref().map_err(Clone::clone).and_then(|deadline| request(asked, deadline));
            let mut answers = self.spread(rpc, asked.len(), answers);
            if let Ok(deadline) = &deadline {
                self.explain_each(asked, &mut answers, deadline);
            }
            answers
        };
        let parts = portions(asked.iter().map(|key| key.len()));
        let mut answers = match parts.len() {
            1 => ask_some(&asked),
            _ => parts.into_iter().filter_map(|part| asked.get(part)).flat_map(ask_some).collect(),
        }
        .into_iter();
        let empty = || Err(Error::invalid("the key is empty"));
        let mut answer = |key: &&[u8]| {
            let answer = if key.is_empty() { None } else { answers.next() };
            // The link has checked that there is an answer for every key that was sent.
            answer
                .unwrap_or_else(empty)
                .inspect_err(|error| self.counters.failures.note(rpc, key, error, || self.now()))
        };
        keys.iter().map(&mut answer).collect()
    }

    /// Has the errors among the answers say what stood in the way, as far as a master tells.
    pub(super) fn explain_each<T>(&self, keys: &[&[u8]], answers: &mut [Result<T>], deadline: &Deadline) {
        let failed = keys.iter().zip(answers).filter_map(|(key, answer)| {
            answer.as_mut().err().map(|error| Failed { key, error, wanted: Wanted::default() })
        });
        self.explain(failed, deadline);
    }

    /// One answer for each of `count` keys; no answer at all is the answer of each.
    pub(super) fn spread<T>(&self, rpc: &'static str, count: usize, answers: Result<PerKey<T>>) -> Vec<Result<T>> {
        match answers {
            Ok(answers) => {
                answers.into_iter().map(|answer| answer.map_err(|code| Error::from_master(rpc, code))).collect()
            }
            Err(error) => {
                self.count_unanswered(&error);
                (0..count).map(|_| Err(error.clone())).collect()
            }
        }
    }

    pub(crate) fn exists(&self, keys: &[&[u8]]) -> Vec<Result<bool>> {
        self.ask("ExistKey", keys, |keys, deadline| self.link.exists(keys, deadline))
    }

    pub(crate) fn remove(&self, keys: &[&[u8]], force: bool) -> Vec<Result<()>> {
        self.ask("Remove", keys, |keys, deadline| self.link.remove(keys, force, deadline))
    }

    pub(crate) fn query(&self, keys: &[&[u8]]) -> Vec<Result<Lookup>> {
        let before = self.now();
        let answers = self.ask("GetReplicaList", keys, |keys, deadline| self.link.lookup(keys, deadline));
        answers.into_iter().map(|answer| answer.map(|found| Lookup::new(found, before))).collect()
    }

    pub(crate) fn query_by_regex(&self, pattern: &[u8]) -> Result<Vec<(Vec<u8>, Vec<ReplicaDescriptor>)>> {
        self.link.lookup_by_regex(pattern, &self.start_walk()?)
    }

    pub(crate) fn remove_by_regex(&self, pattern: &[u8], force: bool) -> Result<u64> {
        self.link.remove_by_regex(pattern, force, &self.start_walk()?)
    }

    pub(crate) fn remove_all(&self, force: bool) -> Result<u64> {
        self.link.remove_all(force, &self.start_walk()?)
    }
}
