//! The directory of one segment: how it follows masters, and what it tells one that starts. Pure but for its log.

use std::borrow::Cow;

use yb_wire::messages::SyncDirectoryReply;

use super::table::{Change, Kept, Roster, Table};

/// Where changes are written down for another process.
pub(crate) trait Log {
    /// Notes a change, to be written by the next commit.
    fn note(&mut self, change: &Change<'_>);
    /// Writes what was noted; from here on another process finds it.
    fn commit(&mut self, table: &Table);
}

/// The directory, and its log.
#[derive(Debug, Default)]
pub(crate) struct Directory<L> {
    pub(crate) table: Table,
    pub(crate) log: L,
    /// The life of the master that was told which roster was heard last; 0: this one was not.
    pub(crate) met: u64,
}

/// What is to be done with an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Followed {
    /// There was nothing new.
    Nothing,
    /// It was noted.
    Noted,
    /// The master, in this life, wants to hear what is there.
    Tell(u64),
    /// Nothing was done: first the master is to hear which roster was heard last, and to say which one is due.
    Introduce,
}

/// Of [`SyncDirectoryReply::order`].
pub(super) const CLEAR_FIRST: u8 = 1;
const TELL: u8 = 2;

/// Bytes of keys of a page.
const PAGE_BYTES: usize = 256 << 10;

impl<L: Log> Directory<L> {
    fn change(&mut self, change: &Change<'_>) {
        self.table.change(change);
        self.log.note(change);
    }

    /// What was changed is there for another process too.
    fn commit(&mut self) {
        self.log.commit(&self.table);
    }

    fn forget(&mut self) {
        self.change(&Change::Clear);
        self.change(&Change::Mark { incarnation: 0, applied: 0 });
        self.change(&Change::Doubt(false));
    }

    /// Throws away what is known.
    pub(crate) fn clear(&mut self) {
        self.forget();
        self.commit();
    }

    /// Before a master hears of the client: what cannot be trusted goes. Answers whether anything is left.
    pub(crate) fn introduce(&mut self) -> bool {
        if self.table.is_doubted() {
            self.clear();
        }
        !self.table.is_empty()
    }

    /// Before a master is asked to mount: it may place objects from here on. `keeps`: it tells what it does.
    pub(crate) fn before_mount(&mut self, keeps: bool) {
        self.met = 0;
        if keeps {
            self.change(&Change::Doubt(true));
        } else {
            self.forget();
        }
        self.commit();
    }

    /// The life of the master that told it and its last batch, and whether it is in doubt.
    pub(crate) fn standing(&self) -> ((u64, u64), bool) {
        (self.table.mark(), self.table.is_doubted())
    }

    /// Notes an answer to a question that was asked while the directory was, or was not, in doubt.
    pub(crate) fn follow(&mut self, told: &SyncDirectoryReply<'_>, was_doubted: bool) -> Followed {
        if told.roster.is_some_and(|number| self.is_to_introduce(told.incarnation, number)) {
            return Followed::Introduce;
        }
        if told.order == TELL {
            return Followed::Tell(told.incarnation);
        }
        if was_doubted && self.table.is_doubted() {
            self.change(&Change::Doubt(false));
        }
        let mark = (told.incarnation, told.batch);
        let is_news = self.table.mark() != mark || told.order == CLEAR_FIRST;
        if is_news {
            if told.order == CLEAR_FIRST {
                self.change(&Change::Clear);
            }
            told.struck.iter().for_each(|offset| self.change(&Change::Strike(*offset)));
            told.published.iter().for_each(|entry| self.change(&Change::Note(*entry)));
            self.change(&Change::Mark { incarnation: mark.0, applied: mark.1 });
        }
        self.commit();
        if is_news { Followed::Noted } else { Followed::Nothing }
    }

    /// Whether the master does not know what was heard before it, or has another roster, of this number, than is known here.
    fn is_to_introduce(&self, incarnation: u64, number: u64) -> bool {
        let heard = self.table.roster();
        let is_known = number == 0 || (heard.incarnation, heard.number) == (incarnation, number);
        self.met != incarnation || !is_known
    }

    /// The last roster that was heard.
    pub(crate) fn roster(&self) -> &Roster {
        self.table.roster()
    }

    /// The master knows which roster was heard last, and this is its own.
    pub(crate) fn hear(&mut self, roster: Roster) {
        self.met = roster.incarnation;
        if roster.number != 0 {
            self.change(&Change::Heard(Cow::Owned(roster)));
            self.commit();
        }
    }

    /// A page from an offset on, of at most so many entries, and where the next one begins.
    pub(crate) fn page(&self, from: u64, most: usize) -> (Vec<(u64, Kept)>, Option<u64>) {
        let (mut page, mut bytes) = (Vec::new(), 0);
        for (offset, kept) in self.table.from(from) {
            if page.len() == most || bytes > PAGE_BYTES {
                return (page, Some(offset));
            }
            bytes += kept.entry(offset).key.len();
            page.push((offset, kept.clone()));
        }
        (page, None)
    }

    /// Strikes out what a master does not want.
    pub(crate) fn strike(&mut self, refused: &[u64]) {
        refused.iter().for_each(|offset| self.change(&Change::Strike(*offset)));
        self.commit();
    }

    /// A master has read all of it, in this life.
    pub(crate) fn was_read(&mut self, incarnation: u64) {
        self.change(&Change::Mark { incarnation, applied: 0 });
        self.change(&Change::Doubt(false));
        self.commit();
    }
}
