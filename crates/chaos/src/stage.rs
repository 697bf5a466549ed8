//! The processes of a run, and what is done to them.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;
use yb_history::{Harm, Party, Trouble};
use yb_types::MonotonicTime;

use crate::maker::{Maker, MasterPlace, NodePlace};
use crate::plan::{Deed, Event};
use crate::process::{PATIENCE, Process, free_port, now, wait_until};
use crate::relay::{Relay, Weather};
use crate::run::Scene;
use crate::workload::Workload;

/// What a stage is set up with.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub maker: Maker,
    pub scene: Scene,
    pub workload: Workload,
    /// For logs, histories and segment files.
    pub folder: PathBuf,
}

/// What a party is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    /// It suffers since then, and stays so until it is told.
    Suffering(Harm, MonotonicTime),
    /// Its place is being taken, it suffered since then.
    Rising(MonotonicTime),
    /// It has done its work.
    Finished,
}

/// The place of a party.
struct Seat {
    party: Party,
    process: Process,
    state: State,
    /// Processes that sat here before.
    lives: u64,
}

/// Master, nodes, clients and the wires between them.
pub(crate) struct Stage {
    setting: Setting,
    master_place: MasterPlace,
    node_places: Vec<NodePlace>,
    seats: Vec<Seat>,
    master_relay: Relay,
    node_relays: Vec<Relay>,
    /// What was suffered, as far as it is over.
    pub troubles: Vec<Trouble>,
    /// Processes that ended though nobody ended them.
    pub ended_by_themselves: Vec<String>,
}

fn loopback(last: u8, port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), port))
}

fn listens(address: SocketAddr) -> bool {
    TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok()
}

impl Stage {
    /// Starts master and nodes, and waits until they answer.
    pub fn start(setting: Setting) -> io::Result<Stage> {
        let master_place = MasterPlace { rpc: free_port()?, admin: free_port()? };
        let master_relay = Relay::start(loopback(1, 0), loopback(1, master_place.rpc))?;
        let master = start_master(&setting, master_place)?;
        wait_until("the master listens", || listens(loopback(1, master_place.rpc)))?;
        let mut stage = Stage {
            master_place,
            node_places: Vec::new(),
            seats: vec![Seat { party: Party::Master, process: master, state: State::Running, lives: 0 }],
            master_relay,
            node_relays: Vec::new(),
            troubles: Vec::new(),
            ended_by_themselves: Vec::new(),
            setting,
        };
        for node in 0..stage.setting.scene.cast.nodes {
            let place = stage.node_place(node)?;
            stage.node_places.push(place);
            let process = stage.start_node(node)?;
            stage.seats.push(Seat { party: Party::Node(node), process, state: State::Running, lives: 0 });
            wait_until("a node listens", || listens(stage.node_address(node)))?;
        }
        Ok(stage)
    }

    /// Starts the clients.
    pub fn start_clients(&mut self) -> io::Result<()> {
        for client in 0..self.setting.scene.cast.clients {
            let process = self.start_client(client, 0)?;
            self.seats.push(Seat { party: Party::Client(client), process, state: State::Running, lives: 0 });
        }
        Ok(())
    }

    /// The first thing of an event.
    pub fn begin(&mut self, event: &Event) -> io::Result<()> {
        let from = now();
        if let Deed::Weather(weather) = event.deed {
            self.set_weather(event.party, weather);
            return Ok(());
        }
        let Some(seat) = self.seats.iter_mut().find(|seat| seat.party == event.party) else { return Ok(()) };
        if seat.state != State::Running || !seat.process.is_running() {
            return Ok(());
        }
        match event.deed {
            Deed::Kill => seat.process.kill(),
            Deed::Term => seat.process.signal(Signal::TERM)?,
            Deed::Stop | Deed::Weather(_) => seat.process.signal(Signal::STOP)?,
        }
        seat.state = State::Suffering(event.deed.harm(), from);
        Ok(())
    }

    /// The last thing of an event that began at a time.
    pub fn end(&mut self, event: &Event, from: MonotonicTime) -> io::Result<()> {
        if let Deed::Weather(_) = event.deed {
            self.set_weather(event.party, Weather::Fair);
            self.over(event.party, Harm::Wire, from);
            return Ok(());
        }
        let Some(index) = self.seats.iter().position(|seat| seat.party == event.party) else { return Ok(()) };
        match self.seats[index].state {
            State::Suffering(Harm::Death, since) => {
                // One that was asked to leave had its time.
                self.seats[index].process.kill();
                self.raise(index, since)
            }
            State::Suffering(harm, since) => {
                self.seats[index].process.signal(Signal::CONT)?;
                self.seats[index].state = State::Running;
                self.over(event.party, harm, since);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Looks after those who are coming up, and finds those who ended by themselves.
    pub fn tend(&mut self) -> io::Result<()> {
        for index in 0..self.seats.len() {
            let party = self.seats[index].party;
            let runs = self.seats[index].process.is_running();
            let state = self.seats[index].state;
            match state {
                // One that could not start (a port of its predecessor is in use still) is started again.
                State::Rising(since) if !runs => self.raise(index, since)?,
                State::Rising(since) if self.is_up(party) => {
                    self.seats[index].state = State::Running;
                    self.over(party, Harm::Death, since);
                }
                State::Running if !runs && self.has_finished(index) => self.seats[index].state = State::Finished,
                // It listened already, as one that takes memory over does, and found no master then.
                State::Running if !runs && self.lacks_master(party) => self.raise(index, now())?,
                State::Running if !runs => {
                    self.ended_by_themselves.push(format!("{party:?}"));
                    self.raise(index, now())?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Waits until all clients have finished, and reads all keys by one more.
    pub fn finish(&mut self) -> io::Result<()> {
        let is_client = |seat: &&mut Seat| matches!(seat.party, Party::Client(_));
        for seat in self.seats.iter_mut().filter(is_client) {
            if seat.process.ends_within(PATIENCE).is_none() {
                self.ended_by_themselves.push(format!("{:?} did not end", seat.party));
                seat.process.kill();
            }
        }
        self.setting.workload.sweep = true;
        self.setting.workload.threads = 1;
        let last = self.setting.scene.cast.clients;
        if self.start_client(last, 0)?.ends_within(PATIENCE).is_none() {
            self.ended_by_themselves.push("the last reader did not end".to_owned());
        }
        Ok(())
    }

    /// Where histories are, with the number of the client of each.
    pub fn histories(&self) -> io::Result<Vec<(u32, PathBuf)>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&self.setting.folder)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let client = name.strip_prefix("history-").and_then(|rest| rest.split('-').next()?.parse().ok());
            found.extend(client.map(|client| (client, path)));
        }
        found.sort();
        Ok(found)
    }

    fn has_finished(&mut self, index: usize) -> bool {
        let is_client = matches!(self.seats[index].party, Party::Client(_));
        let ended = self.seats[index].process.ends_within(Duration::ZERO);
        is_client && now().0 > self.setting.workload.until_ns && ended.is_some_and(|status| status.success())
    }

    fn over(&mut self, party: Party, harm: Harm, from: MonotonicTime) {
        self.troubles.push(Trouble { party, harm, from, until: now() });
    }

    fn raise(&mut self, index: usize, since: MonotonicTime) -> io::Result<()> {
        let (party, lives) = (self.seats[index].party, self.seats[index].lives + 1);
        let process = match party {
            Party::Master => start_master(&self.setting, self.master_place)?,
            Party::Node(node) => self.start_node(node)?,
            Party::Client(client) => self.start_client(client, lives)?,
        };
        self.seats[index] = Seat { party, process, state: State::Rising(since), lives };
        Ok(())
    }

    /// Whether a party is a node, and the master is not well.
    fn lacks_master(&self, party: Party) -> bool {
        let is_well = |seat: &Seat| seat.party == Party::Master && matches!(seat.state, State::Running);
        matches!(party, Party::Node(_)) && !self.seats.iter().any(is_well)
    }

    fn is_up(&self, party: Party) -> bool {
        match party {
            Party::Master => listens(loopback(1, self.master_place.rpc)),
            Party::Node(node) => listens(self.node_address(node)),
            Party::Client(_) => true,
        }
    }

    fn set_weather(&self, party: Party, weather: Weather) {
        match party {
            Party::Master => self.master_relay.set(weather),
            _ => self.node_relays.iter().for_each(|relay| relay.set(weather)),
        }
    }

    /// Every second one reaches the master through the relay.
    fn master_for(&self, number: u32) -> String {
        let direct = loopback(1, self.master_place.rpc);
        if number % 2 == 1 { self.master_relay.address().to_string() } else { direct.to_string() }
    }

    fn is_relayed(&self, node: u32) -> bool {
        self.setting.scene.cast.relayed_node == Some(node)
    }

    /// Of the port for its own host.
    fn node_address(&self, node: u32) -> SocketAddr {
        let last = if self.is_relayed(node) { 2 } else { 1 };
        loopback(last, self.node_places[node as usize].port)
    }

    /// The relayed one listens at another address of this machine than it tells; at the one it tells the relay listens. The last one
    /// has its memory in a file.
    fn node_place(&mut self, node: u32) -> io::Result<NodePlace> {
        let mut own_flags = vec!["--populate=false".to_owned()];
        if self.is_relayed(node) {
            own_flags.extend(["--host=127.0.0.2".to_owned(), "--advertise_host=127.0.0.1".to_owned()]);
            for name in ["handshake_port", "data_port"] {
                let port = free_port()?;
                own_flags.push(format!("--{name}={port}"));
                self.node_relays.push(Relay::start(loopback(1, port), loopback(2, port))?);
            }
        } else {
            own_flags.push("--host=127.0.0.1".to_owned());
        }
        if node > 0 && node + 1 == self.setting.scene.cast.nodes {
            own_flags.push(format!("--segment_file={}", self.setting.folder.join("memory").display()));
        }
        if !self.setting.workload.shared_memory {
            own_flags.push("--shared_memory=false".to_owned());
        }
        Ok(NodePlace { port: free_port()?, master: self.master_for(node), mib: self.setting.scene.mib, own_flags })
    }

    fn start_node(&self, node: u32) -> io::Result<Process> {
        self.setting.maker.node(&self.node_places[node as usize], &self.log(&format!("node-{node}")))
    }

    fn start_client(&self, client: u32, life: u64) -> io::Result<Process> {
        let workload = Workload {
            process: u64::from(client) << 16 | life,
            master: self.master_for(client),
            history: self.setting.folder.join(format!("history-{client}-{life}")),
            ..self.setting.workload.clone()
        };
        self.setting.maker.client(&workload, &self.log(&format!("client-{client}")))
    }

    fn log(&self, name: &str) -> PathBuf {
        self.setting.folder.join(format!("{name}.log"))
    }
}

fn start_master(setting: &Setting, place: MasterPlace) -> io::Result<Process> {
    let flags = [
        format!("--client_ttl={}", setting.scene.cast.ttl.as_secs()),
        format!("--default_kv_lease_ttl={}", setting.scene.lease.as_millis()),
    ];
    let log: &Path = &setting.folder.join("master.log");
    setting.maker.master(place, &flags, log)
}
