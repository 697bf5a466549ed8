//! Put sessions: an object written range by range, readable from its end on.
//!
//! ```text
//!            range writes
//!              ┌───┐
//!   start ──► open ──end/revoke──► sealed ──(writes under way are over)──► gone
//!              └────────────── five minutes after its start ──────────────► gone, given up
//! ```
//!
//! The master may give the space of an unfinished write to others after its release timeout (10 minutes). A session ends
//! well before: nothing is written through it any more.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use smallvec::SmallVec;
use yb_transfer::{Opcode, Span};
use yb_types::{ErrorCode, MonotonicTime, ReplicaDescriptor, ReplicateConfig};
use yb_wire::messages::EndedWrite;

use super::coverage::Coverage;
use crate::core::Core;
use crate::deadline::{Deadline, KEY_BYTES};
use crate::link::{Ending, Manner, Reservation};
use crate::memory::Piece;
use crate::mover::{self, Mover};
use crate::ops::put::{CLEANUP_TIME, UnderWay, Written, check_config, named};
use crate::ops::ranges::{RangesItem, covered};
use crate::room::Wanted;
use crate::why::Failed;
use crate::{Error, NoRoom, Result, Why};

/// How long a session lasts at most.
const LIFE: Duration = Duration::from_secs(300);
/// Written where nobody wrote.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// One object that is being written.
#[derive(Debug)]
pub(super) struct PutSession {
    size: u64,
    replicas: Vec<ReplicaDescriptor>,
    ends: MonotonicTime,
    state: Mutex<State>,
    /// No write is under way.
    quiet: Condvar,
}

#[derive(Debug, Default)]
struct State {
    written: Coverage,
    /// Ranges that did not arrive everywhere.
    failed: Coverage,
    why: Option<Error>,
    /// Bytes may still be under way to a replica.
    restless: bool,
    under_way: u32,
    sealed: bool,
}

impl PutSession {
    /// Begins a write, unless the session is over.
    fn enter(&self, now: MonotonicTime) -> Result<()> {
        let mut state = self.state.lock();
        if state.sealed || now >= self.ends {
            return Err(no_session());
        }
        state.under_way += 1;
        Ok(())
    }

    /// Ends a write.
    fn leave(&self, item: &RangesItem<'_>, outcome: &Result<()>, restless: bool) {
        let mut state = self.state.lock();
        for fragment in &item.fragments {
            let side = if outcome.is_ok() { &mut state.written } else { &mut state.failed };
            side.add(fragment.offset, fragment.memory.len());
        }
        if let Err(error) = outcome {
            state.why.get_or_insert_with(|| error.clone());
            state.restless |= restless;
        }
        state.under_way -= 1;
        if state.under_way == 0 {
            self.quiet.notify_all();
        }
    }

    /// Refuses further writes and waits for those under way, no longer than `patience`. An error when somebody else has
    /// sealed it; [`Error::Busy`] when writes are under way after that time, and the session is as it was.
    fn seal(&self, patience: Duration) -> Result<()> {
        let mut state = self.state.lock();
        if std::mem::replace(&mut state.sealed, true) {
            return Err(no_session());
        }
        let is_busy = |state: &mut State| state.under_way > 0;
        if self.quiet.wait_while_for(&mut state, is_busy, patience).timed_out() && state.under_way > 0 {
            state.sealed = false;
            return Err(Error::Busy(Why::default()));
        }
        Ok(())
    }

    /// The bytes that nobody wrote, of a sealed session.
    ///
    /// # Errors
    /// Why some that were to be written did not arrive.
    fn holes(&self) -> Result<Vec<Range<u64>>> {
        let state = self.state.lock();
        let holes = state.written.holes(self.size);
        match &state.why {
            Some(why) if holes.iter().any(|hole| state.failed.touches(hole)) => Err(why.clone()),
            _ => Ok(holes),
        }
    }

    fn is_restless(&self) -> bool {
        self.state.lock().restless
    }
}

fn no_session() -> Error {
    Error::invalid("no put session is open for this key")
}

impl Core {
    /// Opens sessions: reserves space for objects of these sizes.
    pub(crate) fn put_session_start(&self, keys: &[&[u8]], sizes: &[u64], config: &ReplicateConfig) -> Vec<Result<()>> {
        let flexible = config.nof_replica_num == 0 || (config.nof_replica_num == 1 && config.replica_num == 1);
        let refused = match check_config(config, keys.len()) {
            _ if self.is_closed() => Some(Error::Closed),
            Err(error) => Some(error),
            _ if keys.len() != sizes.len() => {
                Some(Error::invalid(format!("{} keys, {} sizes", keys.len(), sizes.len())))
            }
            _ if !flexible => Some(Error::invalid("a put session writes memory replicas only")),
            _ => None,
        };
        if let Some(error) = refused {
            return keys.iter().map(|_| Err(error.clone())).collect();
        }
        self.give_up_old_sessions();
        let mut answers: Vec<Result<()>> = Vec::with_capacity(keys.len());
        let (mut wanted, mut seen) = (Vec::with_capacity(keys.len()), HashSet::with_capacity(keys.len()));
        for (index, (key, size)) in keys.iter().zip(sizes).enumerate() {
            let answer = self.may_open(key, *size, !seen.insert(*key));
            if answer.is_ok() {
                wanted.push(index);
            }
            answers.push(answer);
        }
        for (index, answer) in wanted.iter().zip(self.open_sessions(keys, sizes, &wanted, config)) {
            answers[*index] = answer;
        }
        answers
    }

    fn may_open(&self, key: &[u8], size: u64, again: bool) -> Result<()> {
        if key.is_empty() || size == 0 {
            return Err(Error::invalid("a put session needs a key and a size"));
        }
        if self.sessions.puts.lock().contains_key(key) {
            return Err(Error::invalid("a put session is open for this key"));
        }
        if again {
            return Err(Error::from_master("PutStart", ErrorCode::OBJECT_ALREADY_EXISTS));
        }
        Ok(())
    }

    fn open_sessions(
        &self,
        keys: &[&[u8]],
        sizes: &[u64],
        wanted: &[usize],
        config: &ReplicateConfig,
    ) -> Vec<Result<()>> {
        if wanted.is_empty() {
            return Vec::new();
        }
        let of = keys.len();
        let keys: SmallVec<[&[u8]; 32]> = wanted.iter().map(|index| keys[*index]).collect();
        let sizes: SmallVec<[u64; 32]> = wanted.iter().map(|index| sizes[*index]).collect();
        let deadline = Deadline::for_keys(&self.clock, &self.config.limits, keys.len());
        let ends = deadline.started + LIFE;
        let config = self.effective_config(config, wanted, of);
        let copies = config.replica_num.max(1);
        let reservation = Reservation { manner: Manner::Put, keys: &keys, sizes: &sizes, config };
        let answers = self.link.write_start(reservation, &deadline);
        let answers = self.spread("PutStart", keys.len(), answers);
        let open = |((key, size), answer): ((&&[u8], &u64), Result<Vec<ReplicaDescriptor>>)| {
            let replicas = answer?;
            let mut memory = replicas.iter().filter_map(ReplicaDescriptor::memory).peekable();
            if memory.peek().is_none() || memory.any(|buffer| buffer.size != *size) {
                let ending = (Ending::all(Manner::Put), true);
                let _ = self.link.write_revoke(ending, &[named(key, &replicas)], &deadline);
                return Err(Error::NoSpace(NoRoom::Untold));
            }
            let session = PutSession { size: *size, replicas, ends, state: Mutex::default(), quiet: Condvar::new() };
            self.sessions.puts.lock().insert(key.to_vec(), Arc::new(session));
            Ok(())
        };
        let mut opened: Vec<Result<()>> = keys.iter().zip(&sizes).zip(answers).map(open).collect();
        let failed = keys.iter().zip(&sizes).zip(&mut opened).filter_map(|((key, size), answer)| {
            let wanted = Wanted { object: *size, all_copies: size.saturating_mul(copies), beside: 0 };
            answer.as_mut().err().map(|error| Failed { key, error, wanted })
        });
        self.explain(failed, &deadline);
        opened
    }

    /// Writes ranges of objects to all their replicas, in one transfer batch: bytes of each item.
    pub(crate) fn put_session_write(&self, items: &[RangesItem<'_>]) -> Vec<Result<u64>> {
        let _under_way = UnderWay::enter(&self.puts);
        let now = self.now();
        let mut entered: Vec<Result<Arc<PutSession>>> = items.iter().map(|item| self.enter(item, now)).collect();
        let bytes = items.iter().zip(&entered).filter(|(_, entered)| entered.is_ok()).map(|(item, _)| item.bytes());
        let deadline = Deadline::start(&self.clock, &self.config.limits, bytes.sum());
        let mut outcomes: Vec<(Result<()>, bool)> = items.iter().map(|_| (Ok(()), false)).collect();
        let mut mover = Mover::new(Opcode::Write, &self.engine, items.len()).minding(&self.suspects, &self.clock);
        for (index, (item, session)) in items.iter().zip(&entered).enumerate() {
            let Ok(session) = session else { continue };
            for buffer in session.replicas.iter().filter_map(ReplicaDescriptor::memory) {
                mover.add(index as u32, covered(&item.fragments, session.size), buffer);
            }
        }
        for (index, error) in self.move_all(mover, deadline.at).failed {
            if let Some((outcome, restless)) = outcomes.get_mut(index as usize) {
                *restless |= !mover::leaves_nothing_in_flight(&error);
                *outcome = Err(mover::failure(&error, Opcode::Write, &deadline, self.now()));
            }
        }
        let finish = |((item, entered), (outcome, restless)): ((&RangesItem<'_>, Result<Arc<PutSession>>), _)| {
            let session = entered?;
            session.leave(item, &outcome, restless);
            outcome.map(|()| item.bytes())
        };
        items.iter().zip(entered.drain(..)).zip(outcomes).map(finish).collect()
    }

    /// The session of a write that may begin.
    fn enter(&self, item: &RangesItem<'_>, now: MonotonicTime) -> Result<Arc<PutSession>> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        let session = self.sessions.puts.lock().get(item.key).cloned().ok_or_else(no_session)?;
        item.fragments.iter().try_for_each(|fragment| fragment.check(session.size))?;
        session.enter(now)?;
        Ok(session)
    }

    /// Ends sessions: what was written becomes readable, with zeros where nobody wrote. An object of which something did
    /// not arrive is given up. A key that is named twice gets one answer twice.
    pub(crate) fn put_session_end(&self, keys: &[&[u8]]) -> Vec<Result<()>> {
        once_each(keys, |keys| self.end_sessions(keys))
    }

    fn end_sessions(&self, keys: &[&[u8]]) -> Vec<Result<()>> {
        let _under_way = UnderWay::enter(&self.puts);
        let mut deadline = Deadline::for_keys(&self.clock, &self.config.limits, keys.len());
        let sealed = self.seal_sessions(keys, &deadline);
        let open = sealed.iter().flatten();
        let unwritten = open.filter_map(|session| session.holes().ok()).flatten().map(|hole| hole.end - hole.start);
        let bytes = unwritten.sum::<u64>().saturating_add(KEY_BYTES.saturating_mul(keys.len() as u64));
        deadline = deadline.with_bytes(&self.config.limits, bytes);
        let mut answers: Vec<Result<()>> = Vec::with_capacity(keys.len());
        let (mut written, mut places) = (Vec::new(), Vec::new());
        for (index, (key, session)) in keys.iter().zip(&sealed).enumerate() {
            let session = match session {
                Ok(session) => session,
                Err(error) => {
                    answers.push(Err(error.clone()));
                    continue;
                }
            };
            let whole = match () {
                () if self.is_closed() => Err(Error::Closed),
                // Its space may be another writer's soon: nothing is written there any more, zeros neither.
                () if self.now() >= session.ends => Err(no_session()),
                () => self.fill_holes(session, &deadline),
            };
            if whole.is_ok() {
                let ended = EndedWrite { write: named(key, &session.replicas), checksum: None };
                let memory_only = session.replicas.iter().all(|replica| replica.memory().is_some());
                written.push(Written { ended, memory_only });
                places.push(index);
            } else if let Err(error) = self.revoke_session(key, session, &self.with_cleanup(deadline)) {
                tracing::warn!(%error, "a put session could not be revoked; the master discards it in time");
            }
            answers.push(whole);
        }
        for (index, answer) in places.into_iter().zip(self.publish(Manner::Put, &written, &self.with_cleanup(deadline)))
        {
            answers[index] = answer;
        }
        self.drop_sessions(keys, &sealed);
        answers
    }

    /// Gives sessions up: nothing of them becomes readable.
    pub(crate) fn put_session_revoke(&self, keys: &[&[u8]]) -> Vec<Result<()>> {
        once_each(keys, |keys| self.revoke_sessions(keys))
    }

    fn revoke_sessions(&self, keys: &[&[u8]]) -> Vec<Result<()>> {
        let deadline = Deadline::for_keys(&self.clock, &self.config.limits, keys.len());
        let sealed = self.seal_sessions(keys, &deadline);
        let deadline = self.with_cleanup(deadline);
        let revoke = |(key, session): (&&[u8], &Result<Arc<PutSession>>)| match session {
            Ok(session) => self.revoke_session(key, session, &deadline),
            Err(error) => Err(error.clone()),
        };
        let answers = keys.iter().zip(&sealed).map(revoke).collect();
        self.drop_sessions(keys, &sealed);
        answers
    }

    fn revoke_session(&self, key: &[u8], session: &PutSession, deadline: &Deadline) -> Result<()> {
        let ending = (Ending::all(Manner::Put), !session.is_restless());
        let answers = self.link.write_revoke(ending, &[named(key, &session.replicas)], deadline);
        match self.spread("PutRevoke", 1, answers).pop() {
            // The master gave it up before.
            Some(Err(Error::NotFound)) | None => Ok(()),
            Some(answer) => answer,
        }
    }

    /// The deadline, with time left for telling the master how it ended.
    fn with_cleanup(&self, deadline: Deadline) -> Deadline {
        Deadline { at: deadline.at.max(self.now() + CLEANUP_TIME), ..deadline }
    }

    fn seal_sessions(&self, keys: &[&[u8]], deadline: &Deadline) -> Vec<Result<Arc<PutSession>>> {
        let seal = |key: &&[u8]| {
            let session = self.sessions.puts.lock().get(*key).cloned().ok_or_else(no_session)?;
            session.seal(deadline.left(self.now()))?;
            Ok(session)
        };
        keys.iter().map(seal).collect()
    }

    fn drop_sessions(&self, keys: &[&[u8]], sealed: &[Result<Arc<PutSession>>]) {
        let mut puts = self.sessions.puts.lock();
        for (key, _) in keys.iter().zip(sealed).filter(|(_, session)| session.is_ok()) {
            puts.remove(*key);
        }
    }

    /// Zeros for every byte that nobody wrote: what lay there before is another object's.
    fn fill_holes(&self, session: &PutSession, deadline: &Deadline) -> Result<()> {
        let holes = session.holes()?;
        if holes.is_empty() {
            return Ok(());
        }
        let mut mover = Mover::new(Opcode::Write, &self.engine, holes.len()).minding(&self.suspects, &self.clock);
        for buffer in session.replicas.iter().filter_map(ReplicaDescriptor::memory) {
            mover.add(0, holes.iter().flat_map(zeros), buffer);
        }
        match self.move_all(mover, deadline.at).failed.first() {
            Some((_, error)) => {
                session.state.lock().restless |= !mover::leaves_nothing_in_flight(error);
                Err(mover::failure(error, Opcode::Write, deadline, self.now()))
            }
            None => Ok(()),
        }
    }

    /// Gives up what is older than a session may get.
    fn give_up_old_sessions(&self) {
        let now = self.now();
        let old: Vec<Vec<u8>> = {
            let puts = self.sessions.puts.lock();
            puts.iter().filter(|(_, session)| now >= session.ends).map(|(key, _)| key.clone()).collect()
        };
        self.give_up_sessions(&old);
    }

    /// Gives up what is open: the client leaves.
    pub(crate) fn close_sessions(&self) {
        let open: Vec<Vec<u8>> = self.sessions.puts.lock().keys().cloned().collect();
        self.give_up_sessions(&open);
    }

    fn give_up_sessions(&self, keys: &[Vec<u8>]) {
        if keys.is_empty() {
            return;
        }
        tracing::warn!(sessions = keys.len(), "put sessions that nobody ended are given up");
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        for answer in self.put_session_revoke(&keys) {
            if let Err(error) = answer {
                tracing::warn!(%error, "a put session could not be revoked; the master discards it in time");
            }
        }
    }
}

/// Does something for every key once, and answers as often as it is named.
fn once_each(keys: &[&[u8]], act: impl FnOnce(&[&[u8]]) -> Vec<Result<()>>) -> Vec<Result<()>> {
    let mut places = HashMap::with_capacity(keys.len());
    let mut different: Vec<&[u8]> = Vec::with_capacity(keys.len());
    let mut order = Vec::with_capacity(keys.len());
    for key in keys.iter().copied() {
        let place = *places.entry(key).or_insert(different.len());
        if place == different.len() {
            different.push(key);
        }
        order.push(place);
    }
    let answers = act(&different);
    order.into_iter().map(|place| answers.get(place).cloned().unwrap_or(Err(Error::Closed))).collect()
}

/// Pieces of zeros that together are as long as the hole.
fn zeros<'a>(hole: &Range<u64>) -> impl Iterator<Item = Piece<'a>> + use<'a> {
    let end = hole.end;
    hole.clone().step_by(ZEROS.len()).filter_map(move |offset| {
        let len = usize::try_from(end - offset).unwrap_or(usize::MAX).min(ZEROS.len());
        Some(Piece { offset, span: Span::source(ZEROS.get(..len)?) })
    })
}
