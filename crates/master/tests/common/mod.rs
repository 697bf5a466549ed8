//! A master in this process and typed calls to it.
#![allow(clippy::unwrap_used, dead_code, reason = "helpers of tests, not every file uses all")]

use std::time::Duration;

use yb_env::Rng;
use yb_master::{Master, MasterConfig};
use yb_pack::{Form, Limits};
use yb_rpc::{ClientPool, ClientSettings, RpcError};
use yb_types::{ClientId, ReplicaDescriptor, ReplicateConfig, Segment, SegmentId, WireVersion};
use yb_wire::messages::*;
use yb_wire::{Call, WireTable, call};

pub const TENANT: &[u8] = b"default";

/// A client of one generation.
pub struct Caller {
    pub pool: ClientPool,
    pub table: &'static WireTable,
    pub id: ClientId,
}

impl Caller {
    pub fn new(address: std::net::SocketAddr, version: WireVersion) -> Caller {
        let id = ClientId(Rng::from_entropy().uuid());
        let pool = ClientPool::new(address.into(), ClientSettings::default());
        Caller { pool, table: WireTable::of(version), id }
    }

    /// Sends a body and decodes the answer with `then`.
    pub fn try_call<C: Call, R>(
        &self,
        args: &C::Args<'_>,
        then: impl FnOnce(C::Reply<'_>) -> R,
    ) -> Result<R, RpcError> {
        let signature = self.table.signature(C::RPC).unwrap();
        let mut body = Vec::new();
        yb_pack::encode(args, &signature.args, Form::Literal, &mut body).unwrap();
        let deadline = self.pool.deadline_in(Duration::from_secs(30));
        let reply = self.pool.call(signature.function_id, &body, deadline)?;
        let decoded = yb_wire::decode_reply::<C>(self.table, &reply, Limits::default()).unwrap();
        Ok(then(decoded))
    }

    pub fn call<C: Call, R>(&self, args: &C::Args<'_>, then: impl FnOnce(C::Reply<'_>) -> R) -> R {
        self.try_call::<C, R>(args, then).unwrap()
    }

    /// Sends a request over a connection that comes from that address of this host, and waits for the answer.
    pub fn call_from<C: Call>(&self, own: std::net::Ipv4Addr, master: std::net::SocketAddr, args: &C::Args<'_>) {
        use std::io::{Read, Write};
        let signature = self.table.signature(C::RPC).unwrap();
        let mut body = Vec::new();
        yb_pack::encode(args, &signature.args, Form::Literal, &mut body).unwrap();
        let (function_id, body_len) = (signature.function_id, u32::try_from(body.len()).unwrap());
        let header =
            yb_wire::frame::RequestHeader { function_id, body_len, ..yb_wire::frame::RequestHeader::default() };
        let mut socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.bind(&std::net::SocketAddr::from((own, 0)).into()).unwrap();
        socket.connect(&master.into()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        socket.write_all(&[&header.to_bytes()[..], &body].concat()).unwrap();
        let mut answer = [0; yb_wire::frame::RESPONSE_HEADER_LEN];
        socket.read_exact(&mut answer).unwrap();
        assert_eq!(answer[3], 0, "the call was refused: {answer:?}");
    }

    pub fn ping(&self) -> ErrorOr<PingResponse> {
        self.call::<call::Ping, _>(&ClientArgs { client_id: self.id }, |reply| reply)
    }

    /// A segment whose data address does not matter.
    pub fn segment(&self, name: &str, size: u64) -> Segment {
        Segment {
            id: SegmentId(Rng::from_entropy().uuid()),
            name: name.to_owned(),
            base: 0x1_0000_0000,
            size,
            te_endpoint: name.to_owned(),
            protocol: "tcp".to_owned(),
            ..Segment::default()
        }
    }

    pub fn mount(&self, segment: &Segment) -> Result<ErrorOr<()>, RpcError> {
        let args = MountSegmentArgs { segment: segment.clone(), client_id: self.id };
        self.try_call::<call::MountSegment, _>(&args, |reply| reply)
    }

    /// Mounts a segment with a name of its own.
    pub fn give_memory(&self, size: u64) -> Segment {
        let segment = self.segment(&format!("node-{}", self.id), size);
        self.mount(&segment).unwrap().unwrap();
        segment
    }

    pub fn put_start(&self, key: &[u8], size: u64) -> ErrorOr<Vec<ReplicaDescriptor>> {
        let args = PutStartArgs {
            client_id: self.id,
            key,
            slice_length: size,
            config: ReplicateConfig::default(),
            tenant_id: TENANT,
        };
        self.call::<call::PutStart, _>(&args, |reply| reply)
    }

    pub fn put_end(&self, key: &[u8]) -> ErrorOr<()> {
        let args = PutEndArgs {
            client_id: self.id,
            object_meta: ObjectMetaRef { key, object_checksum: None },
            replica_type: yb_types::ReplicaType::ALL,
            tenant_id: TENANT,
        };
        self.call::<call::PutEnd, _>(&args, |reply| reply)
    }

    pub fn put(&self, key: &[u8], size: u64) -> ErrorOr<Vec<ReplicaDescriptor>> {
        let replicas = self.put_start(key, size)?;
        self.put_end(key)?;
        Ok(replicas)
    }

    pub fn get(&self, key: &[u8]) -> ErrorOr<GetReplicaListResponse> {
        self.call::<call::GetReplicaList, _>(&KeyArgs { key, tenant_id: TENANT }, |reply| reply)
    }

    pub fn exists(&self, key: &[u8]) -> bool {
        self.call::<call::ExistKey, _>(&KeyArgs { key, tenant_id: TENANT }, |reply| reply).unwrap()
    }

    pub fn remove(&self, key: &[u8], force: bool) -> ErrorOr<()> {
        self.call::<call::Remove, _>(&RemoveArgs { key, force, tenant_id: TENANT }, |reply| reply)
    }
}

/// A master with its clients.
pub struct Rig {
    pub master: Master,
}

impl Rig {
    pub fn start() -> Rig {
        Rig::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut MasterConfig)) -> Rig {
        let mut config = MasterConfig::embedded();
        // Callers do not ping, and after half of this time nothing more is placed with them.
        config.catalog.client_ttl = Duration::from_secs(600);
        change(&mut config);
        Rig { master: Master::start(config).unwrap() }
    }

    pub fn caller(&self) -> Caller {
        Caller::new(self.master.rpc_address(), WireVersion::V0_3_14)
    }

    /// The text of an admin page.
    pub fn page(&self, path: &str) -> String {
        use std::io::{Read, Write};
        let mut socket = std::net::TcpStream::connect(self.master.admin_address().unwrap()).unwrap();
        write!(socket, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// The value of a metric without labels, or with exactly this label text.
    pub fn metric(&self, name: &str) -> u64 {
        let page = self.page("/metrics");
        let line = page.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
        line.unwrap_or_else(|| panic!("{name} is missing")).rsplit(' ').next().unwrap().parse().unwrap()
    }
}

/// Asks until the answer is yes; fails after some seconds.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let clock = yb_env::Clock::real();
    let start = clock.now();
    while !is_so() {
        assert!(clock.now().since(start) < Duration::from_secs(30), "never: {what}");
        yb_env::sleep(Duration::from_millis(5));
    }
}

/// A number that an environment variable says, or the usual one.
pub fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Counts panics of all threads from now on, which are printed as ever.
pub fn count_panics() -> std::sync::Arc<std::sync::atomic::AtomicU64> {
    let panics = std::sync::Arc::<std::sync::atomic::AtomicU64>::default();
    let counted = std::sync::Arc::clone(&panics);
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        before(info);
    }));
    panics
}

/// Memory of this process.
pub fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
}
