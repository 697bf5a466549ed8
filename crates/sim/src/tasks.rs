//! Tasks of clients: one call after the other, driven by the decisions of [`reading`](crate::reading) and
//! [`writing`](crate::writing).

use std::time::Duration;

use yb_types::{MonotonicTime, ReplicaId};

use crate::calls::{Ask, Ending, Key, Manner, Place, Said, Start};
use crate::memory::{Mark, WriteId};
use crate::parties::{Doing, Get, Party, Put};
use crate::reading::{self, Failed, Read, Reading};
use crate::scenario::{Dice, Slip};
use crate::world::{Caller, Event, World};
use crate::writing::{self, Writing, Written};

/// Time of a call but for its bytes.
const BASE: Duration = Duration::from_secs(2);
/// Time of a call whose caller is in a hurry.
const HURRY: (u64, u64) = (2, 120);
/// A writer attends no more often.
const ATTEND_EVERY: Duration = Duration::from_millis(500);
/// How long a peer that failed is asked last.
const SUSPECT_FOR: Duration = Duration::from_secs(3);
/// What a call may take beyond its deadline: the last request of a write has 250 ms, and steps take their time.
const GRACE: Duration = Duration::from_millis(600);

impl World {
    /// The step of a task is over; what was waited for concerns nobody now.
    fn step(&mut self, client: usize, task: usize) -> u32 {
        let known = &mut self.clients[client].tasks[task];
        known.step += 1;
        known.step
    }

    fn task_asks(&mut self, client: usize, task: usize, ask: Ask, until: MonotonicTime) {
        let step = self.step(client, task);
        let (id, life) = (self.clients[client].id, self.clients[client].process.life);
        let left = until.since(self.local(Party::Client(client)));
        self.ask(Caller::Task { client, life, task, step }, id, ask, self.now + left);
    }

    /// A task has nothing to do: it begins something, or goes on with a write that paused.
    pub(crate) fn wake(&mut self, client: usize, task: usize) {
        if let Doing::Put(put) = &self.clients[client].tasks[task].doing {
            let (start, until) = (put.start, put.plan.deadline());
            return self.ask_start(client, task, start, until);
        }
        if self.quiet {
            return;
        }
        let key = Key(self.dice.below(u64::from(self.scenario.keys)) as u8);
        if self.is_removing() && self.dice.once_in(2) {
            return self.begin_simple(client, task, Ask::Remove(key, true));
        }
        match self.dice.below(100) {
            0..45 => self.begin_get(client, task, key),
            45..85 if self.may_write(client, key) => self.begin_put(client, task, key),
            45..85 => self.begin_get(client, task, key),
            85..92 => self.begin_simple(client, task, Ask::Exist(key)),
            _ => {
                let force = self.dice.once_in(3);
                self.begin_simple(client, task, Ask::Remove(key, force));
            }
        }
    }

    /// A client of the peer does not say which of its writes of a key it means, so it has one at a time, and nothing of an
    /// earlier one is on its way; see the limits of what the pool promises in `docs/simulator.md`.
    fn may_write(&self, client: usize, key: Key) -> bool {
        let known = &self.clients[client];
        let writes = |task: &crate::parties::Task| matches!(&task.doing, Doing::Put(put) if put.start.key == key);
        !known.is_peers || (known.under_way[usize::from(key.0)] == 0 && !known.tasks.iter().any(writes))
    }

    /// A writer of ours attends now and then.
    fn ask_start(&mut self, client: usize, task: usize, start: Start, until: MonotonicTime) {
        let now = self.local(Party::Client(client));
        let known = &mut self.clients[client];
        let is_due = known.attended.is_none_or(|last| now.since(last) >= ATTEND_EVERY);
        if !known.is_peers && is_due {
            known.attended = Some(now);
            let (id, life) = (known.id, known.process.life);
            // Whatever it is answered, the write goes on.
            let nobody = Caller::Task { client, life, task, step: u32::MAX };
            self.ask(nobody, id, Ask::Attend, self.now + BASE);
        }
        self.task_asks(client, task, Ask::Start(start), until);
    }

    fn must_end(&mut self, client: usize, task: usize) -> MonotonicTime {
        self.clients[client].tasks[task].must_end = self.now + BASE + GRACE;
        self.local(Party::Client(client)) + BASE
    }

    pub(crate) fn begin_get(&mut self, client: usize, task: usize, key: Key) {
        let plan = Reading::until(self.must_end(client, task));
        let (asked, began) = (self.local(Party::Client(client)), self.now);
        let get = Get { key, plan, began, places: Vec::new(), got: Vec::new(), asked };
        self.clients[client].tasks[task].doing = Doing::Get(Box::new(get));
        self.get_goes_on(client, task, reading::Next::LookUp);
    }

    fn begin_put(&mut self, client: usize, task: usize, key: Key) {
        let manner = if self.dice.once_in(3) { Manner::Upsert } else { Manner::Put };
        let cells = self.dice.between(1, u64::from(self.scenario.largest)) as u32;
        let copies = if self.dice.once_in(3) { 2 } else { 1 };
        let pinned = self.dice.once_in(25);
        let now = self.local(Party::Client(client));
        let mut deadline = self.must_end(client, task);
        if self.dice.once_in(8) {
            deadline = now + self.dice.millis(HURRY.0, HURRY.1);
        }
        let write = self.ledger.new_write(key, cells, pinned);
        let start = Start { key, manner, cells, copies, pinned, write };
        let plan = Writing::until(deadline, now, manner == Manner::Upsert);
        self.clients[client].tasks[task].doing =
            Doing::Put(Box::new(Put { start, plan, name: None, moves: Vec::new() }));
        self.put_goes_on(client, task, writing::Next::Start);
    }

    fn begin_simple(&mut self, client: usize, task: usize, ask: Ask) {
        let deadline = self.must_end(client, task);
        self.clients[client].tasks[task].doing = Doing::Simple;
        self.task_asks(client, task, ask, deadline);
    }

    /// A call is over.
    fn finished(&mut self, client: usize, task: usize, how: &dyn std::fmt::Debug) {
        self.note(|| format!("client {client}.{task} is done: {how:?}"));
        let must_end = self.clients[client].tasks[task].must_end;
        if self.now > must_end {
            self.fail(format!("a call of client {client} ends {:?} after its deadline", self.now.since(must_end)));
        }
        self.clients[client].tasks[task].doing = Doing::Nothing;
        let (step, life) = (self.step(client, task), self.clients[client].process.life);
        let mean = self.scenario.pause.as_micros() as u64;
        let pause = self.dice.micros(mean / 10, mean * 2);
        self.after(pause, Event::Wake { client, life, task, step });
    }

    /// The answer of the master to a task, `None` without one.
    pub(crate) fn task_hears(&mut self, client: usize, task: usize, call: usize, said: Option<Said>) {
        let now = self.local(Party::Client(client));
        match std::mem::replace(&mut self.clients[client].tasks[task].doing, Doing::Nothing) {
            Doing::Nothing => {}
            Doing::Simple => self.finished(client, task, &said),
            Doing::Get(mut get) => {
                let next = self.get_hears(client, &mut get, said, now);
                self.clients[client].tasks[task].doing = Doing::Get(get);
                self.get_goes_on(client, task, next);
            }
            Doing::Put(mut put) => {
                let next = self.put_hears((client, task), &mut put, call, said, now);
                self.clients[client].tasks[task].doing = Doing::Put(put);
                if let Some(next) = next {
                    self.put_goes_on(client, task, next);
                }
            }
        }
    }

    fn get_hears(&mut self, client: usize, get: &mut Get, said: Option<Said>, now: MonotonicTime) -> reading::Next {
        use yb_types::ErrorCode as E;
        let done = reading::Next::Done;
        match said {
            Some(Said::Found(Ok((places, lease_ms)))) => {
                let from_answer = self.scenario.slip == Some(Slip::LeaseFromAnswer);
                let counted = if from_answer { now } else { get.asked };
                let lease_ends = counted + Duration::from_millis(lease_ms);
                let order = self.order(client, &places, now);
                get.places = places;
                get.plan.found(order, lease_ends, now)
            }
            Some(Said::Found(Err(E::OBJECT_NOT_FOUND))) => done(Read::Missing),
            Some(Said::Found(Err(E::REPLICA_IS_NOT_READY))) => done(Read::Busy),
            Some(_) => done(Read::Failed),
            None => done(Read::Unanswered),
        }
    }

    /// Replicas that can be read, mapped ones first, those of peers that failed last.
    fn order(&mut self, client: usize, places: &[Place], now: MonotonicTime) -> Vec<usize> {
        self.clients[client].suspects.retain(|(_, until)| *until > now);
        let mut order: Vec<usize> = (0..places.len()).filter(|at| places[*at].complete).collect();
        let rank = |at: &usize| {
            let node = self.node_of(&places[*at].endpoint);
            let is_suspect = self.clients[client].suspects.iter().any(|(suspect, _)| *suspect == node);
            if is_suspect { 2 } else { u8::from(!self.share_a_host(client, node)) }
        };
        order.sort_by_key(rank);
        order
    }

    fn get_goes_on(&mut self, client: usize, task: usize, next: reading::Next) {
        let now = self.local(Party::Client(client));
        match next {
            reading::Next::LookUp => {
                let Doing::Get(get) = &mut self.clients[client].tasks[task].doing else { return };
                get.asked = now;
                let (key, until) = (get.key, get.plan.deadline());
                self.task_asks(client, task, Ask::Lookup(key), until);
            }
            reading::Next::Move { replica, until } => {
                self.step(client, task);
                let Doing::Get(get) = &mut self.clients[client].tasks[task].doing else { return };
                get.got.clear();
                let place = get.places[replica].clone();
                self.begin_move((client, task), &place, None, until);
            }
            reading::Next::Done(how) => {
                match how {
                    Read::Right => {
                        self.tally.right += 1;
                        self.check_read(client, task);
                    }
                    Read::Missing => self.tally.missing += 1,
                    _ => self.tally.failed += 1,
                }
                self.finished(client, task, &how);
            }
        }
    }

    /// Marks of a read arrive.
    pub(crate) fn take_marks(&mut self, client: usize, task: usize, marks: &[Mark]) {
        if let Doing::Get(get) = &mut self.clients[client].tasks[task].doing {
            get.got.extend_from_slice(marks);
        }
    }

    fn put_hears(
        &mut self,
        (client, task): (usize, usize),
        put: &mut Put,
        call: usize,
        said: Option<Said>,
        now: MonotonicTime,
    ) -> Option<writing::Next> {
        let busy_is_stored = self.scenario.slip == Some(Slip::BusyIsStored);
        let done = writing::Next::Done;
        Some(match (&self.calls[call].ask, said) {
            (Ask::Start(_), Some(Said::Found(Ok((places, _))))) => {
                put.plan.started();
                let is_ours = !self.clients[client].is_peers;
                put.name = places.first().filter(|_| is_ours).map(|place| ReplicaId(place.replica));
                self.write_all(client, task, put, &places);
                if self.scenario.slip != Some(Slip::EndsEarly) {
                    return None;
                }
                put.plan.moved(None, true, now)
            }
            (Ask::Start(_), Some(Said::Found(Err(yb_types::ErrorCode::REPLICA_IS_NOT_READY)))) if busy_is_stored => {
                done(Written::Stored)
            }
            (Ask::Start(_), Some(Said::Found(Err(code)))) => put.plan.refused(code, now),
            (Ask::End(..), Some(Said::Done(Ok(())))) => done(Written::Stored),
            (Ask::End(..), Some(Said::Done(Err(code)))) => done(Written::Refused(code)),
            (Ask::Revoke(..), _) if self.clients[client].is_peers => done(Written::Failed),
            (Ask::Revoke(..), said) => put.plan.revoked(said.is_some(), now),
            (_, Some(_)) => done(Written::Failed),
            (_, None) => done(Written::Unanswered),
        })
    }

    /// Transfers to all places of a write.
    fn write_all(&mut self, client: usize, task: usize, put: &mut Put, places: &[Place]) {
        self.step(client, task);
        put.moves.clear();
        for place in places {
            let until = put.plan.deadline();
            let of = self.begin_move((client, task), place, Some(put.start.write), until);
            put.moves.push((of, None));
        }
    }

    /// A transfer of a task is over.
    pub(crate) fn move_ended(&mut self, client: usize, task: usize, of: usize, failed: Option<Failed>) {
        let now = self.local(Party::Client(client));
        if let Some(how) = failed {
            self.note(|| format!("client {client}.{task}: transfer {of} failed: {how:?}"));
            if how.is_peers_fault() {
                let node = self.moves[of].node;
                self.clients[client].suspects.push((node, now + SUSPECT_FOR));
            }
        }
        let slip = self.scenario.slip;
        match &mut self.clients[client].tasks[task].doing {
            Doing::Get(get) => {
                let next = match failed {
                    Some(how) => get.plan.failed(how, now),
                    None if slip == Some(Slip::NoLeaseCheck) => reading::Next::Done(Read::Right),
                    None => get.plan.arrived(now),
                };
                self.get_goes_on(client, task, next);
            }
            Doing::Put(put) => {
                if let Some(known) = put.moves.iter_mut().find(|(index, _)| *index == of) {
                    known.1 = Some(failed);
                }
                if put.moves.iter().all(|(_, ended)| ended.is_some()) {
                    let failures = put.moves.iter().filter_map(|(_, ended)| ended.flatten());
                    let restless = failures.clone().any(|how| !how.leaves_nothing_in_flight());
                    let first = failures.clone().next();
                    let quiet = !restless || slip == Some(Slip::QuietRegardless);
                    let next = put.plan.moved(first, quiet, now);
                    self.put_goes_on(client, task, next);
                }
            }
            Doing::Nothing | Doing::Simple => {}
        }
    }

    fn put_goes_on(&mut self, client: usize, task: usize, next: writing::Next) {
        let Doing::Put(put) = &mut self.clients[client].tasks[task].doing else { return };
        let (Start { key, manner, cells, pinned, write, .. }, deadline) = (put.start, put.plan.deadline());
        let ending = Ending { key, manner, name: put.name, write };
        match next {
            writing::Next::Start => {
                // Each reservation has marks of its own.
                let write = self.ledger.new_write(key, cells, pinned);
                if let Doing::Put(put) = &mut self.clients[client].tasks[task].doing {
                    put.start.write = write;
                    let start = put.start;
                    self.ask_start(client, task, start, deadline);
                }
            }
            writing::Next::Pause(pause) => {
                let (step, life) = (self.step(client, task), self.clients[client].process.life);
                self.after(pause, Event::Wake { client, life, task, step });
            }
            // The driver began them with the answer to the start.
            writing::Next::Move(_) => {}
            writing::Next::End(until) => {
                self.task_asks(client, task, Ask::End(ending), until);
            }
            writing::Next::Revoke { quiet, until } => {
                self.task_asks(client, task, Ask::Revoke(ending, quiet && ending.name.is_some()), until);
            }
            writing::Next::Done(how) => {
                match how {
                    Written::Stored => {
                        self.tally.stored += 1;
                        self.check_stored(write);
                    }
                    _ => self.tally.unstored += 1,
                }
                self.finished(client, task, &how);
            }
        }
    }
}

/// The write of which all cells are, if they are whole.
pub(crate) fn one_write(got: &[Mark]) -> Option<WriteId> {
    let write = got.first()?.write;
    got.iter().zip(0..).all(|(mark, part)| *mark == Mark { write, part }).then_some(write)
}
