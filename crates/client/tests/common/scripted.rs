//! A master that does what a test tells it: places objects by turns, forgets, dawdles, falls silent.

#![allow(dead_code, reason = "each test file uses its part")]

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use yb_pack::Form;
use yb_rpc::{DeferredReply, Listener, ListenerTag, Outcome, Reply, Request, Server, ServerSettings, Service};
use yb_types::{
    BufferDescriptor, ClientStatus, ErrorCode, MemoryDescriptor, ReplicaDescriptor, ReplicaId, ReplicaKind,
    ReplicaStatus, ReplicateConfig, Segment,
};
use yb_wire::messages::{GetReplicaListResponse, GetStorageConfigResponse, PingResponse};
use yb_wire::{Call, Limits, Rpc, WireProfile, WireTable, WireVersion, call};

/// What the master knows and how it behaves.
#[derive(Default)]
pub struct Script {
    /// Store version it tells; empty for the right one.
    pub version: String,
    /// Lease of each lookup in milliseconds, the last one for ever.
    pub leases_ms: Vec<u64>,
    /// Keys that another writer holds, and how often a put of them is still turned away.
    pub busy: HashMap<Vec<u8>, usize>,
    /// Replicas of every object; 0 counts as 1.
    pub replicas: usize,
    /// Pings that are answered NEED_REMOUNT.
    pub forget: usize,
    /// Requests of this kind get no answer.
    pub silent: Option<Rpc>,
    /// Answer to PutEnd.
    pub put_end: Option<ErrorCode>,
    /// Checksum that every lookup tells.
    pub checksum: Option<u64>,
    /// Ids of replicas count from here.
    pub first_id: u64,
    /// After the next lookup the first of these keys has what the second one has.
    pub then_gives: Option<(&'static str, &'static str)>,
    /// Configurations of every reservation, in order.
    pub configs: Vec<ReplicateConfig>,
    /// Segments by turns.
    pub segments: Vec<Segment>,
    /// Every request.
    pub log: Vec<Rpc>,
    objects: HashMap<Vec<u8>, (Vec<ReplicaDescriptor>, bool)>,
    used: HashMap<u64, u64>,
    next: u64,
    open: Vec<DeferredReply>,
}

impl Script {
    /// How often a request came.
    pub fn count(&self, rpc: Rpc) -> usize {
        self.log.iter().filter(|logged| **logged == rpc).count()
    }

    /// Whether anything is left of a key.
    pub fn knows(&self, key: &str) -> bool {
        self.objects.contains_key(key.as_bytes())
    }

    /// Adds a segment whose owner is not there.
    pub fn add_dead_segment(&mut self, endpoint: &str) {
        let (name, te_endpoint) = (endpoint.to_owned(), endpoint.to_owned());
        self.segments.push(Segment { name, te_endpoint, base: 1 << 40, size: 1 << 30, ..Segment::default() });
    }

    /// Adds an object that was written before.
    pub fn add_object(&mut self, key: &str, size: u64) {
        self.place(key.as_bytes(), size).unwrap();
        self.publish(key.as_bytes()).unwrap();
    }

    fn place(&mut self, key: &[u8], size: u64) -> Result<Vec<ReplicaDescriptor>, ErrorCode> {
        match self.busy.get_mut(key) {
            Some(0) | None => {}
            Some(left) => {
                *left -= 1;
                return Err(ErrorCode::REPLICA_IS_NOT_READY);
            }
        }
        if let Some((_, complete)) = self.objects.get(key) {
            let code = if *complete { ErrorCode::OBJECT_ALREADY_EXISTS } else { ErrorCode::REPLICA_IS_NOT_READY };
            return Err(code);
        }
        let mut replicas = Vec::new();
        for _ in 0..self.replicas.max(1) {
            let turn = self.next as usize % self.segments.len().max(1);
            self.next += 1;
            let Some(segment) = self.segments.get(turn) else { return Err(ErrorCode::NO_AVAILABLE_HANDLE) };
            let used = self.used.entry(segment.base).or_default();
            if *used + size > segment.size {
                return Err(ErrorCode::NO_AVAILABLE_HANDLE);
            }
            let buffer = BufferDescriptor {
                size,
                buffer_address: segment.base + *used,
                protocol: "tcp".into(),
                transport_endpoint: segment.te_endpoint.clone(),
                locality: None,
            };
            *used += size;
            let kind = ReplicaKind::Memory(MemoryDescriptor { buffer });
            replicas.push(ReplicaDescriptor {
                id: ReplicaId(self.first_id + self.next),
                kind,
                status: ReplicaStatus::PROCESSING,
            });
        }
        self.objects.insert(key.to_vec(), (replicas.clone(), false));
        Ok(replicas)
    }

    fn publish(&mut self, key: &[u8]) -> Result<(), ErrorCode> {
        if let Some(code) = self.put_end {
            return Err(code);
        }
        let (replicas, complete) = self.objects.get_mut(key).ok_or(ErrorCode::OBJECT_NOT_FOUND)?;
        replicas.iter_mut().for_each(|replica| replica.status = ReplicaStatus::COMPLETE);
        *complete = true;
        Ok(())
    }

    fn revoke(&mut self, key: &[u8]) -> Result<(), ErrorCode> {
        self.objects.remove(key).map(|_| ()).ok_or(ErrorCode::OBJECT_NOT_FOUND)
    }

    fn find(&mut self, key: &[u8]) -> Result<GetReplicaListResponse, ErrorCode> {
        let lease_ttl_ms = match self.leases_ms.as_slice() {
            [] => 10_000,
            [last] => *last,
            [_, ..] => self.leases_ms.remove(0),
        };
        let found = self.objects.get(key).cloned();
        if let Some((key, of)) = self.then_gives.take() {
            let given = self.objects.get(of.as_bytes()).cloned().unwrap();
            self.objects.insert(key.into(), given);
        }
        match found {
            Some((replicas, true)) => {
                let object_checksum = self.checksum;
                Ok(GetReplicaListResponse { replicas, lease_ttl_ms, object_checksum, ..Default::default() })
            }
            Some(_) => Err(ErrorCode::REPLICA_IS_NOT_READY),
            None => Err(ErrorCode::OBJECT_NOT_FOUND),
        }
    }
}

/// A running scripted master.
pub struct ScriptedMaster {
    pub address: String,
    script: Arc<Mutex<Script>>,
    _server: Server,
}

impl ScriptedMaster {
    pub fn start(script: Script) -> Self {
        let script = Arc::new(Mutex::new(script));
        let service = Arc::new(Scripted(Arc::clone(&script)));
        let listeners = [Listener::tcp(([127, 0, 0, 1], 0).into(), ListenerTag(0))];
        let server = Server::start(ServerSettings::default(), &listeners, service).unwrap();
        let address = server.listeners()[0].tcp().unwrap().to_string();
        ScriptedMaster { address, script, _server: server }
    }

    /// Looks at or changes the script.
    pub fn script<T>(&self, change: impl FnOnce(&mut Script) -> T) -> T {
        change(&mut self.script.lock())
    }
}

struct Scripted(Arc<Mutex<Script>>);

fn answer<C: Call>(mut reply: Reply<'_>, value: &C::Reply<'_>) -> Outcome {
    let signature = WireTable::of(WireVersion::V0_3_13).signature(C::RPC).unwrap();
    yb_pack::encode(value, &signature.reply, Form::Bare, reply.body()).unwrap();
    reply.done()
}

fn args<'a, C: Call>(body: &'a [u8]) -> C::Args<'a> {
    WireProfile::main().decode_args::<C>(body, Limits::default()).unwrap()
}

impl Service for Scripted {
    type Worker = ();

    fn worker(&self, _index: usize) {}

    fn call(&self, (): &mut (), request: Request<'_>, reply: Reply<'_>) -> Outcome {
        let profile = WireProfile::main();
        let Some(rpc) = profile.lookup(yb_wire::Service::Master, request.function) else {
            return reply.unknown_function();
        };
        let (mut script, body) = (self.0.lock(), request.body);
        script.log.push(rpc);
        if script.silent == Some(rpc) {
            let (token, outcome) = reply.defer();
            script.open.push(token);
            return outcome;
        }
        match rpc {
            Rpc::ServiceReady => {
                let version = if script.version.is_empty() { "2.0.0" } else { &script.version };
                answer::<call::ServiceReady>(reply, &Ok(version))
            }
            Rpc::GetStorageConfig => answer::<call::GetStorageConfig>(reply, &Ok(GetStorageConfigResponse::default())),
            Rpc::MountSegment => {
                let mounted = args::<call::MountSegment>(body).segment;
                script.segments.push(mounted);
                answer::<call::MountSegment>(reply, &Ok(()))
            }
            Rpc::ReMountSegment => answer::<call::ReMountSegment>(reply, &Ok(())),
            Rpc::UnmountSegment => {
                let gone = args::<call::UnmountSegment>(body).segment_id;
                script.segments.retain(|segment| segment.id != gone);
                answer::<call::UnmountSegment>(reply, &Ok(()))
            }
            Rpc::Ping => {
                let client_status = match script.forget.checked_sub(1) {
                    Some(left) => {
                        script.forget = left;
                        ClientStatus::NEED_REMOUNT
                    }
                    None => ClientStatus::OK,
                };
                answer::<call::Ping>(reply, &Ok(PingResponse { view_version_id: 0, client_status }))
            }
            Rpc::FetchTasks => answer::<call::FetchTasks>(reply, &Ok(Vec::new())),
            Rpc::PutStart => {
                let args = args::<call::PutStart>(body);
                script.configs.push(args.config.clone());
                answer::<call::PutStart>(reply, &script.place(args.key, args.slice_length))
            }
            Rpc::BatchPutStart => {
                let args = args::<call::BatchPutStart>(body);
                script.configs.push(args.config.clone());
                let wanted = args.keys.iter().zip(args.slice_lengths.iter());
                let placed = wanted.map(|(key, size)| script.place(key, size)).collect();
                answer::<call::BatchPutStart>(reply, &placed)
            }
            Rpc::UpsertStart => {
                let args = args::<call::UpsertStart>(body);
                script.configs.push(args.config.clone());
                answer::<call::UpsertStart>(reply, &script.place(args.key, args.slice_length))
            }
            Rpc::UpsertEnd => {
                let done = script.publish(args::<call::UpsertEnd>(body).object_meta.key);
                answer::<call::UpsertEnd>(reply, &done)
            }
            Rpc::PutEnd => {
                let done = script.publish(args::<call::PutEnd>(body).object_meta.key);
                answer::<call::PutEnd>(reply, &done)
            }
            Rpc::BatchPutEnd => {
                let metas = args::<call::BatchPutEnd>(body).object_metas;
                let done = metas.iter().map(|meta| script.publish(meta.key)).collect();
                answer::<call::BatchPutEnd>(reply, &done)
            }
            Rpc::PutRevoke => {
                let done = script.revoke(args::<call::PutRevoke>(body).key);
                answer::<call::PutRevoke>(reply, &done)
            }
            Rpc::BatchPutRevoke => {
                let keys = args::<call::BatchPutRevoke>(body).keys;
                let done = keys.iter().map(|key| script.revoke(key)).collect();
                answer::<call::BatchPutRevoke>(reply, &done)
            }
            Rpc::GetReplicaList => {
                let found = script.find(args::<call::GetReplicaList>(body).key);
                answer::<call::GetReplicaList>(reply, &found)
            }
            Rpc::BatchGetReplicaList => {
                let keys = args::<call::BatchGetReplicaList>(body).keys;
                let found = keys.iter().map(|key| script.find(key)).collect();
                answer::<call::BatchGetReplicaList>(reply, &found)
            }
            Rpc::ExistKey => {
                let key = args::<call::ExistKey>(body).key.to_vec();
                let there = script.objects.get(&key).is_some_and(|(_, complete)| *complete);
                answer::<call::ExistKey>(reply, &Ok(there))
            }
            _ => reply.unknown_function(),
        }
    }
}
