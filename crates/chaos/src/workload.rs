//! What a client process does until its time is over, and the history that it writes.
//!
//! Keys are of eight kinds, by their number modulo 8: 0 to 3 are written once and kept, 4 to 7 are replaced and removed all the
//! time; 3 and 7 have two copies.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use yb_client::{Client, ClientConfig, Error, PutOutcome};
use yb_env::Rng;
use yb_history::{Call, Key, Outcome, Write, begin_line, end_line};
use yb_types::{MonotonicTime, ReplicateConfig};

use crate::process::now;
use crate::value;

/// What a client process is told.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Workload {
    /// Number of this process: writes are numbered from `process * 2^32` on.
    pub process: u64,
    /// For its choices.
    pub seed: u64,
    /// `host:port` of the master.
    pub master: String,
    /// Keys `0..keys`.
    pub keys: u32,
    /// Longest value, in bytes.
    pub longest: u32,
    /// Threads.
    pub threads: u32,
    /// Pause between two calls of a thread, at most, in microseconds.
    pub pause_us: u64,
    /// When to end, in nanoseconds of the machine's monotonic clock.
    pub until_ns: u64,
    /// Reads every key once, and ends.
    pub sweep: bool,
    /// Whether bytes may go over shared memory.
    pub shared_memory: bool,
    /// The file of the history.
    pub history: PathBuf,
}

impl Workload {
    /// Copies that values of a key have.
    pub fn copies(key: Key) -> u8 {
        if key.0 % 4 == 3 { 2 } else { 1 }
    }

    /// Whether values of a key stay until their owners die.
    pub fn is_kept(key: Key) -> bool {
        key.0 % 8 < 4
    }
}

/// The key as the pool has it.
pub fn name(key: Key) -> String {
    format!("chaos/{}", key.0)
}

/// The body of a client process.
///
/// # Errors
/// The workload cannot be read, the history not be written, the pool not be reached.
pub fn play(config: &str) -> io::Result<()> {
    let workload: Workload = serde_json::from_str(config)?;
    let client = connected(&workload)?;
    let log = Log { file: Mutex::new(File::create(&workload.history)?), calls: AtomicU64::new(0) };
    let writes = AtomicU64::new(workload.process << 32);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..u64::from(workload.threads))
            .map(|thread| {
                let player = Player { workload: &workload, client: &client, log: &log, writes: &writes };
                let mut rng = Rng::seeded(workload.seed ^ workload.process << 8 ^ thread);
                scope.spawn(move || if player.workload.sweep { player.sweep() } else { player.work(&mut rng) })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| io::Error::other("a thread panicked"))?)
    })
}

/// The master may be away just now.
fn connected(workload: &Workload) -> io::Result<Client> {
    let config = ClientConfig {
        local_hostname: "127.0.0.1".into(),
        master_address: workload.master.clone(),
        shared_memory: workload.shared_memory,
        ..ClientConfig::default()
    };
    loop {
        match Client::connect(config.clone()) {
            Ok(client) => return Ok(client),
            Err(error) if now().0 > workload.until_ns => return Err(io::Error::other(error)),
            Err(_) => yb_env::sleep(Duration::from_millis(50)),
        }
    }
}

/// The history, a line at a time: what was written is there when the process is killed.
struct Log {
    file: Mutex<File>,
    calls: AtomicU64,
}

impl Log {
    fn line(&self, line: &str) -> io::Result<()> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner).write_all(line.as_bytes())
    }

    fn begin(&self, key: Key, call: Call) -> io::Result<u64> {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        self.line(&begin_line(number, now(), key, call))?;
        Ok(number)
    }

    fn end(&self, number: u64, at: MonotonicTime, outcome: &Outcome) -> io::Result<()> {
        self.line(&end_line(number, at, outcome))
    }
}

struct Player<'a> {
    workload: &'a Workload,
    client: &'a Client,
    log: &'a Log,
    writes: &'a AtomicU64,
}

impl Player<'_> {
    fn sweep(&self) -> io::Result<()> {
        (0..self.workload.keys).try_for_each(|key| self.one(Key(key), Call::Get, 0).map(drop))
    }

    fn work(&self, rng: &mut Rng) -> io::Result<()> {
        while now().0 < self.workload.until_ns {
            let key = Key(rng.below(self.workload.keys.into()) as u32);
            match (Workload::is_kept(key), rng.below(100)) {
                (true, 0..80) => self.read_or_write(rng, key)?,
                (true, 80..90) => drop(self.one(key, Call::Exists, 0)?),
                (true, _) => self.put(rng, key)?,
                (false, 0..45) => drop(self.one(key, Call::Get, 0)?),
                (false, 45..55) => self.many(rng)?,
                (false, 55..60) => drop(self.one(key, Call::Exists, 0)?),
                (false, 60..75) => self.put(rng, key)?,
                (false, 75..90) => self.upsert(rng, key)?,
                (false, _) => drop(self.one(key, Call::Remove, rng.below(2) as usize)?),
            }
            yb_env::sleep(Duration::from_micros(rng.below(self.workload.pause_us)));
        }
        Ok(())
    }

    /// As a cache is used: what is not there is written.
    fn read_or_write(&self, rng: &mut Rng, key: Key) -> io::Result<()> {
        match self.one(key, Call::Get, 0)? {
            Outcome::Absent => self.put(rng, key),
            _ => Ok(()),
        }
    }

    fn put(&self, rng: &mut Rng, key: Key) -> io::Result<()> {
        let call = Call::Put { write: self.next_write(), copies: Workload::copies(key) };
        self.one(key, call, self.length(rng)).map(drop)
    }

    fn upsert(&self, rng: &mut Rng, key: Key) -> io::Result<()> {
        let call = Call::Upsert { write: self.next_write(), copies: Workload::copies(key) };
        self.one(key, call, self.length(rng)).map(drop)
    }

    fn next_write(&self) -> Write {
        Write(self.writes.fetch_add(1, Ordering::Relaxed))
    }

    /// Mostly small; some as long as may be.
    fn length(&self, rng: &mut Rng) -> usize {
        let longest = u64::from(self.workload.longest);
        let bound = [longest / 256, longest / 256, longest / 16, longest / 16, longest / 4, longest];
        let bound = bound[rng.below(6) as usize];
        rng.below(bound.max(1)) as usize
    }

    /// One call, with its two lines. `more`: the length of a write; whether a removal is forced.
    fn one(&self, key: Key, call: Call, more: usize) -> io::Result<Outcome> {
        let value = call.write().map(|write| value::make(key, write, more)).unwrap_or_default();
        let number = self.log.begin(key, call)?;
        let config = ReplicateConfig { replica_num: call.copies().max(1).into(), ..ReplicateConfig::default() };
        let name = name(key);
        let (outcome, bytes) = match call {
            Call::Put { .. } => (put_outcome(self.client.put(&name, &value, &config)), None),
            Call::Upsert { .. } => (written(self.client.upsert(&name, &value, &config)), None),
            Call::Exists => (existence(self.client.exists(&name)), None),
            Call::Remove => (removal(self.client.remove(&name, more == 1)), None),
            Call::Get => match self.client.get(&name) {
                Ok(bytes) => (Outcome::Present, Some(bytes)),
                Err(error) => (failure(error), None),
            },
        };
        // The time of judging is not the call's.
        let at = now();
        let outcome = bytes.map_or(outcome, |bytes| value::judge(key, &bytes));
        self.log.end(number, at, &outcome)?;
        Ok(outcome)
    }

    /// A batch of reads: as many calls that begin and end together.
    fn many(&self, rng: &mut Rng) -> io::Result<()> {
        let mut keys: Vec<Key> = (0..8).map(|_| Key(rng.below(self.workload.keys.into()) as u32)).collect();
        keys.sort_unstable();
        keys.dedup();
        let numbers: Vec<u64> = keys.iter().map(|key| self.log.begin(*key, Call::Get)).collect::<io::Result<_>>()?;
        let names: Vec<String> = keys.iter().map(|key| name(*key)).collect();
        let answers = self.client.batch_get(&names);
        let at = now();
        for ((key, number), answer) in keys.into_iter().zip(numbers).zip(answers) {
            let outcome = answer.map_or_else(failure, |bytes| value::judge(key, &bytes));
            self.log.end(number, at, &outcome)?;
        }
        Ok(())
    }
}

fn put_outcome(answer: Result<PutOutcome, Error>) -> Outcome {
    match answer {
        Ok(PutOutcome::Stored) => Outcome::Stored,
        Ok(PutOutcome::AlreadyExists) => Outcome::Exists,
        Err(error) => write_failure(error),
    }
}

fn written(answer: Result<(), Error>) -> Outcome {
    answer.map_or_else(write_failure, |()| Outcome::Stored)
}

fn existence(answer: Result<bool, Error>) -> Outcome {
    answer.map_or_else(failure, |there| if there { Outcome::Present } else { Outcome::Absent })
}

fn removal(answer: Result<(), Error>) -> Outcome {
    answer.map_or_else(failure, |()| Outcome::Removed)
}

/// A write that hears "no such object" was forgotten by a master that died: it is not known what became of it.
fn write_failure(error: Error) -> Outcome {
    match failure(error) {
        Outcome::Absent => Outcome::Failed("forgotten".into()),
        other => other,
    }
}

fn failure(error: Error) -> Outcome {
    let text = match error {
        Error::NotFound => return Outcome::Absent,
        Error::Busy(_) => return Outcome::Refused("busy".into()),
        Error::NoSpace(_) => return Outcome::Refused("no room".into()),
        Error::LeaseExpired => "lease expired".to_owned(),
        Error::Corrupt { .. } => "checksum".to_owned(),
        Error::Refused { code, .. } => format!("refused {}", code.0),
        Error::Transfer(_) => "transfer".to_owned(),
        Error::MasterUnreachable(failure) if failure.timed_out => "master silent".to_owned(),
        Error::MasterUnreachable(_) => "master away".to_owned(),
        Error::NoReadableReplica => "no replica".to_owned(),
        other => other.to_string(),
    };
    Outcome::Failed(text.into())
}
