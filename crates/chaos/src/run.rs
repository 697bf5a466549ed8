//! A chaos run: a pool of real processes, a plan from one seed, a history, a verdict.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use yb_history::{Operation, Rules, Troubles, Verdict, check, parse};
use yb_types::MonotonicTime;

use crate::maker::Maker;
use crate::plan::{Cast, Event};
use crate::process::now;
use crate::stage::{Setting, Stage};
use crate::workload::Workload;

/// What to run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Whose processes.
    pub maker: Maker,
    /// Decides the plan and the choices of the clients.
    pub seed: u64,
    /// How long things go wrong.
    pub length: Duration,
    /// Whether bytes may go over shared memory.
    pub shared_memory: bool,
    /// Keeps logs and histories here; `None`: they go with the run.
    pub keep: Option<PathBuf>,
}

/// Where it plays.
#[derive(Clone, Copy, Debug)]
pub struct Scene {
    /// Who is there.
    pub cast: Cast,
    /// Memory of a node.
    pub mib: u32,
    /// Lease of a read.
    pub lease: Duration,
    /// Keys.
    pub keys: u32,
    /// The pool is too small for all of them: what is missing is not judged.
    pub evicts: bool,
    /// At rest before the first event, and after the last one.
    pub calm: Duration,
}

impl Scene {
    /// Three nodes with room for all, four clients.
    pub fn usual(maker: &Maker) -> Scene {
        let relayed_node = matches!(maker, Maker::Ours(_)).then_some(1);
        let cast = Cast { nodes: 3, clients: 4, relayed_node, ttl: Duration::from_secs(5) };
        Scene { cast, mib: 192, lease: Duration::from_secs(2), keys: 160, evicts: false, calm: Duration::from_secs(8) }
    }
}

/// What came of it.
#[derive(Debug)]
pub struct Outcome {
    /// Of the checker.
    pub verdict: Verdict,
    /// All calls, in order of their begin.
    pub history: Vec<Operation>,
    /// Who suffered what.
    pub troubles: Troubles,
    /// Processes that ended by themselves, or did not end.
    pub astray: Vec<String>,
    /// When the first client began.
    pub began: MonotonicTime,
}

/// Plays events, which begin when all is well for a while.
///
/// # Errors
/// A process cannot be started, a file not be written or read.
pub fn run(run: &Run, scene: &Scene, events: &[Event]) -> io::Result<Outcome> {
    let temporary = tempfile::Builder::new().prefix("yb-chaos-").tempdir_in("/dev/shm")?;
    let folder = run.keep.clone().unwrap_or_else(|| temporary.path().join("run"));
    // One that is there holds another run's histories.
    std::fs::create_dir(&folder)?;
    let mut stage =
        Stage::start(Setting { maker: run.maker.clone(), scene: *scene, workload: workload(run, scene), folder })?;
    // Until all nodes are known to the master; a write before that has fewer copies.
    yb_env::sleep(Duration::from_secs(2));
    let began = now();
    stage.start_clients()?;
    play(&mut stage, events, began + scene.calm)?;
    let end = began + scene.calm + run.length + scene.calm;
    while now() < end {
        stage.tend()?;
        yb_env::sleep(Duration::from_millis(20));
    }
    stage.finish()?;
    let history = history(&stage)?;
    let troubles = Troubles::new(std::mem::take(&mut stage.troubles));
    let verdict = check(&history, &troubles, &rules(run, scene));
    Ok(Outcome { verdict, history, troubles, astray: std::mem::take(&mut stage.ended_by_themselves), began })
}

fn workload(run: &Run, scene: &Scene) -> Workload {
    Workload {
        process: 0,
        seed: run.seed,
        master: String::new(),
        keys: scene.keys,
        longest: 1 << 20,
        threads: 2,
        pause_us: 8000,
        // Two seconds for the nodes, as above.
        until_ns: (now() + scene.calm + run.length + scene.calm + Duration::from_secs(3)).0,
        sweep: false,
        shared_memory: run.shared_memory,
        history: PathBuf::new(),
    }
}

/// A call of ours has 2 s and the time of its bytes, one of the peer 5 s; a loaded machine gets two more.
fn rules(run: &Run, scene: &Scene) -> Rules {
    let is_ours = matches!(run.maker, Maker::Ours(_));
    Rules {
        deadline: Duration::from_millis(if is_ours { 4200 } else { 7000 }),
        told: Duration::from_secs(2),
        relearns: is_ours.then_some(Duration::from_secs(10)),
        recovers: Duration::from_secs(4),
        evicts: scene.evicts,
    }
}

/// The events begin and end at their times, counted from `start`.
fn play(stage: &mut Stage, events: &[Event], start: MonotonicTime) -> io::Result<()> {
    let mut begins = events.iter().peekable();
    let mut running: Vec<(&Event, MonotonicTime)> = Vec::new();
    while begins.peek().is_some() || !running.is_empty() {
        while let Some(event) = begins.next_if(|event| start + event.at <= now()) {
            running.push((event, now()));
            stage.begin(event)?;
        }
        let (over, still): (Vec<_>, Vec<_>) = running.iter().partition(|(event, since)| *since + event.lasts <= now());
        running = still;
        for (event, since) in over {
            stage.end(event, since)?;
        }
        stage.tend()?;
        yb_env::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn history(stage: &Stage) -> io::Result<Vec<Operation>> {
    let mut history = Vec::new();
    for (client, path) in stage.histories()? {
        let text = std::fs::read_to_string(&path)?;
        history.extend(parse(client, &text).map_err(|line| io::Error::other(format!("{}: {line}", path.display())))?);
    }
    history.sort_by_key(|call| call.started);
    Ok(history)
}
