//! What went while a node was away does not come back with it under the next master.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::time::Duration;

use common::nodes::*;
use common::*;
use yb_catalog::*;
use yb_types::*;

const TICK: Duration = Duration::from_millis(250);

/// Time goes on as for a master that is not held up; the nodes of these numbers, from 1, ask now and then.
fn pass(pool: &mut Pool, time: Duration, nodes: &mut [Node], here: &[u64]) {
    let end = pool.now + time;
    while pool.now < end {
        pool.advance(TICK);
        pool.catalog.call_roll(pool.now);
        here.iter().for_each(|number| ask(pool, *number, nodes));
    }
}

/// A node asks until it has heard everything for now.
fn ask(pool: &Pool, number: u64, nodes: &mut [Node]) {
    nodes[number as usize - 1].settle(pool, number);
}

/// A master that knows nobody yet.
fn young(life: u64, now: MonotonicTime) -> Pool {
    let mut pool = Pool::new(settings(life));
    pool.now = now;
    pool.catalog.begins(now);
    pool
}

/// A master and two nodes that have heard its roster, with `a` on the first and `b` on the second.
fn two() -> (Pool, Vec<Node>) {
    let mut nodes = vec![Node::default(); 2];
    let mut pool = young(1, MonotonicTime::from_millis(3_600_000));
    join(&mut pool, 1, &nodes[0]);
    join(&mut pool, 2, &nodes[1]);
    pass(&mut pool, 11 * SECOND, &mut nodes, &[1, 2]);
    for (key, node) in [("a", "s1"), ("b", "s2")] {
        pool.config.preferred_segments = vec![node.into()];
        pool.put(key, 100);
    }
    pass(&mut pool, SECOND, &mut nodes, &[1, 2]);
    assert_eq!(nodes[0].roster.members, [id(1), id(2)]);
    (pool, nodes)
}

#[test]
fn what_was_removed_while_its_node_was_away_does_not_come_back() {
    let (mut pool, mut nodes) = two();
    pool.remove("a", Force::Yes).unwrap();
    pass(&mut pool, 2 * SECOND, &mut nodes, &[2]);
    assert_eq!(nodes[1].roster.members, [id(2)], "the other one was told");
    // Whoever of them comes first.
    for order in [[1, 2], [2, 1]] {
        let mut nodes = nodes.clone();
        let mut next = young(2, pool.now);
        for number in order {
            join(&mut next, number, &nodes[number as usize - 1]);
            ask(&next, number, &mut nodes);
        }
        pass(&mut next, SECOND, &mut nodes, &[1, 2]);
        assert!(next.get("a").is_err(), "{order:?}");
        // Alone it might have been alone for long: others are waited for.
        pass(&mut next, 2 * SECOND, &mut nodes, &[1, 2]);
        assert!(next.get("a").is_err() && nodes[0].entries.is_empty(), "{order:?}");
        assert_eq!(next.get("b").unwrap().size, 100);
        assert_eq!(next.catalog.roster().members, [id(1), id(2)], "what it has now is up to date");
        next.catalog.assert_consistent();
    }
}

#[test]
fn a_whole_pool_is_known_again_as_soon_as_all_are_there() {
    let (pool, mut nodes) = two();
    let mut next = young(2, pool.now);
    join(&mut next, 1, &nodes[0]);
    ask(&next, 1, &mut nodes);
    assert!(next.get("a").is_err(), "the other one may know more");
    join(&mut next, 2, &nodes[1]);
    ask(&next, 2, &mut nodes);
    ask(&next, 1, &mut nodes);
    assert!(next.get("a").is_ok() && next.get("b").is_ok());
    let roster = next.catalog.roster();
    assert_eq!((roster.incarnation, roster.term, roster.members), (2 << 32, 2, vec![id(1), id(2)]));
}

#[test]
fn a_node_that_was_always_alone_is_believed_when_others_have_had_their_time() {
    let mut nodes = vec![Node::default()];
    let mut pool = young(1, MonotonicTime::from_millis(3_600_000));
    join(&mut pool, 1, &nodes[0]);
    pass(&mut pool, 11 * SECOND, &mut nodes, &[1]);
    pool.put("a", 100);
    ask(&pool, 1, &mut nodes);
    let mut next = young(2, pool.now);
    join(&mut next, 1, &nodes[0]);
    pass(&mut next, SECOND, &mut nodes, &[1]);
    assert!(next.get("a").is_err());
    pass(&mut next, SECOND, &mut nodes, &[1]);
    assert!(next.get("a").is_ok());
}

#[test]
fn a_member_that_never_comes_is_waited_for_three_seconds() {
    let (pool, mut nodes) = two();
    let mut next = young(2, pool.now);
    join(&mut next, 1, &nodes[0]);
    pass(&mut next, Duration::from_millis(2500), &mut nodes, &[1]);
    assert!(next.get("a").is_err());
    pass(&mut next, SECOND, &mut nodes, &[1]);
    assert!(next.get("a").is_ok());
    assert_eq!(nodes[0].roster.members, [id(1), id(2)], "the other one may still come");
    // It is not counted on for long: what is written now may be newer than what it has.
    next.remove("b", Force::Yes).unwrap_err();
    pass(&mut next, 3 * SECOND, &mut nodes, &[1]);
    assert_eq!(nodes[0].roster.members, [id(1)]);
    let mut third = young(3, next.now);
    join(&mut third, 2, &nodes[1]);
    join(&mut third, 1, &nodes[0]);
    pass(&mut third, 4 * SECOND, &mut nodes, &[1, 2]);
    assert!(third.get("a").is_ok() && third.get("b").is_err(), "removed under the second, away since the first");
}

#[test]
fn whoever_comes_after_the_decision_is_judged_by_what_is_known() {
    let (mut pool, mut nodes) = two();
    pool.remove("a", Force::Yes).unwrap();
    pass(&mut pool, 2 * SECOND, &mut nodes, &[2]);
    let mut next = young(2, pool.now);
    join(&mut next, 2, &nodes[1]);
    pass(&mut next, 4 * SECOND, &mut nodes, &[2]);
    join(&mut next, 1, &nodes[0]);
    let (client, segment) = (client(100), id(1));
    let call = SyncCall { client, segment, incarnation: 1 << 32, applied: nodes[0].applied, limit: 5, now: next.now };
    assert_eq!(next.catalog.tell_directory(&call, |_| {}), Err(ErrorCode::REPLICA_IS_NOT_READY), "what has it heard?");
    next.catalog.introduce((client, segment), nodes[0].roster.clone(), next.now).unwrap();
    let told = next.catalog.tell_directory(&call, |_| {}).unwrap();
    assert_eq!((told.order, told.disbelieved), (Order::ClearFirst, true));
    assert!(!next.catalog.tell_directory(&call, |_| {}).unwrap().disbelieved, "said once");
    ask(&next, 1, &mut nodes);
    assert!(next.get("a").is_err());
}

#[test]
fn a_node_is_a_member_again_when_it_has_heard_what_it_missed() {
    let (mut pool, mut nodes) = two();
    let first = pool.catalog.roster_number();
    pass(&mut pool, 3 * SECOND, &mut nodes, &[2]);
    assert_eq!(pool.catalog.roster_number(), first, "nothing went");
    pool.remove("a", Force::Yes).unwrap();
    pool.advance(TICK);
    pool.catalog.call_roll(pool.now);
    assert_eq!(pool.catalog.roster().members, [id(2)], "it was silent for long enough before");
    assert!(nodes[0].sync(&pool.catalog, 1, pool.now, true), "asks, and does not hear the answer");
    pass(&mut pool, SECOND, &mut nodes, &[2]);
    assert_eq!(pool.catalog.roster().members, [id(2)]);
    // It may also ask again and again.
    for _ in 0..5 {
        pass(&mut pool, TICK, &mut nodes, &[2]);
        nodes[0].sync(&pool.catalog, 1, pool.now, true);
    }
    assert_eq!(pool.catalog.roster().members, [id(2)]);
    pass(&mut pool, SECOND, &mut nodes, &[1, 2]);
    assert_eq!(pool.catalog.roster_number(), first + 2);
    assert_eq!(nodes[1].roster.members, [id(1), id(2)]);
    // A node that is told all the time is none that is behind.
    for n in 0..20 {
        pool.put(&n.to_string(), 100);
        ask(&pool, 2, &mut nodes);
        pool.remove(&n.to_string(), Force::Yes).unwrap();
        nodes[1].sync(&pool.catalog, 2, pool.now, false);
        pass(&mut pool, TICK, &mut nodes, &[1]);
    }
    assert_eq!(pool.catalog.roster_number(), first + 2);
    // One that is gone for good is none either.
    pool.catalog.unmount(id(1), client(100), pool.now, &mut pool.effects).unwrap();
    pass(&mut pool, TICK, &mut nodes, &[2]);
    assert_eq!(pool.catalog.roster().members, [id(2)]);
}

#[test]
fn a_node_that_asks_and_never_does_what_it_is_told_is_behind() {
    let (mut pool, mut nodes) = two();
    pool.remove("a", Force::Yes).unwrap();
    for _ in 0..6 {
        nodes[0].sync(&pool.catalog, 1, pool.now, true);
        pass(&mut pool, TICK, &mut nodes, &[2]);
    }
    assert_eq!(pool.catalog.roster().members, [id(2)]);
}

#[test]
fn a_master_that_stood_still_holds_nobody_for_behind() {
    let (mut pool, mut nodes) = two();
    let first = pool.catalog.roster_number();
    for _ in 0..5 {
        pool.remove("a", Force::Yes).ok();
        pool.advance(5 * SECOND);
        pool.catalog.call_roll(pool.now);
        assert_eq!(pool.catalog.roster_number(), first);
        pass(&mut pool, TICK, &mut nodes, &[1, 2]);
    }
    // Nor does it decide before anybody could come.
    let mut next = young(2, pool.now);
    join(&mut next, 2, &nodes[1]);
    next.advance(10 * SECOND);
    next.catalog.call_roll(next.now);
    ask(&next, 2, &mut nodes);
    assert!(next.get("b").is_err() && next.catalog.roster_number() == 0);
}

#[test]
fn a_node_hears_of_itself_before_it_has_anything() {
    let (mut pool, mut nodes) = two();
    nodes.push(Node::default());
    join(&mut pool, 3, &nodes[2]);
    pool.config.preferred_segments = vec!["s3".into()];
    pool.put("c", 100);
    while nodes[2].entries.is_empty() {
        nodes[2].sync(&pool.catalog, 3, pool.now, false);
    }
    assert!(nodes[2].roster.has(id(3)));
    let mut next = young(2, pool.now);
    (1..).zip(&nodes).for_each(|(number, node)| join(&mut next, number, node));
    pass(&mut next, SECOND, &mut nodes, &[1, 2, 3]);
    assert!(["a", "b", "c"].iter().all(|key| next.get(key).is_ok()));
}

#[test]
fn a_log_knows_the_freshest_roster_without_anybody() {
    let (mut pool, nodes) = two();
    pool.remove("a", Force::Yes).unwrap();
    let mut here = nodes.clone();
    pass(&mut pool, 2 * SECOND, &mut here, &[2]);
    let roster = pool.catalog.roster();
    // The one that stayed is gone for good.
    let mut next = Pool::new(settings(2));
    next.now = pool.now;
    next.catalog.expect_roster(roster);
    next.catalog.begins(next.now);
    join(&mut next, 1, &nodes[0]);
    let mut nodes = nodes;
    ask(&next, 1, &mut nodes);
    assert!(next.get("a").is_err() && nodes[0].entries.is_empty());
    assert_eq!(nodes[0].roster.term, 2, "after the one that the log knew");
}

#[test]
fn what_cannot_be_a_roster_is_none() {
    let (pool, mut nodes) = two();
    let mut next = young(2, pool.now);
    assert_eq!(
        next.catalog.introduce((client(7), id(7)), Roster::default(), next.now),
        Err(ErrorCode::SEGMENT_NOT_FOUND),
        "who lends nothing is not heard"
    );
    join(&mut next, 1, &nodes[0]);
    join(&mut next, 2, &nodes[1]);
    for (term, number) in [(1 << 48, 1), (9, u64::MAX)] {
        let lie = Roster { incarnation: 5, term, number, members: Vec::new() };
        next.catalog.introduce((client(101), id(2)), lie, next.now).unwrap();
    }
    pass(&mut next, SECOND, &mut nodes, &[1, 2]);
    assert!(next.get("a").is_ok() && next.get("b").is_ok());
}

/// Nodes that come and go under masters that come and go: what was removed or replaced, and told to somebody who lives on, is
/// never found again; what nothing happened to is.
#[test]
fn nothing_that_went_is_found_again() {
    const NODES: u64 = 3;
    for seed in 1..=if cfg!(debug_assertions) { 60 } else { 600 } {
        let mut rng = yb_env::Rng::seeded(seed);
        let mut nodes = vec![Node::default(); NODES as usize];
        let mut pool = young(1, MonotonicTime::from_millis(3_600_000));
        (1..=NODES).for_each(|number| join(&mut pool, number, &nodes[number as usize - 1]));
        pass(&mut pool, 12 * SECOND, &mut nodes, &[1, 2, 3]);
        let mut gone = std::collections::BTreeSet::new();
        for life in 2..6 {
            let all: Vec<u64> = (1..=NODES).collect();
            for _ in 0..8 {
                pool.put_anywhere(&format!("k{}", rng.below(6)), &mut rng, &mut gone);
            }
            pass(&mut pool, SECOND, &mut nodes, &all);
            let away = 1 + rng.below(NODES);
            let here: Vec<u64> = all.iter().copied().filter(|number| *number != away).collect();
            let expected: Vec<Found> = (0..6).filter_map(|n| pool.peek(&format!("k{n}")).ok()).collect();
            for _ in 0..rng.below(5) {
                let key = format!("k{}", rng.below(6));
                if rng.below(2) == 0 {
                    let before = pool.peek(&key).ok();
                    if pool.remove(&key, Force::Yes).is_ok() {
                        gone.extend(before.map(|found| found.generation));
                    }
                } else {
                    pool.put_anywhere(&key, &mut rng, &mut gone);
                }
            }
            pass(&mut pool, 3 * SECOND, &mut nodes, &here);
            let mut next = young(life, pool.now);
            let mut order = all.clone();
            order.sort_by_key(|_| rng.below(100));
            for number in order {
                join(&mut next, number, &nodes[number as usize - 1]);
                ask(&next, number, &mut nodes);
            }
            pass(&mut next, 12 * SECOND, &mut nodes, &all);
            for n in 0..6 {
                let Ok(found) = next.peek(&format!("k{n}")) else { continue };
                assert!(!gone.contains(&found.generation), "seed {seed}, life {life}: {found:?}");
            }
            let stays = |found: &&Found| {
                let is_here = |(name, ..): &(String, u64, ReplicaStatus)| *name != format!("s{away}");
                !gone.contains(&found.generation) && found.replicas.iter().any(is_here)
            };
            let known: Vec<_> = (0..6).filter_map(|n| Some(next.peek(&format!("k{n}")).ok()?.generation)).collect();
            let lost = expected.iter().filter(stays).find(|found| !known.contains(&found.generation));
            assert!(lost.is_none(), "seed {seed}, life {life}: {lost:?}");
            next.catalog.assert_consistent();
            pool = next;
        }
    }
}

trait PutAnywhere {
    fn put_anywhere(&mut self, key: &str, rng: &mut yb_env::Rng, gone: &mut std::collections::BTreeSet<Generation>);
}

impl PutAnywhere for Pool {
    /// Replaces what is there.
    fn put_anywhere(&mut self, key: &str, rng: &mut yb_env::Rng, gone: &mut std::collections::BTreeSet<Generation>) {
        self.config.preferred_segments = vec![format!("s{}", 1 + rng.below(3))];
        let before = self.peek(key).ok();
        if self.upsert_start(1, key, 100).is_ok() {
            self.end(1, key).unwrap();
            gone.extend(before.map(|found| found.generation));
        }
    }
}

/// A node that was given up has the numbers of the mount before, and its answer may be lost.
#[test]
fn what_a_node_applied_before_it_was_given_up_is_not_taken_for_what_it_is_to_strike_out() {
    let (mut pool, mut nodes) = two();
    pool.catalog.unmount(id(1), client(100), pool.now, &mut pool.effects).unwrap();
    pool.upkeep();
    join(&mut pool, 1, &nodes[0]);
    assert_eq!(nodes[0].applied, 1);
    assert!(nodes[0].sync(&pool.catalog, 1, pool.now, true), "the answer is lost");
    ask(&pool, 1, &mut nodes);
    assert!(nodes[0].entries.is_empty());
}
