//! Directories of nodes: what they are told, and what another master makes of them.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::nodes::*;
use common::*;
use yb_catalog::*;
use yb_types::*;

#[test]
fn a_new_master_knows_what_the_old_one_published() {
    let (mut pool, mut nodes) = fresh(1);
    pool.config.with_hard_pin = true;
    pool.put("pinned", 1000);
    let pinned = pool.peek("pinned").unwrap();
    pool.config = ReplicateConfig { group_ids: Some(vec!["g".into()]), ..ReplicateConfig::default() };
    pool.start(1, "grouped", 70).unwrap();
    pool.end_as(1, "grouped", ReplicaType::ALL, Some(77)).unwrap();
    pool.config = ReplicateConfig::default();
    for n in 0..20 {
        pool.put(&format!("k{n}"), 100 + n);
    }
    pool.start(1, "unfinished", 50).unwrap();
    nodes[0].settle(&pool, 1);
    assert_eq!(nodes[0].entries.len(), 22);
    let mut next = master(2, &nodes, pool.now);
    assert!(
        next.get("pinned").is_err() && next.start(1, "early", 1).is_err(),
        "nothing is placed in what was not read"
    );
    nodes[0].settle(&next, 1);
    assert_eq!(next.get("pinned").unwrap(), pinned);
    assert_eq!(next.get("grouped").unwrap().checksum, Some(77));
    assert!((0..20).all(|n| next.get(&format!("k{n}")).unwrap().size == 100 + n));
    assert!(next.get("unfinished").is_err());
    assert_eq!(next.end(1, "k3"), Ok(()), "its writer did not hear the first time");
    assert!(next.start(1, "rests", 1).is_err(), "free space may still be read as something else");
    next.advance(11 * SECOND);
    assert!(next.put("k30", 5).generation.0.get() > pinned.generation.0.get());
    next.catalog.assert_consistent();
}

#[test]
fn a_process_that_lost_the_directory_while_it_was_read_lends_its_memory_all_the_same() {
    let (mut pool, mut nodes) = fresh(1);
    for n in 0..8 {
        pool.put(&n.to_string(), 100);
    }
    nodes[0].settle(&pool, 1);
    let mut next = master(2, &nodes, pool.now);
    nodes[0].introduce(&next.catalog, 1, next.now);
    let call = nodes[0].call(1, next.now, 5);
    assert_eq!(next.catalog.tell_directory(&call, |_| {}).unwrap().order, Order::Tell);
    let SyncCall { client, segment, incarnation, now, .. } = call;
    let first: Vec<_> = nodes[0].entries.iter().take(3).map(|(offset, kept)| kept.at(*offset)).collect();
    let adopting = Adopting { client, segment, incarnation, last: false, now };
    next.catalog.adopt(&adopting, first.iter().copied(), |_| panic!("nothing speaks against it")).unwrap();
    let known: Vec<String> = first.iter().map(|one| String::from_utf8(one.key.into()).unwrap()).collect();
    // The process ends here, and the next one throws away what nobody has read to its end.
    nodes[0] = Node::default();
    nodes[0].settle(&next, 1);
    assert_eq!(nodes[0].entries.len(), 3);
    assert!(known.iter().all(|key| next.get(key).is_ok()));
    next.advance(11 * SECOND);
    next.put("new", 64);
    next.catalog.assert_consistent();
}

#[test]
fn space_is_free_only_when_it_was_struck_out() {
    let (mut pool, mut nodes) = fresh(1);
    let old = pool.put("a", SEGMENT);
    nodes[0].settle(&pool, 1);
    pool.remove("a", Force::No).unwrap();
    assert!(pool.start(1, "b", 64).is_err() && pool.used() == SEGMENT);
    assert!(nodes[0].sync(&pool.catalog, 1, pool.now, true), "the answer is lost");
    assert!(pool.start(1, "b", 64).is_err());
    assert!(nodes[0].sync(&pool.catalog, 1, pool.now, false));
    assert!(pool.start(1, "b", 64).is_err(), "it knows, and has not said so");
    nodes[0].settle(&pool, 1);
    assert!(nodes[0].entries.is_empty());
    assert_eq!(pool.put("b", 64).replicas[0].1, old.replicas[0].1);
    // A lease counts besides.
    nodes[0].settle(&pool, 1);
    pool.get("b").unwrap();
    pool.remove("b", Force::Yes).unwrap();
    nodes[0].settle(&pool, 1);
    assert!(pool.used() == 64);
    pool.advance(11 * SECOND);
    pool.upkeep();
    assert_eq!(pool.used(), 0);
}

#[test]
fn eviction_counts_what_is_about_to_be_struck_out() {
    let (mut pool, mut nodes) = fresh(1);
    for n in 0..16 {
        pool.put(&n.to_string(), SEGMENT / 16);
    }
    nodes[0].settle(&pool, 1);
    let goal = pool.catalog.eviction_goal(pool.now).unwrap();
    let done = pool.catalog.evict(&goal, 100, pool.now);
    assert!(done.bytes >= goal.target && done.keys == 2);
    assert_eq!(pool.catalog.eviction_goal(pool.now), None, "it is on its way");
    assert!(pool.start(1, "x", 64).is_err());
    assert_eq!(pool.catalog.stats().keys, 14, "and nothing more goes for it");
    pool.advance(2 * SECOND);
    assert!(
        pool.catalog.eviction_goal(pool.now).is_none(),
        "what goes from a node that says nothing is lost for nothing"
    );
    assert_eq!(pool.start(1, "x", 64), Err(PutRefusal::NothingEvictable));
    nodes[0].settle(&pool, 1);
    pool.put("x", 64);
}

#[test]
fn nothing_is_evicted_where_nobody_strikes_out() {
    let (mut pool, mut nodes) = fresh(1);
    for number in 0..16 {
        pool.put(&format!("k{number}"), SEGMENT / 16);
    }
    nodes[0].settle(&pool, 1);
    pool.advance(60 * SECOND);
    nodes[0].settle(&pool, 1);
    // The node falls silent. The first put evicts for itself, and nothing comes free.
    pool.advance(SECOND / 2);
    assert!(pool.start(1, "a", SEGMENT / 16).is_err());
    let there = |pool: &Pool| (0..16).filter(|number| pool.peek(&format!("k{number}")).is_ok()).count();
    assert!(there(&pool) >= 14);
    for number in 0..20 {
        pool.advance(2 * SECOND);
        pool.upkeep();
        assert!(pool.start(1, &format!("b{number}"), SEGMENT / 16).is_err());
        if let Some(goal) = pool.catalog.eviction_goal(pool.now) {
            pool.catalog.evict(&goal, 1000, pool.now);
        }
    }
    assert!(there(&pool) >= 14, "{} are left", there(&pool));
    nodes[0].settle(&pool, 1);
    pool.upkeep();
    pool.put("c", SEGMENT / 16);
}

#[test]
fn what_this_master_saw_is_newer_than_any_directory() {
    let (mut pool, mut nodes) = fresh(2);
    for (key, node) in [("written", "s1"), ("removed", "s1"), ("asked", "s1"), ("begun", "s1"), ("kept", "s1")] {
        pool.config.preferred_segments = vec![node.into()];
        pool.put(key, 100);
    }
    nodes[0].settle(&pool, 1);
    let mut next = master(2, &nodes, pool.now);
    next.advance(11 * SECOND);
    next.put("written", 7);
    let newer = next.peek("written").unwrap();
    next.put("removed", 7);
    next.remove("removed", Force::No).unwrap();
    next.remove("asked", Force::No).unwrap_err();
    next.start(1, "begun", 7).unwrap();
    nodes[0].settle(&next, 1);
    assert_eq!(next.get("written").unwrap(), newer);
    assert!(next.get("removed").is_err() && next.get("asked").is_err() && next.get("begun").is_err());
    assert_eq!(next.get("kept").unwrap().size, 100);
    assert_eq!(nodes[0].entries.len(), 1, "what was not taken over is struck out");
    next.catalog.assert_consistent();
    next.catalog.clear_step(None, Force::Yes, &mut ClearCursor::default(), 1 << 20, next.now);
    let mut third = master(3, &nodes, next.now);
    third.catalog.clear_step(None, Force::Yes, &mut ClearCursor::default(), 1 << 20, third.now);
    nodes[0].settle(&third, 1);
    assert!(third.get("kept").is_err(), "everything was removed, that of unread nodes too");
    third.advance(11 * SECOND);
    third.put("kept", 3);
}

#[test]
fn replicas_of_one_write_meet_again_and_the_newest_write_wins() {
    let (mut pool, mut nodes) = fresh(2);
    pool.config.replica_num = 2;
    let both = pool.put("both", 100);
    let old = pool.put("moved", 100);
    (1..).zip(&mut nodes).for_each(|(number, node)| node.settle(&pool, number));
    // The first node hears of the upsert, the second does not hear that the old one went.
    pool.config.replica_num = 1;
    pool.config.preferred_segments = vec!["s1".into()];
    let newer = pool.upsert("moved", 50);
    assert!(newer.generation > old.generation);
    nodes[0].settle(&pool, 1);
    // The next master counts from later, or, where the clock of the one before was ahead, from earlier.
    for (first, start) in [(0, 2 << 32), (1, 2 << 32), (0, 5), (1, 5)] {
        let mut nodes = nodes.clone();
        let next = master_with(CatalogSettings { first_replica_id: start, ..settings(2) }, &nodes, pool.now);
        for at in [first, 1 - first] {
            nodes[at].settle(&next, at as u64 + 1);
        }
        (1..).zip(&mut nodes).for_each(|(number, node)| node.settle(&next, number));
        let mut found = next.get("both").unwrap();
        found.replicas.sort();
        let mut expected = both.clone();
        expected.replicas.sort();
        let complete = |found: &Found| found.replicas.iter().map(|r| (r.0.clone(), r.1)).collect::<Vec<_>>();
        assert_eq!(complete(&found), complete(&expected));
        let found = next.get("moved").unwrap();
        assert_eq!((found.generation, found.size), (newer.generation, 50));
        next.catalog.assert_consistent();
        let kept: usize = nodes.iter().map(|node| node.entries.len()).sum();
        assert_eq!(kept, 3);
    }
}

#[test]
fn a_master_that_gave_a_node_up_does_not_take_its_directory_back() {
    let (mut pool, mut nodes) = fresh(1);
    pool.put("a", 100);
    nodes[0].settle(&pool, 1);
    pool.catalog.unmount(segment(1, "s1", SEGMENT).id, client(100), pool.now, &mut pool.effects).unwrap();
    pool.upkeep();
    pool.catalog.expect_directory(client(100), Keeper::Filled);
    let again = vec![segment(1, "s1", SEGMENT)];
    pool.catalog.remount(again, client(100), pool.now, &mut pool.effects).unwrap();
    pool.advance(11 * SECOND);
    assert!(nodes[0].sync(&pool.catalog, 1, pool.now, false));
    assert!(nodes[0].entries.is_empty());
    assert!(pool.start(1, "b", 1).is_err(), "until it has said so");
    nodes[0].settle(&pool, 1);
    pool.put("b", 1);
    assert!(pool.get("a").is_err());
}

#[test]
fn a_node_that_was_another_masters_meanwhile_is_a_new_one() {
    let (mut first, mut nodes) = fresh(1);
    first.put("of the first", 100);
    nodes[0].settle(&first, 1);
    let place = first.get("of the first").unwrap().replicas[0].1;
    assert_eq!(first.catalog.was_elsewhere(&nodes[0].call(1, first.now, 5)), Whereabouts::Here);

    // A second master that has been alive for long gets the node, does not want what lies there, and lets it rest.
    let mut second = master(2, &[], MonotonicTime::from_millis(3_600_000));
    second.advance(600 * SECOND);
    second.catalog.expect_directory(client(100), Keeper::Filled);
    let mount = |pool: &mut Pool| {
        let segments = vec![segment(1, "s1", SEGMENT)];
        pool.catalog.remount(segments, client(100), pool.now, &mut pool.effects).unwrap();
    };
    mount(&mut second);
    nodes[0].settle(&second, 1);
    assert!(nodes[0].entries.is_empty());
    second.advance(11 * SECOND);
    assert!(second.start(1, "of the second", 100).is_err(), "the first one may still offer it");
    second.advance(12 * SECOND);
    second.put("of the second", 100);
    nodes[0].settle(&second, 1);
    assert_eq!(second.get("of the second").unwrap().replicas[0].1, place, "the same bytes");

    // It comes back before the first one missed it.
    assert_eq!(first.catalog.was_elsewhere(&nodes[0].call(1, first.now, 5)), Whereabouts::Unclear);
    first.advance(SECOND / 2);
    assert_eq!(first.catalog.was_elsewhere(&nodes[0].call(1, first.now, 5)), Whereabouts::Elsewhere);
    first.catalog.disown(client(100), first.now, &mut first.effects);
    assert_eq!(first.effects.segments_gone[0].cause, UnmountCause::Elsewhere);
    assert_eq!(first.catalog.ping(client(100), first.now), Ok(ClientStatus::NEED_REMOUNT));
    first.upkeep();
    assert!(first.get("of the first").is_err());
    first.catalog.expect_directory(client(100), Keeper::Filled);
    mount(&mut first);
    assert_eq!(first.catalog.ping(client(100), first.now), Ok(ClientStatus::OK));
    nodes[0].settle(&first, 1);
    assert_eq!(first.catalog.was_elsewhere(&nodes[0].call(1, first.now, 5)), Whereabouts::Here);
    assert!(first.get("of the first").is_err());
    assert!(first.start(1, "anew", 100).is_err(), "the second one may still offer it");
    first.advance(23 * SECOND);
    first.put("anew", 100);
    first.catalog.assert_consistent();
}

#[test]
fn a_message_of_before_that_comes_late_does_not_make_a_node_a_strange_one() {
    let (mut pool, mut nodes) = fresh(1);
    pool.put("a", 100);
    nodes[0].settle(&pool, 1);
    let late = nodes[0].clone();
    let mut next = master(2, &nodes, pool.now);
    nodes[0].settle(&next, 1);
    for _ in 0..10 {
        assert_eq!(next.catalog.was_elsewhere(&late.call(1, next.now, 5)), Whereabouts::Unclear);
        next.advance(SECOND / 10);
        nodes[0].settle(&next, 1);
    }
    assert!(next.get("a").is_ok());
}

#[test]
fn nothing_is_evicted_for_a_put_that_came_while_all_memory_rests() {
    let (mut pool, mut nodes) = fresh(1);
    for n in 0..4 {
        pool.put(&format!("k{n}"), 100);
    }
    nodes[0].settle(&pool, 1);
    let mut next = master(2, &nodes, pool.now);
    assert!(next.start(1, "early", 1).is_err(), "not read yet");
    nodes[0].settle(&next, 1);
    next.advance(Duration::from_millis(9_999));
    assert!(next.start(1, "early", 1).is_err(), "rests");
    next.advance(Duration::from_millis(1));
    assert_eq!(next.catalog.eviction_goal(next.now), None, "there was room all the time");
    next.put("new", 1);
    assert_eq!(next.catalog.stats().keys, 5);
}

/// Leases shorter than a write: what was taken over may be evicted before there is space again.
#[test]
fn nothing_is_evicted_while_all_memory_rests_where_leases_are_short() {
    let (mut pool, mut nodes) = fresh(1);
    for n in 0..4 {
        pool.put(&format!("k{n}"), 100);
    }
    nodes[0].settle(&pool, 1);
    let lease_ttl = Duration::from_millis(500);
    let mut next = master_with(CatalogSettings { lease_ttl, ..settings(2) }, &nodes, pool.now);
    nodes[0].settle(&next, 1);
    next.advance(Duration::from_millis(2_000));
    for n in 0..8 {
        assert!(next.start(1, &format!("early{n}"), 100).is_err(), "rests");
    }
    assert_eq!(next.catalog.stats().keys, 4, "nobody's object went for space that nobody can have");
}

#[test]
fn a_directory_that_comes_too_late_is_struck_out() {
    let (mut pool, mut nodes) = fresh(1);
    pool.put("a", 100);
    nodes[0].settle(&pool, 1);
    let mut next = master(2, &nodes, pool.now);
    next.advance(61 * SECOND);
    nodes[0].settle(&next, 1);
    assert!(next.get("a").is_err() && nodes[0].entries.is_empty());
    // So late the master before may have been alive until now.
    next.advance(23 * SECOND);
    next.put("a", 5);
}

#[test]
fn records_that_cannot_be_are_refused() {
    let (mut pool, mut nodes) = fresh(1);
    pool.put("a", 100);
    nodes[0].settle(&pool, 1);
    let good = nodes[0].entries[&0].clone();
    let bad = |change: &dyn Fn(&mut Kept)| {
        let mut kept = good.clone();
        change(&mut kept);
        kept
    };
    let node = &mut nodes[0];
    node.entries.insert(64, bad(&|kept| kept.key = b"overlaps".to_vec()));
    node.entries.insert(129, bad(&|kept| kept.key = b"unaligned".to_vec()));
    node.entries.insert(256, bad(&|kept| (kept.key, kept.generation) = (b"no generation".to_vec(), 0)));
    node.entries.insert(512, bad(&|kept| (kept.key, kept.replica) = (b"no number".to_vec(), ReplicaId(0))));
    node.entries.insert(1024, bad(&|kept| kept.key.clear()));
    node.entries.insert(2048, bad(&|kept| kept.key = b"a".to_vec()));
    node.entries.insert(SEGMENT - 64, bad(&|kept| kept.key = b"too long".to_vec()));
    node.entries.insert(u64::MAX - 63, bad(&|kept| kept.key = b"outside".to_vec()));
    let next = master(2, &nodes, pool.now);
    nodes[0].settle(&next, 1);
    assert_eq!(nodes[0].entries.keys().collect::<Vec<_>>(), [&0]);
    assert_eq!(next.get("a").unwrap().size, 100);
    next.catalog.assert_consistent();
}

/// What lies in the memory of two nodes: at each first byte of an extent, which write was the last to write there.
#[derive(Default)]
struct Memory(BTreeMap<(u64, u64), (u64, u64)>);

impl Memory {
    /// A writer with this extent writes all of it.
    fn write(&mut self, node: u64, offset: u64, size: u64, generation: u64) {
        let end = offset + size.max(1);
        let meets = |(&(at, start), &(len, _)): (&(u64, u64), &(u64, u64))| {
            at == node && start < end && offset < start + len.max(1)
        };
        let over: Vec<_> = self.0.iter().filter(|entry| meets(*entry)).map(|(key, _)| *key).collect();
        self.0.retain(|key, _| !over.contains(key));
        self.0.insert((node, offset), (size, generation));
    }

    fn holds(&self, node: u64, offset: u64, size: u64, generation: u64) -> bool {
        self.0.get(&(node, offset)) == Some(&(size, generation))
    }
}

/// Random writes, removals, evictions, lost answers and masters that die: whatever a directory names is there, whatever a
/// key leads to is what was written under it, and what was told is found again.
#[test]
fn no_directory_ever_names_other_bytes() {
    for seed in 1..=if cfg!(debug_assertions) { 40 } else { 400 } {
        let mut rng = yb_env::Rng::seeded(seed);
        let (mut pool, mut nodes) = fresh(2);
        let (mut memory, mut life) = (Memory::default(), 1);
        for _ in 0..400 {
            let key = format!("k{}", rng.below(24));
            let number = 1 + rng.below(2);
            match rng.below(20) {
                0..=6 => {
                    pool.config.replica_num = 1 + rng.below(2);
                    let size = 1 + rng.below(SEGMENT / 6);
                    let upsert = rng.below(3) == 0;
                    let started = if upsert { pool.upsert_start(1, &key, size) } else { pool.start(1, &key, size) };
                    if let Ok(found) = started {
                        for (name, address, _) in &found.replicas {
                            let node = if name == "s1" { 1 } else { 2 };
                            memory.write(node, address - (node << 40), size, found.generation.0.get());
                        }
                        if rng.below(8) == 0 { pool.revoke(1, &key).unwrap() } else { pool.end(1, &key).unwrap() }
                    }
                }
                7 => {
                    let (keys, force) = ([&key, "k0", "k1"], Force::from(rng.below(2) == 0));
                    pool.catalog.remove(T, keys, force, pool.now, |_, _| {});
                }
                8 => {
                    let _ = pool.remove(&key, Force::from(rng.below(2) == 0));
                }
                9..=10 => {
                    let _ = pool.get(&key);
                }
                11..=16 => {
                    let lost = rng.below(4) == 0;
                    nodes[number as usize - 1].sync(&pool.catalog, number, pool.now, lost);
                }
                17..=18 => {
                    pool.advance(Duration::from_millis(rng.below(4000)));
                    (1..=2).for_each(|n| assert!(pool.catalog.ping(client(99 + n), pool.now).is_ok()));
                    pool.catalog.call_roll(pool.now);
                    pool.upkeep();
                }
                _ if rng.below(3) == 0 => {
                    life += 1;
                    pool = master(life, &nodes, pool.now);
                }
                _ => {}
            }
            for (number, node) in (1..).zip(&nodes) {
                for (offset, kept) in &node.entries {
                    assert!(memory.holds(number, *offset, kept.size, kept.generation), "seed {seed}: {kept:?}");
                }
            }
            for key in (0..24).map(|n| format!("k{n}")) {
                let Ok(found) = pool.peek(&key) else { continue };
                for (name, address, _) in &found.replicas {
                    let node = if name == "s1" { 1 } else { 2 };
                    let offset = address - (node << 40);
                    assert!(memory.holds(node, offset, found.size, found.generation.0.get()), "seed {seed}: {found:?}");
                }
            }
        }
        pool.catalog.assert_consistent();
        // What both nodes were told is found by the next master.
        (1..).zip(&mut nodes).for_each(|(number, node)| node.settle(&pool, number));
        pool.catalog.call_roll(pool.now);
        (1..).zip(&mut nodes).for_each(|(number, node)| node.settle(&pool, number));
        let known: Vec<_> = (0..24).filter_map(|n| pool.peek(&format!("k{n}")).ok()).collect();
        let next = master(life + 1, &nodes, pool.now);
        (1..).zip(&mut nodes).for_each(|(number, node)| node.settle(&next, number));
        let again: Vec<_> = (0..24).filter_map(|n| next.peek(&format!("k{n}")).ok()).collect();
        let writes = |found: &[Found]| found.iter().map(|f| (f.generation, f.replicas.len())).collect::<Vec<_>>();
        assert_eq!(writes(&again), writes(&known), "seed {seed}");
        next.catalog.assert_consistent();
    }
}
