//! Our client and our memory under Mooncake's own master.

mod common;

use common::{MIB, bytes, node, plain, requester, wait_until, wheel_master, wheel_node};
use yb_client::{Error, PutOutcome};

#[test]
fn objects_of_all_sizes_come_back() {
    let Some((_master, address)) = wheel_master(&[]) else { return };
    let _node = node(&address, 128 * MIB);
    let client = requester(&address);
    for (seed, len) in [1, 100, 4096, 65_537, MIB as usize, 20 * MIB as usize].into_iter().enumerate() {
        let (key, value) = (format!("k{seed}"), bytes(seed as u64, len));
        assert_eq!(client.put(&key, &value, &plain()), Ok(PutOutcome::Stored));
        assert_eq!(client.put(&key, b"other", &plain()), Ok(PutOutcome::AlreadyExists));
        assert!(client.get(&key).unwrap() == value, "{len} bytes");
        assert_eq!(client.size(&key), Ok(len as u64));
        assert_eq!(client.exists(&key), Ok(true));
    }
    assert_eq!(client.get("nothing"), Err(Error::NotFound));
}

#[test]
fn batches_answer_per_key() {
    let Some((_master, address)) = wheel_master(&[]) else { return };
    let _node = node(&address, 64 * MIB);
    let client = requester(&address);
    let items: Vec<(String, Vec<u8>)> = (0..32).map(|i| (format!("b{i}"), bytes(i, 64 << 10))).collect();
    assert!(client.batch_put(&items, &plain()).into_iter().all(|answer| answer == Ok(PutOutcome::Stored)));
    let mut keys: Vec<&str> = items.iter().map(|(key, _)| key.as_str()).collect();
    keys.insert(7, "absent");
    let values = client.batch_get(&keys);
    assert_eq!(values[7], Err(Error::NotFound));
    let mut expected: Vec<_> = items.iter().map(|(_, value)| Ok(value.clone())).collect();
    expected.insert(7, Err(Error::NotFound));
    assert!(values == expected);
    assert_eq!(client.batch_exists(&keys).iter().filter(|answer| **answer == Ok(true)).count(), 32);
    assert_eq!(client.remove_all(true), Ok(32));
    assert_eq!(client.exists("b0"), Ok(false));
}

#[test]
fn memory_of_the_peers_node_is_written_and_read() {
    let Some((_master, address)) = wheel_master(&[]) else { return };
    let Some(_node) = wheel_node(&address, "128MB") else { return };
    let client = requester(&address);
    wait_until("the peer's node is mounted", || client.put("first", b"1", &plain()).is_ok());
    for (seed, len) in [1, 4096, 65_537, MIB as usize, 32 * MIB as usize].into_iter().enumerate() {
        let (key, value) = (format!("k{seed}"), bytes(seed as u64, len));
        assert_eq!(client.put(&key, &value, &plain()), Ok(PutOutcome::Stored));
        assert!(client.get(&key).unwrap() == value, "{len} bytes");
    }
    let items: Vec<(String, Vec<u8>)> = (0..64).map(|i| (format!("b{i}"), bytes(i, 64 << 10))).collect();
    assert!(client.batch_put(&items, &plain()).into_iter().all(|answer| answer == Ok(PutOutcome::Stored)));
    let keys: Vec<&str> = items.iter().map(|(key, _)| key.as_str()).collect();
    assert!(client.batch_get(&keys).into_iter().zip(&items).all(|(got, (_, value))| got.as_ref() == Ok(value)));
}
