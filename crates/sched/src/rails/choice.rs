//! The best rail now, in a time that grows with the logarithm of their number.

/// A rail that takes nothing.
pub(crate) const CLOSED: u64 = u64::MAX;

/// A tournament: every inner node knows the better of its two children.
#[derive(Debug, Default)]
pub(crate) struct Tournament {
    /// Scores by rail; lower is better.
    scores: Vec<u64>,
    /// Node 1 is the root, the children of n are 2n and 2n+1; the leaves are the rails in order.
    winners: Vec<u32>,
    leaves: usize,
}

impl Tournament {
    fn better(&self, left: u32, right: u32) -> u32 {
        let score = |rail: u32| self.scores.get(rail as usize).copied().unwrap_or(CLOSED);
        if score(right) < score(left) { right } else { left }
    }

    fn node(&self, node: usize) -> u32 {
        self.winners.get(node).copied().unwrap_or(u32::MAX)
    }

    /// Sets the score of a rail; new rails get the next number.
    pub(crate) fn set(&mut self, rail: usize, score: u64) {
        if rail >= self.scores.len() {
            self.scores.resize(rail + 1, CLOSED);
            self.rebuild();
        }
        if let Some(place) = self.scores.get_mut(rail) {
            *place = score;
        }
        let mut node = (self.leaves + rail) / 2;
        while node >= 1 {
            let better = self.better(self.node(2 * node), self.node(2 * node + 1));
            if let Some(winner) = self.winners.get_mut(node) {
                *winner = better;
            }
            node /= 2;
        }
    }

    fn rebuild(&mut self) {
        self.leaves = self.scores.len().next_power_of_two();
        self.winners = vec![u32::MAX; 2 * self.leaves];
        for (rail, leaf) in self.winners.iter_mut().skip(self.leaves).take(self.scores.len()).enumerate() {
            *leaf = rail as u32;
        }
        for node in (1..self.leaves).rev() {
            let better = self.better(self.node(2 * node), self.node(2 * node + 1));
            if let Some(winner) = self.winners.get_mut(node) {
                *winner = better;
            }
        }
    }

    fn open(&self, rail: u32) -> Option<usize> {
        let rail = rail as usize;
        self.scores.get(rail).is_some_and(|score| *score != CLOSED).then_some(rail)
    }

    /// The best rail that takes something.
    pub(crate) fn best(&self) -> Option<usize> {
        self.open(self.node(1))
    }

    /// The best of the others.
    pub(crate) fn best_but(&self, rail: usize) -> Option<usize> {
        let mut node = self.leaves + rail;
        let mut best = u32::MAX;
        while node > 1 {
            best = self.better(best, self.node(node ^ 1));
            node /= 2;
        }
        self.open(best)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_winner_is_the_best(changes in prop::collection::vec((0_usize..19, prop::option::of(0_u64..50)), 1..100)) {
            let mut tournament = Tournament::default();
            let mut scores = vec![];
            for (rail, score) in changes {
                let score = score.unwrap_or(CLOSED);
                if rail >= scores.len() {
                    scores.resize(rail + 1, CLOSED);
                }
                scores[rail] = score;
                tournament.set(rail, score);
                let best = |but: Option<usize>| {
                    let open = (0..scores.len()).filter(|rail| scores[*rail] != CLOSED && Some(*rail) != but);
                    open.min_by_key(|rail| scores[*rail]).map(|rail| scores[rail])
                };
                prop_assert_eq!(tournament.best().map(|rail| scores[rail]), best(None));
                for but in 0..scores.len() {
                    let chosen = tournament.best_but(but);
                    prop_assert!(chosen != Some(but));
                    prop_assert_eq!(chosen.map(|rail| scores[rail]), best(Some(but)));
                }
            }
        }
    }
}
