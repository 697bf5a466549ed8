//! The devices of this host that the engine uses, in an order that every host agrees on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::RwLock;
use yb_topology::{Choice, Matrix, Topology};
use yb_verbs::{
    CompletionQueue, Context, DeviceLimits, PairSizes, Path, Patience, PortState, ProtectionDomain, QueuePair, Verbs,
};

use super::gid::{GidChoice, candidates, gid_text};
use super::settings::RdmaSettings;

/// How many entries of the table of GIDs are tried on a device.
const GID_TRIES: usize = 3;
/// Outstanding reads on a queue pair, as the peer has it.
const READS: u32 = 16;
/// Entries of the completion queue that stay free for the last words of queue pairs.
const CQ_RESERVE: u32 = 64;

/// An open device.
#[derive(Debug)]
pub(crate) struct OpenNic {
    pub(crate) domain: Arc<ProtectionDomain>,
    pub(crate) queue: Arc<CompletionQueue>,
    pub(crate) limits: DeviceLimits,
    pub(crate) sizes: PairSizes,
    pub(crate) gid: RwLock<GidChoice>,
    pub(crate) port: RwLock<PortState>,
    active: AtomicBool,
}

impl OpenNic {
    fn open(verbs: &Verbs, name: &str, settings: &RdmaSettings) -> Result<Self, String> {
        let text = |error: yb_verbs::VerbsError| error.to_string();
        let context = verbs.open(name).map_err(text)?;
        let limits = context.limits().map_err(text)?;
        let port = context.port(settings.port).map_err(text)?;
        if !port.active {
            return Err(format!("{name}: port {} is not active (state {})", settings.port, port.state));
        }
        let domain = ProtectionDomain::new(&context).map_err(text)?;
        let queue = CompletionQueue::new(&context, settings.max_cqe.min(limits.max_cqe.max(1))).map_err(text)?;
        let sizes = PairSizes {
            send: settings.max_wr.min(limits.max_qp_wr).min(queue.entries() / 2).max(2),
            receive: 1,
            pieces: 1,
            inline: settings.max_inline,
        };
        let (gid, sizes) = choose_gid(&context, &domain, &queue, sizes, settings, &port)?;
        let (gid, port) = (RwLock::new(gid), RwLock::new(port));
        Ok(OpenNic { domain, queue, limits, sizes, gid, port, active: AtomicBool::new(true) })
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        self.domain.context()
    }

    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::SeqCst)
    }

    /// Gives what it was before.
    pub(crate) fn set_active(&self, active: bool) -> bool {
        self.active.swap(active, Ordering::SeqCst)
    }

    /// Work requests that may be outstanding on the device: each may end in a completion.
    pub(crate) fn budget(&self) -> usize {
        self.queue.entries().saturating_sub(CQ_RESERVE).max(1) as usize
    }

    /// A new queue pair, ready to be connected.
    pub(crate) fn pair(&self, settings: &RdmaSettings) -> Result<QueuePair, String> {
        let pair = QueuePair::new(&self.domain, &self.queue, self.sizes).map_err(|error| error.to_string())?;
        pair.initialise(settings.port, settings.pkey_index).map_err(|error| error.to_string())?;
        Ok(pair)
    }

    /// The way to a peer's queue pair.
    pub(crate) fn path(&self, settings: &RdmaSettings, peer_gid: [u8; 16], peer_lid: u16, peer_qp: u32) -> Path {
        Path {
            port: settings.port,
            gid_index: self.gid.read().entry.index,
            peer_gid,
            peer_lid,
            peer_qp,
            mtu: self.port.read().mtu.min(settings.mtu),
            traffic_class: settings.traffic_class,
            service_level: settings.service_level,
            reads: READS.min(self.limits.max_rd_atom).max(1) as u8,
        }
    }

    /// Connects a pair that was made by [`OpenNic::pair`].
    pub(crate) fn connect(&self, pair: &QueuePair, path: &Path, settings: &RdmaSettings) -> Result<(), String> {
        let reads = READS.min(self.limits.max_init_rd_atom).max(1) as u8;
        let patience = Patience { timeout: settings.ack_timeout, retries: settings.ack_retries };
        pair.ready_to_receive(path).map_err(|error| error.to_string())?;
        pair.ready_to_send(patience, reads).map_err(|error| error.to_string())
    }

    /// Reads port and table of GIDs again, and says whether peers must be told another address.
    pub(crate) fn reread(&self, settings: &RdmaSettings) -> Result<bool, String> {
        let context = self.context();
        let port = context.port(settings.port).map_err(|error| error.to_string())?;
        *self.port.write() = port;
        if !port.active {
            return Err(format!("port {} is not active (state {})", settings.port, port.state));
        }
        let table = context.gids(settings.port).map_err(|error| error.to_string())?;
        let mut gid = self.gid.write();
        // The address in use is kept as long as it is there, whatever better ones come.
        if table.contains(&gid.entry) {
            return Ok(false);
        }
        let best = candidates(&table, settings.gid_index).into_iter().next();
        let best = best.ok_or_else(|| "no GID is left".to_owned())?;
        tracing::info!(device = context.name(), reason = best.reason, "RDMA address changed");
        *gid = best;
        Ok(true)
    }
}

/// The first entry of the table with which a queue pair of the device can be connected to itself, and what sizes the
/// device gave.
fn choose_gid(
    context: &Arc<Context>,
    domain: &Arc<ProtectionDomain>,
    queue: &Arc<CompletionQueue>,
    sizes: PairSizes,
    settings: &RdmaSettings,
    port: &PortState,
) -> Result<(GidChoice, PairSizes), String> {
    let table = context.gids(settings.port).map_err(|error| error.to_string())?;
    let choices = candidates(&table, settings.gid_index);
    let mut last = match settings.gid_index {
        Some(index) => format!("{}: GID {index} is empty", context.name()),
        None => format!("{}: the table of GIDs is empty", context.name()),
    };
    for choice in choices.into_iter().take(GID_TRIES) {
        let attempt = || {
            let pair = QueuePair::new(domain, queue, sizes)?;
            pair.initialise(settings.port, settings.pkey_index)?;
            pair.ready_to_receive(&Path {
                port: settings.port,
                gid_index: choice.entry.index,
                peer_gid: choice.entry.gid,
                peer_lid: port.lid,
                peer_qp: pair.number(),
                mtu: port.mtu.min(settings.mtu),
                traffic_class: settings.traffic_class,
                service_level: settings.service_level,
                reads: 1,
            })?;
            Ok::<PairSizes, yb_verbs::VerbsError>(pair.sizes())
        };
        match attempt() {
            Ok(sizes) => {
                tracing::info!(device = context.name(), reason = choice.reason, "RDMA address chosen");
                return Ok((choice, sizes));
            }
            Err(error) => {
                tracing::warn!(device = context.name(), reason = choice.reason, %error, "RDMA address does not work");
                last = format!("{error} ({})", choice.reason);
            }
        }
    }
    Err(last)
}

/// A device by its place in the engine's list. The place of one that does not work stays taken, because keys of memory
/// are counted by it.
#[derive(Debug)]
pub(crate) struct Nic {
    pub(crate) name: String,
    pub(crate) open: Result<OpenNic, String>,
}

impl Nic {
    /// The device, if it can carry data now.
    pub(crate) fn active(&self) -> Option<&OpenNic> {
        self.open.as_ref().ok().filter(|nic| nic.is_active())
    }
}

/// The devices of an engine, and which of them serve which memory first.
#[derive(Debug)]
pub(crate) struct Nics {
    pub(crate) list: Vec<Nic>,
    pub(crate) matrix: Matrix,
}

impl Nics {
    /// Opens every device that the settings allow.
    ///
    /// # Errors
    /// One sentence, when none works.
    pub(crate) fn open(settings: &RdmaSettings) -> Result<Self, String> {
        let verbs = Verbs::load().map_err(|error| error.to_string())?;
        let found = verbs.devices().map_err(|error| format!("listing RDMA devices: {error}"))?;
        if found.is_empty() {
            return Err("this host has no RDMA device".to_owned());
        }
        let choice = Choice { custom: settings.matrix.clone(), filters: settings.devices.clone() };
        let missing: Vec<&String> = settings.devices.iter().filter(|name| !found.contains(name)).collect();
        if !missing.is_empty() {
            return Err(format!("no RDMA device is called {}; there are: {}", list(&missing), list(&found)));
        }
        let (matrix, _) = choice.matrix(&Topology::discover()).map_err(|error| error.to_string())?;
        let named = choice.custom.is_some().then(|| matrix.nics());
        let allowed =
            |name: &&String| choice.allows(name) && named.as_ref().is_none_or(|named| named.contains(&name.as_str()));
        let list: Vec<Nic> = found
            .iter()
            .filter(allowed)
            .map(|name| Nic { name: name.clone(), open: OpenNic::open(&verbs, name, settings) })
            .collect();
        for nic in &list {
            if let Err(reason) = &nic.open {
                tracing::warn!(device = nic.name, reason, "an RDMA device is not used");
            }
        }
        if list.iter().all(|nic| nic.open.is_err()) {
            let reasons: Vec<&str> =
                list.iter().filter_map(|nic| nic.open.as_ref().err().map(String::as_str)).collect();
            return Err(format!("no RDMA device works: {}", reasons.join("; ")));
        }
        Ok(Nics { list, matrix })
    }

    pub(crate) fn get(&self, index: usize) -> Option<&OpenNic> {
        self.list.get(index).and_then(|nic| nic.open.as_ref().ok())
    }

    pub(crate) fn active(&self, index: usize) -> Option<&OpenNic> {
        self.list.get(index).and_then(Nic::active)
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<(usize, &OpenNic)> {
        let index = self.list.iter().position(|nic| nic.name == name)?;
        Some((index, self.active(index)?))
    }

    /// The matrix without devices that cannot carry data now.
    pub(crate) fn live_matrix(&self) -> Matrix {
        let mut matrix = self.matrix.clone();
        matrix.retain(|name| self.by_name(name).is_some());
        matrix
    }
}

fn list<T: AsRef<str>>(names: &[T]) -> String {
    names.iter().map(AsRef::as_ref).collect::<Vec<_>>().join(", ")
}

/// What is known of a device, for `yuebing doctor` and logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicReport {
    /// Name.
    pub name: String,
    /// GID in use, its place, and why it was chosen; the reason why the device is not used otherwise.
    pub gid: Result<NicGid, String>,
    /// Speed in Gb/s; 0 when it is not known.
    pub gbps: u32,
    /// Largest packet in bytes.
    pub mtu: u32,
}

/// The address of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NicGid {
    /// Its place in the table.
    pub index: u8,
    /// 16 hex bytes joined by colons.
    pub text: String,
    /// Why this one.
    pub reason: String,
}

impl Nic {
    pub(crate) fn report(&self) -> NicReport {
        let unused = |reason: &str| NicReport { name: self.name.clone(), gid: Err(reason.to_owned()), gbps: 0, mtu: 0 };
        match &self.open {
            Err(reason) => unused(reason),
            Ok(nic) if !nic.is_active() => unused("its port is down"),
            Ok(nic) => {
                let (gid, port) = (nic.gid.read(), nic.port.read());
                let text = gid_text(&gid.entry.gid);
                let gid = NicGid { index: gid.entry.index, text, reason: gid.reason.clone() };
                NicReport { name: self.name.clone(), gid: Ok(gid), gbps: port.gbps(), mtu: port.mtu }
            }
        }
    }
}

/// Opens every device that the settings allow, looks at it and closes it: what an engine would use.
///
/// # Errors
/// One sentence, when RDMA cannot be used here.
pub fn survey(settings: &RdmaSettings) -> Result<Vec<NicReport>, String> {
    Nics::open(settings).map(|nics| nics.list.iter().map(Nic::report).collect())
}
