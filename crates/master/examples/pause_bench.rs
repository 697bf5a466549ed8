//! What others feel while much happens in a master: a probe (exist, put, ping) every 2 ms, beside a steady load of batch
//! lookups, over real connections to a master in this process.
//!
//! - `loss [keys]`: the owner of half of the keys stops pinging;
//! - `turnover [keys]`: the load's puts go into a full pool, against the same puts into a pool with room;
//! - `wipe [keys]`: everything is removed; what memory is left.
//!
//! Each prints p50, p99 and the worst of the probes without the event and with it, and the ratio, median of 5 rounds
//! (`wipe`: one). `cargo run --release -p yb-master --example pause_bench -- loss 5000000`
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use yb_env::{Clock, Rng, sleep, spawn_thread};
use yb_master::{Master, MasterConfig};
use yb_pack::{Form, Limits, List};
use yb_rpc::{ClientPool, ClientSettings};
use yb_types::*;
use yb_wire::messages::*;
use yb_wire::{Call, WireTable, call};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TENANT: &[u8] = b"default";
const BATCH: u64 = 128;
const SIZE: u64 = 64 << 10;
/// How long probes are taken for one figure.
const WINDOW: Duration = Duration::from_secs(6);

/// A key of 45 bytes.
fn key(name: char, number: u64) -> Vec<u8> {
    format!("{name}{number:044}").into_bytes()
}

/// Resident bytes of this process, 0 where `/proc` is missing.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok()).unwrap_or(0) * 1024
}

struct Caller {
    pool: ClientPool,
    table: &'static WireTable,
    id: ClientId,
}

impl Caller {
    fn new(master: &Master) -> Caller {
        let id = ClientId(Rng::from_entropy().uuid());
        let pool = ClientPool::new(master.rpc_address().into(), ClientSettings::default());
        Caller { pool, table: WireTable::of(WireVersion::LATEST), id }
    }

    fn call<C: Call, R>(&self, args: &C::Args<'_>, then: impl FnOnce(C::Reply<'_>) -> R) -> R {
        let signature = self.table.signature(C::RPC).expect("a call of this generation");
        let mut body = Vec::new();
        yb_pack::encode(args, &signature.args, Form::Literal, &mut body).expect("arguments encode");
        let deadline = self.pool.deadline_in(Duration::from_secs(60));
        let reply = self.pool.call(signature.function_id, &body, deadline).expect("the master answers");
        then(yb_wire::decode_reply::<C>(self.table, &reply, Limits::default()).expect("the answer decodes"))
    }

    fn ping(&self) {
        self.call::<call::Ping, _>(&ClientArgs { client_id: self.id }, |reply| assert!(reply.is_ok()));
    }

    fn mount(&self, name: &str, base: u64, size: u64) {
        let segment = Segment {
            id: SegmentId(Rng::from_entropy().uuid()),
            name: name.to_owned(),
            base,
            size,
            te_endpoint: name.to_owned(),
            protocol: "tcp".to_owned(),
            ..Segment::default()
        };
        let args = MountSegmentArgs { segment, client_id: self.id };
        self.call::<call::MountSegment, _>(&args, |reply| reply.expect("the segment is taken"));
    }

    /// Puts a batch into the segment of a name, or anywhere; answers how many found room.
    fn put(&self, keys: &[Vec<u8>], segment: &str) -> usize {
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let sizes = vec![SIZE; keys.len()];
        let config = ReplicateConfig { preferred_segment: segment.to_owned(), ..ReplicateConfig::default() };
        let args = BatchPutStartArgs {
            client_id: self.id,
            keys: List::from(&keys[..]),
            slice_lengths: List::from(&sizes[..]),
            config,
            tenant_id: TENANT,
        };
        let stored =
            self.call::<call::BatchPutStart, _>(&args, |reply| reply.iter().filter(|answer| answer.is_ok()).count());
        let metas: Vec<ObjectMetaRef<'_>> =
            keys.iter().map(|key| ObjectMetaRef { key, object_checksum: None }).collect();
        let args = BatchPutEndArgs {
            client_id: self.id,
            object_metas: List::from(&metas[..]),
            replica_type: ReplicaType::ALL,
            tenant_id: TENANT,
        };
        self.call::<call::BatchPutEnd, _>(&args, |_| ());
        stored
    }

    fn exist(&self, keys: &[Vec<u8>]) {
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let args = KeysArgs { keys: List::from(&keys[..]), tenant_id: TENANT };
        self.call::<call::BatchExistKey, _>(&args, |_| ());
    }
}

/// A thread that runs `step` until it is dropped.
struct Worker {
    stop: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Worker {
    fn start(mut step: impl FnMut() + Send + 'static) -> Worker {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let run = move || {
            while !seen.load(Ordering::Relaxed) {
                step();
            }
        };
        Worker { stop, thread: Some(spawn_thread("bench", run).expect("a thread starts")) }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Milliseconds of p50, p99, and the worst.
#[derive(Clone, Copy, Debug)]
struct Latency([f64; 3]);

/// Probes for some time: one exist, one put, one ping each 2 ms.
fn probe(master: &Master, numbers: &AtomicU64) -> Latency {
    let (caller, clock) = (Caller::new(master), Clock::real());
    let mut taken = Vec::new();
    let end = clock.now() + WINDOW;
    let mut timed = |step: &dyn Fn()| {
        let begin = clock.now();
        step();
        taken.push(clock.now().since(begin).as_secs_f64() * 1000.0);
    };
    while clock.now() < end {
        let number = numbers.fetch_add(1, Ordering::Relaxed);
        timed(&|| caller.exist(&[key('p', number)]));
        timed(&|| {
            caller.put(&[key('p', number)], "");
        });
        timed(&|| caller.ping());
        sleep(Duration::from_millis(2));
    }
    taken.sort_by(f64::total_cmp);
    let at = |share: f64| taken[((taken.len() - 1) as f64 * share) as usize];
    Latency([at(0.5), at(0.99), at(1.0)])
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn report(what: &str, rounds: &[(Latency, Latency)]) {
    for (quiet, event) in rounds {
        println!("  quiet {:?} ms, {what} {:?} ms", quiet.0, event.0);
    }
    let of =
        |at: usize, event: bool| median(rounds.iter().map(|(q, e)| if event { e.0[at] } else { q.0[at] }).collect());
    let ratio = median(rounds.iter().map(|(q, e)| e.0[1] / q.0[1]).collect());
    let worst = rounds.iter().map(|(_, e)| e.0[2]).fold(0.0, f64::max);
    println!(
        "{what}: p50 {:.3} -> {:.3} ms, p99 {:.3} -> {:.3} ms ({ratio:.2} times), worst {worst:.1} ms",
        of(0, false),
        of(0, true),
        of(1, false),
        of(1, true)
    );
}

fn master() -> Master {
    let mut config = MasterConfig::embedded();
    config.admin = None;
    config.catalog.client_ttl = Duration::from_secs(3);
    config.catalog.lease_ttl = Duration::from_millis(500);
    Master::start(config).expect("the master starts")
}

/// A client that pings while it lives.
fn owner(master: &Master, name: &str, base: u64, size: u64) -> Worker {
    let caller = Caller::new(master);
    caller.mount(name, base, size);
    Worker::start(move || {
        caller.ping();
        sleep(Duration::from_millis(300));
    })
}

/// Batch lookups at a steady pace.
fn readers(master: &Master, name: char, keys: u64) -> Worker {
    let (caller, mut rng) = (Caller::new(master), Rng::seeded(3));
    Worker::start(move || {
        let keys: Vec<Vec<u8>> = (0..BATCH).map(|_| key(name, rng.below(keys))).collect();
        caller.exist(&keys);
        sleep(Duration::from_millis(5));
    })
}

fn load(caller: &Caller, name: char, keys: u64, segment: &str) -> u64 {
    let batches = (0..keys).step_by(BATCH as usize);
    let batch = |first: u64| (first..keys.min(first + BATCH)).map(|at| key(name, at)).collect::<Vec<_>>();
    batches.map(|first| caller.put(&batch(first), segment) as u64).sum()
}

fn loss(keys: u64) {
    let master = master();
    let (half, numbers) = (keys / 2, AtomicU64::new(0));
    let _stays = owner(&master, "stays", 1 << 44, half * SIZE * 2);
    let writer = Caller::new(&master);
    println!("{} keys stay", load(&writer, 's', half, "stays"));
    let _load = readers(&master, 's', half);
    let mut rounds = Vec::new();
    for round in 0..5u64 {
        let goes = owner(&master, "goes", (round + 2) << 45, half * SIZE * 2);
        println!("{} keys go", load(&writer, 'g', half, "goes"));
        let quiet = probe(&master, &numbers);
        drop(goes);
        // The client is given up within this window.
        rounds.push((quiet, probe(&master, &numbers)));
    }
    report("loss", &rounds);
}

fn turnover(keys: u64) {
    let measured = |room: u64| {
        let (master, numbers) = (master(), AtomicU64::new(0));
        let _owner = owner(&master, "all", 1 << 44, room * SIZE);
        let writer = Caller::new(&master);
        load(&writer, 's', keys, "all");
        let _load = readers(&master, 's', keys);
        let mut next = 0;
        // 20,000 objects a second.
        let _puts = Worker::start(move || {
            let batch: Vec<Vec<u8>> = (next..next + BATCH).map(|at| key('n', at)).collect();
            writer.put(&batch, "all");
            next += BATCH;
            sleep(Duration::from_micros(6_400));
        });
        (0..5).map(|_| probe(&master, &numbers)).collect::<Vec<_>>()
    };
    let (quiet, full) = (measured(keys * 2), measured(keys));
    report("turnover", &quiet.into_iter().zip(full).collect::<Vec<_>>());
}

fn wipe(keys: u64) {
    let master = master();
    let _owner = owner(&master, "all", 1 << 44, keys * SIZE * 2);
    let (writer, numbers) = (Caller::new(&master), AtomicU64::new(0));
    let start = resident();
    let stored = load(&writer, 's', keys, "all");
    let loaded = resident().saturating_sub(start);
    println!("{stored} keys: {:.1} bytes a key, everything of this process counted", loaded as f64 / stored as f64);
    let quiet = probe(&master, &numbers);
    let wiper = Caller::new(&master);
    let wiping = spawn_thread("wipe", move || {
        let args = RemoveAllArgs { force: true, tenant_id: TENANT };
        wiper.call::<call::RemoveAll, _>(&args, |_| ());
    });
    let event = probe(&master, &numbers);
    let _ = wiping.expect("a thread starts").join();
    report("remove_all", &[(quiet, event)]);
    sleep(Duration::from_secs(3));
    println!("left {} MiB above the start, of {} MiB", resident().saturating_sub(start) >> 20, loaded >> 20);
}

fn main() {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_default();
    let keys = args.next().and_then(|count| count.parse().ok()).unwrap_or(5_000_000);
    match what.as_str() {
        "loss" => loss(keys),
        "turnover" => turnover(keys),
        "wipe" => wipe(keys),
        other => println!("what is {other:?}? There are: loss, turnover, wipe"),
    }
}
