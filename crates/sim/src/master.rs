//! Requests on their way to the master and back, and what the master does by itself.

use std::time::Duration;

use yb_types::{ClientId, MonotonicTime};

use crate::calls::{Ask, decode, encode};
use crate::parties::Party;
use crate::scenario::{Dice, Slip};
use crate::world::{CallUnderWay, Caller, Event, World};

impl World {
    /// Sends a request that must be answered by then.
    pub(crate) fn ask(&mut self, from: Caller, id: ClientId, ask: Ask, until: MonotonicTime) {
        let bytes = encode(&ask, id);
        self.note(|| format!("{from:?} asks {ask:?}"));
        let master_life = self.master.process.life;
        let (said, open, repeated, connection) = (None, true, false, self.connection_of(from));
        self.calls.push(CallUnderWay { from, id, ask, bytes, master_life, connection, said, open, repeated, until });
        self.send_call(self.calls.len() - 1);
    }

    /// Nodes have one each, of no interest.
    fn connection_of(&self, from: Caller) -> u32 {
        match from {
            Caller::Task { client, .. } => self.clients[client].connection,
            Caller::Node(..) | Caller::Keeper(..) => 0,
        }
    }

    /// A client asks over another connection from here on; the old one ends, which the master notices some time.
    pub(crate) fn new_connection(&mut self, client: usize) {
        self.connections += 1;
        let connection = std::mem::replace(&mut self.clients[client].connection, self.connections);
        self.clients[client].attended = None;
        let master_life = self.master.process.life;
        let travels = self.net.travel(Party::Client(client), Party::Master, self.now, &mut self.dice);
        let late = self.dice.millis(1, 4000);
        let at = travels.unwrap_or(self.now + late);
        self.agenda.add(at, Event::HungUp { connection, master_life });
    }

    pub(crate) fn hung_up(&mut self, connection: u32, master_life: u32) {
        let process = &self.master.process;
        if !process.alive || process.life != master_life {
            return;
        }
        if self.stands_still(Party::Master, Event::HungUp { connection, master_life }) {
            return;
        }
        if let Some(bare) = &mut self.master.bare {
            bare.hang_up(connection);
            self.hung_up.insert(connection);
        }
    }

    /// Counts a request about a write that is on its way to the master, or has come.
    fn count_under_way(&mut self, call: usize, sent: bool) {
        let Caller::Task { client, life, .. } = self.calls[call].from else { return };
        let (Some(key), known) = (self.calls[call].ask.written(), &mut self.clients[client]) else { return };
        if known.process.life == life {
            let count = &mut known.under_way[usize::from(key.0)];
            *count = if sent { *count + 1 } else { count.saturating_sub(1) };
        }
    }

    fn send_call(&mut self, call: usize) {
        let (party, until) = (self.calls[call].from.party(), self.calls[call].until);
        self.agenda.add(until.max(self.now), Event::CallOver(call));
        let arrives = self.net.travel(party, Party::Master, self.now, &mut self.dice);
        let breaks = self.scenario.breaks;
        if !self.quiet && self.dice.once_in(breaks) {
            // The connection breaks: the request comes late or never, its answer never.
            let (noticed, lost) = (self.dice.millis(1, 80), self.dice.once_in(2));
            self.after(noticed, Event::CallBroken(call));
            if let Caller::Task { client, .. } = self.calls[call].from
                && self.dice.once_in(2)
            {
                self.new_connection(client);
            }
            if lost {
                return;
            }
        }
        if let Some(at) = arrives {
            self.count_under_way(call, true);
            self.agenda.add(at, Event::Reaches(call));
        }
        // What a connection that nobody waits for any more has kept: only of requests that may come at any time.
        if self.calls[call].ask.is_named() && self.dice.once_in(3) {
            let late = self.dice.millis(100, 20_000);
            self.count_under_way(call, true);
            self.after(late, Event::Reaches(call));
        }
    }

    /// A request arrives.
    pub(crate) fn reaches_master(&mut self, call: usize) {
        let process = &self.master.process;
        if !process.alive || process.life != self.calls[call].master_life {
            let noticed = self.dice.micros(50, 3000);
            self.count_under_way(call, false);
            return self.after(noticed, Event::CallBroken(call));
        }
        if self.stands_still(Party::Master, Event::Reaches(call)) {
            return;
        }
        self.count_under_way(call, false);
        // What is said of a connection comes over it before its end does.
        if matches!(self.calls[call].ask, Ask::Attend) && self.hung_up.contains(&self.calls[call].connection) {
            return;
        }
        let CallUnderWay { connection, bytes: (function, body), .. } = &self.calls[call];
        let Some(bare) = &mut self.master.bare else { return };
        if let Some(answered) = bare.call(*connection, (*function, body), call as u32) {
            self.answers(call, &answered);
        } else {
            self.note(|| format!("master defers {call}"));
            self.survey(None);
        }
    }

    /// The master gives an answer.
    fn answers(&mut self, call: usize, answered: &yb_rpc::Answered) {
        let said = decode(&self.calls[call].ask, answered);
        let from = self.calls[call].from;
        self.note(|| format!("master to {from:?}: {said:?}"));
        self.log.digest_word(answered.body().iter().fold(1, |sum, byte| sum * 31 % 1_000_003 + u64::from(*byte)));
        self.observe(call, &said);
        self.calls[call].said = Some(said);
        let to = self.calls[call].from.party();
        if let Some(at) = self.net.travel(Party::Master, to, self.now, &mut self.dice) {
            self.agenda.add(at, Event::Heard(call));
        }
    }

    /// Hands a result to the caller, once.
    fn conclude(&mut self, call: usize, answered: bool) {
        if !std::mem::replace(&mut self.calls[call].open, false) {
            return;
        }
        let said = self.calls[call].said.clone().filter(|_| answered);
        match self.calls[call].from {
            Caller::Node(node, life) => self.node_hears(node, life, call, said),
            Caller::Keeper(node, life) => self.keeper_hears(node, life, call, said),
            Caller::Task { client, life, task, step } => {
                if self.is_current(client, life, task, step) {
                    self.task_hears(client, task, call, said);
                }
            }
        }
    }

    pub(crate) fn heard(&mut self, call: usize) {
        let is_live = self.calls[call].open;
        // An answer on a connection to a master that died meanwhile came before it did.
        if is_live && !self.stands_still(self.calls[call].from.party(), Event::Heard(call)) {
            self.conclude(call, true);
        }
    }

    pub(crate) fn call_over(&mut self, call: usize) {
        let is_tasks = matches!(self.calls[call].from, Caller::Task { .. });
        if is_tasks && self.scenario.slip == Some(Slip::NoDeadline) {
            return;
        }
        if self.calls[call].open && !self.stands_still(self.calls[call].from.party(), Event::CallOver(call)) {
            self.note(|| format!("request {call} is not answered in time"));
            self.conclude(call, false);
        }
    }

    /// The connection is gone. What may be repeated is, once.
    pub(crate) fn call_broken(&mut self, call: usize) {
        if !self.calls[call].open || self.stands_still(self.calls[call].from.party(), Event::CallBroken(call)) {
            return;
        }
        let CallUnderWay { from, id, until, repeated, .. } = self.calls[call];
        self.note(|| format!("the connection of request {call} is gone"));
        let is_peers = matches!(from, Caller::Task { client, .. } if self.clients[client].is_peers);
        if repeated || is_peers || !self.calls[call].ask.is_repeatable() {
            return self.conclude(call, false);
        }
        self.calls[call].open = false;
        let (ask, bytes) = (self.calls[call].ask.clone(), self.calls[call].bytes.clone());
        let master_life = self.master.process.life;
        let (said, open, repeated, connection) = (None, true, true, self.connection_of(from));
        self.calls.push(CallUnderWay { from, id, ask, bytes, master_life, connection, said, open, repeated, until });
        self.send_call(self.calls.len() - 1);
    }

    /// A round of the janitor, and the answers that came of it.
    pub(crate) fn janitor(&mut self, life: u32) {
        let process = &self.master.process;
        if !process.alive || process.life != life || self.stands_still(Party::Master, Event::Janitor(life)) {
            return;
        }
        let Some(bare) = &mut self.master.bare else { return };
        let sleep = bare.janitor_round();
        let late = bare.late();
        self.ledger.works(self.now);
        self.ledger.shown_before = self.ledger.shown.clone();
        self.survey(None);
        self.check_roster();
        for answered in late {
            self.answers(answered.sequence as usize, &answered);
        }
        self.ledger.shown_before.clear();
        // A loaded machine wakes it late.
        let late = self.dice.millis(20, 120);
        self.after(sleep.max(late).min(Duration::from_millis(200)), Event::Janitor(life));
    }
}
