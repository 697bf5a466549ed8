//! Runs of equal pages: bookkeeping for many objects of few sizes.
//!
//! A size that comes often gets a class of its own. A run is one extent of the segment cut into up to 512 pages of that
//! size; a bitmap says which are taken, and eight bytes a page hold the owners' words. Pages are taken from the run that
//! was full last, so that sparse runs empty and go back whole.
//!
//! A pool that changes from one size to another would be left with runs that are nearly empty and yet taken. So when
//! there is no room, runs that are a quarter free are dissolved: each page in use becomes an extent of its own, the rest
//! comes free. Handles stay good: the run keeps, for each page, the number of that extent in place of the owner's word.
//!
//! Which sizes come often is learned in a small table of counters (the majority vote of Boyer and Moore, two places for
//! each size): a size is counted up when it comes, and down when another one wants its place.

use yb_types::ByteLen;

use crate::nodes::{NIL, NodeId};
use crate::offset::{Extent, OffsetAllocator, Owned};

/// On a [`NodeId`]: a page, with run and page number below.
pub(crate) const PAGE: u32 = 1 << 31;
const PAGE_BITS: u32 = 9;
const PAGES_MAX: u32 = 1 << PAGE_BITS;
const RUNS_MAX: u32 = (1 << (31 - PAGE_BITS)) - 1;
/// As many as a word has bits.
const CLASSES_MAX: usize = 64;
/// A size is given a class when it was met this often.
const OFTEN: u16 = 32;
const HEAT: usize = 256;
const NO_CLASS: u8 = u8::MAX;
/// A run is dissolved when this share of its pages is free.
const SPARSE_SHARE: u16 = 4;
/// Runs that one allocation dissolves at most.
pub(crate) const DISSOLVED_AT_ONCE: u32 = 8;
/// Pages of a class's first run, and the share of what a class holds that a further run has.
const FIRST_RUN: u32 = 8;
const RUN_SHARE: u32 = 4;

struct Run {
    extent: Extent,
    /// Neighbours among the runs of the class with a free page; `after` also chains vacant places.
    before: u32,
    after: u32,
    /// `NO_CLASS` once it is dissolved.
    class: u8,
    pages: u16,
    taken: u16,
    bits: [u64; PAGES_MAX as usize / 64],
    owners: Box<[u64]>,
}

struct Class {
    /// Bytes of a page; 0 for a vacant place.
    len: u64,
    /// First and last run with a free page.
    head: u32,
    tail: u32,
    taken: u32,
    runs: u32,
    /// Pages of all runs.
    pages: u32,
    /// Place among the classes in order of length.
    rank: u32,
}

#[derive(Clone, Copy)]
struct Heat {
    len: u32,
    count: u16,
    class: u8,
}

/// Limits of the runs of one segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageLimits {
    /// Longer objects get an extent of their own.
    pub page_max: u64,
    /// No run is longer than this.
    pub run_max: u64,
}

pub(crate) struct Pages {
    limits: PageLimits,
    runs: Vec<Run>,
    vacant: u32,
    runs_used: u32,
    classes: Vec<Class>,
    /// Classes by length.
    ranked: Vec<u8>,
    /// By rank: classes with a free page.
    open: u64,
    heat: Box<[Heat; HEAT]>,
    /// Bytes of runs that no object has.
    idle: u64,
}

impl Pages {
    pub(crate) fn new(limits: PageLimits) -> Self {
        Pages {
            limits,
            runs: Vec::new(),
            vacant: NIL,
            runs_used: 0,
            classes: Vec::new(),
            ranked: Vec::new(),
            open: 0,
            heat: Box::new([Heat { len: 0, count: 0, class: NO_CLASS }; HEAT]),
            idle: 0,
        }
    }

    /// Bytes of runs that no object has.
    pub(crate) fn idle(&self) -> u64 {
        self.idle
    }

    /// Length of the longest free page.
    pub(crate) fn largest(&self) -> u64 {
        match self.open {
            0 => 0,
            open => self.class_of_rank(63 - open.leading_zeros()).map_or(0, |class| class.len),
        }
    }

    /// A page of exactly `len` bytes, if that size is met often and there is room.
    pub(crate) fn allocate(&mut self, space: &mut OffsetAllocator, len: u64, owner: u64) -> Option<Extent> {
        if len > self.limits.page_max {
            return None;
        }
        let class = self.learn(len)?;
        let head = self.classes[class as usize].head;
        let run = if head == NIL { self.grow(space, class)? } else { head };
        self.take(run, owner)
    }

    /// A page of at least `len` bytes of whatever class.
    pub(crate) fn borrow(&mut self, len: u64, owner: u64) -> Option<Extent> {
        let shorter = self.ranked.partition_point(|&class| self.classes[class as usize].len < len) as u32;
        let fitting = self.open & u64::MAX.checked_shl(shorter).unwrap_or(0);
        let class = self.class_of_rank(fitting.trailing_zeros())?;
        self.take(class.head, owner)
    }

    /// Takes a page back; answers its bytes. `None` when the number names no page in use.
    pub(crate) fn free(&mut self, space: &mut OffsetAllocator, node: NodeId) -> Option<ByteLen> {
        let (number, page) = self.find(node)?;
        let run = &mut self.runs[number as usize];
        let was_full = run.taken == run.pages;
        run.bits[page as usize / 64] &= !(1 << (page % 64));
        run.taken -= 1;
        let (class, is_empty) = (run.class, run.taken == 0);
        if class == NO_CLASS {
            let freed = space.free(run.extent_of(page));
            if is_empty {
                self.vacate(number);
            }
            return freed.ok();
        }
        let len = self.classes[class as usize].len;
        self.classes[class as usize].taken -= 1;
        self.idle += len;
        if was_full {
            self.link(number);
        }
        if is_empty {
            self.give_back(space, number);
        }
        Some(ByteLen(len))
    }

    /// Replaces the owner's word of a page in use.
    pub(crate) fn set_owner(&mut self, space: &mut OffsetAllocator, node: NodeId, owner: u64) -> Option<Extent> {
        let (number, page) = self.find(node)?;
        let run = &mut self.runs[number as usize];
        if run.class == NO_CLASS {
            return space.set_owner(run.extent_of(page), owner).ok().map(|extent| Extent { node, ..extent });
        }
        run.owners[page as usize] = owner;
        Some(self.page(number, page))
    }

    /// Looks at up to `limit` pages from a page's number on (an empty place counts as one) and hands out those in use.
    /// Answers where to go on.
    pub(crate) fn scan(
        &self,
        space: &OffsetAllocator,
        from: u32,
        limit: u32,
        mut sink: impl FnMut(Owned),
    ) -> Option<u32> {
        let (mut run, mut page) = ((from & !PAGE) >> PAGE_BITS, from & (PAGES_MAX - 1));
        for _ in 0..limit {
            let here = self.runs.get(run as usize)?;
            if page >= u32::from(here.pages) {
                (run, page) = (run + 1, 0);
                continue;
            }
            if here.has(page) && here.class == NO_CLASS {
                let owned = space.owned(here.extent_of(page));
                sink(Owned { extent: Extent { node: id(run, page), ..owned.extent }, ..owned });
            } else if here.has(page) {
                sink(Owned { extent: self.page(run, page), owner: here.owners[page as usize] });
            }
            page += 1;
        }
        if page == PAGES_MAX {
            (run, page) = (run + 1, 0);
        }
        ((run as usize) < self.runs.len()).then_some(PAGE | run << PAGE_BITS | page)
    }

    /// Dissolves one sparse run, of the class with the most bytes in free pages. False: there is none.
    pub(crate) fn dissolve_one(&mut self, space: &mut OffsetAllocator) -> bool {
        let free = |class: &Class| u64::from(class.pages - class.taken) * class.len;
        let sparse = |class: &&Class| self.runs.get(class.tail as usize).is_some_and(Run::is_sparse);
        let whole = |class: &&Class| class.len > 0 && space.is_whole(class.len);
        let candidates = self.classes.iter().filter(whole).filter(sparse);
        let Some(number) = candidates.max_by_key(|class| free(class)).map(|class| class.tail) else { return false };
        let Run { class, extent, pages, taken, .. } = self.runs[number as usize];
        let len = self.classes[class as usize].len;
        if !space.can_cut(u32::from(pages)) {
            return false;
        }
        self.unlink(number);
        let run = &mut self.runs[number as usize];
        space.cut(extent.node, ByteLen(len), u32::from(pages), |page, piece| {
            let owner = run.has(page).then(|| run.owners[page as usize]);
            if owner.is_some() {
                run.owners[page as usize] = u64::from(piece.get());
            }
            owner
        });
        run.class = NO_CLASS;
        self.idle -= extent.len - u64::from(taken) * len;
        self.leave_class(class, pages, taken);
        true
    }

    fn leave_class(&mut self, class: u8, pages: u16, taken: u16) {
        let left = &mut self.classes[class as usize];
        left.runs -= 1;
        left.pages -= u32::from(pages);
        left.taken -= u32::from(taken);
        if left.runs == 0 {
            self.drop_class(class);
        }
    }

    pub(crate) fn has_runs(&self) -> bool {
        !self.runs.is_empty()
    }

    /// Bytes of memory that the bookkeeping takes.
    pub(crate) fn memory(&self) -> usize {
        let owners: usize = self.runs.iter().map(|run| run.owners.len() * 8).sum();
        self.runs.capacity() * size_of::<Run>() + owners + size_of_val(&*self.heat)
    }

    fn class_of_rank(&self, rank: u32) -> Option<&Class> {
        self.classes.get(usize::from(*self.ranked.get(rank as usize)?))
    }

    fn find(&self, node: NodeId) -> Option<(u32, u32)> {
        let (run, page) = ((node.0 & !PAGE) >> PAGE_BITS, node.0 & (PAGES_MAX - 1));
        self.runs.get(run as usize)?.has(page).then_some((run, page))
    }

    /// A page of a run that is not dissolved.
    fn page(&self, run: u32, page: u32) -> Extent {
        let here = &self.runs[run as usize];
        let len = self.classes[here.class as usize].len;
        Extent { offset: here.extent.offset + len * u64::from(page), len, node: id(run, page) }
    }

    /// Counts a size; answers its class if it has one or gets one now.
    fn learn(&mut self, len: u64) -> Option<u8> {
        let len = u32::try_from(len).ok()?;
        let home = heat_of(len);
        let at = [home, home ^ 1].into_iter().find(|&at| self.heat[at].len == len);
        let Some(at) = at else {
            self.want_place(home, len);
            return None;
        };
        let heat = &mut self.heat[at];
        if heat.class != NO_CLASS {
            return Some(heat.class);
        }
        heat.count += 1;
        if heat.count < OFTEN {
            return None;
        }
        heat.count = OFTEN - 1;
        let class = self.add_class(u64::from(len))?;
        self.heat[at].class = class;
        Some(class)
    }

    /// Counts down who has a place that a size wants; gives the size a place once nobody holds on to it.
    fn want_place(&mut self, home: usize, len: u32) {
        let weaker = [home, home ^ 1].into_iter().filter(|&at| self.heat[at].class == NO_CLASS);
        let Some(at) = weaker.min_by_key(|&at| self.heat[at].count) else { return };
        match self.heat[at].count {
            0 => self.heat[at] = Heat { len, count: 1, class: NO_CLASS },
            count => self.heat[at].count = count - 1,
        }
    }

    fn add_class(&mut self, len: u64) -> Option<u8> {
        let class = Class { len, head: NIL, tail: NIL, taken: 0, runs: 0, pages: 0, rank: 0 };
        let at = match self.classes.iter().position(|class| class.len == 0) {
            Some(at) => at,
            None if self.classes.len() < CLASSES_MAX => {
                self.classes.push(Class { len: 0, ..class });
                self.classes.len() - 1
            }
            None => return None,
        };
        self.classes[at] = class;
        self.rank_classes();
        u8::try_from(at).ok()
    }

    /// A class without runs gives way. Its size stays known as one that comes often.
    fn drop_class(&mut self, class: u8) {
        let len = std::mem::take(&mut self.classes[class as usize].len);
        let home = heat_of(len as u32);
        for at in [home, home ^ 1] {
            if self.heat[at].class == class {
                self.heat[at].class = NO_CLASS;
            }
        }
        self.rank_classes();
    }

    fn rank_classes(&mut self) {
        self.ranked = (0..self.classes.len() as u8).filter(|&class| self.classes[class as usize].len > 0).collect();
        self.ranked.sort_unstable_by_key(|&class| self.classes[class as usize].len);
        self.open = 0;
        for (rank, &class) in (0..).zip(&self.ranked) {
            let class = &mut self.classes[class as usize];
            class.rank = rank;
            self.open |= u64::from(class.head != NIL) << rank;
        }
    }

    /// A new run of a class, as long as there is room for, at least two pages.
    fn grow(&mut self, space: &mut OffsetAllocator, class: u8) -> Option<u32> {
        let Class { len, taken, runs, .. } = self.classes[class as usize];
        let fitting = u32::try_from(self.limits.run_max / len).unwrap_or(u32::MAX);
        let mut pages = (taken / RUN_SHARE).clamp(FIRST_RUN, PAGES_MAX).min(fitting).max(2);
        let mut found = None;
        if self.runs_used < RUNS_MAX {
            found = space.allocate(ByteLen(len * u64::from(pages)), 0);
            while found.is_none() && pages > 2 {
                pages = (pages / 2).max(2);
                found = space.allocate(ByteLen(len * u64::from(pages)), 0);
            }
        }
        let Some(extent) = found else {
            if runs == 0 {
                self.drop_class(class);
            }
            return None;
        };
        space.set_run(extent.node);
        self.idle += extent.len;
        let run = Run {
            extent,
            before: NIL,
            after: NIL,
            class,
            pages: pages as u16,
            taken: 0,
            bits: [0; PAGES_MAX as usize / 64],
            owners: vec![0; pages as usize].into_boxed_slice(),
        };
        let number = self.place(run);
        let class = &mut self.classes[class as usize];
        class.runs += 1;
        class.pages += pages;
        self.link(number);
        Some(number)
    }

    fn place(&mut self, run: Run) -> u32 {
        self.runs_used += 1;
        if self.vacant == NIL {
            self.runs.push(run);
            return self.runs.len() as u32 - 1;
        }
        let number = self.vacant;
        self.vacant = self.runs[number as usize].after;
        self.runs[number as usize] = run;
        number
    }

    /// Takes a free page of a run that has one.
    fn take(&mut self, number: u32, owner: u64) -> Option<Extent> {
        let run = self.runs.get_mut(number as usize)?;
        let word = run.bits.iter().position(|&bits| bits != u64::MAX)?;
        let page = word as u32 * 64 + run.bits[word].trailing_ones();
        if page >= u32::from(run.pages) {
            return None;
        }
        run.bits[word] |= 1 << (page % 64);
        run.owners[page as usize] = owner;
        run.taken += 1;
        let (class, is_full) = (run.class as usize, run.taken == run.pages);
        self.classes[class].taken += 1;
        self.idle -= self.classes[class].len;
        if is_full {
            self.unlink(number);
        }
        Some(self.page(number, page))
    }

    /// Gives an empty run's space back.
    fn give_back(&mut self, space: &mut OffsetAllocator, number: u32) {
        self.unlink(number);
        let Run { extent, class, pages, .. } = self.runs[number as usize];
        self.vacate(number);
        self.idle -= extent.len;
        let freed = space.free(extent.node);
        debug_assert!(freed.is_ok());
        self.leave_class(class, pages, 0);
    }

    fn vacate(&mut self, number: u32) {
        let run = &mut self.runs[number as usize];
        (run.pages, run.owners, run.after) = (0, Box::default(), self.vacant);
        self.vacant = number;
        self.runs_used -= 1;
        if self.runs_used == 0 {
            (self.runs, self.vacant) = (Vec::new(), NIL);
        }
    }

    fn link(&mut self, number: u32) {
        let class = &mut self.classes[self.runs[number as usize].class as usize];
        let after = std::mem::replace(&mut class.head, number);
        if after == NIL {
            class.tail = number;
        }
        self.open |= 1 << class.rank;
        let run = &mut self.runs[number as usize];
        (run.before, run.after) = (NIL, after);
        if after != NIL {
            self.runs[after as usize].before = number;
        }
    }

    fn unlink(&mut self, number: u32) {
        let Run { before, after, class, .. } = self.runs[number as usize];
        let class = &mut self.classes[class as usize];
        if after == NIL {
            class.tail = before;
        } else {
            self.runs[after as usize].before = before;
        }
        if before != NIL {
            self.runs[before as usize].after = after;
            return;
        }
        class.head = after;
        if after == NIL {
            self.open &= !(1 << class.rank);
        }
    }
}

impl Run {
    fn has(&self, page: u32) -> bool {
        page < u32::from(self.pages) && self.bits[page as usize / 64] & (1 << (page % 64)) != 0
    }

    fn is_sparse(&self) -> bool {
        self.pages - self.taken >= self.pages.div_ceil(SPARSE_SHARE)
    }

    /// Of a dissolved run: the extent that a page became.
    fn extent_of(&self, page: u32) -> NodeId {
        NodeId(self.owners[page as usize] as u32)
    }
}

fn id(run: u32, page: u32) -> NodeId {
    NodeId(PAGE | run << PAGE_BITS | page)
}

/// Home of a size among the counters (Fibonacci hashing).
fn heat_of(len: u32) -> usize {
    (len.wrapping_mul(0x9E37_79B1) >> 24) as usize
}
