//! Bodies of every function, in every generation, mutated and made up, against a master that is otherwise well: whatever
//! comes in, every request gets its one right answer, nothing panics, and memory stays bounded by what is stored.
//!
//! `YB_FUZZ_BODIES` says how many bodies (default 120,000), `YB_FUZZ_SEED` which ones.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::{Caller, Rig, TENANT, count_panics, number, resident_bytes};
use yb_env::Rng;
use yb_master::CompatListener;
use yb_pack::Limits;
use yb_rpc::{ClientPool, RpcError};
use yb_types::WireVersion;
use yb_wire::messages::*;
use yb_wire::{Call, CallVisitor, Rpc, Service, WireProfile, WireTable, call};

const BODIES: u64 = 120_000;
/// What the process may grow by over the whole run: the pool holds a few thousand keys at most.
const GROWTH_MAX: u64 = 192 << 20;
const REQUEST_HEADER: usize = 20;

/// Whether the arguments decode on a port of this generation.
struct Decodes<'b> {
    profile: WireProfile,
    body: &'b [u8],
}

impl CallVisitor for Decodes<'_> {
    type Output = bool;
    fn visit<C: Call>(self) -> bool {
        self.profile.decode_args::<C>(self.body, Limits::default()).is_ok()
    }
}

/// Decodes a reply.
struct ReplyIs<'b> {
    table: &'static WireTable,
    body: &'b [u8],
}

impl CallVisitor for ReplyIs<'_> {
    type Output = Result<(), String>;
    fn visit<C: Call>(self) -> Self::Output {
        let reply = yb_wire::decode_reply::<C>(self.table, self.body, Limits::default());
        reply.map(drop).map_err(|error| error.to_string())
    }
}

/// Recorded argument bodies by function.
fn recordings() -> BTreeMap<String, Vec<Vec<u8>>> {
    let files = [
        include_str!("../../wire/tests/fixtures/store-rpc.jsonl"),
        include_str!("../../wire/tests/fixtures/store-rpc-0.3.14.jsonl"),
    ];
    let mut all: BTreeMap<String, Vec<Vec<u8>>> = BTreeMap::new();
    for line in files.iter().flat_map(|file| file.lines()) {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        if line["direction"] == "request" && line["service"] == "master" {
            let frame = hex(line["hex"].as_str().unwrap());
            all.entry(line["rpc"].as_str().unwrap().to_owned()).or_default().push(frame[REQUEST_HEADER..].to_vec());
        }
    }
    all
}

fn hex(text: &str) -> Vec<u8> {
    let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

/// Makes bodies.
struct Maker {
    rng: Rng,
    recorded: BTreeMap<String, Vec<Vec<u8>>>,
}

impl Maker {
    fn below(&mut self, bound: usize) -> usize {
        self.rng.below(bound as u64) as usize
    }

    fn body(&mut self, rpc: Rpc, table: &'static WireTable) -> Vec<u8> {
        let recorded = self.recorded.get(rpc.name()).map_or(0, Vec::len);
        if recorded > 0 && self.below(2) == 0 {
            let at = self.below(recorded);
            let mut body = self.recorded[rpc.name()][at].clone();
            self.mutate(&mut body);
            return body;
        }
        self.made_up(rpc, table)
    }

    /// The right head for the function, then values that often are what it expects: short texts, ids, numbers.
    fn made_up(&mut self, rpc: Rpc, table: &'static WireTable) -> Vec<u8> {
        let Ok(signature) = table.signature(rpc) else { return vec![0; self.below(16)] };
        if signature.args.is_absent() && self.below(4) > 0 {
            return Vec::new();
        }
        let mut body = signature.args.code().to_le_bytes().to_vec();
        let values = self.below(14);
        (0..values).for_each(|_| self.value(&mut body));
        body
    }

    fn value(&mut self, body: &mut Vec<u8>) {
        const TEXTS: [&[u8]; 10] =
            [b"default", b"k-1", b"k-2", b"k-3", b"node", b"", b"_x", b"a\0b", b".*", b"(((((a*)*)*)*)*"];
        match self.below(12) {
            0..=3 => {
                let text = TEXTS[self.below(TEXTS.len())];
                body.push(text.len() as u8);
                body.extend_from_slice(text);
            }
            // The client that has the memory, or its segment.
            4 | 5 => [7u64, self.below(3) as u64].iter().for_each(|half| body.extend(half.to_le_bytes())),
            6 => body.extend((self.below(5000) as u64).to_le_bytes()),
            7 => body.extend(self.extreme().to_le_bytes()),
            8 => body.extend((self.below(5) as u32).to_le_bytes()),
            9 => body.push(self.below(3) as u8),
            10 => {
                // A list of texts.
                let count = self.below(4);
                body.push(count as u8);
                (0..count).for_each(|i| body.extend([3, b'k', b'-', b'1' + i as u8]));
            }
            _ => body.extend(self.rng.next_u64().to_le_bytes()),
        }
    }

    fn extreme(&mut self) -> u64 {
        [0, 1, u64::MAX, u64::MAX - 1, i64::MAX as u64, 1 << 63, 1 << 40, u64::from(u32::MAX)][self.below(8)]
    }

    fn mutate(&mut self, body: &mut Vec<u8>) {
        for _ in 0..1 + self.below(4) {
            let at = self.below(body.len() + 1);
            match self.below(8) {
                0 => body.truncate(at),
                1 => body.insert(at, self.rng.next_u64() as u8),
                2 if at + 8 <= body.len() => {
                    let value = self.extreme();
                    body[at..at + 8].copy_from_slice(&value.to_le_bytes());
                }
                3 if at < body.len() => {
                    body.remove(at);
                }
                4 => {
                    // A piece again: longer lists, more members.
                    let end = (at + 1 + self.below(24)).min(body.len());
                    let piece = body[at.min(end)..end].to_vec();
                    body.splice(at.min(end)..at.min(end), piece);
                }
                5 => {}
                _ if at < body.len() => body[at] = [0, 1, 0xff, 0x7f, self.rng.next_u64() as u8][self.below(5)],
                _ => {}
            }
        }
    }
}

/// What came of all the bodies.
#[derive(Debug, Default)]
struct Outcomes {
    answered: u64,
    refused: u64,
    unknown: u64,
}

struct Port {
    pool: ClientPool,
    version: WireVersion,
    profile: WireProfile,
}

impl Port {
    /// Sends one body and holds the answer against what the body deserves.
    fn try_body(&self, rpc: Rpc, body: &[u8], outcomes: &mut Outcomes) {
        let name = rpc.name();
        let id = yb_pack::name_code(&rpc.qualified_name());
        let served = self.profile.lookup(Service::Master, id) == Some(rpc);
        let decodes = served && rpc.visit(Decodes { profile: self.profile, body });
        match self.pool.call(id, body, self.pool.deadline_in(Duration::from_secs(20))) {
            Ok(reply) => {
                assert!(decodes, "{name} of {} was answered, its arguments do not decode: {body:02x?}", self.version);
                let read = rpc.visit(ReplyIs { table: self.profile.table(), body: &reply });
                assert_eq!(read, Ok(()), "{name} of {}: {body:02x?}", self.version);
                outcomes.answered += 1;
            }
            Err(RpcError::Refused { code: 4, .. }) => {
                assert!(served && !decodes, "{name} of {} refused arguments that decode: {body:02x?}", self.version);
                outcomes.refused += 1;
            }
            Err(RpcError::Refused { code: 11, .. }) => {
                assert!(!served, "{name} of {} is served", self.version);
                outcomes.unknown += 1;
            }
            Err(other) => panic!("{name} of {}: {other}: {body:02x?}", self.version),
        }
    }
}

fn master() -> Rig {
    let old = WireVersion::ALL.iter().copied().filter(|version| *version < WireVersion::V0_3_13);
    let compat = old.map(|version| CompatListener { version, address: "127.0.0.1:0".parse().unwrap() }).collect();
    Rig::with(|config| {
        config.compat = compat;
        // Memory that comes back rests for a lease, and the ordinary client does not wait for it.
        config.catalog.lease_ttl = std::time::Duration::ZERO;
        config.dial_back = None;
    })
}

fn ports(rig: &Rig) -> Vec<Port> {
    let old = rig.master.listeners()[1..].iter().map(|(bound, version)| (bound.tcp().unwrap(), *version));
    let newest = [WireVersion::V0_3_13, WireVersion::V0_3_14].map(|version| (rig.master.rpc_address(), version));
    let port = |(address, version): (std::net::SocketAddr, WireVersion)| Port {
        pool: Caller::new(address, version).pool,
        version,
        profile: WireProfile::of(version),
    };
    newest.into_iter().chain(old).map(port).collect()
}

#[test]
fn every_body_of_every_function_gets_its_answer() {
    let panics = count_panics();
    let (seed, bodies) = (number("YB_FUZZ_SEED", 1), number("YB_FUZZ_BODIES", BODIES));
    eprintln!("seed {seed}, {bodies} bodies");
    let rig = master();
    let ports = ports(&rig);
    let owner = Caller { id: yb_types::ClientId(yb_types::Uuid { first: 7, second: 0 }), ..rig.caller() };
    let mut maker = Maker { rng: Rng::seeded(seed), recorded: recordings() };
    let served: Vec<Rpc> = Rpc::ALL.iter().copied().filter(|rpc| rpc.service() != Service::Client).collect();
    let mut outcomes = Outcomes::default();
    let resident = resident_bytes();
    for turn in 0..bodies {
        let rpc = served[turn as usize % served.len()];
        // The newest generations are what most clients speak.
        let port = if maker.below(3) > 0 { maker.below(2) } else { maker.below(ports.len()) };
        let port = &ports[port];
        let body = maker.body(rpc, port.profile.table());
        port.try_body(rpc, &body, &mut outcomes);
        assert_eq!(panics.load(Ordering::SeqCst), 0, "{}: {body:02x?}", rpc.name());
        if turn % 500 == 0 {
            still_serves(&owner, turn);
        }
    }
    eprintln!("{outcomes:?}");
    assert!(outcomes.answered > bodies / 10 && outcomes.refused > bodies / 10 && outcomes.unknown > 0, "{outcomes:?}");
    let grown = resident_bytes().saturating_sub(resident);
    assert!(grown < GROWTH_MAX, "grew by {} MiB", grown >> 20);
    owner.call::<call::RemoveAll, _>(&RemoveAllArgs { force: true, tenant_id: TENANT }, |_| ());
    assert_eq!(panics.load(Ordering::SeqCst), 0);
}

/// An ordinary client is served as ever, whatever the others sent.
fn still_serves(owner: &Caller, turn: u64) {
    owner.call::<call::RemoveAll, _>(&RemoveAllArgs { force: true, tenant_id: TENANT }, |_| ());
    // The segment of its last turn may belong to any of the others by now.
    let mut segment = owner.segment("node", 64 << 20);
    segment.id = yb_types::SegmentId(yb_types::Uuid { first: 7, second: 1_000_000 + turn });
    // Others may have said in its name that it brings a directory, which would be waited for.
    let hello = HelloArgs { client_id: owner.id, node_version: "", capabilities: 0 };
    owner.call::<call::Hello, _>(&hello, |reply| assert!(reply.is_ok()));
    owner.mount(&segment).unwrap().unwrap();
    let key = format!("good-{turn}").into_bytes();
    let place = yb_types::ReplicateConfig { preferred_segments: vec![segment.name.clone()], ..Default::default() };
    let start = PutStartArgs { client_id: owner.id, key: &key, slice_length: 1000, config: place, tenant_id: TENANT };
    owner.call::<call::PutStart, _>(&start, |reply| {
        assert_eq!(reply.map(|replicas| replicas.len()), Ok(1), "turn {turn}")
    });
    owner.put_end(&key).unwrap();
    assert_eq!(owner.get(&key).unwrap().replicas.len(), 1);
    owner.call::<call::RemoveAll, _>(&RemoveAllArgs { force: true, tenant_id: TENANT }, |_| ());
    let leave = UnmountSegmentArgs { segment_id: segment.id, client_id: owner.id };
    owner.call::<call::UnmountSegment, _>(&leave, |reply| assert_eq!(reply, Ok(())));
}
