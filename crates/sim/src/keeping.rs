//! The keeper of a node: follows what the master tells of its segment, and tells a master that started what is there.
//!
//! The rules of `directory/keeper.rs` of the client, over the client's own directory. What it notes is acknowledged when it
//! is on the disk, which may take its time.

use std::time::Duration;

use yb_types::ErrorCode;

use crate::calls::{Ask, Said, Told};
use crate::directory::Followed;
use crate::parties::{Next, Party};
use crate::scenario::{Dice, Kind, Slip};
use crate::world::{Caller, Event, World};

const SHORTEST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
const PATIENCE: Duration = Duration::from_secs(2);

impl World {
    /// The memory is in the pool: from here on its directory is kept.
    pub(crate) fn start_keeper(&mut self, node: usize) {
        let known = &mut self.nodes[node];
        if known.kind != Kind::Plain && !std::mem::replace(&mut known.keeper.runs, true) {
            let life = known.process.life;
            self.after(SHORTEST_PAUSE, Event::Keep { node, life });
        }
    }

    /// The keeper asks what is new.
    pub(crate) fn keep(&mut self, node: usize, life: u32) {
        let known = &self.nodes[node];
        let is_it = known.process.alive && known.process.life == life && !known.keeper.is_busy;
        if !is_it || self.stands_still(Party::Node(node), Event::Keep { node, life }) {
            return;
        }
        let limit = self.dice.between(1, 8) as u32;
        let known = &mut self.nodes[node];
        let (mark, doubted) = known.directory.standing();
        (known.keeper.is_busy, known.keeper.doubted) = (true, doubted);
        let segment = known.segment.id;
        self.keeper_asks(node, Ask::Sync { segment, mark, limit });
    }

    fn keeper_asks(&mut self, node: usize, ask: Ask) {
        let (id, life) = (self.nodes[node].id, self.nodes[node].process.life);
        self.ask(Caller::Keeper(node, life), id, ask, self.now + PATIENCE);
    }

    fn keeper_rests(&mut self, node: usize, is_news: bool) {
        let keeper = &mut self.nodes[node].keeper;
        keeper.is_busy = false;
        keeper.pause = if is_news { SHORTEST_PAUSE } else { (keeper.pause * 2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE) };
        let (pause, life) = (keeper.pause, self.nodes[node].process.life);
        self.after(pause, Event::Keep { node, life });
    }

    /// An answer to the keeper, `None` without one.
    pub(crate) fn keeper_hears(&mut self, node: usize, life: u32, call: usize, said: Option<Said>) {
        if !self.nodes[node].process.alive || self.nodes[node].process.life != life {
            return;
        }
        let ask = self.calls[call].ask.clone();
        let skips_strikes = self.scenario.slip == Some(Slip::StrikesLater);
        let known = &mut self.nodes[node];
        match (ask, said) {
            (Ask::Sync { mark, .. }, Some(Said::Told(Ok(told)))) => {
                let told = if skips_strikes { Told { struck: Vec::new(), ..told } } else { told };
                let doubted = known.keeper.doubted;
                match told.shown(|reply| known.directory.follow(reply, doubted)) {
                    Followed::Nothing => self.write_down(node, Next::Rest(false)),
                    Followed::Noted => self.write_down(node, Next::Rest(true)),
                    Followed::Introduce => self.keeper_introduces(node),
                    Followed::Tell(incarnation) => {
                        (known.keeper.told_by, known.keeper.master) = (mark.0, incarnation);
                        self.tell_page(node, 0);
                    }
                }
            }
            // It waits for what others have heard.
            (Ask::Sync { .. }, Some(Said::Told(Err(ErrorCode::REPLICA_IS_NOT_READY)))) if known.directory.met == 0 => {
                self.keeper_introduces(node);
            }
            (Ask::Introduce(..), Some(Said::Roster(Ok(roster)))) => {
                known.directory.hear(roster);
                self.write_down(node, Next::Rest(true));
            }
            // This master does not tell what it places there.
            (Ask::Sync { .. }, Some(Said::Told(Err(ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS)))) => {
                known.directory.clear();
                self.write_down(node, Next::Rest(false));
            }
            (Ask::Tell { last: false, .. }, Some(Said::Struck(Ok(refused)))) => {
                known.directory.strike(&refused);
                let next = known.keeper.next_page.map_or(Next::Last, Next::Page);
                self.write_down(node, next);
            }
            (Ask::Tell { last: true, .. }, Some(Said::Struck(Ok(_)))) => {
                let master = known.keeper.master;
                known.directory.was_read(master);
                self.write_down(node, Next::Rest(true));
            }
            _ => self.keeper_rests(node, false),
        }
    }

    fn keeper_introduces(&mut self, node: usize) {
        let known = &self.nodes[node];
        let ask = Ask::Introduce(known.segment.id, known.directory.roster().clone());
        self.keeper_asks(node, ask);
    }

    /// What was noted goes to the disk; then the keeper goes on.
    fn write_down(&mut self, node: usize, next: Next) {
        let is_file = self.nodes[node].is_kept();
        self.nodes[node].keeper.next = next;
        let takes = match self.nodes[node].directory.log.behind() {
            0 => Duration::ZERO,
            _ if is_file && self.dice.once_in(6) => self.dice.millis(5, 800),
            _ => self.dice.micros(5, 300),
        };
        let life = self.nodes[node].process.life;
        self.after(takes, Event::Written { node, life });
    }

    /// It is on the disk.
    pub(crate) fn written(&mut self, node: usize, life: u32) {
        let known = &self.nodes[node];
        let is_it = known.process.alive && known.process.life == life;
        if !is_it || self.stands_still(Party::Node(node), Event::Written { node, life }) {
            return;
        }
        self.nodes[node].directory.log.arrives();
        self.check_directory(node);
        match self.nodes[node].keeper.next {
            Next::Rest(is_news) => self.keeper_rests(node, is_news),
            Next::Page(from) => self.tell_page(node, from),
            Next::Last => self.tell(node, Vec::new(), true),
        }
    }

    fn tell_page(&mut self, node: usize, from: u64) {
        let most = self.dice.between(1, 6) as usize;
        let (page, next) = self.nodes[node].directory.page(from, most);
        self.nodes[node].keeper.next_page = next;
        self.tell(node, page, false);
    }

    fn tell(&mut self, node: usize, page: Vec<(u64, crate::directory::Kept)>, last: bool) {
        let (segment, told_by) = (self.nodes[node].segment.id, self.nodes[node].keeper.told_by);
        self.keeper_asks(node, Ask::Tell { segment, told_by, page, last });
    }
}
