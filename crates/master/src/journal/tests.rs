//! The log against a model of the nodes' memory: lives that end at any byte of it.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../../catalog/tests/common/mod.rs"]
mod common;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use common::*;
use yb_catalog::*;
use yb_env::Rng;
use yb_journal::{FORMAT, Head, Image, Record, read};
use yb_types::*;

use super::scribe::Scribe;
use super::{Before, JournalOptions, LogFile};

const SEGMENT: u64 = 1 << 20;

/// A disk with a log on it.
#[derive(Clone, Debug)]
struct Disk(Vec<u8>);

impl Disk {
    fn new() -> Disk {
        let mut log = Vec::new();
        Record::Head(Head { format: FORMAT, boot: b"", synced: true }).append(&mut log);
        Disk(log)
    }

    fn image(&self) -> Image {
        read(&self.0).unwrap()
    }

    fn compact(&mut self) {
        let image = self.image();
        self.0.clear();
        image.append(&mut self.0);
    }
}

/// A life of a master with a log.
struct Life {
    pool: Pool,
    scribe: Scribe,
}

impl Life {
    /// The `number`-th, with what the disk says; nobody has mounted yet.
    fn begin(number: u64, disk: &mut Disk, now: MonotonicTime) -> Life {
        let settings = CatalogSettings { first_replica_id: number << 32, ..CatalogSettings::default() };
        let mut pool = Pool::new(settings);
        pool.now = now;
        pool.catalog.begins(now);
        let image = disk.image();
        pool.catalog.keep_log(image.segments.values().map(|held| held.note.id));
        let mut life = Life { pool, scribe: Scribe::new(image, number << 32, 0) };
        disk.0.extend_from_slice(life.scribe.waiting());
        life.scribe.committed(&life.pool.catalog, now);
        life
    }

    fn remount(&mut self, number: u64) {
        let segments = vec![segment(number, &format!("s{number}"), SEGMENT)];
        let Pool { catalog, now, effects, .. } = &mut self.pool;
        catalog.remount(segments, client(99 + number), *now, effects).unwrap();
    }

    fn unmount(&mut self, number: u64) {
        let Pool { catalog, now, effects, .. } = &mut self.pool;
        let id = segment(number, "", 0).id;
        catalog.unmount(id, client(99 + number), *now, effects).unwrap();
    }

    /// One round of the log; answers whether there is more.
    fn round(&mut self, disk: &mut Disk) -> bool {
        let more = self.scribe.gather(&self.pool.catalog, self.pool.now, self.pool.now.0 / 1_000_000);
        disk.0.extend_from_slice(self.scribe.waiting());
        self.scribe.committed(&self.pool.catalog, self.pool.now);
        more
    }

    fn settle(&mut self, disk: &mut Disk) {
        while self.round(disk) {}
    }
}

fn fresh(nodes: u64) -> (Life, Disk) {
    let mut disk = Disk::new();
    let mut life = Life::begin(1, &mut disk, MonotonicTime::from_millis(3_600_000));
    (1..=nodes).for_each(|number| life.remount(number));
    life.settle(&mut disk);
    life.pool.advance(11 * SECOND);
    (life, disk)
}

#[test]
fn the_next_life_knows_what_was_written_when_the_node_mounts_again() {
    let (mut life, mut disk) = fresh(1);
    for n in 0..20 {
        life.pool.put(&format!("k{n}"), 100 + n);
    }
    life.pool.remove("k3", Force::No).unwrap();
    life.pool.start(1, "unfinished", 50).unwrap();
    life.settle(&mut disk);
    let mut next = Life::begin(2, &mut disk, life.pool.now);
    assert!(next.pool.get("k1").is_err(), "nobody says that the memory is still there");
    next.settle(&mut disk);
    next.remount(1);
    assert!(next.pool.get("k1").is_err() && next.pool.start(1, "early", 1).is_err(), "not before it was read");
    next.settle(&mut disk);
    assert_eq!(next.pool.get("k1").unwrap(), life.pool.peek("k1").unwrap());
    assert_eq!(next.pool.catalog.stats().keys, 19);
    assert!(next.pool.get("k3").is_err() && next.pool.get("unfinished").is_err());
    assert!(next.pool.start(1, "rests", 1).is_err(), "free space may still be read as something else");
    next.pool.advance(11 * SECOND);
    assert!(next.pool.put("k30", 5).generation > life.pool.peek("k1").unwrap().generation);
    next.pool.catalog.assert_consistent();
}

#[test]
fn space_is_given_out_again_only_when_the_log_has_lost_its_object() {
    let (mut life, mut disk) = fresh(1);
    life.pool.put("a", SEGMENT);
    life.settle(&mut disk);
    life.pool.remove("a", Force::No).unwrap();
    assert!(life.pool.start(1, "b", 64).is_err());
    life.scribe.gather(&life.pool.catalog, life.pool.now, 0);
    assert!(life.pool.start(1, "b", 64).is_err(), "it is not durable");
    disk.0.extend_from_slice(life.scribe.waiting());
    life.scribe.committed(&life.pool.catalog, life.pool.now);
    assert!(disk.image().segments.values().all(yb_journal::Held::is_empty));
    life.settle(&mut disk);
    life.pool.put("b", 64);
}

/// Another way to mount the memory.
type Mount = fn(&mut Life);

#[test]
fn memory_that_is_not_the_same_any_more_is_struck_out() {
    let cases: [(&str, Mount); 4] = [
        ("mounted as new", |life| life.pool.mount(segment(1, "s1", SEGMENT), 100).unwrap()),
        ("at another base", |life| {
            let other = Segment { base: 7 << 40, ..segment(1, "s1", SEGMENT) };
            let Pool { catalog, now, effects, .. } = &mut life.pool;
            catalog.remount(vec![other], client(100), *now, effects).unwrap();
        }),
        ("of another client", |life| {
            let Pool { catalog, now, effects, .. } = &mut life.pool;
            catalog.remount(vec![segment(1, "s1", SEGMENT)], client(500), *now, effects).unwrap();
        }),
        ("too late", |life| {
            life.pool.advance(61 * SECOND);
            life.remount(1);
        }),
    ];
    for (case, mount) in cases {
        let (mut life, mut disk) = fresh(1);
        life.pool.put("a", 100);
        life.settle(&mut disk);
        let mut next = Life::begin(2, &mut disk, life.pool.now);
        mount(&mut next);
        assert!(next.pool.start(1, "b", 1).is_err(), "{case}: the log still names what lies there");
        next.settle(&mut disk);
        assert!(next.pool.get("a").is_err(), "{case}");
        assert!(disk.image().segments.values().all(yb_journal::Held::is_empty), "{case}");
        // What comes late may have been another master's until now.
        next.pool.advance(31 * SECOND);
        next.pool.put("b", 1);
        next.settle(&mut disk);
        // The third life knows what the second wrote, and nothing of the first.
        let image = disk.image();
        assert_eq!(image.segments.values().map(yb_journal::Held::len).sum::<usize>(), 1, "{case}");
    }
}

#[test]
fn a_segment_that_comes_back_in_the_same_life_begins_empty() {
    let (mut life, mut disk) = fresh(1);
    life.pool.put("a", 100);
    life.settle(&mut disk);
    for _ in 0..3 {
        life.unmount(1);
        life.pool.mount(segment(1, "s1", SEGMENT), 100).unwrap();
        life.pool.upkeep();
    }
    assert!(life.pool.start(1, "b", 1).is_err(), "the log names what was there before");
    life.settle(&mut disk);
    assert!(disk.image().segments.values().all(yb_journal::Held::is_empty));
    assert_eq!(disk.image().segments.len(), 1);
    life.pool.advance(11 * SECOND);
    life.pool.put("b", 1);
    life.settle(&mut disk);
    let mut next = Life::begin(2, &mut disk, life.pool.now);
    next.remount(1);
    next.settle(&mut disk);
    assert!(next.pool.get("b").is_ok() && next.pool.get("a").is_err());
}

#[test]
fn a_node_that_keeps_its_directory_is_not_in_the_log() {
    let (mut life, mut disk) = fresh(1);
    life.pool.catalog.expect_directory(client(101), Keeper::Empty);
    life.remount(2);
    life.settle(&mut disk);
    assert_eq!(disk.image().segments.len(), 1);
    let id = segment(1, "", 0).id;
    let call = SyncCall { client: client(100), segment: id, incarnation: 0, applied: 0, limit: 5, now: life.pool.now };
    let of_a_node = life.pool.catalog.tell_directory(&call, |_| {});
    assert_eq!(of_a_node, Err(ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS), "nobody else acknowledges for the log");
}

/// What lies in the memory of two nodes: at each first byte of an extent, which write was the last to write there.
#[derive(Default)]
struct Memory(BTreeMap<(u64, u64), (u64, u64)>);

impl Memory {
    /// A writer with this extent writes all of it.
    fn write(&mut self, node: u64, offset: u64, size: u64, generation: u64) {
        let end = offset + size.max(1);
        self.0.retain(|&(at, start), (len, _)| at != node || start >= end || start + (*len).max(1) <= offset);
        self.0.insert((node, offset), (size, generation));
    }

    fn holds(&self, node: u64, offset: u64, size: u64, generation: u64) -> bool {
        self.0.get(&(node, offset)) == Some(&(size, generation))
    }

    fn has_written(&mut self, found: &Found) {
        for (name, address, _) in &found.replicas {
            let node = u64::from(name == "s2") + 1;
            self.write(node, address - (node << 40), found.size, found.generation.0.get());
        }
    }

    /// Everything that the log says, and every key, leads to bytes of just that write.
    fn check(&self, disk: &Disk, pool: &Pool, seed: u64) {
        for held in disk.image().segments.values() {
            let node = held.note.id.0.first;
            for entry in held.entries() {
                assert!(self.holds(node, entry.offset, entry.size, entry.generation), "seed {seed}: {entry:?}");
            }
        }
        for key in (0..24).map(|n| format!("k{n}")) {
            let Ok(found) = pool.peek(&key) else { continue };
            for (name, address, _) in &found.replicas {
                let node = u64::from(name == "s2") + 1;
                let offset = address - (node << 40);
                assert!(self.holds(node, offset, found.size, found.generation.0.get()), "seed {seed}: {found:?}");
            }
        }
    }
}

/// Random writes, removals, evictions, mounts, and lives that end at any byte of the log.
#[test]
fn whatever_the_log_says_is_there() {
    for seed in 1..=if cfg!(debug_assertions) { 30 } else { 300 } {
        let mut rng = Rng::seeded(seed);
        let (mut life, mut disk) = fresh(2);
        let (mut memory, mut lives) = (Memory::default(), 1);
        for _ in 0..300 {
            let key = format!("k{}", rng.below(24));
            let number = 1 + rng.below(2);
            match rng.below(24) {
                0..=7 => {
                    life.pool.config.replica_num = 1 + rng.below(2);
                    let size = 1 + rng.below(SEGMENT / 6);
                    let upsert = rng.below(3) == 0;
                    let started =
                        if upsert { life.pool.upsert_start(1, &key, size) } else { life.pool.start(1, &key, size) };
                    if let Ok(found) = started {
                        memory.has_written(&found);
                        let ended = if rng.below(8) == 0 { life.pool.revoke(1, &key) } else { life.pool.end(1, &key) };
                        ended.unwrap();
                    }
                }
                8..=9 => {
                    let _ = life.pool.remove(&key, Force::from(rng.below(2) == 0));
                }
                10..=11 => {
                    let _ = life.pool.get(&key);
                }
                12..=17 => drop(life.round(&mut disk)),
                18..=19 => {
                    life.pool.advance(Duration::from_millis(rng.below(4000)));
                    (1..=2).for_each(|n| assert!(life.pool.catalog.ping(client(99 + n), life.pool.now).is_ok()));
                    life.pool.upkeep();
                }
                20 => disk.compact(),
                21 if rng.below(3) == 0 => {
                    life.unmount(number);
                    let again = segment(number, &format!("s{number}"), SEGMENT);
                    life.pool.mount(again, 99 + number).unwrap();
                }
                22 if rng.below(2) == 0 => {
                    // The write that was under way when the life ended reached the disk up to any byte of it.
                    life.scribe.gather(&life.pool.catalog, life.pool.now, 0);
                    let cut = rng.below(life.scribe.waiting().len() as u64 + 1) as usize;
                    disk.0.extend_from_slice(&life.scribe.waiting()[..cut]);
                    memory.check(&disk, &life.pool, seed);
                    disk.compact();
                    lives += 1;
                    life = Life::begin(lives, &mut disk, life.pool.now);
                    (1..=2).filter(|_| rng.below(8) > 0).for_each(|number| life.remount(number));
                }
                23 => (1..=2).for_each(|number| life.remount(number)),
                _ => {}
            }
            memory.check(&disk, &life.pool, seed);
        }
        life.pool.catalog.assert_consistent();
        // What the log was told the next life finds.
        (1..=2).for_each(|number| life.remount(number));
        life.settle(&mut disk);
        let known: Vec<_> = (0..24).filter_map(|n| life.pool.peek(&format!("k{n}")).ok()).collect();
        let mut next = Life::begin(lives + 1, &mut disk, life.pool.now);
        (1..=2).for_each(|number| next.remount(number));
        next.settle(&mut disk);
        let again: Vec<_> = (0..24).filter_map(|n| next.pool.peek(&format!("k{n}")).ok()).collect();
        let writes = |found: &[Found]| found.iter().map(|f| (f.generation, f.replicas.len())).collect::<Vec<_>>();
        assert_eq!(writes(&again), writes(&known), "seed {seed}");
        next.pool.catalog.assert_consistent();
    }
}

#[test]
fn the_file_is_for_one_master_and_only_as_good_as_it_is_young_and_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("master.log");
    let options = JournalOptions { path: path.clone(), sync: true, max_age: Duration::from_secs(60) };
    let note = yb_journal::SegmentNote::of(&segment(1, "s1", SEGMENT), client(100));
    let write = |alive_ms: u64| {
        let mut found = LogFile::open(&options, 1_000_000).unwrap();
        let mut records = Vec::new();
        Record::Life(7).append(&mut records);
        Record::Mounted(found.image.last_number + 1, note.clone()).append(&mut records);
        Record::Alive(alive_ms).append(&mut records);
        found.file.append(&records).unwrap();
    };
    let segments = |epoch_ms| LogFile::open(&options, epoch_ms).unwrap().image.segments.len();
    write(1_000_000);
    let held = LogFile::open(&options, 1_000_000).unwrap();
    assert!(LogFile::open(&options, 1_000_000).unwrap_err().to_string().contains("another master has it"));
    // By whatever name.
    let link = directory.path().join("link.log");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let linked = JournalOptions { path: link.clone(), ..options.clone() };
    assert!(LogFile::open(&linked, 1_000_000).unwrap_err().to_string().contains("another master has it"));
    drop(held);
    assert_eq!(LogFile::open(&linked, 1_000_000).unwrap().image.segments.len(), 1);
    assert!(link.is_symlink(), "the link stays, what it leads to is written");
    std::fs::remove_file(&link).unwrap();
    std::fs::hard_link(&path, &link).unwrap();
    assert!(LogFile::open(&linked, 1_000_000).unwrap_err().to_string().contains("more than one name"));
    std::fs::remove_file(&link).unwrap();
    let mode = |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(segments(1_059_000), 1);
    // Torn.
    let whole = std::fs::read(&path).unwrap();
    std::fs::write(&path, [&whole[..], &[1, 2, 3]].concat()).unwrap();
    assert_eq!(segments(1_059_000), 1);
    // Too old; the clock went back.
    let old = LogFile::open(&options, 1_061_000).unwrap();
    assert_eq!((old.image.segments.len(), old.before), (0, Before::NotUsed));
    drop(old);
    write(1_000_000);
    assert_eq!(segments(900_000), 0);
    // Damaged: kept aside, not used.
    write(1_000_000);
    let mut bad = std::fs::read(&path).unwrap();
    let at = bad.len() - 60;
    bad[at] ^= 1;
    std::fs::write(&path, &bad).unwrap();
    let put_aside = LogFile::open(&options, 1_000_000).unwrap();
    assert_eq!((put_aside.image.segments.len(), put_aside.before), (0, Before::Damaged));
    drop(put_aside);
    assert_eq!(std::fs::read(directory.path().join("master.log.damaged")).unwrap(), bad);
    // Of another start of the host: good if it was synced.
    for synced in [true, false] {
        let mut log = Vec::new();
        Record::Head(Head { format: FORMAT, boot: b"another", synced }).append(&mut log);
        Record::Alive(1_000_000).append(&mut log);
        Record::Mounted(1, note.clone()).append(&mut log);
        std::fs::write(&path, &log).unwrap();
        assert_eq!(segments(1_000_000), usize::from(synced));
    }
}

#[test]
fn a_log_is_written_anew_when_it_has_grown_and_goes_when_it_cannot_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("master.log");
    let options = JournalOptions { path: path.clone(), sync: false, max_age: Duration::from_secs(60) };
    let mut file = LogFile::open(&options, 1_000_000).unwrap().file;
    let note = yb_journal::SegmentNote::of(&segment(1, "s1", SEGMENT), client(100));
    let mut records = Vec::new();
    Record::Mounted(1, note.clone()).append(&mut records);
    file.append(&records).unwrap();
    let mut strikes = Vec::new();
    (0..100_000).for_each(|n| Record::Strike(1, n).append(&mut strikes));
    while !file.is_long() {
        file.append(&strikes).unwrap();
    }
    file.compact();
    assert!(!file.is_long() && std::fs::metadata(&path).unwrap().len() < 1000);
    file.append(&strikes).unwrap();
    let image = read(&std::fs::read(&path).unwrap()).unwrap();
    assert_eq!(image.segments[&1].note, note);
    // Somebody damaged it: it is not carried on.
    let mut bad = std::fs::read(&path).unwrap();
    bad[20] ^= 1;
    std::fs::write(&path, &bad).unwrap();
    file.compact();
    assert!(!path.exists() && !file.is_in_use() && !path.exists());
    assert_eq!(file.append(&strikes).unwrap(), 0, "nothing is written, and nothing counted");
    assert!(!path.exists());
}
