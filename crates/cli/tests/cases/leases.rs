//! What exists can be read (H06): "exists" protects an object for a lease, whatever else is written meanwhile.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use yb_client::Client;

use crate::common::{Master, Way, both_ways, copies, now, value, wait_for_copies, wait_until};

const LEN: usize = 256 << 10;

both_ways!(
    exists_then_get,
    what_exists_is_read_while_others_fill_the_pool_over_tcp,
    what_exists_is_read_while_others_fill_the_pool_over_shared_memory
);

fn exists_then_get(way: Way) {
    let master = Master::start(&["--default_kv_lease_ttl=2000"]);
    let _nodes =
        [master.node(way, &["--global_segment_size=32MiB"]), master.node(way, &["--global_segment_size=32MiB"])];
    let client = master.client(way);
    wait_for_copies(&client, 2);
    let (stop, writes) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| storm(&master.client(way), &stop, &writes));
        let (mut found, mut missing) = (0, 0);
        wait_until("enough was asked for", || {
            let key = writes.load(Ordering::Relaxed).saturating_sub(1 + (found + missing) % 100);
            let asked = now();
            if client.exists(format!("storm-{key}")) == Ok(true) {
                let read = client.get(format!("storm-{key}"));
                // A machine with other work may take longer than a lease between the two.
                let in_time = now().since(asked) < Duration::from_millis(1500);
                assert!(!in_time || read.is_ok(), "there, and then {read:?}");
                assert!(read.is_err() || read.unwrap() == value(key, LEN), "wrong bytes");
                found += 1;
            } else {
                missing += 1;
            }
            found > 150 && writes.load(Ordering::Relaxed) > 400
        });
        stop.store(true, Ordering::Relaxed);
        println!(
            "{way:?}: {found} were there and read, {missing} were not, {} written",
            writes.load(Ordering::Relaxed)
        );
    });
}

/// Fills the pool several times over.
fn storm(client: &Client, stop: &AtomicBool, writes: &AtomicU64) {
    let mut key = 0;
    while !stop.load(Ordering::Relaxed) {
        // Refused while all is under a lease.
        if client.put(format!("storm-{key}"), &value(key, LEN), &copies(1)).is_ok() {
            key += 1;
            writes.store(key, Ordering::Relaxed);
        }
    }
}
