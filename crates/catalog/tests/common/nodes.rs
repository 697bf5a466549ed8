//! Nodes that keep directories, as simple as can be, and masters with the segments of some of them.

use std::collections::BTreeMap;
use std::time::Duration;

use yb_catalog::*;
use yb_types::*;

use super::*;

/// A record as a node keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub size: u64,
    pub generation: u64,
    pub replica: ReplicaId,
    pub writer: ClientId,
    pub checksum: Option<u64>,
    pub hard_pin: bool,
    pub soft_pin: Option<Duration>,
    pub group: String,
    pub key: Vec<u8>,
}

impl Kept {
    pub fn at(&self, offset: u64) -> Published<'_> {
        Published {
            offset,
            size: self.size,
            generation: self.generation,
            replica: self.replica,
            writer: self.writer,
            checksum: self.checksum,
            hard_pin: self.hard_pin,
            soft_pin: self.soft_pin,
            data_type: 0,
            tenant: "",
            group: &self.group,
            key: &self.key,
        }
    }
}

/// The node's side of one segment, as simple as can be.
#[derive(Clone, Debug, Default)]
pub struct Node {
    pub entries: BTreeMap<u64, Kept>,
    pub incarnation: u64,
    pub applied: u64,
    /// The last roster that it heard.
    pub roster: Roster,
    /// The master that it told so.
    pub met: u64,
}

impl Node {
    pub fn call(&self, number: u64, now: MonotonicTime, limit: usize) -> SyncCall {
        let (client, segment) = (client(99 + number), segment(number, "", 0).id);
        SyncCall { client, segment, incarnation: self.incarnation, applied: self.applied, limit, now }
    }

    pub fn kept(record: &Published<'_>) -> (u64, Kept) {
        let kept = Kept {
            size: record.size,
            generation: record.generation,
            replica: record.replica,
            writer: record.writer,
            checksum: record.checksum,
            hard_pin: record.hard_pin,
            soft_pin: record.soft_pin,
            group: record.group.into(),
            key: record.key.into(),
        };
        (record.offset, kept)
    }

    /// Asks once; `lost`: the answer does not arrive. Answers whether there was anything new.
    pub fn sync(&mut self, catalog: &Catalog, number: u64, now: MonotonicTime, lost: bool) -> bool {
        let mut published = Vec::new();
        let sink = |record: Published<'_>| published.push(Self::kept(&record));
        let told = match catalog.tell_directory(&self.call(number, now, 5), sink) {
            Ok(told) => told,
            Err(ErrorCode::REPLICA_IS_NOT_READY) => return self.introduce(catalog, number, now),
            Err(error) => panic!("{error}"),
        };
        if lost {
            return true;
        }
        let is_known =
            told.roster == 0 || (self.roster.incarnation, self.roster.number) == (told.incarnation, told.roster);
        if self.met != told.incarnation || !is_known {
            self.introduce(catalog, number, now);
            return true;
        }
        match told.order {
            Order::Tell => {
                self.tell(catalog, number, now, told.incarnation);
                return true;
            }
            Order::ClearFirst => self.entries.clear(),
            Order::Apply if told.batch == self.applied && told.incarnation == self.incarnation => return false,
            Order::Apply => {}
        }
        for offset in &told.struck {
            self.entries.remove(offset);
        }
        self.entries.extend(published);
        (self.incarnation, self.applied) = (told.incarnation, told.batch);
        true
    }

    /// Tells which roster it heard last, and hears the present one. Answers whether it is told this for the first time.
    pub fn introduce(&mut self, catalog: &Catalog, number: u64, now: MonotonicTime) -> bool {
        let SyncCall { client, segment, .. } = self.call(number, now, 0);
        let roster = catalog.introduce((client, segment), self.roster.clone(), now).unwrap();
        let is_new = std::mem::replace(&mut self.met, roster.incarnation) != roster.incarnation;
        if roster.is_some() {
            self.roster = roster;
        }
        is_new
    }

    pub fn tell(&mut self, catalog: &Catalog, number: u64, now: MonotonicTime, incarnation: u64) {
        let SyncCall { client, segment, incarnation: told_by, .. } = self.call(number, now, 0);
        let adopting = |last| Adopting { client, segment, incarnation: told_by, last, now };
        let mut refused = Vec::new();
        let all: Vec<_> = self.entries.iter().collect();
        for page in all.chunks(3) {
            let records = page.iter().map(|(offset, kept)| kept.at(**offset));
            catalog.adopt(&adopting(false), records, |offset| refused.push(offset)).unwrap();
        }
        refused.iter().for_each(|offset| drop(self.entries.remove(offset)));
        catalog.adopt(&adopting(true), [], |_| panic!("nothing was told")).unwrap();
        (self.incarnation, self.applied) = (incarnation, 0);
    }

    pub fn settle(&mut self, pool: &Pool, number: u64) {
        while self.sync(&pool.catalog, number, pool.now, false) {}
    }
}

pub const SEGMENT: u64 = 1 << 20;

pub fn settings(life: u64) -> CatalogSettings {
    CatalogSettings { first_replica_id: life << 32, ..CatalogSettings::default() }
}

/// The segment of a node.
pub fn id(number: u64) -> SegmentId {
    segment(number, "", 0).id
}

/// A master of its `life`-th life with the segments of some nodes.
pub fn master(life: u64, nodes: &[Node], now: MonotonicTime) -> Pool {
    master_with(settings(life), nodes, now)
}

/// It knows from elsewhere that all of them were up to date.
pub fn master_with(settings: CatalogSettings, nodes: &[Node], now: MonotonicTime) -> Pool {
    let mut pool = Pool::new(settings);
    pool.now = now;
    let members = (1..).zip(nodes).map(|(number, _)| id(number)).collect();
    pool.catalog.expect_roster(Roster { incarnation: 1, term: 1, number: 1 << 32, members });
    pool.catalog.begins(now);
    (1..).zip(nodes).for_each(|(number, node)| join(&mut pool, number, node));
    pool
}

/// A node mounts what it has.
pub fn join(pool: &mut Pool, number: u64, node: &Node) {
    let keeper = if node.entries.is_empty() { Keeper::Empty } else { Keeper::Filled };
    pool.catalog.expect_directory(client(99 + number), keeper);
    let segments = vec![segment(number, &format!("s{number}"), SEGMENT)];
    pool.catalog.remount(segments, client(99 + number), pool.now, &mut pool.effects).unwrap();
}

pub fn fresh(nodes: usize) -> (Pool, Vec<Node>) {
    let nodes = vec![Node::default(); nodes];
    let mut pool = master(1, &nodes, MonotonicTime::from_millis(3_600_000));
    pool.advance(11 * SECOND);
    (pool, nodes)
}
