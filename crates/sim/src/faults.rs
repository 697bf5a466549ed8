//! What goes wrong, and how it gets well again.
//!
//! Limits of what the pool promises, so of what happens here: no process stands still for longer than the release
//! timeout; one that has memory mapped and is in the middle of a write does not stand still across the start of a new
//! master; the clock of a process may be ahead, run a little wrong and jump ahead, but does not stop.

use std::time::Duration;

use yb_types::MonotonicTime;

use crate::parties::{Doing, Party, Process};
use crate::scenario::Dice;
use crate::world::{Event, World};

/// The age at most of a write whose end or revoke waits for its master, and what the master takes to hear all that waited.
const LATE_REQUEST: Duration = Duration::from_secs(5);

impl World {
    fn any_node(&mut self) -> usize {
        self.dice.below(self.nodes.len() as u64) as usize
    }

    fn any_client(&mut self) -> usize {
        self.dice.below(self.clients.len() as u64) as usize
    }

    /// Something goes wrong, and the next time is planned.
    pub(crate) fn fault(&mut self) {
        if self.quiet {
            return;
        }
        self.tally.faults += 1;
        let (node, client) = (self.any_node(), self.any_client());
        match self.dice.below(100) {
            0..14 => self.kill(Party::Node(node)),
            14..26 => self.kill(Party::Client(client)),
            26..32 => self.kill(Party::Master),
            32..46 => {
                let long = if self.dice.once_in(4) { 7000 } else { 1500 };
                let time = self.dice.millis(20, long);
                self.stop(Party::Node(node), time);
            }
            46..58 => {
                let long = if self.dice.once_in(3) { 4000 } else { 900 };
                let time = self.dice.millis(20, long);
                self.stop(Party::Client(client), time);
            }
            58..68 => {
                let long = if self.dice.once_in(3) { 12_000 } else { 1500 };
                // A request of before is heard after it, and is about a write that began some time earlier still.
                let longest = self.scenario.catalog.release_timeout.saturating_sub(LATE_REQUEST);
                let time = self.dice.millis(20, long).min(longest);
                self.stop(Party::Master, time);
            }
            68..88 => self.cut_wires(node, client),
            88..95 => {
                let (from, to) = self.any_pair(node, client);
                let (time, by) = (self.dice.millis(500, 6000), self.dice.millis(5, 600));
                self.note(|| format!("{from:?} to {to:?} is slow by {by:?} for {time:?}"));
                self.net.slow_down(from, to, self.now + time, by);
            }
            _ => {
                let ahead = self.dice.millis(1, 60_000);
                let party = if self.dice.once_in(2) { Party::Node(node) } else { Party::Client(client) };
                self.note(|| format!("the clock of {party:?} jumps {ahead:?} ahead"));
                self.process_mut(party).clock.ahead += ahead;
            }
        }
        let mean = self.scenario.fault_every.as_micros() as u64;
        let next = self.dice.micros(mean / 5, mean * 2);
        self.after(next, Event::Fault);
    }

    fn any_pair(&mut self, node: usize, client: usize) -> (Party, Party) {
        let (a, b) = match self.dice.below(3) {
            0 => (Party::Node(node), Party::Master),
            1 => (Party::Client(client), Party::Master),
            _ => (Party::Client(client), Party::Node(node)),
        };
        if self.dice.once_in(2) { (a, b) } else { (b, a) }
    }

    fn cut_wires(&mut self, node: usize, client: usize) {
        let (a, b) = self.any_pair(node, client);
        let long = if self.dice.once_in(3) { 9000 } else { 1500 };
        let until = self.now + self.dice.millis(50, long);
        self.net.cut(a, b, until);
        let both = self.dice.once_in(2);
        if both {
            self.net.cut(b, a, until);
        }
        let till = until.since(self.now);
        self.note(|| format!("{a:?} to {b:?} is cut for {till:?}{}", if both { ", both ways" } else { ", one way" }));
    }

    pub(crate) fn kill(&mut self, party: Party) {
        self.kill_for(party, None);
    }

    /// `back`: when it comes back.
    pub(crate) fn kill_for(&mut self, party: Party, back: Option<Duration>) {
        if !self.process(party).alive {
            return;
        }
        self.note(|| format!("{party:?} dies"));
        self.process_mut(party).alive = false;
        match party {
            Party::Master => {
                self.master.bare = None;
                // Whoever has memory mapped goes on; see the limits above.
                self.ledger.master_died(self.now);
            }
            Party::Node(node) => {
                let behind = self.nodes[node].directory.log.behind() as u64;
                let whole = self.dice.between(0, behind) as usize;
                let directory = std::mem::take(&mut self.nodes[node].directory);
                self.nodes[node].directory = directory.after_death(whole);
                self.check_directory(node);
            }
            Party::Client(client) => {
                self.new_connection(client);
                for task in &mut self.clients[client].tasks {
                    task.doing = Doing::Nothing;
                    task.step += 1;
                }
                self.cut_moves_of(client);
            }
        }
        let longest = if party == Party::Master { 4000 } else { 8000 };
        let back = back.unwrap_or_else(|| self.dice.millis(50, longest));
        self.after(back, Event::Back(party));
    }

    /// The sockets of a dead client close: what it has sent may still arrive.
    fn cut_moves_of(&mut self, client: usize) {
        for of in 0..self.moves.len() {
            let known = &mut self.moves[of];
            if known.client == client && !known.left {
                known.left = true;
                let lost = self.dice.once_in(2);
                let known = &mut self.moves[of];
                if known.mapped || lost {
                    known.cut = true;
                    known.unread = false;
                }
            }
        }
    }

    pub(crate) fn back(&mut self, party: Party) {
        match party {
            Party::Master => self.start_master(),
            Party::Node(node) => self.start_node(node),
            Party::Client(client) => {
                let clock = crate::world::clock(&mut self.dice);
                let id = yb_types::ClientId(self.dice.uuid());
                let known = &mut self.clients[client];
                let life = known.process.life + 1;
                known.process = Process { life, alive: true, stopped_until: MonotonicTime(0), clock };
                (known.id, known.suspects) = (id, Vec::new());
                self.note(|| format!("client {client} starts its life {life}"));
                self.start_tasks(client);
            }
        }
    }

    fn stop(&mut self, party: Party, time: Duration) {
        if !self.process(party).alive || self.process(party).stopped_until > self.now {
            return;
        }
        self.note(|| format!("{party:?} stands still for {time:?}"));
        let until = self.now + time;
        self.process_mut(party).stopped_until = until;
        if let Party::Client(client) = party {
            // It cannot keep its deadlines while it stands still.
            for task in &mut self.clients[client].tasks {
                task.must_end = task.must_end + time;
            }
        }
    }

    /// Everything gets well, what was begun ends, and what must hold at rest is looked at.
    pub(crate) fn come_to_rest(&mut self) {
        self.quiet = true;
        self.net.heal(self.now);
        self.note(|| "everything gets well".to_owned());
        let settings = &self.scenario.catalog;
        let longest = settings.release_timeout + settings.client_ttl + settings.client_suspicion_ttl;
        self.run_until(self.now + longest + Duration::from_secs(14));
        if self.broken.is_none() {
            self.check_rest();
        }
        if self.broken.is_none() {
            self.read_all();
        }
    }
}
