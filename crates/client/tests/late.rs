//! What a client says late of one write, when its next write of the same key is under way: under a master of ours.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use common::{MIB, bytes, node, plain, requester};
use parking_lot::Mutex;
use yb_client::{Client, Fragment, LocalBuffer, PutOutcome, RangesItem};
use yb_master::{Master, MasterConfig};
use yb_wire::{Rpc, WireTable, WireVersion};

/// Requests that were kept back: function and body.
type Kept = Arc<Mutex<Vec<(Rpc, Vec<u8>)>>>;

/// Between a client and its master: what it carries of the functions that it watches for is kept, and the answer is lost,
/// with the connection, once for each.
struct Thief {
    address: String,
    kept: Kept,
}

impl Thief {
    fn before(master: String, watched: &'static [Rpc]) -> Thief {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let kept: Kept = Arc::default();
        let notes = Arc::clone(&kept);
        yb_env::spawn_thread("thief", move || {
            for client in listener.incoming().flatten() {
                let (master, notes) = (TcpStream::connect(&master).unwrap(), Arc::clone(&notes));
                yb_env::spawn_thread("thief-wire", move || carry(client, master, watched, &notes)).unwrap();
            }
        })
        .unwrap();
        Thief { address, kept }
    }

    /// The request as it travelled.
    fn stolen(&self, rpc: Rpc) -> Vec<u8> {
        self.kept.lock().iter().find(|(kept, _)| *kept == rpc).map(|(_, bytes)| bytes.clone()).unwrap()
    }
}

/// One request, one answer, until either end goes or an answer is lost.
fn carry(mut client: TcpStream, mut master: TcpStream, watched: &[Rpc], kept: &Mutex<Vec<(Rpc, Vec<u8>)>>) {
    let mut buffer = vec![0; 1 << 16];
    while let Ok(len @ 1..) = client.read(&mut buffer) {
        let request = buffer[..len].to_vec();
        let seen = watched.iter().find(|rpc| {
            let function = WireTable::of(WireVersion::V0_3_13).signature(**rpc).unwrap().function_id;
            request.windows(4).any(|four| four == function.to_le_bytes())
        });
        let is_new = seen.is_some_and(|rpc| kept.lock().iter().all(|(known, _)| known != rpc));
        if master.write_all(&request).is_err() {
            return;
        }
        let Ok(len @ 1..) = master.read(&mut buffer) else { return };
        if let Some(rpc) = seen.filter(|_| is_new) {
            kept.lock().push((*rpc, request));
            return;
        }
        if client.write_all(&buffer[..len]).is_err() {
            return;
        }
    }
}

/// The request comes again, late, over a connection of its own.
fn repeat(master: &str, request: &[u8]) {
    let mut connection = TcpStream::connect(master).unwrap();
    connection.write_all(request).unwrap();
    let mut answer = [0; 16];
    connection.read_exact(&mut answer).unwrap();
}

fn pool() -> (Master, String) {
    let master = Master::start(MasterConfig::embedded()).unwrap();
    let address = master.rpc_address().to_string();
    (master, address)
}

fn from<'a>(key: &'a str, memory: &'a [u8]) -> RangesItem<'a> {
    let fragments = vec![Fragment { offset: 0, memory: LocalBuffer::source(memory) }];
    RangesItem { key: key.as_bytes(), fragments }
}

/// The next write of a key, by the same client, is open while `meanwhile` runs; then it ends, and must be whole.
fn with_an_open_write(client: &Client, key: &str, meanwhile: impl FnOnce()) {
    let value = bytes(7, 3000);
    assert_eq!(client.put_session_start(&[key], &[3000], &plain()), [Ok(())]);
    meanwhile();
    assert_eq!(client.exists(key), Ok(false), "nothing of it has been written yet");
    assert_eq!(client.put_session_write(&[from(key, &value)]), [Ok(3000)]);
    assert_eq!(client.put_session_end(&[key]), [Ok(())], "it is still there");
    assert!(client.get(key).unwrap() == value);
}

#[test]
fn a_late_end_of_one_write_does_not_publish_the_next() {
    let (_master, address) = pool();
    let _node = node(&address, 16 * MIB);
    let thief = Thief::before(address.clone(), &[Rpc::EndWrite, Rpc::PutEnd, Rpc::BatchEndWrites]);
    let client = requester(&thief.address);
    assert_eq!(client.put("k", b"first", &plain()), Ok(PutOutcome::Stored), "the end is sent again");
    let several = [("a", "1"), ("b", "2")];
    assert_eq!(client.batch_put(&several, &plain()), [Ok(PutOutcome::Stored), Ok(PutOutcome::Stored)]);
    for (key, stolen) in [("k", Rpc::EndWrite), ("a", Rpc::BatchEndWrites)] {
        client.remove(key, true).unwrap();
        with_an_open_write(&client, key, || repeat(&address, &thief.stolen(stolen)));
    }
}

#[test]
fn a_late_revoke_of_one_write_takes_nothing_from_the_next() {
    let (_master, address) = pool();
    let _node = node(&address, 16 * MIB);
    let thief = Thief::before(address.clone(), &[Rpc::BatchRevokeWrites, Rpc::PutRevoke, Rpc::BatchPutRevokeQuiet]);
    let client = requester(&thief.address);
    assert_eq!(client.put_session_start(&["k"], &[3000], &plain()), [Ok(())]);
    assert_eq!(client.put_session_revoke(&["k"]), [Ok(())], "the revoke is sent again");
    with_an_open_write(&client, "k", || repeat(&address, &thief.stolen(Rpc::BatchRevokeWrites)));
}
