//! A writer is killed half-way (H03): nobody is told a success that is none, and its key is free soon.

use std::process::Stdio;
use std::time::Duration;

use yb_chaos::{Process, Relay, Weather};
use yb_client::{Error, PutOutcome};

use crate::common::{Master, Way, both_ways, copies, now, value, wait_for_copies, wait_until, within, yuebing};

/// Each message of the writer and each answer comes later by this much.
const SLOW: Duration = Duration::from_millis(150);
const LEN: usize = 1 << 20;

both_ways!(
    a_writer_dies_half_way,
    a_writer_that_dies_half_way_frees_its_key_over_tcp,
    a_writer_that_dies_half_way_frees_its_key_over_shared_memory
);

fn a_writer_dies_half_way(way: Way) {
    let master = Master::start(&["--put_start_discard_timeout_sec=2"]);
    let relay = Relay::start(([127, 0, 0, 1], 0).into(), master.address).unwrap();
    let _nodes = [master.node(way, &[]), master.node(way, &[])];
    let client = master.client(way);
    wait_for_copies(&client, 2);
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), value(1, LEN)).unwrap();
    relay.set(Weather::Delay(SLOW));
    for round in 0..3 {
        let key = format!("key-{round}");
        let mut command = yuebing(&["put", &key, file.path().to_str().unwrap()]);
        command
            .env("MOONCAKE_MASTER", relay.address().to_string())
            .env("YB_SHM", if way == Way::Tcp { "0" } else { "1" });
        let mut writer = Process::start(command.stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
        // Begun, and its end is under way for a while yet.
        wait_until("the write has begun", || matches!(client.get(&key), Err(Error::Busy(_))));
        writer.kill();
        let killed = now();
        let others = [
            client.put(&key, &value(2, LEN), &copies(1)),
            client.upsert(&key, &value(2, LEN), &copies(1)).map(|()| PutOutcome::Stored),
        ];
        for answer in others {
            match answer {
                Ok(PutOutcome::Stored) => assert!(client.get(&key).unwrap() == value(2, LEN)),
                // Its end was under way when it was killed.
                Ok(PutOutcome::AlreadyExists) => assert!(client.get(&key).unwrap() == value(1, LEN)),
                Err(error) => assert!(error.retryable(), "{error}"),
            }
        }
        within("the key is free", Duration::from_secs(20), || match client.upsert(&key, &value(3, LEN), &copies(1)) {
            Ok(()) => true,
            Err(error) => {
                assert!(error.retryable(), "{error}");
                false
            }
        });
        assert!(client.get(&key).unwrap() == value(3, LEN));
        println!("{way:?}: the key of a writer that died half-way was free {:?} after its death", now().since(killed));
    }
}
