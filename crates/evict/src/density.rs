//! How much a key is worth that was last used so long ago: learned from who came back.
//!
//! Keys are sorted into classes by what their last access looked like, and by their age since then into bins. For every
//! class it is counted how many accesses there were and after how long the key was accessed again, ghosts included. From
//! that follows a key's worth: the best ratio of the chance to be used within some time to the time it occupies its place
//! until then (the Gittins index of the class at that age).

/// Bins of age.
pub(crate) const BINS: usize = 24;
/// Kinds of access, see [`Kind`].
const KINDS: usize = 7;
/// Classes of request length.
const LENGTHS: usize = 4;
/// Classes of access.
pub(crate) const CLASSES: usize = KINDS * LENGTHS;
/// One for each class and bin.
pub(crate) const CELLS: usize = CLASSES * BINS;

/// The first bin ends here, in ticks of 67 ms; each following is wider by `BIN_GROWTH`.
const FIRST_BIN: f64 = 21.0;
const BIN_GROWTH: f64 = 1.7;
/// Bins in which a key is fresh: 15 seconds.
const FRESH_BINS: usize = 4;
/// Accesses after which the worths are out of date.
const REFRESH: u32 = 512;
/// Accesses that the assumptions below count for, once the class has its own.
const PRIOR_WEIGHT: f64 = 1000.0;
/// Accesses that a kind's record counts for in each of its length classes.
const KIND_WEIGHT: f64 = 1000.0;
/// Assumed until it is learned: the time to the next use is log-normal with this median, in ticks, and this spread.
const MEDIAN_GAP: f64 = 1800.0;
const GAP_SPREAD: f64 = 1.0;
/// A record is worth half after as many accesses: this, or `HALF_LIFE_FILLS` times the keys there are.
const HALF_LIFE: f64 = 160_000.0;
const HALF_LIFE_FILLS: f64 = 8.0;

/// What an access looked like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The last key of its request: often a block that is not full, which no other request can have.
    Tail,
    /// First use, in a request that starts a conversation.
    New,
    /// First use, in a request that continues a known chain.
    Extension,
    /// Second use.
    Second,
    /// Third use.
    Third,
    /// Some more uses.
    Frequent,
    /// Many uses: a shared system prompt.
    Hub,
}

impl Kind {
    /// Chance of another use that is assumed until it is learned; from the first half of the conversation trace.
    const fn chance(self) -> f64 {
        match self {
            Kind::Tail => 0.01,
            Kind::New => 0.27,
            Kind::Extension => 0.15,
            Kind::Second => 0.43,
            Kind::Third => 0.48,
            Kind::Frequent => 0.6,
            Kind::Hub => 0.99,
        }
    }

    const ALL: [Kind; KINDS] =
        [Kind::Tail, Kind::New, Kind::Extension, Kind::Second, Kind::Third, Kind::Frequent, Kind::Hub];
}

/// The class of an access in a request of `length` keys.
pub(crate) fn class(kind: Kind, length: usize) -> u8 {
    let length_class = match length {
        0..16 => 0,
        16..32 => 1,
        32..64 => 2,
        _ => 3,
    };
    (kind as usize * LENGTHS + length_class) as u8
}

/// The class of what was taken for the tail of its request and is none, with its place in `class` kept.
pub(crate) fn not_tail(class: u8, kind: Kind) -> Option<u8> {
    let tail = usize::from(class) / LENGTHS == Kind::Tail as usize;
    tail.then_some((kind as usize * LENGTHS) as u8 + class % LENGTHS as u8)
}

/// The learned record, and the ranks that follow from it.
#[derive(Debug)]
pub(crate) struct Density {
    edges: [f64; BINS + 1],
    gaps: [f64; BINS],
    returns: [[f64; BINS]; CLASSES],
    accesses: [f64; CLASSES],
    worth: Vec<f64>,
    /// Cells from the least to the most valuable.
    order: Vec<u16>,
    rank: Vec<u16>,
    /// Accesses since the worths were computed.
    news: u32,
}

/// Nobody comes back at once, so the youngest look worth least, and what was just written would go before its reader
/// came. Within the first bins a key is worth at least what it will be worth after them: the older go first there. Of
/// tails, and what is put key by key without a chain, always the older goes first.
fn fresh_stay(mut worths: [f64; BINS], bins: usize) -> [f64; BINS] {
    for bin in (0..bins).rev() {
        worths[bin] = worths[bin].max(worths[bin + 1]);
    }
    worths
}

/// Distribution function of the assumed gap; the logistic function stands in for the normal one.
fn gap_below(ticks: f64) -> f64 {
    if ticks <= 0.0 { 0.0 } else { 1.0 / (1.0 + (-1.702 * (ticks / MEDIAN_GAP).ln() / GAP_SPREAD).exp()) }
}

impl Density {
    /// Nothing learned yet.
    pub fn new() -> Self {
        let edges = std::array::from_fn(|bin| FIRST_BIN * (BIN_GROWTH.powi(bin as i32) - 1.0) / (BIN_GROWTH - 1.0));
        let gaps = std::array::from_fn(|bin| gap_below(edges[bin + 1]) - gap_below(edges[bin]));
        let mut density = Density {
            edges,
            gaps,
            returns: [[0.0; BINS]; CLASSES],
            accesses: [0.0; CLASSES],
            worth: vec![0.0; CELLS],
            order: (0..CELLS as u16).collect(),
            rank: vec![0; CELLS],
            news: 0,
        };
        density.compute();
        density
    }

    /// The bin of an age in ticks.
    pub fn bin(&self, age: u32) -> u8 {
        let inner = &self.edges[1..BINS];
        inner.partition_point(|edge| *edge <= f64::from(age)) as u8
    }

    /// An access of a class.
    pub fn accessed(&mut self, class: u8) {
        self.accesses[usize::from(class)] += 1.0;
        self.news = self.news.saturating_add(1);
    }

    /// Whether it is time to [`refresh`](Self::refresh), for those who need the ranks.
    pub fn is_out_of_date(&self) -> bool {
        self.news >= REFRESH
    }

    /// An access turned out to be of another class.
    pub fn reclassified(&mut self, from: u8, to: u8) {
        self.accesses[usize::from(from)] -= 1.0;
        self.accesses[usize::from(to)] += 1.0;
    }

    /// A key whose last access was of `class` is accessed again after `age` ticks.
    pub fn returned(&mut self, class: u8, age: u32) {
        let bin = self.bin(age);
        self.returns[usize::from(class)][usize::from(bin)] += 1.0;
    }

    /// Computes all ranks anew and lets the record fade a little; the more keys there are, the less.
    pub fn refresh(&mut self, keys: usize) {
        let half_life = HALF_LIFE.max(HALF_LIFE_FILLS * keys as f64);
        let keep = 0.5f64.powf(f64::from(std::mem::take(&mut self.news)) / half_life);
        for (accesses, returns) in self.accesses.iter_mut().zip(&mut self.returns) {
            *accesses *= keep;
            returns.iter_mut().for_each(|count| *count *= keep);
        }
        self.compute();
    }

    /// Place of a cell among all, the least valuable first.
    pub fn rank(&self, cell: usize) -> usize {
        usize::from(self.rank[cell])
    }

    /// The cell at a place.
    pub fn cell_at(&self, rank: usize) -> usize {
        usize::from(self.order[rank])
    }

    /// Whether keys of this cell gain worth as they get older, so that the youngest is worth least.
    pub fn rises(&self, cell: usize) -> bool {
        cell % BINS + 1 < BINS && self.worth[cell] < self.worth[cell + 1]
    }

    fn compute(&mut self) {
        for kind in Kind::ALL {
            let classes = kind as usize * LENGTHS..(kind as usize + 1) * LENGTHS;
            let accesses: f64 = self.accesses[classes.clone()].iter().sum();
            let of_kind: [f64; BINS] = std::array::from_fn(|bin| {
                let returns: f64 = self.returns[classes.clone()].iter().map(|r| r[bin]).sum();
                (returns + PRIOR_WEIGHT * kind.chance() * self.gaps[bin]) / (accesses + PRIOR_WEIGHT)
            });
            for class in classes {
                let chances = std::array::from_fn(|bin| {
                    (self.returns[class][bin] + KIND_WEIGHT * of_kind[bin]) / (self.accesses[class] + KIND_WEIGHT)
                });
                let fresh = if kind == Kind::Tail { BINS - 1 } else { FRESH_BINS };
                let worths = fresh_stay(self.worths(&chances), fresh);
                self.worth[class * BINS..(class + 1) * BINS].copy_from_slice(&worths);
            }
        }
        let (order, worth) = (&mut self.order, &self.worth);
        order.sort_unstable_by(|a, b| worth[usize::from(*a)].total_cmp(&worth[usize::from(*b)]).then(b.cmp(a)));
        for (rank, cell) in self.order.iter().enumerate() {
            self.rank[usize::from(*cell)] = rank as u16;
        }
    }

    /// Worth by age of a class whose chance to come back in each bin is given.
    fn worths(&self, chances: &[f64; BINS]) -> [f64; BINS] {
        let mut alive = [1.0; BINS + 1];
        for bin in 0..BINS {
            alive[bin + 1] = (alive[bin] - chances[bin]).max(1e-4);
        }
        std::array::from_fn(|from| {
            let (mut used, mut occupied, mut best) = (0.0, 0.0, 0.0f64);
            for bin in from..BINS {
                used += chances[bin];
                occupied += (alive[bin] + alive[bin + 1]) / 2.0 * (self.edges[bin + 1] - self.edges[bin]);
                best = best.max(used / occupied);
            }
            best
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worth(density: &Density, class: u8, age: u32) -> f64 {
        density.worth[usize::from(class) * BINS + usize::from(density.bin(age))]
    }

    #[test]
    fn bins_cover_all_ages_in_order() {
        let density = Density::new();
        assert_eq!((density.bin(0), density.bin(u32::MAX)), (0, BINS as u8 - 1));
        assert!((0..100_000).map(|age| density.bin(age)).is_sorted());
    }

    #[test]
    fn what_is_fresh_never_goes_before_what_is_a_little_older() {
        let density = Density::new();
        for cell in (0..CELLS).filter(|cell| cell % BINS < FRESH_BINS) {
            assert!(!density.rises(cell), "the oldest of a fresh bin goes first");
            assert!(density.rank(cell) > density.rank(cell + 1), "the older bin goes first");
        }
    }

    #[test]
    fn at_first_a_tail_is_worth_least_and_a_hub_most() {
        let density = Density::new();
        let at = |kind| worth(&density, class(kind, 20), 100);
        for kind in Kind::ALL {
            assert!(kind == Kind::Tail || at(kind) > at(Kind::Tail), "{kind:?}");
            assert!(kind == Kind::Hub || at(kind) < at(Kind::Hub), "{kind:?}");
        }
    }

    #[test]
    fn a_class_that_comes_back_gains_and_one_that_does_not_loses() {
        let mut density = Density::new();
        let (good, bad) = (class(Kind::New, 5), class(Kind::New, 50));
        for _ in 0..20_000 {
            for class in [good, bad] {
                density.accessed(class);
                if density.is_out_of_date() {
                    density.refresh(100);
                }
            }
            density.returned(good, 50);
        }
        assert!(worth(&density, good, 0) > 10.0 * worth(&density, bad, 0));
        assert!(worth(&density, good, 5_000) < worth(&density, good, 0), "nobody of this class comes back late");
        let (good, bad) = (usize::from(good) * BINS, usize::from(bad) * BINS);
        assert!(density.rank(bad) < density.rank(good));
        assert_eq!(density.cell_at(density.rank(good)), good);
    }
}
