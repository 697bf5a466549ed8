//! The heartbeat of a node: join, ping, mount again when asked, answer questions about given-up writes.
//!
//! The rules of `heartbeat.rs` of the client; what it knows of open questions is the client's own code.

use std::time::Duration;

use yb_types::ClientStatus;
use yb_wire::messages::QuiesceQuestion;

use crate::calls::{Ask, Said};
use crate::memory::CELL;
use crate::parties::{Beat, Party};
use crate::reading::Failed;
use crate::scenario::{Dice, Kind, Slip};
use crate::world::{Caller, Event, World};

/// Between two pings, and the time that one may take.
const INTERVAL: Duration = Duration::from_secs(1);

/// What a node can do: it answers questions about given-up writes, it keeps a directory, it brings what is in it.
const QUIESCE: u64 = 1;
const DIRECTORY: u64 = 2;
const FILLED: u64 = 4;

impl World {
    pub(crate) fn beat(&mut self, node: usize, life: u32) {
        let known = &self.nodes[node];
        if !known.process.alive || known.process.life != life || known.beat == Beat::Asking {
            return;
        }
        if self.stands_still(Party::Node(node), Event::Beat { node, life }) {
            return;
        }
        let ask = if self.nodes[node].beat == Beat::Joining { self.hello(node) } else { Ask::Ping };
        self.nodes[node].beat = Beat::Asking;
        self.node_asks(node, ask);
    }

    fn node_asks(&mut self, node: usize, ask: Ask) {
        let (id, life) = (self.nodes[node].id, self.nodes[node].process.life);
        self.ask(Caller::Node(node, life), id, ask, self.now + INTERVAL);
    }

    /// What the node says of itself, and of what it brings.
    fn hello(&mut self, node: usize) -> Ask {
        if self.nodes[node].kind == Kind::Plain {
            return Ask::Hello(QUIESCE);
        }
        let brings = self.nodes[node].directory.introduce();
        self.nodes[node].directory.log.arrives();
        Ask::Hello(QUIESCE | DIRECTORY | if brings { FILLED } else { 0 })
    }

    /// From here on the master may place objects.
    fn about_to_mount(&mut self, node: usize) {
        if self.nodes[node].kind != Kind::Plain {
            self.nodes[node].directory.before_mount(true);
            self.nodes[node].directory.log.arrives();
        }
    }

    /// An answer to the heartbeat, `None` without one.
    pub(crate) fn node_hears(&mut self, node: usize, life: u32, call: usize, said: Option<Said>) {
        if !self.nodes[node].process.alive || self.nodes[node].process.life != life {
            return;
        }
        let segment = self.nodes[node].segment.clone();
        let (known, was_lent) = (self.nodes[node].was_known, self.nodes[node].was_lent);
        let next = match (&self.calls[call].ask, said) {
            (Ask::Hello(_), Some(Said::Done(Ok(())))) => {
                if known {
                    self.end_writes(node);
                }
                self.about_to_mount(node);
                // A process whose mount was not answered makes new memory; here it is the same, which is mounted again.
                self.nodes[node].was_lent = true;
                Some(if known || was_lent { Ask::Remount(segment) } else { Ask::Mount(segment) })
            }
            (Ask::Mount(_) | Ask::Remount(_), Some(Said::Done(Ok(())))) => {
                self.nodes[node].was_known = true;
                self.start_keeper(node);
                None
            }
            (Ask::Ping, Some(Said::Status(Ok(ClientStatus::NEED_REMOUNT)))) => Some(self.hello(node)),
            (Ask::Ping, Some(Said::Status(Ok(_)))) => {
                self.nodes[node].was_known = true;
                Some(Ask::Poll(self.quiet_extents(node)))
            }
            (Ask::Poll(_), Some(Said::Questions(questions))) => {
                let now = self.local(Party::Node(node));
                self.nodes[node].questions.add(questions, now);
                None
            }
            _ => None,
        };
        match next {
            Some(ask) => self.node_asks(node, ask),
            None => {
                self.nodes[node].beat = if self.nodes[node].was_known { Beat::Resting } else { Beat::Joining };
                let late = self.dice.millis(0, 30);
                self.after(INTERVAL + late, Event::Beat { node, life });
            }
        }
    }

    /// The extents that this node can confirm now.
    fn quiet_extents(&mut self, node: usize) -> Vec<yb_wire::messages::QuiesceConfirmation> {
        let now = self.local(Party::Node(node));
        let at_once = self.scenario.slip == Some(Slip::ConfirmsAtOnce);
        let now = if at_once { now + crate::quiesce::QUIET_FOR } else { now };
        let mut questions = std::mem::take(&mut self.nodes[node].questions);
        let confirmed = questions.look(now, |question| at_once || self.is_quiet(node, question));
        self.nodes[node].questions = questions;
        confirmed
    }

    /// What the owner of memory can see: no session writes there or holds bytes that nobody looked at, and the writer
    /// does not have the memory mapped.
    fn is_quiet(&self, node: usize, question: &QuiesceQuestion) -> bool {
        let life = self.nodes[node].process.life;
        let is_mapped = self.clients.iter().enumerate().any(|(client, known)| {
            known.id == question.writer && known.process.alive && self.share_a_host(client, node)
        });
        let meets = |address: u64, cells: u32| {
            address < question.address + question.size && question.address < address + u64::from(cells) * CELL
        };
        let seen = |of: &&crate::parties::Move| {
            let open = of.taken > 0 && of.taken < of.pieces && !of.cut && meets(of.address, of.cells);
            of.write.is_some() && of.node == node && of.node_life == life && !of.mapped && (open || of.unread)
        };
        !is_mapped && !self.moves.iter().any(|of| seen(&of))
    }

    /// Whether a client has the memory of a node mapped.
    pub(crate) fn share_a_host(&self, client: usize, node: usize) -> bool {
        client % self.nodes.len() == node && !self.nodes[node].is_kept()
    }

    /// The node ends the writes that are under way over sockets: its memory is about to be given to others.
    fn end_writes(&mut self, node: usize) {
        if self.scenario.slip == Some(Slip::WritesRunOn) {
            return;
        }
        let life = self.nodes[node].process.life;
        for of in 0..self.moves.len() {
            let known = &mut self.moves[of];
            let under_way = known.write.is_some() && known.node == node && known.node_life == life;
            if under_way && !known.mapped && !known.cut && known.taken < known.pieces {
                known.cut = true;
                known.unread = false;
                let noticed = self.dice.millis(1, 5);
                self.after(noticed, Event::Broke(of, Failed::Lost));
            }
        }
    }
}
