//! What comes back from silence is offered when its node has said whom it followed meanwhile, and not before.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use common::nodes::*;
use common::*;
use yb_catalog::*;
use yb_types::*;

/// The node says nothing for longer than its time to live.
fn falls_silent(pool: &mut Pool) {
    // The first look finds that nobody has looked for long.
    pool.catalog.expire_clients(pool.now, &mut pool.effects);
    for _ in 0..11 {
        pool.advance(SECOND);
        pool.catalog.expire_clients(pool.now, &mut pool.effects);
    }
    assert_eq!(pool.catalog.segments()[0].reach(), Reach::Offline);
}

fn pings(pool: &Pool) -> ClientStatus {
    pool.catalog.ping(client(100), pool.now).unwrap()
}

fn is_offered(pool: &Pool, key: &str) -> bool {
    assert_eq!(pool.exists(key, Probe::Only), pool.get(key).is_ok());
    pool.get(key).is_ok()
}

/// A pool of one node that has told where its object lies, and is silent since.
fn silent_node() -> (Pool, Node) {
    let (mut pool, mut nodes) = fresh(1);
    pool.put("a", 100);
    nodes[0].settle(&pool, 1);
    falls_silent(&mut pool);
    (pool, nodes.remove(0))
}

/// Another master has the node, and gives its memory out.
fn follows_another(node: &mut Node) -> Pool {
    let mut second = master(2, &[], MonotonicTime::from_millis(3_600_000));
    second.advance(600 * SECOND);
    join(&mut second, 1, node);
    node.settle(&second, 1);
    second.advance(23 * SECOND);
    second.put("of the second", 100);
    node.settle(&second, 1);
    second
}

#[test]
fn a_node_that_lost_its_link_is_offered_again_when_it_has_said_that_it_followed_nobody_else() {
    let (mut pool, mut node) = silent_node();
    assert_eq!(pings(&pool), ClientStatus::OK);
    assert_eq!(pool.get("a"), Err(ErrorCode::REPLICA_IS_NOT_READY), "a ping says nothing of where it was");
    assert!(!is_offered(&pool, "a") && pool.start(1, "b", 100).is_err());
    // Its answer is lost, and what it says next is what it would have said before.
    node.sync(&pool.catalog, 1, pool.now, true);
    node.sync(&pool.catalog, 1, pool.now, true);
    assert!(!is_offered(&pool, "a"));
    node.settle(&pool, 1);
    assert!(is_offered(&pool, "a"));
    assert_eq!(pool.put("b", 100).replicas[0].0, "s1");
    assert_eq!(node.entries.len(), 1);
    node.settle(&pool, 1);
    assert_eq!(node.entries.len(), 2, "and it goes on following");
    pool.catalog.assert_consistent();
    // Silence that took nothing from it costs nothing.
    for _ in 0..7 {
        pool.advance(SECOND);
        pool.catalog.expire_clients(pool.now, &mut pool.effects);
    }
    assert_eq!(pool.catalog.segments()[0].reach(), Reach::Suspect);
    pings(&pool);
    assert!(is_offered(&pool, "a") && pool.start(1, "c", 100).is_ok());
}

#[test]
fn a_node_that_another_master_gave_out_meanwhile_is_not_offered_for_a_moment() {
    let (mut pool, mut node) = silent_node();
    let before = pool.catalog.segments()[0].info().base;
    let second = follows_another(&mut node);
    assert_eq!(second.get("of the second").unwrap().replicas[0].1, before, "the same bytes");

    assert_eq!(pings(&pool), ClientStatus::OK);
    for _ in 0..5 {
        assert!(!is_offered(&pool, "a"));
        assert_eq!(pool.catalog.was_elsewhere(&node.call(1, pool.now, 5)), Whereabouts::Unclear);
        pool.advance(SECOND / 10);
    }
    assert!(!is_offered(&pool, "a"));
    assert_eq!(pool.catalog.was_elsewhere(&node.call(1, pool.now, 5)), Whereabouts::Elsewhere);
    pool.catalog.disown(client(100), pool.now, &mut pool.effects);
    pool.upkeep();
    assert_eq!(pings(&pool), ClientStatus::NEED_REMOUNT);
    join(&mut pool, 1, &node);
    node.settle(&pool, 1);
    assert_eq!(pool.get("a"), Err(ErrorCode::OBJECT_NOT_FOUND));
    pool.catalog.assert_consistent();
}

#[test]
fn a_word_of_before_that_comes_late_does_not_bring_a_node_back() {
    let (mut pool, mut node) = silent_node();
    let before = node.clone();
    pings(&pool);
    // It comes, is told the batch that counts, and its next word is held up while it goes once more.
    node.sync(&pool.catalog, 1, pool.now, false);
    let held_up = node.clone();
    falls_silent(&mut pool);
    follows_another(&mut node);
    pings(&pool);
    for late in [before, held_up] {
        assert!(pool.catalog.tell_directory(&late.call(1, pool.now, 5), |_| {}).is_ok());
        assert!(!is_offered(&pool, "a"));
    }
}

#[test]
fn a_word_without_a_ping_does_not_bring_a_node_back() {
    let (pool, mut node) = silent_node();
    node.settle(&pool, 1);
    assert!(!is_offered(&pool, "a"), "whoever does not ping is not heard of");
    pings(&pool);
    assert!(!is_offered(&pool, "a"));
    node.settle(&pool, 1);
    assert!(is_offered(&pool, "a"));
}

#[test]
fn a_node_that_went_before_it_had_heard_anything_is_asked_whom_it_followed_too() {
    let (mut pool, nodes) = fresh(1);
    let mut node = nodes[0].clone();
    pool.put("a", 100);
    falls_silent(&mut pool);
    follows_another(&mut node);
    pings(&pool);
    assert_eq!(pool.catalog.was_elsewhere(&node.call(1, pool.now, 5)), Whereabouts::Unclear);
    pool.advance(SECOND / 2);
    assert_eq!(pool.catalog.was_elsewhere(&node.call(1, pool.now, 5)), Whereabouts::Elsewhere);
    assert!(!is_offered(&pool, "a"));
}

/// A master that has just begun takes the one before for its forerunner, but not one that a node went to and came back from.
#[test]
fn memory_of_a_node_that_went_to_another_master_and_came_back_rests_also_under_a_young_one() {
    let now = MonotonicTime::from_millis(3_600_000);
    let settings = CatalogSettings { lease_ttl: SECOND / 2, ..settings(1) };
    let mut pool = master_with(settings, &[Node::default()], now);
    let mut node = Node::default();
    pool.advance(SECOND * 4);
    pool.put("a", 100);
    node.settle(&pool, 1);
    let mut second = master(2, &[], now);
    join(&mut second, 1, &node);
    node.settle(&second, 1);

    assert_eq!(pool.catalog.was_elsewhere(&node.call(1, pool.now, 5)), Whereabouts::Unclear);
    pool.advance(SECOND / 2);
    assert_eq!(pool.catalog.was_elsewhere(&node.call(1, pool.now, 5)), Whereabouts::Elsewhere);
    pool.catalog.disown(client(100), pool.now, &mut pool.effects);
    pool.upkeep();
    for keeper in [Keeper::Filled, Keeper::Empty] {
        pool.catalog.expect_directory(client(100), keeper);
        let segments = vec![segment(1, "s1", SEGMENT)];
        pool.catalog.remount(segments, client(100), pool.now, &mut pool.effects).unwrap();
        node.clone().settle(&pool, 1);
        pool.advance(SECOND * 14);
        assert!(pool.start(1, "b", 100).is_err(), "the second one may still offer it, and its readers read");
        pool.advance(SECOND + SECOND / 10);
        pool.put("b", 100);
        let id = segment(1, "s1", SEGMENT).id;
        pool.catalog.unmount(id, client(100), pool.now, &mut pool.effects).unwrap();
        pool.upkeep();
    }
}
