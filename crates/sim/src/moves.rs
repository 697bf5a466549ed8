//! Bytes on their way between a client and a node's memory: in pieces, each at a time of its own, over a socket or
//! through mapped memory.

use std::time::Duration;

use yb_types::MonotonicTime;

use crate::calls::Place;
use crate::memory::{CELL, WriteId};
use crate::parties::{Move, Party};
use crate::reading::Failed;
use crate::scenario::Dice;
use crate::world::{Event, World};

impl World {
    /// The node that serves an endpoint.
    pub(crate) fn node_of(&self, endpoint: &str) -> usize {
        self.nodes.iter().position(|node| node.endpoint == endpoint).unwrap_or(0)
    }

    /// Begins a transfer for the present step of a task; `write`: into the place, else from it.
    pub(crate) fn begin_move(
        &mut self,
        (client, task): (usize, usize),
        place: &Place,
        write: Option<WriteId>,
        until: MonotonicTime,
    ) -> usize {
        let node = self.node_of(&place.endpoint);
        let cells = u32::try_from(place.size / CELL).unwrap_or(1).max(1);
        let pieces = self.dice.between(1, u64::from(cells.min(4))) as u32;
        let mapped = self.share_a_host(client, node) && self.nodes[node].process.alive;
        let of = Move {
            client,
            client_life: self.clients[client].process.life,
            task,
            step: self.clients[client].tasks[task].step,
            node,
            node_life: self.nodes[node].process.life,
            memory: self.nodes[node].memories.len() as u32,
            mapped,
            write,
            address: place.address,
            cells,
            pieces,
            taken: 0,
            until,
            left: false,
            cut: false,
            unread: false,
            last_arrival: self.now,
            in_flight: 0,
        };
        self.moves.push(of);
        let index = self.moves.len() - 1;
        let over = until.since(self.local(Party::Client(client)));
        self.after(over, Event::MoveOver(index));
        let to_node = (Party::Client(client), Party::Node(node));
        if !self.nodes[node].process.alive && self.net.is_whole(to_node.0, to_node.1, self.now) {
            self.moves[index].cut = true;
            let refused = self.dice.micros(50, 500);
            self.after(refused, Event::Broke(index, Failed::Unreachable));
        } else {
            let first = self.dice.micros(5, 300);
            self.after(first, Event::Send { of: index, piece: 0 });
        }
        index
    }

    /// Whether the client still works on it.
    fn is_wanted(&self, of: usize) -> bool {
        let known = &self.moves[of];
        !known.left && self.is_current(known.client, known.client_life, known.task, known.step)
    }

    /// The pause between two pieces: mostly none to speak of.
    fn gap(&mut self) -> Duration {
        if self.dice.once_in(12) { self.dice.millis(5, 400) } else { self.dice.micros(10, 2000) }
    }

    pub(crate) fn send_piece(&mut self, of: usize, piece: u32) {
        let client = self.moves[of].client;
        if !self.is_wanted(of)
            || self.moves[of].cut
            || self.stands_still(Party::Client(client), Event::Send { of, piece })
        {
            return;
        }
        if self.local(Party::Client(client)) >= self.moves[of].until {
            return self.leave_move(of, Failed::TimedOut);
        }
        if self.moves[of].mapped {
            return self.copy_piece(of, piece);
        }
        let node = self.moves[of].node;
        let travels = self.net.travel(Party::Client(client), Party::Node(node), self.now, &mut self.dice);
        let Some(at) = travels else {
            // Nobody hears of it until the time is over.
            return;
        };
        let at = at.max(self.moves[of].last_arrival);
        self.moves[of].last_arrival = at;
        self.moves[of].in_flight += 1;
        self.agenda.add(at, Event::Arrives { of, piece });
        if self.moves[of].write.is_some() && piece + 1 < self.moves[of].pieces {
            let gap = self.gap();
            self.after(gap, Event::Send { of, piece: piece + 1 });
        }
    }

    /// Mapped memory: the client's own hands.
    fn copy_piece(&mut self, of: usize, piece: u32) {
        if !self.touch(of, piece) {
            return self.leave_move(of, Failed::Refused);
        }
        if piece + 1 < self.moves[of].pieces {
            let gap = self.gap();
            self.after(gap, Event::Send { of, piece: piece + 1 });
        } else {
            self.after(Duration::from_micros(1), Event::Came(of));
        }
    }

    pub(crate) fn piece_arrives(&mut self, of: usize, piece: u32) {
        let Move { node, node_life, cut, .. } = self.moves[of];
        let process = &self.nodes[node].process;
        if cut || !process.alive || process.life != node_life {
            self.moves[of].in_flight = self.moves[of].in_flight.saturating_sub(1);
            self.moves[of].cut = true;
            let noticed = self.dice.micros(50, 2000);
            return self.after(noticed, Event::Broke(of, Failed::Gone));
        }
        if self.stands_still(Party::Node(node), Event::Arrives { of, piece }) {
            self.moves[of].unread = true;
            return;
        }
        if piece > self.moves[of].taken {
            // A stream stays in order, whatever stood still.
            return self.after(Duration::from_micros(50), Event::Arrives { of, piece });
        }
        self.moves[of].unread = false;
        self.moves[of].in_flight = self.moves[of].in_flight.saturating_sub(1);
        let is_read = self.moves[of].write.is_none();
        if !self.touch(of, piece) {
            self.moves[of].cut = true;
            return self.after(Duration::from_micros(100), Event::Broke(of, Failed::Refused));
        }
        let last = piece + 1 == self.moves[of].pieces;
        if is_read && !last {
            self.moves[of].in_flight += 1;
            let gap = self.gap();
            self.after(gap, Event::Arrives { of, piece: piece + 1 });
        }
        if last {
            let client = self.moves[of].client;
            let travels = self.net.travel(Party::Node(node), Party::Client(client), self.now, &mut self.dice);
            if let Some(at) = travels {
                self.agenda.add(at, Event::Came(of));
            }
        }
    }

    /// Writes or reads a piece; false when there is no such memory.
    fn touch(&mut self, of: usize, piece: u32) -> bool {
        let known = &self.moves[of];
        let (node, address, cells, write) = (known.node, known.address, known.cells, known.write);
        let ((from, to), memory) = (known.part(piece), known.memory);
        let Some(memory) = self.nodes[node].memories.get_mut(memory as usize - 1) else { return false };
        let Some(first) = memory.cell(address, cells) else { return false };
        match write {
            Some(write) => memory.write(first, write, from, to),
            None => {
                let marks: Vec<_> = memory.read(first, from, to).collect();
                if self.is_wanted(of) {
                    let (client, task) = (self.moves[of].client, self.moves[of].task);
                    self.take_marks(client, task, &marks);
                }
            }
        }
        self.moves[of].taken = self.moves[of].taken.max(piece + 1);
        true
    }

    pub(crate) fn move_came(&mut self, of: usize) {
        let client = self.moves[of].client;
        if self.is_wanted(of) && !self.stands_still(Party::Client(client), Event::Came(of)) {
            self.moves[of].left = true;
            let task = self.moves[of].task;
            self.move_ended(client, task, of, None);
        }
    }

    pub(crate) fn move_broke(&mut self, of: usize, how: Failed) {
        let client = self.moves[of].client;
        if self.is_wanted(of) && !self.stands_still(Party::Client(client), Event::Broke(of, how)) {
            self.leave_move(of, how);
        }
    }

    pub(crate) fn move_over(&mut self, of: usize) {
        let client = self.moves[of].client;
        if self.is_wanted(of) && !self.stands_still(Party::Client(client), Event::MoveOver(of)) {
            self.leave_move(of, Failed::TimedOut);
        }
    }

    /// The client gives it up: the connection is closed. What is on its way may still arrive.
    fn leave_move(&mut self, of: usize, how: Failed) {
        self.moves[of].left = true;
        if self.moves[of].mapped || self.dice.once_in(2) {
            self.moves[of].cut = true;
            self.moves[of].unread = false;
        }
        let (client, task) = (self.moves[of].client, self.moves[of].task);
        self.move_ended(client, task, of, Some(how));
    }
}
