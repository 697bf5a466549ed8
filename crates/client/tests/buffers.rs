//! Registered buffers on loan.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::time::Duration;

use common::{MIB, node, plain, requester, wait_until};
use yb_client::{BufferPool, Client, Error, MemoryRange, PoolConfig, PoolError};
use yb_master::{Master, MasterConfig};

fn config(capacity: u64) -> PoolConfig {
    PoolConfig { capacity, granule: 4096, alignment: 1 << 21, most_leases: None }
}

fn with_client(test: impl FnOnce(&Client)) {
    let master = Master::start(MasterConfig::embedded()).unwrap();
    let address = master.rpc_address().to_string();
    let _node = node(&address, 64 * MIB);
    test(&requester(&address));
}

#[test]
fn leases_are_registered_memory_that_is_used_again() {
    with_client(|client| {
        let pool = BufferPool::new(client, config(MIB)).unwrap();
        let first = pool.acquire(5000, Duration::ZERO).unwrap();
        let address = first.address();
        assert_eq!((first.len(), address % 4096), (5000, 0));
        client.put("k", &[7; 5000], &plain()).unwrap();
        assert_eq!(client.get_into_range("k", first.range()), Ok(5000));
        let copied = client.put_from("copy", first.range(), &plain()).unwrap();
        assert_eq!((copied, client.get("copy").unwrap()), (yb_client::PutOutcome::Stored, vec![7; 5000]));
        drop(first);
        assert_eq!(pool.acquire(5000, Duration::ZERO).unwrap().address(), address, "no second range is made");
        assert_eq!(pool.leases(), 0);
        pool.close().unwrap();
        assert!(client.local(MemoryRange { address, len: 1 }).is_err(), "nothing stays registered");
        assert_eq!(pool.acquire(1, Duration::ZERO).unwrap_err(), PoolError::Closed);
        pool.close().unwrap();
    });
}

#[test]
fn what_does_not_fit_is_told_apart() {
    with_client(|client| {
        let pool = BufferPool::new(client, PoolConfig { most_leases: Some(2), ..config(MIB) }).unwrap();
        for size in [MIB + 1, u64::MAX] {
            assert_eq!(pool.acquire(size, Duration::ZERO).unwrap_err(), PoolError::TooLarge);
        }
        let whole = pool.try_acquire(MIB).unwrap();
        assert_eq!(pool.try_acquire(1).unwrap_err(), PoolError::Exhausted);
        assert_eq!(pool.acquire(1, Duration::from_millis(20)).unwrap_err(), PoolError::TimedOut);
        assert_eq!(pool.close().unwrap_err(), PoolError::Leased);
        drop(whole);
        let _two = (pool.try_acquire(0).unwrap(), pool.try_acquire(1).unwrap());
        assert_eq!(pool.try_acquire(1).unwrap_err(), PoolError::Exhausted, "not more than two");
        assert_eq!(pool.prewarm(4096, 1), Err(PoolError::CapacityExceeded));
        let odd = PoolConfig { granule: 100, ..config(MIB) };
        assert!(matches!(BufferPool::new(client, odd), Err(PoolError::Client(Error::Invalid(_)))));
    });
}

#[test]
fn those_who_wait_are_served_in_their_order() {
    with_client(|client| {
        let pool = BufferPool::new(client, config(MIB)).unwrap();
        let held = pool.try_acquire(MIB / 2).unwrap();
        let mut large = pool.queue(MIB).unwrap();
        let mut small = pool.queue(4096).unwrap();
        assert_eq!(pool.try_acquire(4096).unwrap_err(), PoolError::Exhausted, "who does not wait comes last");
        assert!(small.wait(Duration::from_millis(5)).is_none(), "there is room, but the large one comes first");
        drop(held);
        let got = large.wait(Duration::from_secs(10)).unwrap().unwrap();
        assert!(small.wait(Duration::ZERO).is_none());
        let waiting = std::thread::scope(|scope| {
            let waits = scope.spawn(move || small.wait(Duration::from_secs(10)).map(|lease| lease.map(|l| l.len())));
            drop(got);
            waits.join().unwrap()
        });
        assert_eq!(waiting, Some(Ok(4096)));
        drop(pool.queue(MIB).unwrap());
        assert!(pool.try_acquire(4096).is_ok(), "who gave up is in nobody's way");
    });
}

#[test]
fn a_lease_outlives_its_client_and_a_pool_that_is_let_go_leaves_nothing() {
    with_client(|client| {
        let pool = BufferPool::new(client, config(MIB)).unwrap();
        pool.prewarm(64 << 10, 4).unwrap();
        let lease = pool.acquire(100, Duration::ZERO).unwrap();
        let address = lease.address();
        let other = BufferPool::new(client, config(MIB)).unwrap();
        let free = other.try_acquire(1).unwrap().address();
        drop(other);
        wait_until("the pool is gone", || client.local(MemoryRange { address: free, len: 1 }).is_err());
        client.close();
        assert_eq!((lease.address(), lease.len()), (address, 100));
        drop(lease);
        pool.close().unwrap();
        assert!(matches!(BufferPool::new(client, config(MIB)), Err(PoolError::Client(Error::Closed))));
    });
}
