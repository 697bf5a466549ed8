//! Our policy: prefix chains, ranked by what their last access promises.
//!
//! Keys form a forest: the parent of a key is the key before it in its batch. Only leaves stand in queues, so a parent
//! never goes before its child, unless every leaf is protected. There is a queue for every class of access and bin of age ([`crate::density`]); the
//! victim comes from the occupied queue that ranks lowest. An access moves the whole path to the youngest bin, so the
//! conversation ages as one. What was evicted leaves a ghost: a conversation that comes back is known as one.

use yb_types::MonotonicTime;

use crate::arena::{Arena, List, NIL, mix};
use crate::density::{BINS, CELLS, Density, Kind, class, not_tail};
use crate::ghosts::Ghosts;
use crate::policy::{Key, Newcomer, Policy, Seen, Slot, Verdict, Victims};

/// A key that is used so often is a shared prompt: what follows it is a conversation of its own.
const HUB_USES: u8 = 64;
/// Accesses within so many ticks (0.5 s) are one: exist, get and the other ranks of one request.
const SAME_ACCESS: u32 = 8;
/// Ticks between two looks at the queues' fronts.
const AGEING: u32 = 4;
/// Recent neighbours that are remembered until their put comes.
const LINKS: usize = 4096;
/// Victims that the owner is told of at once, and the pool size from which on that pays: smaller ones are in the cache.
const AHEAD: usize = 16;
const LOOK_AHEAD_FROM: usize = 32_768;
/// [`Facts::bin`] of keys that a lease held when their turn came, and of keys in no queue.
const HELD: u8 = BINS as u8;
const NO_QUEUE: u8 = HELD + 1;

/// Sizes of a [`Chain`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChainSettings {
    /// Evicted keys that are remembered for each resident one, 5.3 bytes each; in pools of more than 131,072 keys fewer,
    /// down to two.
    pub ghosts_per_key: usize,
}

impl Default for ChainSettings {
    fn default() -> Self {
        ChainSettings { ghosts_per_key: 8 }
    }
}

/// What is kept of a key: 16 bytes, 28 with tag and neighbours.
#[derive(Clone, Copy, Debug, Default)]
struct Facts {
    /// Number of the place of the key before it; [`NIL`] for none.
    parent: u32,
    children: u32,
    /// Tick of the last access.
    seen: u32,
    class: u8,
    uses: u8,
    /// Bin of the queue that it stands in.
    bin: u8,
    /// Tells whether the parent's place is still the parent's, see [`Arena::check`].
    parent_check: u8,
}

/// The neighbour before a key in a lookup, kept until the key is put: a put names only what was missing.
#[derive(Clone, Copy, Debug)]
struct Link {
    of: u64,
    parent: Slot,
    length: u32,
}

/// Where in its request a key stands.
#[derive(Clone, Copy, Debug)]
struct Position {
    length: usize,
    last: bool,
    extends: bool,
}

/// Our policy. 28 bytes a key, and once keys have been evicted 43 for its share of the ghosts, 11 in large pools.
#[derive(Debug)]
pub struct Chain {
    nodes: Arena<Facts>,
    /// A queue for each class and bin, the longest unused in front.
    cells: Vec<List>,
    /// Bit `rank`: the queue of that rank is not empty.
    occupied: [u64; CELLS.div_ceil(64)],
    held: List,
    density: Density,
    ghosts: Ghosts,
    links: Vec<Link>,
    aged: u32,
    /// Victims until the next look ahead.
    foreseen: usize,
}

/// 2^26 ns (67 ms), as the catalog counts.
fn tick(now: MonotonicTime) -> u32 {
    (now.0 >> 26) as u32
}

impl Chain {
    /// Without keys.
    pub fn new() -> Self {
        Self::with(ChainSettings::default())
    }

    /// Without keys, of other sizes than usual.
    pub fn with(settings: ChainSettings) -> Self {
        Chain {
            nodes: Arena::new(),
            cells: vec![List::EMPTY; CELLS],
            occupied: [0; CELLS.div_ceil(64)],
            held: List::EMPTY,
            density: Density::new(),
            ghosts: Ghosts::new(settings.ghosts_per_key),
            links: vec![Link { of: 0, parent: Slot::new(0, 0), length: 0 }; LINKS],
            aged: 0,
            foreseen: 0,
        }
    }

    /// The resident parent of a resident key, for tests of the order.
    pub fn parent(&mut self, slot: Slot) -> Option<Slot> {
        let number = self.nodes.find(slot)?;
        let facts = self.nodes[number].value;
        self.parent_of(&facts).map(|parent| self.nodes.slot(parent))
    }

    fn parent_of(&self, facts: &Facts) -> Option<u32> {
        let known = facts.parent != NIL && self.nodes.occupant(facts.parent).is_some();
        (known && self.nodes.check(facts.parent) == facts.parent_check).then_some(facts.parent)
    }

    fn cell(facts: &Facts) -> usize {
        usize::from(facts.class) * BINS + usize::from(facts.bin)
    }

    fn mark(&mut self, cell: usize) {
        let rank = self.density.rank(cell);
        let bit = 1 << (rank % 64);
        if self.cells[cell].is_empty() {
            self.occupied[rank / 64] &= !bit;
        } else {
            self.occupied[rank / 64] |= bit;
        }
    }

    fn lowest_cell(&mut self) -> Option<usize> {
        self.nodes.steps += 1;
        let (word, bits) = self.occupied.iter().enumerate().find(|(_, bits)| **bits != 0)?;
        Some(self.density.cell_at(word * 64 + bits.trailing_zeros() as usize))
    }

    fn leave_queue(&mut self, slot: u32) {
        let facts = self.nodes[slot].value;
        match facts.bin {
            NO_QUEUE => return,
            HELD => self.nodes.unlink(&mut self.held, slot),
            _ => {
                let cell = Self::cell(&facts);
                self.nodes.unlink(&mut self.cells[cell], slot);
                self.mark(cell);
            }
        }
        self.nodes[slot].value.bin = NO_QUEUE;
    }

    /// Puts a leaf into the queue of its class and age, in order of age as far as its neighbours tell.
    fn join_queue(&mut self, slot: u32, now: u32) {
        let seen = self.nodes[slot].value.seen;
        self.nodes[slot].value.bin = self.density.bin(now.saturating_sub(seen));
        let cell = Self::cell(&self.nodes[slot].value);
        let older = self.cells[cell].front().is_some_and(|front| seen <= self.nodes[front].value.seen);
        if older {
            self.nodes.push_front(&mut self.cells[cell], slot);
        } else {
            self.nodes.push_back(&mut self.cells[cell], slot);
        }
        self.mark(cell);
    }

    /// Ranks anew when it is time. Only a victim needs ranks, so a pool that is not full pays nothing for them.
    fn rank(&mut self) {
        if !self.density.is_out_of_date() {
            return;
        }
        self.density.refresh(self.nodes.len());
        self.nodes.steps += CELLS as u64;
        self.occupied = [0; CELLS.div_ceil(64)];
        for cell in 0..CELLS {
            self.mark(cell);
        }
    }

    fn kind(uses: u8, tail: bool, extends: bool) -> Kind {
        match uses {
            HUB_USES.. => Kind::Hub,
            0 | 1 if tail => Kind::Tail,
            0 | 1 if extends => Kind::Extension,
            0 | 1 => Kind::New,
            2 => Kind::Second,
            3 => Kind::Third,
            _ => Kind::Frequent,
        }
    }

    fn access(&mut self, slot: u32, position: Position, now: u32) {
        let facts = self.nodes[slot].value;
        let age = now.saturating_sub(facts.seen);
        if age < SAME_ACCESS {
            return;
        }
        self.density.returned(facts.class, age);
        self.leave_queue(slot);
        let uses = facts.uses.saturating_add(1);
        let tail = position.last && facts.children == 0;
        let class = class(Self::kind(uses, tail, position.extends), position.length);
        let node = &mut self.nodes[slot].value;
        (node.uses, node.class, node.seen) = (uses, class, now);
        if node.children == 0 {
            self.join_queue(slot, now);
        }
        self.density.accessed(class);
    }

    /// A key that is not there yet, below `parent`. What its ghost knows counts.
    fn admit(&mut self, newcomer: &Newcomer, parent: u32, position: Position, now: u32) -> u32 {
        let ghost = self.ghosts.recall(newcomer.key, now);
        if let Some(ghost) = ghost {
            self.density.returned(ghost.class, ghost.age);
        }
        let uses = ghost.map_or(1, |ghost| ghost.uses + 1);
        let class = class(Self::kind(uses, position.last, position.extends), position.length);
        let parent_check = if parent == NIL { 0 } else { self.nodes.check(parent) };
        let facts = Facts { parent, children: 0, seen: now, class, uses, bin: NO_QUEUE, parent_check };
        let slot = self.nodes.add(newcomer.slot, facts);
        if parent != NIL {
            self.adopt(parent, position);
        }
        self.join_queue(slot, now);
        self.density.accessed(class);
        slot
    }

    /// `parent` has one child more. If it was taken for the end of a request, it is not.
    fn adopt(&mut self, parent: u32, position: Position) {
        self.leave_queue(parent);
        let facts = &mut self.nodes[parent].value;
        facts.children += 1;
        let was = facts.class;
        if let Some(class) = not_tail(was, Self::kind(facts.uses, false, position.extends)) {
            facts.class = class;
            self.density.reclassified(was, class);
        }
    }

    /// One child of `slot` is gone; without any it is a leaf.
    fn lose_child(&mut self, slot: u32, now: u32) {
        let facts = &mut self.nodes[slot].value;
        // A place that was given to another key may be taken for the parent, by chance.
        if facts.children == 0 {
            return;
        }
        facts.children -= 1;
        if facts.children == 0 {
            self.join_queue(slot, now);
        }
    }

    /// Takes a key out. Its children, if it has any, are heads of chains from now on.
    fn take_out(&mut self, slot: u32, now: u32) {
        self.leave_queue(slot);
        let facts = self.nodes[slot].value;
        self.nodes.release(slot);
        if let Some(parent) = self.parent_of(&facts) {
            self.lose_child(parent, now);
        }
    }

    fn link_place(of: u64) -> usize {
        (mix(Key(of)) % LINKS as u64) as usize
    }

    fn remember(&mut self, of: u64, parent: Slot, length: usize) {
        self.nodes.steps += 1;
        self.links[Self::link_place(of)] = Link { of, parent, length: u32::try_from(length).unwrap_or(u32::MAX) };
    }

    fn recall(&mut self, of: u64) -> Option<Link> {
        self.nodes.steps += 1;
        let link = self.links[Self::link_place(of)];
        (link.of == of && link.length > 0).then_some(link)
    }

    /// Groups share the table of links with keys.
    fn group_name(group: u64) -> u64 {
        !mix(Key(group))
    }

    /// Moves keys that have got older to the queues of their age.
    fn age(&mut self, now: u32) {
        if now < self.aged.saturating_add(AGEING) {
            return;
        }
        self.aged = now;
        self.nodes.steps += CELLS as u64;
        self.release_held(now);
        for cell in (0..CELLS).rev() {
            let bin = (cell % BINS) as u8;
            while let Some(slot) = self.cells[cell].front()
                && self.density.bin(now.saturating_sub(self.nodes[slot].value.seen)) > bin
            {
                self.leave_queue(slot);
                self.join_queue(slot, now);
            }
        }
    }

    fn release_held(&mut self, now: u32) {
        while let Some(slot) = self.held.front() {
            self.leave_queue(slot);
            self.join_queue(slot, now);
        }
    }

    fn hold(&mut self, slot: u32) {
        self.leave_queue(slot);
        self.nodes[slot].value.bin = HELD;
        self.nodes.push_back(&mut self.held, slot);
    }

    /// Tells the owner of the next victims, as far as they can be guessed: a leaf, then what is left without a child, then
    /// the next leaf of the queue.
    fn look_ahead(&mut self, leaf: u32, cell: usize, victims: &mut Victims<'_>) {
        if self.foreseen > 0 || self.nodes.len() < LOOK_AHEAD_FROM {
            self.foreseen = self.foreseen.saturating_sub(1);
            return;
        }
        let (mut slots, mut leaf, mut at) = ([self.nodes.slot(leaf); AHEAD], leaf, leaf);
        let mut known = 1;
        while known < AHEAD {
            let facts = self.nodes[at].value;
            let above = self.parent_of(&facts).filter(|above| self.nodes[*above].value.children == 1);
            let next = above.or_else(|| self.nodes.neighbour(leaf, self.density.rises(cell)));
            let Some(next) = next else { break };
            if above.is_none() {
                leaf = next;
            }
            at = next;
            slots[known] = self.nodes.slot(at);
            known += 1;
        }
        self.foreseen = known - 1;
        victims.soon(&slots[..known]);
    }

    fn evict(&mut self, slot: u32, key: Key, now: u32) {
        let facts = self.nodes[slot].value;
        self.ghosts.fit(self.nodes.len());
        self.ghosts.bury(key, facts.class, facts.uses, facts.seen, now);
        self.take_out(slot, now);
    }

    /// Every leaf is protected: the last resort is what stands above them and is not. Each leaf is asked once.
    fn victim_above_held(&mut self, now: u32, victims: &mut Victims<'_>) -> Option<(Slot, u64)> {
        for _ in 0..self.held.len() {
            let leaf = self.held.front()?;
            self.hold(leaf);
            let mut above = self.parent_of(&self.nodes[leaf].value);
            while let Some(number) = above.filter(|_| victims.left()) {
                let slot = self.nodes.slot(number);
                above = self.parent_of(&self.nodes[number].value);
                match victims.judge(slot) {
                    Verdict::Protected => {}
                    Verdict::Gone => self.take_out(number, now),
                    Verdict::Goes { key, bytes } => {
                        self.evict(number, key, now);
                        return Some((slot, bytes));
                    }
                }
            }
            if !victims.left() {
                break;
            }
        }
        None
    }

    /// Below which key a put goes on: what a lookup noted of its key, else where its group ended.
    fn link(&mut self, newcomer: &Newcomer, group: Option<u64>) -> Option<(u32, u32)> {
        let link = self.recall(newcomer.key.0).or_else(|| self.recall(Self::group_name(group?)))?;
        Some((self.nodes.find(link.parent)?, link.length))
    }
}

impl Default for Chain {
    fn default() -> Self {
        Self::new()
    }
}

impl Policy for Chain {
    fn looked_up(&mut self, keys: &[Seen], now: MonotonicTime) {
        let (now, length) = (tick(now), keys.len());
        let mut before: Option<Slot> = None;
        for (index, key) in keys.iter().enumerate() {
            match key {
                Seen::Here(slot) => {
                    // Nothing is known of a key that is not told yet, or never told since it is pinned.
                    let Some(number) = self.nodes.find(*slot) else { continue };
                    self.access(number, Position { length, last: index + 1 == length, extends: true }, now);
                    before = Some(*slot);
                }
                Seen::Missing(key) => {
                    if let Some(parent) = before.take() {
                        self.remember(key.0, parent, length);
                    }
                }
            }
        }
    }

    fn inserted(&mut self, keys: &[Newcomer], group: Option<u64>, now: MonotonicTime) {
        let now = tick(now);
        let (mut parent, mut extends) = (NIL, false);
        let mut length = keys.len();
        for (index, newcomer) in keys.iter().enumerate() {
            if let Some((before, of)) = self.link(newcomer, group.filter(|_| index == 0)) {
                parent = before;
                length = length.max(of as usize);
                extends = self.nodes[before].value.uses < HUB_USES;
            }
            let position = Position { length, last: index + 1 == keys.len(), extends };
            let number = newcomer.slot.number;
            parent = match self.nodes.find(newcomer.slot) {
                Some(number) => {
                    self.access(number, position, now);
                    number
                }
                None => {
                    if let Some(old) = self.nodes.occupant(number) {
                        self.take_out(old, now);
                        parent = if parent == old { NIL } else { parent };
                    }
                    self.admit(newcomer, parent, position, now)
                }
            };
            let uses = self.nodes[parent].value.uses;
            extends |= (2..HUB_USES).contains(&uses);
        }
        if let (Some(group), Some(last)) = (group, keys.last()) {
            self.remember(Self::group_name(group), last.slot, length);
        }
    }

    fn removed(&mut self, slot: Slot) {
        if let Some(number) = self.nodes.find(slot) {
            let now = self.aged;
            self.take_out(number, now);
        }
        if self.nodes.len() == 0 {
            self.ghosts.clear();
        }
    }

    fn victim(&mut self, now: MonotonicTime, victims: &mut Victims<'_>) -> Option<(Slot, u64)> {
        let now = tick(now);
        self.rank();
        self.age(now);
        if self.lowest_cell().is_none() {
            self.release_held(now);
        }
        while victims.left() {
            let Some(cell) = self.lowest_cell() else { return self.victim_above_held(now, victims) };
            let queue = &self.cells[cell];
            let number = if self.density.rises(cell) { queue.back()? } else { queue.front()? };
            self.look_ahead(number, cell, victims);
            let slot = self.nodes.slot(number);
            match victims.judge(slot) {
                Verdict::Protected => self.hold(number),
                Verdict::Gone => self.take_out(number, now),
                Verdict::Goes { key, bytes } => {
                    self.evict(number, key, now);
                    return Some((slot, bytes));
                }
            }
        }
        None
    }

    fn len(&self) -> usize {
        self.nodes.len()
    }

    fn steps(&self) -> u64 {
        self.nodes.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_costs_28_bytes() {
        assert_eq!(size_of::<crate::arena::Node<Facts>>(), 28);
    }
}
