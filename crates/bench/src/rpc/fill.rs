//! What a run needs in the master: a segment that exists in name only, and keys in it.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use yb_env::{Rng, spawn_thread};
use yb_rpc::ClientPool;
use yb_types::{ClientId, DEFAULT_TENANT, ReplicaType, ReplicateConfig, Segment, SegmentId};
use yb_wire::frame::REQUEST_HEADER_LEN;
use yb_wire::messages::{
    BatchPutEndArgs, BatchPutStartArgs, ClientArgs, MountSegmentArgs, NoArgs, ObjectMetaRef, UnmountSegmentArgs,
};
use yb_wire::{Call, Form, Limits, List, WireTable, call, decode_reply, encode_request};

use super::frames::KeySpace;
use super::{BenchError, RpcBench};

/// Deadline of one preparing call. Large batches on a busy machine take their time.
const CALL_LIMIT: Duration = Duration::from_secs(30);
/// Keys stored per call.
const FILL_BATCH: usize = 128;
/// Between two pings, as the peer's clients do.
const PING_EVERY: Duration = Duration::from_secs(1);

/// A mounted segment. Dropping it unmounts.
pub(super) struct Mounted {
    pool: Arc<ClientPool>,
    table: &'static WireTable,
    args: UnmountSegmentArgs,
    stop: Option<mpsc::Sender<()>>,
    pings: Option<JoinHandle<()>>,
    /// The data address that the segment names; a master may dial it.
    _data_port: TcpListener,
}

fn ask<C: Call, R>(
    pool: &ClientPool,
    table: &'static WireTable,
    args: &C::Args<'_>,
    read: impl FnOnce(C::Reply<'_>) -> R,
) -> Result<R, BenchError> {
    let signature = table.signature(C::RPC)?;
    let mut frame = Vec::new();
    encode_request::<C>(table, 0, args, Form::Literal, &mut frame)?;
    let body = frame.get(REQUEST_HEADER_LEN..).unwrap_or_default();
    let reply = pool.call(signature.function_id, body, pool.deadline_in(CALL_LIMIT))?;
    Ok(read(decode_reply::<C>(table, &reply, Limits::default())?))
}

/// Says hello and mounts the segment; a thread pings from then on.
pub(super) fn mount(
    pool: &Arc<ClientPool>,
    table: &'static WireTable,
    client_id: ClientId,
    rng: &mut Rng,
    bench: &RpcBench,
) -> Result<Mounted, BenchError> {
    let refused = |what| move |code| BenchError::Refused { what, code };
    ask::<call::ServiceReady, _>(pool, table, &NoArgs {}, |reply| reply.map(drop))?.map_err(refused("ServiceReady"))?;
    let data_port = TcpListener::bind("127.0.0.1:0").map_err(BenchError::io("opening a data port"))?;
    let endpoint = data_port.local_addr().map_err(BenchError::io("opening a data port"))?.to_string();
    let id = SegmentId(rng.uuid());
    let segment = Segment {
        id,
        name: endpoint.clone(),
        base: 0x10_0000_0000,
        size: bench.segment_bytes,
        te_endpoint: endpoint,
        protocol: "tcp".to_owned(),
        ..Segment::default()
    };
    let args = MountSegmentArgs { segment, client_id };
    ask::<call::MountSegment, _>(pool, table, &args, |reply| reply)?.map_err(refused("MountSegment"))?;
    let (stop, stopped) = mpsc::channel();
    let pinging = Arc::clone(pool);
    let ping = move || {
        while stopped.recv_timeout(PING_EVERY) == Err(RecvTimeoutError::Timeout) {
            // A lost ping shows in the run itself: its keys vanish and replies fail.
            let _ = ask::<call::Ping, _>(&pinging, table, &ClientArgs { client_id }, |reply| reply.map(drop));
        }
    };
    let pings = spawn_thread("bench-ping", ping).map_err(BenchError::io("starting the ping thread"))?;
    Ok(Mounted {
        pool: Arc::clone(pool),
        table,
        args: UnmountSegmentArgs { segment_id: id, client_id },
        stop: Some(stop),
        pings: Some(pings),
        _data_port: data_port,
    })
}

impl Drop for Mounted {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(pings) = self.pings.take() {
            // A panic there has been printed; there is nothing to add.
            let _ = pings.join();
        }
        // The master drops the segment by itself when pings stay away.
        let _ = ask::<call::UnmountSegment, _>(&self.pool, self.table, &self.args, |reply| reply);
    }
}

/// Stores keys 0 .. `bench.keys`.
pub(super) fn store(
    pool: &ClientPool,
    table: &'static WireTable,
    client_id: ClientId,
    keys: &KeySpace,
    bench: &RpcBench,
) -> Result<(), BenchError> {
    let all: Vec<u64> = (0..bench.keys as u64).collect();
    for chunk in all.chunks(FILL_BATCH) {
        let names: Vec<Vec<u8>> = chunk.iter().map(|number| keys.key(*number)).collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        store_batch(pool, table, client_id, &names, bench.value_bytes)?;
    }
    Ok(())
}

fn store_batch(
    pool: &ClientPool,
    table: &'static WireTable,
    client_id: ClientId,
    keys: &[&[u8]],
    value_bytes: u64,
) -> Result<(), BenchError> {
    let tenant_id = DEFAULT_TENANT.as_bytes();
    let lengths = vec![value_bytes; keys.len()];
    let config = ReplicateConfig::default();
    let start =
        BatchPutStartArgs { client_id, keys: List::from(keys), slice_lengths: List::from(&lengths), config, tenant_id };
    let refused = |what| move |code| BenchError::Refused { what, code };
    let first_error = |results: Vec<Result<(), _>>| results.into_iter().find_map(Result::err).map_or(Ok(()), Err);
    ask::<call::BatchPutStart, _>(pool, table, &start, |reply| {
        first_error(reply.into_iter().map(|result| result.map(drop)).collect())
    })?
    .map_err(refused("BatchPutStart"))?;
    let metas: Vec<_> = keys.iter().map(|key| ObjectMetaRef { key, object_checksum: None }).collect();
    let object_metas = List::from(&metas);
    let end = BatchPutEndArgs { client_id, object_metas, replica_type: ReplicaType::ALL, tenant_id };
    ask::<call::BatchPutEnd, _>(pool, table, &end, first_error)?.map_err(refused("BatchPutEnd"))
}
