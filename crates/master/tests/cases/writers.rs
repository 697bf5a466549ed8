//! Two writers of the same keys (H04, the master's part).

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};

use yb_env::{Rng, spawn_thread};
use yb_pack::List;
use yb_types::{ErrorCode, ReplicateConfig};
use yb_wire::call;
use yb_wire::messages::*;

use crate::common::{Caller, TENANT};
use crate::ground::*;

const KEYS: usize = 500;
const ROUNDS: usize = 10;

fn key(number: usize) -> Vec<u8> {
    format!("both-{number}").into_bytes()
}

fn value(writer: char, number: usize) -> Vec<u8> {
    format!("{writer} wrote {number}").into_bytes()
}

/// Puts one key with the writer's own value.
fn put_own(caller: &Caller, bytes: &Bytes, writer: char, number: usize, size: u64) -> ErrorOr<()> {
    let key = key(number);
    let replicas = caller.put_start(&key, size)?;
    bytes.write(&replicas, &value(writer, number));
    caller.put_end(&key)
}

#[test]
fn two_writers_of_the_same_keys() {
    // Plenty of room and short leases: removals in between find no object leased for long.
    let master = Arc::new(MasterProcess::start(&["--default_kv_lease_ttl=5000", "--client_ttl=600"]));
    let bytes: Arc<Bytes> = Arc::default();
    let owners = [master.caller(), master.caller()];
    owners.iter().for_each(|owner| drop(owner.give_memory(4096 * MIB)));
    let (done, start) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2)));
    let writers = ['A', 'B'].map(|writer| {
        let (master, bytes, start) = (Arc::clone(&master), Arc::clone(&bytes), Arc::clone(&start));
        let body = move || {
            let (caller, mut rng) = (master.caller(), Rng::seeded(7));
            let mut codes: BTreeMap<ErrorCode, u64> = BTreeMap::new();
            for round in 0..ROUNDS {
                start.wait();
                for number in 0..KEYS {
                    let size = 1 + rng.below(8 * MIB);
                    let code = put_own(&caller, &bytes, writer, number, size).err().unwrap_or(ErrorCode::OK);
                    *codes.entry(code).or_default() += 1;
                    if round % 2 == 1 && number % 2 == 0 {
                        // Whoever comes first takes it away; under a lease of the reader nobody does.
                        let _ = caller.remove(&key(number), false);
                    }
                }
            }
            codes
        };
        spawn_thread("writer", body).unwrap()
    });
    let (reading, read_bytes, told) = (Arc::clone(&master), Arc::clone(&bytes), Arc::clone(&done));
    let reader = spawn_thread("reader", move || {
        let (caller, mut seen) = (reading.caller(), BTreeMap::new());
        while !told.load(Ordering::Relaxed) {
            for number in 0..KEYS {
                let (a, b) = (value('A', number), value('B', number));
                let outcome = read(&caller, &read_bytes, &key(number), &[&a, &b]);
                assert!(matches!(outcome, Outcome::Right | Outcome::Miss), "key {number}: {outcome:?}");
                *seen.entry(format!("{outcome:?}")).or_insert(0u64) += 1;
            }
        }
        seen
    })
    .unwrap();
    for (writer, thread) in ['A', 'B'].into_iter().zip(writers) {
        let codes = thread.join().unwrap();
        println!("writer {writer}: {codes:?}");
        // The loser is told that the key exists, or that it is being written: nothing else.
        let told = [ErrorCode::OK, ErrorCode::OBJECT_ALREADY_EXISTS, ErrorCode::REPLICA_IS_NOT_READY];
        assert!(codes.keys().all(|code| told.contains(code)), "{codes:?}");
    }
    done.store(true, Ordering::Relaxed);
    println!("reader: {:?}", reader.join().unwrap());
    let caller = master.caller();
    for number in 0..KEYS {
        let exists = caller.exists(&key(number));
        let right = read(&caller, &bytes, &key(number), &[&value('A', number), &value('B', number)]);
        assert_eq!(exists, right == Outcome::Right, "key {number}: exists {exists}, {right:?}");
    }
}

#[test]
fn one_batch_with_the_same_key_twice() {
    let master = MasterProcess::start(&["--client_ttl=600"]);
    let caller = master.caller();
    caller.give_memory(64 * MIB);
    let names: [&[u8]; 3] = [b"twice", b"once", b"twice"];
    let lengths = [100u64; 3];
    let start = BatchPutStartArgs {
        client_id: caller.id,
        keys: List::from(&names),
        slice_lengths: List::from(&lengths),
        config: ReplicateConfig::default(),
        tenant_id: TENANT,
    };
    let codes = caller.call::<call::BatchPutStart, _>(&start, |reply| {
        reply.into_iter().map(|one| one.err().unwrap_or(ErrorCode::OK)).collect::<Vec<_>>()
    });
    assert_eq!(codes, [ErrorCode::OK, ErrorCode::OK, ErrorCode::REPLICA_IS_NOT_READY]);
    caller.put_end(b"twice").unwrap();
    assert!(caller.exists(b"twice"));
}
