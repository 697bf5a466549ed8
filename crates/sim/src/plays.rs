//! Plays: what takes several steps to go wrong, in an order that chance alone brings together too seldom.

use std::time::Duration;

use yb_env::Rng;

use crate::parties::Party;
use crate::scenario::{Dice, Kind};
use crate::world::{Event, World};

/// What is played, beside what chance brings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Play {
    /// A node is away while much is removed, and the master ends before that node has heard of it.
    Removed,
}

impl Play {
    /// The play of a seed, if it has one.
    pub fn of(dice: &mut Rng) -> Option<Play> {
        dice.once_in(3).then_some(Play::Removed)
    }

    /// So many nodes that keep directories it needs.
    pub fn nodes(self) -> usize {
        match self {
            Play::Removed => 2,
        }
    }
}

/// Where a play stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scene {
    /// It begins.
    Opens,
    /// The master of the first play ends.
    MasterEnds,
}

impl World {
    /// Plans the first scene.
    pub(crate) fn open_play(&mut self) {
        if self.scenario.play.is_some() {
            let first = self.dice.millis(7000, 10_000);
            self.after(first, Event::Play(Scene::Opens));
        }
    }

    pub(crate) fn play(&mut self, scene: Scene) {
        match (scene, self.scenario.play) {
            _ if self.quiet => {}
            (Scene::Opens, Some(Play::Removed)) => self.send_a_node_away(),
            (Scene::MasterEnds, _) => self.kill(Party::Master),
            (Scene::Opens, None) => {}
        }
    }

    /// One of the first two nodes hears nothing from here on until the next master has begun.
    fn send_a_node_away(&mut self) {
        let node = self.dice.below(2) as usize;
        let (ends, back) = (self.dice.millis(4500, 6500), self.dice.millis(3000, 6000));
        self.note(|| format!("a play: node {node} is away, and much is removed"));
        let until = self.now + ends + back;
        if self.nodes[node].kind == Kind::File && self.dice.once_in(2) {
            self.kill_for(Party::Node(node), Some(ends + back));
        } else {
            self.net.cut(Party::Node(node), Party::Master, until);
            self.net.cut(Party::Master, Party::Node(node), until);
        }
        self.removes_until = self.now + Duration::from_millis(2500);
        self.after(ends, Event::Play(Scene::MasterEnds));
    }

    /// Whether the clients remove what they come upon.
    pub(crate) fn is_removing(&self) -> bool {
        self.now < self.removes_until
    }
}
