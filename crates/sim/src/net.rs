//! Wires between processes: how long things take on them, and which of them are cut.

use std::time::Duration;

use yb_env::Rng;
use yb_types::MonotonicTime;

use crate::parties::Party;
use crate::scenario::Dice;

/// All wires.
pub struct Net {
    parties: usize,
    nodes: usize,
    /// Cut until then, by sender and receiver.
    cut: Vec<MonotonicTime>,
    /// Slow until then, and by how much.
    slow: Vec<(MonotonicTime, Duration)>,
}

impl Net {
    /// Whole wires between a master, nodes and clients.
    pub fn new(nodes: usize, clients: usize, now: MonotonicTime) -> Net {
        let parties = 1 + nodes + clients;
        let pairs = parties * parties;
        Net { parties, nodes, cut: vec![now; pairs], slow: vec![(now, Duration::ZERO); pairs] }
    }

    fn pair(&self, from: Party, to: Party) -> usize {
        let index = |party| match party {
            Party::Master => 0,
            Party::Node(node) => 1 + node,
            Party::Client(client) => 1 + self.nodes + client,
        };
        index(from) * self.parties + index(to)
    }

    /// Nothing passes from one to the other until then. What is sent meanwhile is lost or comes afterwards.
    pub fn cut(&mut self, from: Party, to: Party, until: MonotonicTime) {
        let pair = self.pair(from, to);
        self.cut[pair] = self.cut[pair].max(until);
    }

    /// Everything takes longer until then.
    pub fn slow_down(&mut self, from: Party, to: Party, until: MonotonicTime, by: Duration) {
        let pair = self.pair(from, to);
        self.slow[pair] = (until, by);
    }

    /// When what is sent now arrives; `None`: never.
    pub fn travel(&self, from: Party, to: Party, now: MonotonicTime, dice: &mut Rng) -> Option<MonotonicTime> {
        let pair = self.pair(from, to);
        let mut delay = match dice.below(200) {
            0 => dice.millis(50, 900),
            1..=6 => dice.millis(1, 40),
            _ => dice.micros(30, 400),
        };
        let (until, by) = self.slow[pair];
        if now < until {
            delay += by;
        }
        let cut = self.cut[pair];
        if now < cut {
            return if dice.once_in(2) { None } else { Some(cut + delay) };
        }
        Some(now + delay)
    }

    /// Whether the wire is whole.
    pub fn is_whole(&self, from: Party, to: Party, now: MonotonicTime) -> bool {
        self.cut[self.pair(from, to)] <= now
    }

    /// All wires are whole again.
    pub fn heal(&mut self, now: MonotonicTime) {
        self.cut.iter_mut().for_each(|until| *until = (*until).min(now));
        self.slow.iter_mut().for_each(|(until, _)| *until = (*until).min(now));
    }
}
