//! One master, and how an operation is asked of it.

use std::collections::BTreeMap;
use std::time::Duration;

use yb_pack::{Form as WireForm, Limits, List};
use yb_rpc::{ClientPool, ClientSettings, RpcError};
use yb_types::{ClientId, ErrorCode, Segment, SegmentId, Uuid, WireVersion};
use yb_wire::messages::*;
use yb_wire::{Call, WireTable, call};

use crate::answer::{Answer, Place};
use crate::op::{Form, Key, Op, Shift, Write};

pub const CLIENTS: usize = 4;
/// Segment by number: its owner.
pub const OWNERS: [usize; 4] = [0, 0, 1, 2];
/// Much more than is stored: space of writes that were given up rests for ten minutes.
pub const SEGMENT_BYTES: u64 = 2 << 30;

pub fn client(number: usize) -> ClientId {
    ClientId(Uuid { first: 0xc11e, second: number as u64 + 1 })
}

pub fn segment_name(number: usize) -> String {
    format!("10.0.0.{}:17000", number + 1)
}

pub fn segment(number: usize) -> Segment {
    Segment {
        id: SegmentId(Uuid { first: 0x5e6, second: number as u64 + 1 }),
        name: segment_name(number),
        base: 0x10_0000_0000 * (number as u64 + 1),
        size: SEGMENT_BYTES,
        te_endpoint: segment_name(number),
        protocol: "tcp".to_owned(),
        ..Segment::default()
    }
}

pub struct Side {
    pool: ClientPool,
    table: &'static WireTable,
    tenants: Vec<&'static str>,
    /// Task by number, as this master named it.
    tasks: Vec<Option<Uuid>>,
}

type Bytes = Vec<u8>;

fn bytes(keys: &[Key]) -> Vec<Bytes> {
    keys.iter().map(|key| key.bytes()).collect()
}

fn refs(keys: &[Bytes]) -> Vec<&[u8]> {
    keys.iter().map(Vec::as_slice).collect()
}

impl Side {
    pub fn new(address: std::net::SocketAddr, version: WireVersion, tenants: &[&'static str]) -> Side {
        let settings = ClientSettings { max_connections: 1, ..ClientSettings::default() };
        Side {
            pool: ClientPool::new(address.into(), settings),
            table: WireTable::of(version),
            tenants: tenants.to_vec(),
            tasks: Vec::new(),
        }
    }

    fn call<C: Call>(&self, args: &C::Args<'_>, then: impl FnOnce(C::Reply<'_>) -> Vec<Answer>) -> Vec<Answer> {
        let signature = self.table.signature(C::RPC).unwrap();
        let mut body = Vec::new();
        yb_pack::encode(args, &signature.args, WireForm::Literal, &mut body).unwrap();
        match self.pool.call(signature.function_id, &body, self.pool.deadline_in(Duration::from_secs(20))) {
            Ok(reply) => then(yb_wire::decode_reply::<C>(self.table, &reply, Limits::default()).unwrap()),
            Err(RpcError::Refused { code, .. }) => vec![Answer::Rpc(code)],
            Err(other) => panic!("{:?}: {other}", C::RPC),
        }
    }

    fn one<C: Call>(&self, args: &C::Args<'_>, then: impl FnOnce(C::Reply<'_>) -> Answer) -> Vec<Answer> {
        self.call::<C>(args, |reply| vec![then(reply)])
    }

    fn tenant(&self, keys: &[Key]) -> &'static [u8] {
        self.tenant_named(keys.first().map_or(0, |key| key.tenant))
    }

    fn tenant_named(&self, tenant: usize) -> &'static [u8] {
        self.tenants[tenant].as_bytes()
    }

    /// One answer a key, in order, or one for all.
    pub fn play(&mut self, op: &Op) -> Vec<Answer> {
        match op {
            Op::Ping { .. }
            | Op::Mount { .. }
            | Op::Remount { .. }
            | Op::Unmount { .. }
            | Op::Graceful { .. }
            | Op::Status { .. }
            | Op::QueryIp
            | Op::Idle { .. } => self.play_segments(op),
            Op::Start { .. } | Op::End { .. } | Op::Revoke { .. } => self.play_writes(op),
            Op::Exist { .. } | Op::Get { .. } | Op::Regex { .. } | Op::Probe { .. } | Op::AdminGet { .. } => {
                self.play_lookups(op)
            }
            Op::Remove { .. }
            | Op::RemoveRegex { .. }
            | Op::RemoveAll { .. }
            | Op::Clear { .. }
            | Op::EvictDisk { .. } => self.play_removals(op),
            _ => self.play_tasks(op),
        }
    }

    fn play_segments(&self, op: &Op) -> Vec<Answer> {
        match *op {
            Op::Ping { client: c } => self.one::<call::Ping>(&ClientArgs { client_id: client(c) }, |reply| {
                Answer::of(reply, |pong| Answer::Number(pong.client_status.0.into()))
            }),
            Op::Mount { client: c, segment: s, broken } => {
                let mut segment = segment(s);
                if broken {
                    segment.id.0.second += 100;
                    segment.base = 0;
                }
                let args = MountSegmentArgs { segment, client_id: client(c) };
                self.one::<call::MountSegment>(&args, Answer::done)
            }
            Op::Remount { client: c } => {
                let own = (0..OWNERS.len()).filter(|s| OWNERS[*s] == c).map(segment);
                let args = ReMountSegmentArgs { segments: own.collect(), client_id: client(c) };
                self.one::<call::ReMountSegment>(&args, Answer::done)
            }
            Op::Unmount { client: c, segment: s } => {
                let args = UnmountSegmentArgs { segment_id: segment(s).id, client_id: client(c) };
                self.one::<call::UnmountSegment>(&args, Answer::done)
            }
            Op::Graceful { client: c, segment: s, grace_ms } => {
                let args = GracefulUnmountSegmentArgs {
                    segment_id: segment(s).id,
                    client_id: client(c),
                    grace_period_ms: grace_ms,
                };
                self.one::<call::GracefulUnmountSegment>(&args, Answer::done)
            }
            Op::Status { segment: s, by_id: true } => {
                let args = SegmentIdArgs { segment_id: segment(s).id };
                self.one::<call::QuerySegmentStatusById>(&args, status)
            }
            Op::Status { segment: s, .. } => {
                let name = segment_name(s);
                self.one::<call::QuerySegmentStatus>(&NameArgs { segment_name: name.as_bytes() }, status)
            }
            Op::QueryIp => {
                let clients: Vec<ClientId> = (0..CLIENTS).map(client).collect();
                let args = BatchQueryIpArgs { client_ids: (&clients).into() };
                self.one::<call::BatchQueryIp>(&args, |reply| {
                    Answer::of(reply, |map| {
                        let text = |ip: &&[u8]| String::from_utf8_lossy(ip).into_owned();
                        let mut all: Vec<(ClientId, Vec<String>)> =
                            map.0.iter().map(|(c, ips)| (*c, ips.iter().map(text).collect())).collect();
                        all.iter_mut().for_each(|(_, ips)| ips.sort());
                        all.sort();
                        Answer::Text(format!("{all:?}"))
                    })
                })
            }
            Op::Idle { client: c } => {
                let me = ClientArgs { client_id: client(c) };
                let disk = OffloadingArgs { client_id: client(c), enable_offloading: true };
                let mut all = self.one::<call::PollRemoveAll>(&me, Answer::flag);
                all.extend(self.one::<call::MountLocalDiskSegment>(&disk, Answer::done));
                all.extend(self.one::<call::OffloadObjectHeartbeat>(&disk, tasks));
                all.extend(self.one::<call::PromotionObjectHeartbeat>(&me, tasks));
                all.extend(self.one::<call::UnmountLocalDiskSegment>(&me, Answer::done));
                all
            }
            _ => unreachable!("not of segments"),
        }
    }

    fn play_writes(&self, op: &Op) -> Vec<Answer> {
        let names = bytes(op.keys());
        let refs = refs(&names);
        let tenant_id = self.tenant(op.keys());
        match op {
            Op::Start { write, form: Form::Single, client: c, sizes, config, .. } => {
                let args = PutStartArgs {
                    client_id: client(*c),
                    key: &names[0],
                    slice_length: sizes[0],
                    config: (**config).clone(),
                    tenant_id,
                };
                match write {
                    Write::Put => self.one::<call::PutStart>(&args, Answer::places),
                    Write::Upsert => self.one::<call::UpsertStart>(&args, Answer::places),
                }
            }
            Op::Start { write, client: c, sizes, config, .. } => {
                let args = BatchPutStartArgs {
                    client_id: client(*c),
                    keys: List::from(&refs),
                    slice_lengths: sizes.into(),
                    config: (**config).clone(),
                    tenant_id,
                };
                match write {
                    Write::Put => {
                        self.call::<call::BatchPutStart>(&args, |r| r.into_iter().map(Answer::places).collect())
                    }
                    Write::Upsert => {
                        self.call::<call::BatchUpsertStart>(&args, |r| r.into_iter().map(Answer::places).collect())
                    }
                }
            }
            Op::End { write, form: Form::Single, client: c, which, checksum, .. } => {
                let args = PutEndArgs {
                    client_id: client(*c),
                    object_meta: ObjectMetaRef { key: &names[0], object_checksum: *checksum },
                    replica_type: *which,
                    tenant_id,
                };
                match write {
                    Write::Put => self.one::<call::PutEnd>(&args, Answer::done),
                    Write::Upsert => self.one::<call::UpsertEnd>(&args, Answer::done),
                }
            }
            Op::End { write, client: c, which, checksum, .. } => {
                let meta = |key| ObjectMetaRef { key, object_checksum: *checksum };
                let metas: Vec<ObjectMetaRef<'_>> = names.iter().map(|key| meta(key.as_slice())).collect();
                let object_metas = List::from(&metas);
                match write {
                    Write::Put => {
                        let args =
                            BatchPutEndArgs { client_id: client(*c), object_metas, replica_type: *which, tenant_id };
                        self.call::<call::BatchPutEnd>(&args, each)
                    }
                    Write::Upsert => {
                        let args = BatchUpsertEndArgs { client_id: client(*c), object_metas, tenant_id };
                        self.call::<call::BatchUpsertEnd>(&args, each)
                    }
                }
            }
            Op::Revoke { write, form: Form::Single, client: c, which, .. } => {
                let args = PutRevokeArgs { client_id: client(*c), key: &names[0], replica_type: *which, tenant_id };
                match write {
                    Write::Put => self.one::<call::PutRevoke>(&args, Answer::done),
                    Write::Upsert => self.one::<call::UpsertRevoke>(&args, Answer::done),
                }
            }
            Op::Revoke { write: Write::Put, client: c, which, .. } => {
                let args = BatchPutRevokeArgs {
                    client_id: client(*c),
                    keys: List::from(&refs),
                    replica_type: *which,
                    tenant_id,
                };
                self.call::<call::BatchPutRevoke>(&args, each)
            }
            Op::Revoke { client: c, .. } => {
                let args = BatchUpsertRevokeArgs { client_id: client(*c), keys: List::from(&refs), tenant_id };
                self.call::<call::BatchUpsertRevoke>(&args, each)
            }
            _ => unreachable!("not of writes"),
        }
    }

    fn play_lookups(&self, op: &Op) -> Vec<Answer> {
        let names = bytes(op.keys());
        let refs = refs(&names);
        let tenant_id = self.tenant(op.keys());
        let single = |names: &[Bytes]| names[0].clone();
        match op {
            Op::Exist { form: Form::Single, .. } => {
                self.one::<call::ExistKey>(&KeyArgs { key: &single(&names), tenant_id }, Answer::flag)
            }
            Op::Exist { .. } => {
                self.call::<call::BatchExistKey>(&KeysArgs { keys: List::from(&refs), tenant_id }, flags)
            }
            Op::Get { form: Form::Single, .. } => {
                self.one::<call::GetReplicaList>(&KeyArgs { key: &single(&names), tenant_id }, Answer::found)
            }
            Op::Get { .. } => {
                let args = KeysArgs { keys: List::from(&refs), tenant_id };
                self.call::<call::BatchGetReplicaList>(&args, |r| r.into_iter().map(Answer::found).collect())
            }
            Op::Probe { form: Form::Single, .. } => {
                self.one::<call::ProbeKey>(&KeyArgs { key: &single(&names), tenant_id }, Answer::flag)
            }
            Op::Probe { mode, group, .. } => {
                let policy = GrantLeasePolicy { lease_mode: *mode, candidate_size: *group };
                let args = BatchProbeKeyArgs { policy, keys: List::from(&refs), tenant_id };
                self.call::<call::BatchProbeKey>(&args, flags)
            }
            Op::AdminGet { form: Form::Single, .. } => {
                self.one::<call::GetReplicaListForAdmin>(&KeyArgs { key: &single(&names), tenant_id }, Answer::found)
            }
            Op::AdminGet { .. } => {
                let args = KeysArgs { keys: List::from(&refs), tenant_id };
                self.call::<call::BatchGetReplicaListForAdmin>(&args, |r| r.into_iter().map(Answer::found).collect())
            }
            Op::Regex { tenant, pattern } => {
                let args = PatternArgs { regex: pattern.as_bytes(), tenant_id: self.tenant_named(*tenant) };
                self.one::<call::GetReplicaListByRegex>(&args, |reply| {
                    Answer::of(reply, |map| {
                        let entry = |(key, replicas): &(&[u8], Vec<_>)| {
                            (String::from_utf8_lossy(key).into_owned(), Place::all(replicas))
                        };
                        Answer::Keys(map.0.iter().map(entry).collect::<BTreeMap<_, _>>())
                    })
                })
            }
            _ => unreachable!("not of lookups"),
        }
    }

    fn play_removals(&self, op: &Op) -> Vec<Answer> {
        let names = bytes(op.keys());
        let refs = refs(&names);
        let tenant_id = self.tenant(op.keys());
        match op {
            Op::Remove { form: Form::Single, force, .. } => {
                self.one::<call::Remove>(&RemoveArgs { key: &names[0], force: *force, tenant_id }, Answer::done)
            }
            Op::Remove { force, .. } => self.call::<call::BatchRemove>(
                &BatchRemoveArgs { keys: List::from(&refs), force: *force, tenant_id },
                each,
            ),
            Op::RemoveRegex { tenant, pattern, force } => {
                let tenant_id = self.tenant_named(*tenant);
                let args = RemoveArgs { key: pattern.as_bytes(), force: *force, tenant_id };
                self.one::<call::RemoveByRegex>(&args, |reply| Answer::of(reply, Answer::Number))
            }
            Op::RemoveAll { tenant, force } => {
                let args = RemoveAllArgs { force: *force, tenant_id: self.tenant_named(*tenant) };
                self.one::<call::RemoveAll>(&args, Answer::Number)
            }
            Op::Clear { client: c, segment, .. } => {
                let name = segment.map(segment_name).unwrap_or_default();
                let args = BatchReplicaClearArgs {
                    object_keys: List::from(&refs),
                    client_id: client(*c),
                    segment_name: name.as_bytes(),
                    tenant_id,
                };
                let reply = |reply: ErrorOr<Vec<&[u8]>>| {
                    let text = |key: &&[u8]| String::from_utf8_lossy(key).into_owned();
                    Answer::of(reply, |cleared| {
                        let mut cleared: Vec<String> = cleared.iter().map(text).collect();
                        cleared.sort();
                        Answer::Text(cleared.join(" "))
                    })
                };
                self.one::<call::BatchReplicaClear>(&args, reply)
            }
            Op::EvictDisk { form: Form::Single, client: c, which, .. } => {
                let args =
                    EvictDiskReplicaArgs { client_id: client(*c), key: &names[0], tenant_id, replica_type: *which };
                self.one::<call::EvictDiskReplica>(&args, Answer::done)
            }
            Op::EvictDisk { client: c, which, .. } => {
                let args = BatchEvictDiskReplicaArgs {
                    client_id: client(*c),
                    keys: List::from(&refs),
                    tenant_id,
                    replica_type: *which,
                };
                self.call::<call::BatchEvictDiskReplica>(&args, each)
            }
            _ => unreachable!("not of removals"),
        }
    }

    fn play_tasks(&mut self, op: &Op) -> Vec<Answer> {
        let tenant_id = self.tenant(op.keys());
        let names =
            |numbers: &[usize]| -> Vec<Bytes> { numbers.iter().map(|n| segment_name(*n).into_bytes()).collect() };
        match op {
            Op::ShiftStart { shift: Shift::Copy, client: c, key, source, targets } => {
                let (src, targets) = (segment_name(*source), names(targets));
                let (key, refs) = (key.bytes(), refs(&targets));
                let args = CopyStartArgs {
                    client_id: client(*c),
                    key: &key,
                    tenant_id,
                    src_segment: src.as_bytes(),
                    tgt_segments: List::from(&refs),
                };
                self.one::<call::CopyStart>(&args, |reply| {
                    Answer::of(reply, |r| {
                        let mut all = vec![r.source];
                        all.extend(r.targets);
                        Answer::Places(Place::all(&all))
                    })
                })
            }
            Op::ShiftStart { client: c, key, source, targets, .. } => {
                let (src, target) = (segment_name(*source), segment_name(targets[0]));
                let key = key.bytes();
                let args = MoveStartArgs {
                    client_id: client(*c),
                    key: &key,
                    tenant_id,
                    src_segment: src.as_bytes(),
                    tgt_segment: target.as_bytes(),
                };
                self.one::<call::MoveStart>(&args, |reply| {
                    Answer::of(reply, |r| {
                        let mut all = vec![r.source];
                        all.extend(r.target);
                        Answer::Places(Place::all(&all))
                    })
                })
            }
            Op::ShiftEnd { shift, client: c, key, revoke } => {
                let key = key.bytes();
                let args = ClientKeyArgs { client_id: client(*c), key: &key, tenant_id };
                match (shift, revoke) {
                    (Shift::Copy, false) => self.one::<call::CopyEnd>(&args, Answer::done),
                    (Shift::Copy, true) => self.one::<call::CopyRevoke>(&args, Answer::done),
                    (Shift::Move, false) => self.one::<call::MoveEnd>(&args, Answer::done),
                    (Shift::Move, true) => self.one::<call::MoveRevoke>(&args, Answer::done),
                }
            }
            Op::CreateTask { shift, key, source, targets } => {
                let mut made = None;
                let key = key.bytes();
                let mut reply = |reply: ErrorOr<Uuid>| {
                    Answer::of(reply, |id| {
                        made = Some(id);
                        Answer::Done
                    })
                };
                let answer = match shift {
                    Shift::Copy => {
                        let targets = names(targets);
                        let refs = refs(&targets);
                        let args = CreateCopyTaskArgs { key: &key, tenant_id, targets: List::from(&refs) };
                        self.one::<call::CreateCopyTask>(&args, &mut reply)
                    }
                    Shift::Move => {
                        let (source, target) = (segment_name(*source), segment_name(targets[0]));
                        let args = CreateMoveTaskArgs {
                            key: &key,
                            tenant_id,
                            source: source.as_bytes(),
                            target: target.as_bytes(),
                        };
                        self.one::<call::CreateMoveTask>(&args, &mut reply)
                    }
                };
                self.tasks.push(made);
                answer
            }
            Op::QueryTask { task } => self.one::<call::QueryTask>(&TaskArgs { task_id: self.task(*task) }, |reply| {
                Answer::of(reply, |t| {
                    let who = (0..CLIENTS).find(|c| client(*c) == t.assigned_client);
                    Answer::Text(format!("{:?} {:?} {who:?} {:?}", t.r#type, t.status, text(t.message)))
                })
            }),
            Op::Fetch { client: c, most } => {
                self.one::<call::FetchTasks>(&FetchTasksArgs { client_id: client(*c), batch_size: *most }, |reply| {
                    Answer::of(reply, |all| {
                        let task = |t: &TaskAssignment<'_>| {
                            let payload: serde_json::Value = serde_json::from_slice(t.payload).unwrap_or_default();
                            format!("{:?} {} x{}", t.r#type, payload, t.max_retry_attempts)
                        };
                        Answer::Text(all.iter().map(task).collect::<Vec<_>>().join("; "))
                    })
                })
            }
            Op::Mark { client: c, task, status } => {
                let request =
                    TaskCompleteRequest { id: self.task(*task), status: TaskStatus(*status), message: b"said so" };
                let args = MarkTaskToCompleteArgs { client_id: client(*c), request };
                self.one::<call::MarkTaskToComplete>(&args, Answer::done)
            }
            _ => unreachable!("not of tasks"),
        }
    }

    fn task(&self, number: usize) -> Uuid {
        let unknown = Uuid { first: 7, second: 7 };
        self.tasks.get(number).copied().flatten().unwrap_or(unknown)
    }

    /// Ends every task that was made so far, so that nothing of them is left to hand out; they are strangers from now on.
    pub fn end_tasks(&mut self) {
        for c in 0..CLIENTS {
            self.play(&Op::Fetch { client: c, most: 1000 });
            for task in 0..self.tasks.len() {
                self.play(&Op::Mark { client: c, task, status: TaskStatus::FAILED.0 });
            }
        }
        self.tasks.iter_mut().for_each(|task| *task = None);
    }

    /// Takes a key away, whatever state it is in.
    pub fn clear(&mut self, key: Key) {
        let single = |op: Op, side: &mut Side| side.play(&op).pop();
        for _ in 0..3 {
            let removed = single(Op::Remove { form: Form::Single, keys: vec![key], force: true }, self);
            // A name that is no tenant's has no keys.
            let gone = [ErrorCode::OBJECT_NOT_FOUND, ErrorCode::INVALID_PARAMS];
            if removed.is_some_and(|answer| gone.iter().any(|code| answer.is_code(*code))) {
                return;
            }
            for c in 0..CLIENTS {
                for shift in [Shift::Copy, Shift::Move] {
                    single(Op::ShiftEnd { shift, client: c, key, revoke: true }, self);
                }
                let which = yb_types::ReplicaType::ALL;
                let end = |write| Op::Revoke { write, form: Form::Single, client: c, keys: vec![key], which };
                single(end(Write::Upsert), self);
                single(end(Write::Put), self);
            }
        }
        panic!("{key:?} does not go away");
    }
}

fn each(reply: Vec<ErrorOr<()>>) -> Vec<Answer> {
    reply.into_iter().map(Answer::done).collect()
}

fn flags(reply: Vec<ErrorOr<bool>>) -> Vec<Answer> {
    reply.into_iter().map(Answer::flag).collect()
}

fn status(reply: ErrorOr<yb_types::SegmentStatus>) -> Answer {
    Answer::of(reply, |status| Answer::Number(status.0.into()))
}

fn tasks(reply: ErrorOr<OffloadTasks<'_>>) -> Answer {
    Answer::of(reply, |tasks| Answer::Number(tasks.0.len() as i64))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
