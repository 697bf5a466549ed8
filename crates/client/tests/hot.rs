//! The hot cache: it saves transfers, and never gives out what is not there any more.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{MIB, bytes, config, node, plain, requester, wait_until, wheel_master};
use yb_client::{Client, ClientConfig, Error, GetItem, HotCacheConfig};
use yb_master::{Master, MasterConfig};

fn cached(master: &str, bytes: u64) -> Client {
    let hot_cache = HotCacheConfig { bytes, threshold: 2 };
    Client::connect(ClientConfig { hot_cache, ..config(master) }).unwrap()
}

/// The value that stands under a key after write number `number`: it tells its number at both ends.
fn value(number: u64) -> Vec<u8> {
    let mut value = vec![number as u8; 10_000];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value[9_992..].copy_from_slice(&number.to_le_bytes());
    value
}

#[test]
fn an_object_that_is_read_often_is_read_once_from_its_owner() {
    let master = Master::start(MasterConfig::embedded()).unwrap();
    let address = master.rpc_address().to_string();
    let lender = node(&address, 64 * MIB);
    let reader = cached(&address, 8 * MIB);
    lender.put("k", &value(1), &plain()).unwrap();
    for _ in 0..10 {
        assert!(reader.get("k").unwrap() == value(1));
    }
    let counted = reader.metrics();
    assert_eq!((counted.hot_admitted, counted.hot_hits, counted.objects_read), (1, 8, 10));
    let mut room = [0; 10_100];
    assert_eq!(reader.get_into("k", &mut room), Ok(10_000));
    assert!(room[..10_000] == value(1) && room[10_000..] == [0; 100]);
    let (mut head, mut tail) = (vec![0; 4000], vec![0; 6000]);
    let into = [&mut head[..], &mut tail[..]].map(yb_client::LocalBuffer::destination).into_iter().collect();
    assert_eq!(reader.batch_get_items([GetItem { key: b"k", into }]), [Ok(10_000)]);
    assert!([head, tail].concat() == value(1));
    let lookup = reader.query("k").unwrap();
    assert_eq!(reader.get_known(GetItem::new(b"k", &mut room), lookup), Ok(10_000));
    assert_eq!(reader.metrics().hot_hits, 11);
    assert_eq!(reader.get_into("k", &mut [0; 10]), Err(Error::BufferTooSmall { object: 10_000, buffer: 10 }));
    lender.remove("k", true).unwrap();
    assert_eq!(reader.get("k"), Err(Error::NotFound));
}

#[test]
fn own_memory_and_large_objects_are_not_copied() {
    let master = Master::start(MasterConfig::embedded()).unwrap();
    let address = master.rpc_address().to_string();
    let hot_cache = HotCacheConfig { bytes: MIB, threshold: 1 };
    let lender =
        Client::connect(ClientConfig { hot_cache, global_segment_size: 64 * MIB, ..config(&address) }).unwrap();
    let reader = Client::connect(ClientConfig { hot_cache, ..config(&address) }).unwrap();
    lender.put("small", &value(1), &plain()).unwrap();
    lender.put("large", &bytes(1, MIB as usize), &plain()).unwrap();
    for _ in 0..3 {
        lender.batch_get(&["small", "large"]);
        assert!(reader.batch_get(&["small", "large"]).iter().all(Result::is_ok));
    }
    assert_eq!(lender.metrics().hot_admitted, 0);
    assert_eq!((reader.metrics().hot_admitted, reader.metrics().hot_hits), (1, 2));
}

/// Two writers change keys in every way there is; readers with a cache never see a value older than one that was
/// already there when they asked.
#[test]
fn nothing_older_than_what_was_there_is_read() {
    const KEYS: usize = 4;
    let master = Master::start(MasterConfig::embedded()).unwrap();
    let address = master.rpc_address().to_string();
    let _node = node(&address, 64 * MIB);
    // The newest write that has ended, of each key.
    let ended: Vec<AtomicU64> = (0..KEYS).map(|_| AtomicU64::new(0)).collect();
    let done = AtomicBool::new(false);
    let progress = AtomicU64::new(0);
    let hits: u64 = std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let reader = cached(&address, 8 * MIB);
                    while !done.load(Ordering::SeqCst) {
                        for (key, ended) in ended.iter().enumerate() {
                            let before = ended.load(Ordering::SeqCst);
                            let Ok(read) = reader.get(format!("k{key}")) else { continue };
                            let number = u64::from_le_bytes(read[..8].try_into().unwrap());
                            assert!(number >= before, "key {key}: {number}, but {before} was there");
                            assert!(read == value(number), "key {key}: torn");
                            progress.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                    reader.metrics().hot_hits
                })
            })
            .collect();
        let writer = requester(&address);
        for number in 1..=300_u64 {
            let key = number as usize % KEYS;
            let name = format!("k{key}");
            // Removed and put again by one client; the size stays, so that the same space is taken again.
            match writer.remove(&name, true) {
                Ok(()) | Err(Error::NotFound) => {}
                other => panic!("{other:?}"),
            }
            writer.put(&name, &value(number), &plain()).unwrap();
            ended[key].store(number, Ordering::SeqCst);
            if number % 10 == 0 {
                // The readers find the same values again.
                let before = progress.load(Ordering::SeqCst);
                wait_until("reads", || progress.load(Ordering::SeqCst) >= before + 40);
            }
        }
        done.store(true, Ordering::SeqCst);
        readers.into_iter().map(|reader| reader.join().unwrap()).sum()
    });
    assert!(hits > 100, "{hits} hits");
}

/// A master that starts again may place other bytes of the same key and size at the same address.
#[test]
fn a_new_master_does_not_bring_old_bytes_back() {
    let master = Master::start(MasterConfig::embedded()).unwrap();
    let address = master.rpc_address().to_string();
    let lender = node(&address, 16 * MIB);
    let reader = cached(&address, 8 * MIB);
    lender.put("k", &value(1), &plain()).unwrap();
    for _ in 0..4 {
        assert!(reader.get("k").unwrap() == value(1));
    }
    assert_eq!(reader.metrics().hot_hits, 2);
    drop(lender);
    drop(master);
    let again = Master::start(MasterConfig { listen: address.parse().unwrap(), ..MasterConfig::embedded() }).unwrap();
    assert_eq!(again.rpc_address().to_string(), address);
    let lender = node(&address, 16 * MIB);
    lender.put("k", &value(2), &plain()).unwrap();
    wait_until("the reader finds the new master", || reader.exists("k") == Ok(true));
    for _ in 0..4 {
        assert!(reader.get("k").unwrap() == value(2));
    }
}

#[test]
fn under_the_peers_master_nothing_is_kept() {
    let Some((_process, address)) = wheel_master(&[]) else { return };
    let lender = node(&address, 64 * MIB);
    let reader = cached(&address, 8 * MIB);
    lender.put("k", &value(1), &plain()).unwrap();
    for _ in 0..5 {
        assert!(reader.get("k").unwrap() == value(1));
    }
    assert_eq!((reader.metrics().hot_admitted, reader.metrics().hot_hits), (0, 0));
}
