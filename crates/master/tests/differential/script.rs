//! Which operation comes next: seeded, and mostly such that makes sense for the state that both masters are in.

use std::collections::BTreeMap;

use yb_env::Rng;
use yb_types::{ObjectDataType, ReplicaType, ReplicateConfig, SoftPinAction};

use crate::op::{Form, Key, Op, Shift, Write};
use crate::side::{CLIENTS, OWNERS, segment_name};

/// Keys below this number lie in named segments, the others anywhere.
pub const NAMED_KEYS: usize = 16;
pub const KEYS: usize = 20;
const SIZES: [u64; 6] = [1, 100, 4096, 65_536, 200_000, 1 << 20];
const PATTERNS: [&str; 5] = ["key-0[0-4]", "^key-1", "key-.*", "nothing", "key-[0"];

/// What the script remembers of a key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    pub writer: usize,
    pub shifter: usize,
    /// An upsert began and did not end.
    pub upserting: bool,
    /// An upsert ended.
    pub upserted: bool,
    pub grouped: bool,
    /// Replicas that it may have.
    pub copies: usize,
    /// Looked up with GetReplicaListForAdmin or its batch form.
    pub shown_to_admin: bool,
    /// A copy or move began and did not end.
    pub shifting: bool,
    /// A look-up met it while it was being written.
    pub met_unfinished: bool,
}

pub struct Script {
    rng: Rng,
    pub tenants: usize,
    /// Functions of 0.3.14 too.
    pub newest: bool,
    pub memory: BTreeMap<Key, Memory>,
    pub tasks: usize,
    /// Segments that were asked to leave since the last time step.
    leaving: [bool; OWNERS.len()],
}

impl Script {
    pub fn new(seed: u64, tenants: usize, newest: bool) -> Script {
        Script {
            rng: Rng::seeded(seed),
            tenants,
            newest,
            memory: BTreeMap::new(),
            tasks: 0,
            leaving: [false; OWNERS.len()],
        }
    }

    /// Longer than any grace time has passed.
    pub fn time_passed(&mut self) {
        self.leaving = [false; OWNERS.len()];
    }

    pub fn some_leaving(&self) -> bool {
        self.leaving.contains(&true)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    fn key(&mut self) -> Key {
        Key { tenant: self.below(self.tenants), number: self.below(KEYS) }
    }

    fn named_key(&mut self) -> Key {
        Key { tenant: self.below(self.tenants), number: self.below(NAMED_KEYS) }
    }

    fn form(&mut self) -> Form {
        if self.one_in(3) { Form::Batch } else { Form::Single }
    }

    /// Different keys of one tenant, all named or all not.
    fn keys(&mut self, form: Form) -> Vec<Key> {
        let first = self.key();
        if form == Form::Single {
            return vec![first];
        }
        let range = if first.number < NAMED_KEYS { 0..NAMED_KEYS } else { NAMED_KEYS..KEYS };
        let (count, span) = (1 + self.below(4), range.len());
        let at = |i: usize| range.start + (first.number - range.start + i * 3) % span;
        let mut keys: Vec<Key> = (0..count).map(|i| Key { tenant: first.tenant, number: at(i) }).collect();
        keys.dedup();
        keys.truncate(span.min(4));
        keys
    }

    fn writer(&mut self, key: Key) -> usize {
        let writer = self.memory.get(&key).map_or(0, |memory| memory.writer);
        if self.one_in(10) { self.below(CLIENTS) } else { writer }
    }

    fn config(&mut self, keys: &[Key]) -> ReplicateConfig {
        let mut config = ReplicateConfig::default();
        if keys[0].number < NAMED_KEYS {
            let first = self.below(OWNERS.len());
            config.replica_num = 1 + self.below(2) as u64;
            let names = (0..config.replica_num as usize).map(|i| segment_name((first + i) % OWNERS.len()));
            config.preferred_segments = names.collect();
            if config.replica_num == 1 && self.one_in(4) {
                config.preferred_segment = config.preferred_segments[0].clone();
            }
        } else {
            config.replica_num = 1 + self.below(3) as u64;
        }
        config.with_hard_pin = self.one_in(12);
        config.data_type = ObjectDataType(self.below(10) as u8);
        if self.one_in(8) {
            config.soft_pin_action = SoftPinAction(self.below(3) as u8);
            config.soft_pin_ttl_ms = self.one_in(2).then(|| [0, 1000, 90_000_000][self.below(3)]);
        }
        if self.one_in(6) {
            let groups = keys.iter().map(|key| ["", "g1", "g2"][key.number % 3].to_owned());
            config.group_ids = Some(groups.collect());
        }
        if self.one_in(60) {
            self.spoil(&mut config);
        }
        config
    }

    /// One thing that no master should take.
    fn spoil(&mut self, config: &mut ReplicateConfig) {
        match self.below(6) {
            0 => config.replica_num = 0,
            1 => config.nof_replica_num = 1,
            2 => config.dfs_replica_num = 1,
            3 => config.dfs_replica_num = 2,
            4 => config.group_ids = Some(vec!["g1".to_owned(); 9]),
            _ => (config.prefer_alloc_in_same_node, config.nof_replica_num) = (true, 1),
        }
    }

    fn which(&mut self) -> ReplicaType {
        match self.below(30) {
            0 => ReplicaType::DISK,
            1 => ReplicaType::LOCAL_DISK,
            2 => ReplicaType::NOF_SSD,
            3..=7 => ReplicaType::MEMORY,
            _ => ReplicaType::ALL,
        }
    }

    fn start(&mut self) -> Op {
        let form = self.form();
        let keys = self.keys(form);
        let mut config = Box::new(self.config(&keys));
        let mut sizes: Vec<u64> = keys.iter().map(|_| SIZES[self.below(SIZES.len())]).collect();
        if self.one_in(60) {
            sizes[0] = 0;
        }
        if form == Form::Batch && self.one_in(40) {
            sizes.pop();
        }
        let write = if self.one_in(3) { Write::Upsert } else { Write::Put };
        if write == Write::Upsert {
            // For an object of the same size the peer makes no more replicas than there are, whatever is asked for.
            config.replica_num = config.replica_num.min(1);
            config.preferred_segments.truncate(1);
        }
        Op::Start { write, form, client: self.below(CLIENTS - 1), keys, sizes, config }
    }

    fn end(&mut self, revoke: bool) -> Op {
        let form = self.form();
        let keys = self.keys(form);
        let client = self.writer(keys[0]);
        let write = if self.one_in(3) { Write::Upsert } else { Write::Put };
        let which = self.which();
        if revoke {
            return Op::Revoke { write, form, client, keys, which };
        }
        let checksum = self.one_in(2).then(|| self.rng.next_u64());
        Op::End { write, form, client, keys, which, checksum }
    }

    fn removal(&mut self) -> Op {
        let form = self.form();
        let force = self.one_in(2);
        match self.below(40) {
            0 => Op::RemoveAll { tenant: self.below(self.tenants), force },
            1..=3 => {
                let pattern = PATTERNS[self.below(PATTERNS.len())];
                Op::RemoveRegex { tenant: self.below(self.tenants), pattern, force }
            }
            4..=7 => {
                let keys = self.keys(Form::Batch);
                let client = self.writer(keys[0]);
                let segment = (keys[0].number < NAMED_KEYS && self.one_in(2)).then(|| self.below(OWNERS.len()));
                Op::Clear { client, keys, segment }
            }
            8 => Op::EvictDisk { form, client: self.below(CLIENTS), keys: self.keys(form), which: self.which() },
            _ => Op::Remove { form, keys: self.keys(form), force },
        }
    }

    fn lookup(&mut self) -> Op {
        let form = self.form();
        match self.below(12) {
            0 => Op::Regex { tenant: self.below(self.tenants), pattern: PATTERNS[self.below(PATTERNS.len())] },
            1 if self.newest => {
                Op::Probe { form, keys: self.keys(form), mode: self.below(2) as u8, group: 1 + self.below(3) as u64 }
            }
            2 if self.newest => Op::AdminGet { form, keys: self.keys(form) },
            3..=5 => Op::Exist { form, keys: self.keys(form) },
            _ => Op::Get { form, keys: self.keys(form) },
        }
    }

    fn shift(&mut self) -> Op {
        let shift = if self.one_in(2) { Shift::Copy } else { Shift::Move };
        let key = self.named_key();
        let shifter = self.memory.get(&key).map_or(0, |memory| memory.shifter);
        let source = self.below(OWNERS.len());
        if self.one_in(2) {
            let client = if self.one_in(6) { self.below(CLIENTS) } else { shifter };
            return Op::ShiftEnd { shift, client, key, revoke: self.one_in(3) };
        }
        let mut targets = vec![self.below(OWNERS.len())];
        if shift == Shift::Copy && self.one_in(3) {
            targets.push((targets[0] + 1) % OWNERS.len());
        }
        Op::ShiftStart { shift, client: self.below(CLIENTS), key, source, targets }
    }

    fn task(&mut self) -> Op {
        let task = self.below(self.tasks + 1);
        let client = self.below(CLIENTS);
        match self.below(6) {
            0 | 1 => {
                let key = self.named_key();
                // Which replica a copy is made of is up to the master: with one there is no choice.
                let copies = self.memory.get(&key).map_or(0, |memory| memory.copies);
                let shift = if copies <= 1 && self.one_in(2) { Shift::Copy } else { Shift::Move };
                self.tasks += 1;
                let (source, target) = (self.below(OWNERS.len()), self.below(OWNERS.len()));
                let targets = if shift == Shift::Copy && self.one_in(8) { vec![] } else { vec![target] };
                Op::CreateTask { shift, key, source, targets }
            }
            2 => Op::QueryTask { task },
            3 | 4 => Op::Fetch { client, most: self.below(4) as u64 },
            _ => Op::Mark { client, task, status: self.below(4) as i32 },
        }
    }

    fn segments(&mut self) -> Op {
        let (client, segment) = (self.below(CLIENTS), self.below(OWNERS.len()));
        match self.below(12) {
            // The peer forgets a pending departure at no unmount: it would take away the next mount, some time.
            0 if !self.leaving[segment] => {
                self.leaving[segment] = true;
                Op::Unmount { client: OWNERS[segment], segment }
            }
            1 => {
                self.leaving[segment] = true;
                Op::Graceful { client, segment, grace_ms: 500 }
            }
            // Ours lets memory that comes back rest for a lease.
            2..=4 if !self.leaving[segment] => Op::Mount { client: OWNERS[segment], segment, broken: self.one_in(10) },
            5 | 6 => Op::Ping { client },
            7..=9 => Op::Status { segment, by_id: self.one_in(2) },
            10 => Op::QueryIp,
            _ => Op::Idle { client },
        }
    }

    pub fn next(&mut self) -> Op {
        match self.below(1000) {
            0..280 => self.start(),
            280..500 => self.end(false),
            500..550 => self.end(true),
            550..760 => self.lookup(),
            760..830 => self.removal(),
            830..920 => self.shift(),
            // With one tenant only: which tasks are left when objects part depends on their queues.
            920..965 if self.tenants == 1 => self.task(),
            920..965 => self.lookup(),
            _ => self.segments(),
        }
    }
}
