//! Nanoseconds per message of the hot codecs, one thread:
//! `cargo run --release -p yb-wire --example codec_bench`.

use std::hint::black_box;
use std::time::Duration;

use yb_env::Clock;
use yb_types::{ClientId, ReplicaId, ReplicaStatus, ReplicateConfig, Uuid};
use yb_wire::messages::{BatchPutStartArgs, KeyArgs, KeysArgs, PutStartArgs};
use yb_wire::{
    BufferRef, Call, Form, Limits, ReplicaRef, ReplyWriter, Rpc, Scratch, WireError, WireProfile, call, decode_reply,
    encode_request,
};

const BATCH: usize = 128;

fn main() -> Result<(), WireError> {
    let profile = WireProfile::main();
    let keys: Vec<Vec<u8>> = (0..BATCH).map(|i| format!("model/layer/{i:033}").into_bytes()).collect();
    let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let tenant_id: &[u8] = b"default";
    let lengths = vec![1u64 << 20; BATCH];
    let client_id = ClientId(Uuid { first: 1, second: 2 });

    let one = body::<call::GetReplicaList>(&profile, &KeyArgs { key: keys[0], tenant_id })?;
    measure("decode GetReplicaList", || {
        black_box(profile.decode_args::<call::GetReplicaList>(&one, Limits::default())).is_ok()
    });
    let batch = body::<call::BatchExistKey>(&profile, &KeysArgs { keys: (&keys).into(), tenant_id })?;
    measure("decode BatchExistKey of 128, all keys read", || {
        let args = profile.decode_args::<call::BatchExistKey>(&batch, Limits::default());
        args.is_ok_and(|args| args.keys.iter().map(|key| black_box(key).len()).sum::<usize>() > 0)
    });
    let config = ReplicateConfig { host_id: "host-17".into(), ..Default::default() };
    let args = PutStartArgs { client_id, key: keys[0], slice_length: 1 << 20, config: config.clone(), tenant_id };
    let put = body::<call::PutStart>(&profile, &args)?;
    measure("decode PutStart", || black_box(profile.decode_args::<call::PutStart>(&put, Limits::default())).is_ok());
    let slice_lengths = (&lengths).into();
    let args = BatchPutStartArgs { client_id, keys: (&keys).into(), slice_lengths, config, tenant_id };
    let puts = body::<call::BatchPutStart>(&profile, &args)?;
    measure("decode BatchPutStart of 128", || {
        black_box(profile.decode_args::<call::BatchPutStart>(&puts, Limits::default())).is_ok()
    });
    let mut out = Vec::new();
    measure("encode BatchPutStart of 128", || {
        out.clear();
        encode_request::<call::BatchPutStart>(profile.table(), 1, &args, Form::Bare, &mut out).is_ok()
    });
    replies(&profile);
    Ok(())
}

fn replies(profile: &WireProfile) {
    let (mut out, mut scratch) = (Vec::new(), Scratch::default());
    for (name, rpc, count) in [
        ("write GetReplicaList reply", Rpc::GetReplicaList, 1),
        ("write BatchGetReplicaList reply of 128", Rpc::BatchGetReplicaList, BATCH),
    ] {
        measure(name, || {
            out.clear();
            write_lookups(profile, rpc, count, &mut out, &mut scratch).is_ok()
        });
    }
    let body = &out[yb_wire::frame::RESPONSE_HEADER_LEN..];
    measure("decode BatchGetReplicaList reply of 128", || {
        black_box(decode_reply::<call::BatchGetReplicaList>(profile.table(), body, Limits::default())).is_ok()
    });
}

fn write_lookups(
    profile: &WireProfile,
    rpc: Rpc,
    count: usize,
    out: &mut Vec<u8>,
    scratch: &mut Scratch,
) -> Result<(), WireError> {
    let mut writer = ReplyWriter::begin(profile.table(), rpc, 1, Form::Bare, count, out, scratch)?;
    if rpc == Rpc::BatchGetReplicaList {
        writer.list(count);
    }
    for id in 0..count as u64 {
        let buffer = BufferRef {
            size: 1 << 20,
            buffer_address: 0x7f00_0000_0000 + id,
            protocol: "tcp",
            transport_endpoint: "127.0.0.1:16702",
            locality: None,
        };
        let replica = ReplicaRef::memory(ReplicaId(id), ReplicaStatus::COMPLETE, buffer);
        writer.lookup([replica], 5000, None, Some(b"default"));
    }
    writer.finish()
}

fn body<C: Call>(profile: &WireProfile, args: &C::Args<'_>) -> Result<Vec<u8>, WireError> {
    let mut out = Vec::new();
    encode_request::<C>(profile.table(), 1, args, Form::Literal, &mut out)?;
    Ok(out.split_off(yb_wire::frame::REQUEST_HEADER_LEN))
}

fn measure(name: &str, mut work: impl FnMut() -> bool) {
    let clock = Clock::real();
    let mut rounds = 0u64;
    let start = clock.now();
    while clock.now().since(start) < Duration::from_millis(300) {
        for _ in 0..256 {
            assert!(black_box(work()), "{name}");
        }
        rounds += 256;
    }
    let nanos = clock.now().since(start).as_nanos() as f64 / rounds as f64;
    println!("{name:45} {nanos:10.1} ns");
}
