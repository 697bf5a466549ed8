//! What every policy promises, on random calls and against naive models.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use yb_evict::{
    Access, Batch, Chain, ChainSettings, Key, Lru, Policy, PolicyKind, Score, Victims, optimum, simulate, textbook_lru,
    workload,
};
use yb_types::MonotonicTime;

fn at(ms: u64) -> MonotonicTime {
    MonotonicTime::from_millis(100_000 + ms)
}

fn keys(ids: impl IntoIterator<Item = u64>) -> Vec<Key> {
    ids.into_iter().map(Key).collect()
}

fn victim(policy: &mut dyn Policy, now: MonotonicTime) -> Option<Key> {
    policy.victim(now, &mut Victims::new(1_000, &mut |_| Some(1))).map(|(key, _)| key)
}

/// A call to a policy, with small keys so that they meet.
#[derive(Clone, Debug)]
enum Call {
    LookUp(Vec<u64>),
    Insert(Vec<u64>, Option<u64>),
    Remove(u64),
    /// Some victims, while keys below a number are protected.
    Evict(u64, u64),
    Wait(u64),
}

fn call() -> impl Strategy<Value = Call> {
    let batch = || prop::collection::vec(0u64..60, 0..12);
    prop_oneof![
        3 => batch().prop_map(Call::LookUp),
        4 => (batch(), prop::option::of(0u64..3)).prop_map(|(keys, group)| Call::Insert(keys, group)),
        1 => (0u64..60).prop_map(Call::Remove),
        3 => (1u64..15, 0u64..30).prop_map(|(need, below)| Call::Evict(need, below)),
        1 => (0u64..60_000).prop_map(Call::Wait),
    ]
}

/// The calls, to a policy and to a set; `check` sees each victim and who is left.
fn play(policy: &mut dyn Policy, calls: &[Call]) {
    let mut resident = BTreeSet::new();
    let mut now = 0;
    for call in calls {
        match call {
            Call::LookUp(ids) => policy.looked_up(Batch::new(&keys(ids.iter().copied())), at(now)),
            Call::Insert(ids, group) => {
                policy.inserted(Batch { keys: &keys(ids.iter().copied()), group: *group }, at(now));
                resident.extend(ids.iter().copied());
            }
            Call::Remove(id) => {
                policy.removed(Key(*id));
                resident.remove(id);
            }
            Call::Evict(need, below) => {
                let mut bytes = |key: Key| (key.0 >= *below).then_some(2);
                let victims = policy.victims(*need, at(now), &mut Victims::new(500, &mut bytes));
                assert!(victims.len() as u64 <= need.div_ceil(2), "no more than needed");
                for key in victims {
                    assert!(key.0 >= *below, "{key:?} was protected");
                    assert!(resident.remove(&key.0), "{key:?} was not there");
                }
            }
            Call::Wait(ms) => now += ms,
        }
        assert_eq!(policy.len(), resident.len());
    }
    // Everything can be given up in the end.
    let rest = policy.victims(u64::MAX, at(now + 1_000_000), &mut Victims::new(u32::MAX, &mut |_| Some(1)));
    assert_eq!(rest.iter().map(|key| key.0).collect::<BTreeSet<_>>(), resident);
    assert!(policy.is_empty());
}

/// Least recently used, by a list that is searched.
#[derive(Default)]
struct Naive(VecDeque<u64>);

impl Naive {
    fn touch(&mut self, id: u64) {
        self.0.retain(|other| *other != id);
        self.0.push_back(id);
    }
}

/// Requests of conversations that grow, fork and start anew: each is a path in a forest.
fn conversations() -> impl Strategy<Value = Vec<Access>> {
    prop::collection::vec((0usize..20, 1usize..6, 0usize..8, 0u64..20_000), 1..80).prop_map(|steps| {
        let mut paths: Vec<Vec<Key>> = vec![Vec::new()];
        let (mut next, mut now, mut accesses) = (0, 0, Vec::new());
        for (which, grow, cut, wait) in steps {
            let mut path = paths[which % paths.len()].clone();
            path.truncate(path.len().saturating_sub(cut));
            path.extend((next..next + grow as u64).map(Key));
            (next, now) = (next + grow as u64, now + wait);
            accesses.push(Access { at: at(now), keys: path.clone() });
            paths.push(path);
        }
        accesses
    })
}

/// The most hits that any choice of what to keep gives, by trying all.
fn best_by_trying(requests: &[u64], resident: &BTreeSet<u64>, capacity: usize) -> u64 {
    let Some((id, rest)) = requests.split_first() else { return 0 };
    let mut with = resident.clone();
    let hit = u64::from(!with.insert(*id));
    let mut best = best_by_trying(rest, resident, capacity);
    if with.len() <= capacity {
        return hit + best.max(best_by_trying(rest, &with, capacity));
    }
    for out in resident {
        let mut other = with.clone();
        other.remove(out);
        best = best.max(best_by_trying(rest, &other, capacity));
    }
    hit + best
}

proptest! {
    #[test]
    fn victims_are_resident_and_not_protected(calls in prop::collection::vec(call(), 0..120)) {
        for kind in PolicyKind::ALL {
            play(&mut *kind.build(20), &calls);
        }
    }

    #[test]
    fn lru_is_the_naive_one(calls in prop::collection::vec(call(), 0..120)) {
        let (mut lru, mut naive) = (Lru::new(), Naive::default());
        for call in calls {
            match call {
                Call::LookUp(ids) => {
                    lru.looked_up(Batch::new(&keys(ids.iter().copied())), at(0));
                    ids.into_iter().for_each(|id| if naive.0.contains(&id) { naive.touch(id) });
                }
                Call::Insert(ids, _) => {
                    lru.inserted(Batch::new(&keys(ids.iter().copied())), at(0));
                    ids.into_iter().for_each(|id| naive.touch(id));
                }
                Call::Remove(id) => {
                    lru.removed(Key(id));
                    naive.0.retain(|other| *other != id);
                }
                Call::Evict(count, _) => {
                    for _ in 0..count {
                        prop_assert_eq!(victim(&mut lru, at(0)), naive.0.pop_front().map(Key));
                    }
                }
                Call::Wait(_) => {}
            }
        }
    }

    #[test]
    fn a_parent_never_goes_before_its_child(accesses in conversations(), capacity in 1usize..40) {
        let mut chain = Chain::new(ChainSettings { capacity, ghosts: capacity });
        let mut parents = BTreeMap::new();
        for access in &accesses {
            parents.extend(access.keys.windows(2).map(|pair| (pair[1], pair[0])));
        }
        let mut resident: BTreeSet<Key> = BTreeSet::new();
        for access in &accesses {
            chain.looked_up(Batch::new(&access.keys), access.at);
            let missing: Vec<Key> = access.keys.iter().copied().filter(|key| !resident.contains(key)).collect();
            chain.inserted(Batch::new(&missing), access.at);
            resident.extend(missing);
            while resident.len() > capacity {
                let key = victim(&mut chain, access.at).unwrap();
                prop_assert!(resident.remove(&key));
                let orphan = resident.iter().find(|other| parents.get(other) == Some(&key));
                prop_assert_eq!(orphan, None, "{:?} went before its child", key);
            }
            for key in &resident {
                prop_assert_eq!(chain.parent(*key), parents.get(key).copied());
            }
        }
    }

    #[test]
    fn no_policy_exceeds_capacity_or_beats_the_optimum(accesses in conversations(), capacity in 1usize..40) {
        let best = optimum(&accesses, capacity, &mut |_| ());
        for kind in PolicyKind::ALL {
            let mut policy = kind.build(capacity);
            let score = simulate(&accesses, &mut *policy, capacity, &mut |_| ());
            prop_assert!(score.hits <= best.hits && score.prefix_hits <= score.hits, "{kind}: {score:?}, {best:?}");
            prop_assert!(policy.len() <= capacity);
            let stored = score.blocks - score.hits - score.refused;
            prop_assert_eq!(policy.len() as u64, stored - score.evicted);
        }
    }

    #[test]
    fn the_optimum_is_the_best_of_all_choices(ids in prop::collection::vec(0u64..5, 0..9), capacity in 1usize..4) {
        let accesses: Vec<Access> = ids.iter().map(|id| Access { at: at(0), keys: keys([*id]) }).collect();
        let found = optimum(&accesses, capacity, &mut |_| ()).hits;
        prop_assert_eq!(found, best_by_trying(&ids, &BTreeSet::new(), capacity));
    }
}

#[test]
fn the_yardstick_is_the_textbook() {
    let accesses = workload::generate(3, 400);
    let mut naive = Naive::default();
    let mut hits = 0;
    for key in accesses.iter().flat_map(|access| &access.keys) {
        hits += u64::from(naive.0.contains(&key.0));
        naive.touch(key.0);
        if naive.0.len() > 300 {
            naive.0.pop_front();
        }
    }
    assert_eq!(textbook_lru(&accesses, 300, &mut |_| ()).hits, hits);
}

/// Steps of an operation on a full pool of `keys` keys: requests of 20 blocks, half of them seen before.
fn steps_per_block(kind: PolicyKind, capacity: u64) -> f64 {
    const LENGTH: u64 = 20;
    let mut policy = kind.build(capacity as usize);
    let mut now = 0;
    let mut request = |policy: &mut dyn Policy, number: u64| {
        now += 3;
        let batch = keys((0..LENGTH).map(|block| number * LENGTH + block));
        policy.looked_up(Batch::new(&batch), at(now));
        policy.inserted(Batch::new(&batch), at(now));
        let over = (policy.len() as u64).saturating_sub(capacity);
        policy.victims(over, at(now), &mut Victims::new(u32::MAX, &mut |_| Some(1)));
    };
    let full = capacity / LENGTH;
    (0..full).for_each(|number| request(&mut *policy, number));
    let before = policy.steps();
    let measured = 2_000;
    for number in 0..measured {
        request(&mut *policy, full + number);
        request(&mut *policy, full * (number + 1) / (measured + 1));
    }
    (policy.steps() - before) as f64 / (2 * measured * LENGTH) as f64
}

#[test]
fn the_cost_does_not_grow_with_the_number_of_keys() {
    for kind in [PolicyKind::Chain, PolicyKind::S3Fifo] {
        let costs = [10_000, 1_000_000].map(|capacity| steps_per_block(kind, capacity));
        assert!(costs[1] <= costs[0] * 1.5 && costs[1] < 40.0, "{kind}: {costs:?}");
    }
}

#[test]
fn ours_wins_on_a_workload_that_it_was_not_made_on() {
    let ratio = |score: Score| (score.block_hit_ratio(), score.prefix_hit_ratio());
    for seed in [1, 2] {
        let (accesses, capacity) = (workload::generate(seed, 3_000), 3_000);
        let play = |kind: PolicyKind| ratio(simulate(&accesses, &mut *kind.build(capacity), capacity, &mut |_| ()));
        let ours = play(PolicyKind::Chain);
        for other in [PolicyKind::Lru, PolicyKind::NearLru, PolicyKind::S3Fifo] {
            let other_ratio = play(other);
            let by = if other == PolicyKind::S3Fifo { 0.0 } else { 0.02 };
            let wins = ours.0 > other_ratio.0 + by && ours.1 > other_ratio.1 + by;
            assert!(wins, "seed {seed}: {ours:?}, {other}: {other_ratio:?}");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_workload_in_order_of_time() {
    let accesses = workload::generate(7, 500);
    assert_eq!(accesses, workload::generate(7, 500));
    assert_ne!(accesses, workload::generate(8, 500));
    assert!(accesses.len() == 500 && accesses.is_sorted_by_key(|access| access.at));
}

#[test]
fn keys_of_a_group_that_are_put_one_by_one_are_a_chain() {
    let mut chain = Chain::new(ChainSettings::for_capacity(100));
    for id in 0..5 {
        chain.inserted(Batch { keys: &[Key(id)], group: Some(9) }, at(0));
    }
    let order: Vec<Key> = std::iter::from_fn(|| victim(&mut chain, at(1_000))).collect();
    assert_eq!(order, keys((0..5).rev()));
}

#[test]
fn a_put_of_the_missing_part_hangs_below_what_was_found() {
    let mut chain = Chain::new(ChainSettings::for_capacity(100));
    chain.inserted(Batch::new(&keys(0..3)), at(0));
    chain.looked_up(Batch::new(&keys(0..6)), at(5_000));
    chain.inserted(Batch::new(&keys(3..6)), at(5_000));
    assert_eq!(chain.parent(Key(3)), Some(Key(2)));
    let order: Vec<Key> = std::iter::from_fn(|| victim(&mut chain, at(6_000))).collect();
    assert_eq!(order, keys((0..6).rev()));
}

#[test]
fn heads_that_are_removed_leave_nothing_behind() {
    let mut chain = Chain::new(ChainSettings::for_capacity(100));
    for id in 1..10_000 {
        chain.looked_up(Batch::new(&keys([id - 1, id])), at(id));
        chain.inserted(Batch::new(&keys([id])), at(id));
        chain.removed(Key(id.wrapping_sub(10)));
    }
    assert_eq!(chain.len(), 10);
    assert_eq!(victim(&mut chain, at(20_000)), Some(Key(9_999)));
}

#[test]
fn a_lease_of_the_peer_keeps_its_key_until_it_ends() {
    let mut policy = PolicyKind::NearLru.build(10);
    policy.inserted(Batch::new(&keys([1, 2])), at(0));
    policy.looked_up(Batch::new(&keys([1])), at(1_000));
    assert_eq!(victim(&mut *policy, at(1_000)), Some(Key(2)));
    assert_eq!(victim(&mut *policy, at(10_999)), None);
    assert_eq!(victim(&mut *policy, at(11_000)), Some(Key(1)));
    // The peer's rounds: above 0.9 of the capacity, at least 0.05 of the keys.
    policy.inserted(Batch::new(&keys(0..95)), at(0));
    assert_eq!((policy.surplus(200), policy.surplus(100)), (0, 9));
}
