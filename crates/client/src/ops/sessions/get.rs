//! Get sessions: one lookup for many reads of ranges of an object.
//!
//! The lease is renewed when half of it is over, and only for the same object: if another took its place, the session is
//! over. Two users of one key share a session; it ends with the last of them.

use std::collections::HashMap;

use yb_types::{ReplicaDescriptor, ReplicaStatus};

use crate::core::Core;
use crate::ops::Lookup;
use crate::ops::ranges::{Known, RangesItem};
use crate::replicas::{is_still_there, object_size};
use crate::{Error, Result};

/// One object that is being read.
#[derive(Debug)]
pub(super) struct GetSession {
    lookup: Lookup,
    /// Starts that were not ended.
    users: u32,
}

fn no_session() -> Error {
    Error::invalid("no get session is open for this key")
}

/// Whether a replica of `before` is still one of `now`, with the same bytes.
fn is_same_object(before: &Lookup, now: &Lookup) -> bool {
    let complete = before.replicas.iter().filter(|replica| replica.status == ReplicaStatus::COMPLETE);
    complete.into_iter().any(|replica| is_still_there(replica, before.checksum, now))
}

/// The object's size, if it can be read from memory.
fn memory_size(lookup: &Lookup) -> Option<u64> {
    let readable =
        |replica: &&ReplicaDescriptor| replica.status == ReplicaStatus::COMPLETE && replica.memory().is_some();
    lookup.replicas.iter().find(readable).map(object_size)
}

impl Core {
    /// Opens sessions. A second start of a key takes the object as it is then.
    pub(crate) fn get_session_start(&self, keys: &[&[u8]]) -> Vec<Result<()>> {
        let answers = self.query(keys);
        let now = self.now();
        let mut gets = self.sessions.gets.lock();
        let mut open = |(key, answer): (&&[u8], Result<Lookup>)| {
            let lookup = answer?;
            memory_size(&lookup).ok_or(Error::NoReadableReplica)?;
            if lookup.lease_ends <= now {
                return Err(Error::LeaseExpired);
            }
            let users = gets.get(*key).map_or(0, |session| session.users).saturating_add(1);
            gets.insert(key.to_vec(), GetSession { lookup, users });
            Ok(())
        };
        keys.iter().zip(answers).map(&mut open).collect()
    }

    /// Reads ranges of objects with open sessions: bytes of each item.
    pub(crate) fn get_session_read(&self, items: Vec<RangesItem<'_>>) -> Vec<Result<u64>> {
        self.renew_sessions(&items);
        let mut answers: Vec<Result<u64>> = Vec::with_capacity(items.len());
        let (mut wanted, mut places) = (Vec::with_capacity(items.len()), Vec::with_capacity(items.len()));
        {
            let gets = self.sessions.gets.lock();
            for (index, item) in items.into_iter().enumerate() {
                let known = lookup_for(&gets, &item);
                answers.push(known.as_ref().map(|_| item.bytes()).map_err(Clone::clone));
                if let Ok(lookup) = known {
                    places.push((index, item.key));
                    wanted.push((item, Known::Only(lookup)));
                }
            }
        }
        for ((index, key), read) in places.into_iter().zip(self.get_ranges(wanted)) {
            if let Some(error) = read.into_iter().find_map(Result::err) {
                if error == Error::LeaseExpired {
                    self.sessions.gets.lock().remove(key);
                }
                answers[index] = Err(error);
            }
        }
        answers
    }

    /// Ends sessions; a key without one is no mistake.
    pub(crate) fn get_session_end(&self, keys: &[&[u8]]) {
        let mut gets = self.sessions.gets.lock();
        for key in keys {
            let left = gets.get_mut(*key).map(|session| {
                session.users = session.users.saturating_sub(1);
                session.users
            });
            if left == Some(0) {
                gets.remove(*key);
            }
        }
    }

    /// Looks those up again whose lease is half over. A session whose object is not the same any more ends.
    fn renew_sessions(&self, items: &[RangesItem<'_>]) {
        let now = self.now();
        let mut waning: Vec<&[u8]> = {
            let gets = self.sessions.gets.lock();
            let is_waning = |key: &[u8]| gets.get(key).is_some_and(|session| session.lookup.is_waning(now));
            items.iter().map(|item| item.key).filter(|key| is_waning(key)).collect()
        };
        waning.sort_unstable();
        waning.dedup();
        if waning.is_empty() {
            return;
        }
        let answers = self.query(&waning);
        let mut gets = self.sessions.gets.lock();
        for (key, answer) in waning.into_iter().zip(answers) {
            let Some(session) = gets.get_mut(key) else { continue };
            match answer {
                Ok(lookup) if is_same_object(&session.lookup, &lookup) => session.lookup = lookup,
                // The lease that is left decides.
                Err(Error::MasterUnreachable(_)) => {}
                // What is left of the lease belongs to an object that was replaced or removed.
                _ => session.lookup.lease_ends = now,
            }
        }
    }
}

/// What is known of an item's object, if all its ranges are inside.
fn lookup_for(gets: &HashMap<Vec<u8>, GetSession>, item: &RangesItem<'_>) -> Result<Lookup> {
    let session = gets.get(item.key).ok_or_else(no_session)?;
    let size = memory_size(&session.lookup).ok_or(Error::NoReadableReplica)?;
    item.fragments.iter().try_for_each(|fragment| fragment.check(size))?;
    Ok(session.lookup.clone())
}
