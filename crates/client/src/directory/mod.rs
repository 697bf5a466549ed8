//! Directories: what lies in the segments that this client lends, so that a master that starts can know it again.
//!
//! A master of ours tells it batch by batch; this side follows and says how far it is, see `docs/restart.md`. The thread
//! has a connection of its own. What a directory says is true as long as every master that may place objects in the
//! segment tells what it does; where that is not known, the directory is thrown away.

mod journal;
mod keeper;
mod segment;
mod table;

use std::collections::BTreeMap;

use parking_lot::Mutex;
use yb_types::SegmentId;
use yb_wire::messages::{DirectoryEntry, SyncDirectoryReply};

pub(crate) use journal::{Found, Identity, Journal, Ports};
pub(crate) use keeper::{Keeper, KeeperDuty};
pub(crate) use segment::Followed;
pub(crate) use table::{Change, Kept, Roster, Table};

/// The directory of a segment, and its log where it has one.
type Directory = segment::Directory<Option<Journal>>;

/// The directories of all segments that a client lends.
#[derive(Debug, Default)]
pub(crate) struct Directories(Mutex<BTreeMap<SegmentId, Directory>>);

impl Directories {
    /// Begins one for a new segment.
    pub(crate) fn add(&self, id: SegmentId, table: Table, log: Option<Journal>) {
        self.0.lock().insert(id, Directory { table, log, met: 0 });
    }

    /// The process leaves; another one may take over what has a log.
    pub(crate) fn close(&self) {
        for Directory { table, log, .. } in self.0.lock().values_mut() {
            if let Some(mut journal) = log.take() {
                journal.close(table);
            }
        }
    }

    /// The segment is gone.
    pub(crate) fn remove(&self, id: SegmentId) {
        self.0.lock().remove(&id);
    }

    /// Before a master hears of this client: what cannot be trusted goes. Answers whether anything is left.
    pub(crate) fn introduce(&self) -> bool {
        let mut any = false;
        self.0.lock().values_mut().for_each(|directory| any |= directory.introduce());
        any
    }

    /// Before a master is asked to mount: it may place objects from here on. `keeps`: it tells what it does.
    pub(crate) fn before_mount(&self, keeps: bool) {
        self.0.lock().values_mut().for_each(|directory| directory.before_mount(keeps));
    }

    /// Throws away what is known of a segment.
    pub(crate) fn clear(&self, id: SegmentId) {
        self.with(id, Directory::clear);
    }

    /// The life of the master that told it and its last batch, and whether it is in doubt.
    pub(crate) fn standing(&self, id: SegmentId) -> Option<((u64, u64), bool)> {
        self.0.lock().get(&id).map(Directory::standing)
    }

    /// Notes an answer to a question that was asked while the directory was, or was not, in doubt.
    pub(crate) fn follow(&self, id: SegmentId, told: &SyncDirectoryReply<'_>, was_doubted: bool) -> Followed {
        self.with(id, |directory| directory.follow(told, was_doubted)).unwrap_or(Followed::Nothing)
    }

    /// The last roster that was heard for a segment, if its master is not known to know that.
    pub(crate) fn unmet(&self, id: SegmentId) -> Option<Roster> {
        self.with(id, |directory| (directory.met == 0).then(|| directory.roster().clone())).flatten()
    }

    /// The last roster that was heard for a segment.
    pub(crate) fn roster(&self, id: SegmentId) -> Option<Roster> {
        self.with(id, |directory| directory.roster().clone())
    }

    /// The master knows which roster was heard last, and this is its own.
    pub(crate) fn hear(&self, id: SegmentId, roster: Roster) {
        self.with(id, |directory| directory.hear(roster));
    }

    /// Hands out a page from `from` on, of some hundred entries; answers where the next one begins.
    pub(crate) fn page<R>(
        &self,
        id: SegmentId,
        from: u64,
        page: impl FnOnce(&[DirectoryEntry<'_>]) -> R,
    ) -> (R, Option<u64>) {
        // Copied, for the master is not to be waited for with the directory locked.
        let (kept, next) = self.with(id, |directory| directory.page(from, PAGE_ENTRIES)).unwrap_or_default();
        let entries: Vec<DirectoryEntry<'_>> = kept.iter().map(|(offset, kept)| kept.entry(*offset)).collect();
        (page(&entries), next)
    }

    /// Strikes out what a master does not want.
    pub(crate) fn strike(&self, id: SegmentId, refused: &[u64]) {
        self.with(id, |directory| directory.strike(refused));
    }

    /// A master has read all of it, in this life.
    pub(crate) fn was_read(&self, id: SegmentId, incarnation: u64) {
        self.with(id, |directory| directory.was_read(incarnation));
    }

    /// Objects in one of them.
    pub(crate) fn objects_in(&self, id: SegmentId) -> usize {
        self.with(id, |directory| directory.table.len()).unwrap_or(0)
    }

    /// Objects in all of them.
    pub(crate) fn objects(&self) -> u64 {
        self.0.lock().values().map(|directory| directory.table.len() as u64).sum()
    }

    fn with<R>(&self, id: SegmentId, act: impl FnOnce(&mut Directory) -> R) -> Option<R> {
        self.0.lock().get_mut(&id).map(act)
    }
}

/// Entries of a page.
const PAGE_ENTRIES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use yb_types::{ClientId, ReplicaId, Uuid};

    const ID: SegmentId = SegmentId(Uuid { first: 1, second: 2 });

    fn told(incarnation: u64, batch: u64, order: u8, struck: &[u64], published: &[u64]) -> SyncDirectoryReply<'static> {
        let entry = |offset: &u64| DirectoryEntry {
            offset: *offset,
            size: 1,
            generation: 1,
            replica: ReplicaId(1),
            writer: ClientId::default(),
            checksum: None,
            flags: 0,
            data_type: 0,
            soft_pin_until_ms: 0,
            tenant: b"",
            group: b"",
            key: b"k",
        };
        let published = published.iter().map(entry).collect();
        SyncDirectoryReply { incarnation, batch, order, struck: struck.to_vec(), published, roster: None }
    }

    fn filled() -> Directories {
        let all = Directories::default();
        all.add(ID, Table::default(), None);
        assert_eq!(all.follow(ID, &told(5, 1, 0, &[], &[0, 64, 128]), false), Followed::Noted);
        all
    }

    #[test]
    fn batches_are_followed_in_order_and_strikes_come_first() {
        let all = filled();
        assert_eq!(all.standing(ID), Some(((5, 1), false)));
        assert_eq!(all.follow(ID, &told(5, 1, 0, &[], &[]), false), Followed::Nothing);
        assert_eq!(all.follow(ID, &told(5, 2, 0, &[64, 128], &[128]), false), Followed::Noted);
        assert_eq!((all.objects(), all.standing(ID)), (2, Some(((5, 2), false))));
        assert_eq!(all.follow(ID, &told(6, 1, 1, &[], &[192]), false), Followed::Noted);
        assert_eq!((all.objects(), all.standing(ID)), (1, Some(((6, 1), false))));
        assert_eq!(all.follow(ID, &told(7, 0, 2, &[], &[]), false), Followed::Tell(7));
    }

    #[test]
    fn a_directory_that_a_second_master_may_have_passed_by_is_thrown_away() {
        let all = filled();
        assert!(all.introduce());
        all.before_mount(true);
        // An answer to what was asked before does not end the doubt.
        all.follow(ID, &told(5, 2, 0, &[], &[]), false);
        assert_eq!(all.standing(ID), Some(((5, 2), true)));
        all.was_read(ID, 9);
        assert!(all.introduce() && all.objects() == 3, "the master that mounted it has read it");
        all.before_mount(true);
        assert!(!all.introduce(), "nobody knows what the one did that was asked last");
        assert_eq!((all.objects(), all.standing(ID)), (0, Some(((0, 0), false))));
        let all = filled();
        all.before_mount(false);
        assert_eq!(all.objects(), 0);
    }

    #[test]
    fn nothing_is_followed_before_its_roster_is_known() {
        let all = filled();
        let with = |incarnation, batch, number| {
            let told = SyncDirectoryReply { roster: Some(number), ..told(incarnation, batch, 0, &[0], &[]) };
            all.follow(ID, &told, false)
        };
        let roster = |number| Roster { incarnation: 5, term: 1, number, members: vec![ID] };
        assert_eq!(with(5, 2, 0), Followed::Introduce, "it does not know what was heard before");
        assert_eq!(all.unmet(ID), Some(Roster::default()));
        all.hear(ID, roster(0));
        assert_eq!((all.unmet(ID), all.roster(ID)), (None, Some(Roster::default())), "it has none itself");
        assert_eq!(with(5, 2, 7), Followed::Introduce);
        assert_eq!((all.objects(), all.standing(ID)), (3, Some(((5, 1), false))));
        all.hear(ID, roster(7));
        assert_eq!(with(5, 2, 7), Followed::Noted);
        assert_eq!((with(5, 3, 8), with(6, 1, 0), all.objects()), (Followed::Introduce, Followed::Introduce, 2));
        // What is thrown away is not what was heard.
        all.clear(ID);
        all.before_mount(true);
        assert_eq!(all.unmet(ID), Some(roster(7)));
    }

    #[test]
    fn pages_follow_each_other() {
        let all = Directories::default();
        all.add(ID, Table::default(), None);
        let offsets: Vec<u64> = (0..1200).map(|n| n * 64).collect();
        all.follow(ID, &told(5, 1, 0, &[], &offsets), false);
        let (mut from, mut seen) = (Some(0), Vec::new());
        while let Some(offset) = from {
            let ((), next) = all.page(ID, offset, |page| seen.extend(page.iter().map(|entry| entry.offset)));
            from = next;
        }
        assert_eq!(seen, offsets);
    }
}
