//! What every policy promises, on random calls and against naive models.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proptest::prelude::*;
use yb_evict::{
    Access, Chain, Key, Keyed, Lru, Newcomer, Policy, PolicyKind, Score, Seen, Slot, Verdict, Victims, optimum,
    simulate, textbook_lru, workload,
};
use yb_types::MonotonicTime;

fn at(ms: u64) -> MonotonicTime {
    MonotonicTime::from_millis(100_000 + ms)
}

fn keys(ids: impl IntoIterator<Item = u64>) -> Vec<Key> {
    ids.into_iter().map(Key).collect()
}

fn victim<P: Policy>(policy: &mut Keyed<P>, now: MonotonicTime) -> Option<Key> {
    policy.victim(now, 1_000, &mut |_| Some(1)).map(|(key, _)| key)
}

fn chain() -> Keyed<Chain> {
    Keyed::new(Chain::new())
}

fn parent(chain: &mut Keyed<Chain>, key: Key) -> Option<Key> {
    let slot = chain.slot(key)?;
    let parent = chain.policy().parent(slot)?;
    Some(chain.key(parent))
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
fn play(mut policy: Keyed<Box<dyn Policy>>, calls: &[Call]) {
    let mut resident = BTreeSet::new();
    let mut now = 0;
    for call in calls {
        match call {
            Call::LookUp(ids) => policy.looked_up(&keys(ids.iter().copied()), at(now)),
            Call::Insert(ids, group) => {
                policy.inserted(&keys(ids.iter().copied()), *group, at(now));
                resident.extend(ids.iter().copied());
            }
            Call::Remove(id) => {
                policy.removed(Key(*id));
                resident.remove(id);
            }
            Call::Evict(need, below) => {
                let mut bytes = |key: Key| (key.0 >= *below).then_some(2);
                let victims = policy.victims(*need, at(now), 500, &mut bytes);
                assert!(victims.len() as u64 <= need.div_ceil(2), "no more than needed");
                for key in victims {
                    assert!(key.0 >= *below, "{key:?} was protected");
                    assert!(resident.remove(&key.0), "{key:?} was not there");
                }
            }
            Call::Wait(ms) => now += ms,
        }
        assert_eq!(policy.policy().len(), resident.len());
    }
    // Everything can be given up in the end.
    let rest = policy.victims(u64::MAX, at(now + 1_000_000), u32::MAX, &mut |_| Some(1));
    assert_eq!(rest.iter().map(|key| key.0).collect::<BTreeSet<_>>(), resident);
    assert!(policy.policy().is_empty());
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
            play(kind.keyed(), &calls);
        }
    }

    #[test]
    fn lru_is_the_naive_one(calls in prop::collection::vec(call(), 0..120)) {
        let (mut lru, mut naive) = (Keyed::new(Lru::new()), Naive::default());
        for call in calls {
            match call {
                Call::LookUp(ids) => {
                    lru.looked_up(&keys(ids.iter().copied()), at(0));
                    ids.into_iter().for_each(|id| if naive.0.contains(&id) { naive.touch(id) });
                }
                Call::Insert(ids, _) => {
                    lru.inserted(&keys(ids.iter().copied()), None, at(0));
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
        let mut chain = chain();
        let mut parents = BTreeMap::new();
        for access in &accesses {
            parents.extend(access.keys.windows(2).map(|pair| (pair[1], pair[0])));
        }
        let mut resident: BTreeSet<Key> = BTreeSet::new();
        for access in &accesses {
            chain.looked_up(&access.keys, access.at);
            let missing: Vec<Key> = access.keys.iter().copied().filter(|key| !resident.contains(key)).collect();
            chain.inserted(&missing, None, access.at);
            resident.extend(missing);
            while resident.len() > capacity {
                let key = victim(&mut chain, access.at).unwrap();
                prop_assert!(resident.remove(&key));
                let orphan = resident.iter().find(|other| parents.get(other) == Some(&key));
                prop_assert_eq!(orphan, None, "{:?} went before its child", key);
            }
            for key in &resident {
                prop_assert_eq!(parent(&mut chain, *key), parents.get(key).copied());
            }
        }
    }

    #[test]
    fn no_policy_exceeds_capacity_or_beats_the_optimum(accesses in conversations(), capacity in 1usize..40) {
        let best = optimum(&accesses, capacity, &mut |_| ());
        for kind in PolicyKind::ALL {
            let mut policy = kind.keyed();
            let score = simulate(&accesses, &mut policy, capacity, &mut |_| ());
            prop_assert!(score.hits <= best.hits && score.prefix_hits <= score.hits, "{kind}: {score:?}, {best:?}");
            prop_assert!(policy.policy().len() <= capacity);
            let stored = score.blocks - score.hits - score.refused;
            prop_assert_eq!(policy.policy().len() as u64, stored - score.evicted);
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
    let mut policy = kind.keyed();
    let mut now = 0;
    let mut request = |policy: &mut Keyed<Box<dyn Policy>>, number: u64| {
        now += 3;
        let batch = keys((0..LENGTH).map(|block| number * LENGTH + block));
        policy.looked_up(&batch, at(now));
        policy.inserted(&batch, None, at(now));
        let over = (policy.policy().len() as u64).saturating_sub(capacity);
        policy.victims(over, at(now), u32::MAX, &mut |_| Some(1));
    };
    let full = capacity / LENGTH;
    (0..full).for_each(|number| request(&mut policy, number));
    let before = policy.policy().steps();
    let measured = 2_000;
    for number in 0..measured {
        request(&mut policy, full + number);
        request(&mut policy, full * (number + 1) / (measured + 1));
    }
    (policy.policy().steps() - before) as f64 / (2 * measured * LENGTH) as f64
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
        let play = |kind: PolicyKind| ratio(simulate(&accesses, &mut kind.keyed(), capacity, &mut |_| ()));
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
    let mut chain = chain();
    for id in 0..5 {
        chain.inserted(&[Key(id)], Some(9), at(0));
    }
    let order: Vec<Key> = std::iter::from_fn(|| victim(&mut chain, at(1_000))).collect();
    assert_eq!(order, keys((0..5).rev()));
}

#[test]
fn what_stands_above_a_protected_leaf_goes_when_nothing_else_can() {
    let mut chain = chain();
    chain.inserted(&keys(0..4), None, at(0));
    let mut all_but_the_last = |key: Key| (key.0 != 3).then_some(1);
    let order = chain.victims(9, at(60_000), 100, &mut all_but_the_last);
    assert_eq!(order, keys([2, 1, 0]));
    assert_eq!(chain.policy().len(), 1);
    assert_eq!(victim(&mut chain, at(70_000)), Some(Key(3)));
}

#[test]
fn a_put_of_the_missing_part_hangs_below_what_was_found() {
    let mut chain = chain();
    chain.inserted(&keys(0..3), None, at(0));
    chain.looked_up(&keys(0..6), at(5_000));
    chain.inserted(&keys(3..6), None, at(5_000));
    assert_eq!(parent(&mut chain, Key(3)), Some(Key(2)));
    let order: Vec<Key> = std::iter::from_fn(|| victim(&mut chain, at(6_000))).collect();
    assert_eq!(order, keys((0..6).rev()));
}

#[test]
fn heads_that_are_removed_leave_nothing_behind() {
    let mut chain = chain();
    for id in 1..10_000 {
        chain.looked_up(&keys([id - 1, id]), at(id));
        chain.inserted(&keys([id]), None, at(id));
        chain.removed(Key(id.wrapping_sub(10)));
    }
    assert_eq!(chain.policy().len(), 10);
    assert_eq!(victim(&mut chain, at(20_000)), Some(Key(9_999)));
}

#[test]
fn a_lease_of_the_peer_keeps_its_key_until_it_ends() {
    let mut policy = PolicyKind::NearLru.keyed();
    policy.inserted(&keys([1, 2]), None, at(0));
    policy.looked_up(&keys([1]), at(1_000));
    assert_eq!(victim(&mut policy, at(1_000)), Some(Key(2)));
    assert_eq!(victim(&mut policy, at(10_999)), None);
    assert_eq!(victim(&mut policy, at(11_000)), Some(Key(1)));
    // The peer's rounds: above 0.9 of the capacity, at least 0.05 of the keys.
    policy.inserted(&keys(0..95), None, at(0));
    assert_eq!((policy.policy().surplus(200), policy.policy().surplus(100)), (0, 9));
}

fn newcomer(number: u32, tag: u32) -> Newcomer {
    Newcomer { slot: Slot::new(number, tag), key: Key(u64::from(number) << 32 | u64::from(tag)) }
}

#[test]
fn a_place_that_is_written_anew_is_the_new_key_only() {
    for kind in PolicyKind::ALL {
        let mut policy = kind.build();
        policy.inserted(&[newcomer(1, 1), newcomer(2, 2), newcomer(3, 3)], None, at(0));
        // The removal of the first write is told after the second write.
        policy.inserted(&[newcomer(2, 4)], None, at(100));
        policy.removed(Slot::new(2, 2));
        policy.looked_up(&[Seen::Here(Slot::new(2, 2)), Seen::Here(Slot::new(9, 9))], at(1_000));
        assert_eq!(policy.len(), 3, "{kind}");
        policy.removed(Slot::new(2, 4));
        assert_eq!(policy.len(), 2, "{kind}");
        let mut goes = |slot: Slot| Verdict::Goes { key: Key(slot.number.into()), bytes: 1 };
        let rest = policy.victims(9, at(60_000), &mut Victims::new(9, &mut goes));
        assert_eq!(rest.iter().map(|slot| slot.number).collect::<BTreeSet<_>>(), BTreeSet::from([1, 3]), "{kind}");
    }
}

#[test]
fn a_key_that_left_without_a_word_is_forgotten_when_its_turn_comes() {
    for kind in PolicyKind::ALL {
        let mut policy = kind.build();
        policy.inserted(&[newcomer(1, 1), newcomer(2, 2)], None, at(0));
        let mut judge = |slot: Slot| match slot.number {
            1 => Verdict::Goes { key: Key(1), bytes: 7 },
            _ => Verdict::Gone,
        };
        let victims = policy.victims(8, at(60_000), &mut Victims::new(9, &mut judge));
        assert_eq!((victims.len(), policy.len()), (1, 0), "{kind}");
    }
}
