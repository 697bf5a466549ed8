//! What the master said of many objects at one time, for ranged reads later on.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::core::Core;
use crate::ops::Lookup;
use crate::ops::ranges::{Known, RangesItem};
use crate::{Error, Result};

/// Where objects can be read, as of one request. It is renewed, for the keys that are read, when half of their lease is
/// over; a key that was replaced since is read as it is then.
#[derive(Debug)]
pub struct RangesSnapshot {
    found: Mutex<HashMap<Vec<u8>, Result<Lookup>>>,
}

impl Core {
    /// Looks the keys up. A key that is not there, and a master that does not answer, are told by the reads.
    pub(crate) fn take_snapshot(&self, keys: &[&[u8]]) -> RangesSnapshot {
        let answers = self.query(keys);
        let found = keys.iter().map(|key| key.to_vec()).zip(answers).collect();
        RangesSnapshot { found: Mutex::new(found) }
    }

    /// Reads ranges of objects of a snapshot: for each fragment its bytes or why not.
    pub(crate) fn get_ranges_of(&self, snapshot: &RangesSnapshot, items: Vec<RangesItem<'_>>) -> Vec<Vec<Result<u64>>> {
        self.renew(snapshot, &items);
        let mut known = Vec::with_capacity(items.len());
        {
            let found = snapshot.found.lock();
            known.extend(items.iter().map(|item| match found.get(item.key) {
                Some(lookup) => lookup.clone(),
                None => Err(Error::invalid("the key is not in the snapshot")),
            }));
        }
        let mut refused = Vec::new();
        let mut wanted = Vec::with_capacity(items.len());
        for (index, (item, known)) in items.into_iter().zip(known).enumerate() {
            match known {
                Ok(lookup) => wanted.push((item, Known::Before(lookup))),
                Err(error) => refused.push((index, vec![Err(error); item.fragments.len()])),
            }
        }
        let mut answers = self.get_ranges(wanted);
        // In ascending order, each insertion lands where its item was.
        for (index, answer) in refused {
            answers.insert(index.min(answers.len()), answer);
        }
        answers
    }

    /// Looks those up again whose lease is half over. What cannot be looked up keeps what is known: a read decides.
    fn renew(&self, snapshot: &RangesSnapshot, items: &[RangesItem<'_>]) {
        let now = self.now();
        let mut waning: Vec<&[u8]> = {
            let found = snapshot.found.lock();
            let is_waning = |key: &[u8]| matches!(found.get(key), Some(Ok(lookup)) if lookup.is_waning(now));
            items.iter().map(|item| item.key).filter(|key| is_waning(key)).collect()
        };
        waning.sort_unstable();
        waning.dedup();
        if waning.is_empty() {
            return;
        }
        let answers = self.query(&waning);
        let mut found = snapshot.found.lock();
        for (key, answer) in waning.into_iter().zip(answers) {
            if let Some(known) = found.get_mut(key)
                && !matches!(answer, Err(Error::MasterUnreachable(_)))
            {
                *known = answer;
            }
        }
    }
}
