//! Batches of more keys than a master takes in one request.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use common::{MIB, node, plain, requester};
use yb_client::{Error, PutOutcome};
use yb_master::{Master, MasterConfig};
use yb_wire::Limits;

/// Elements of one request at most.
const MOST: u32 = 70_000;
/// Objects; a request about them has two elements for each, and more.
const OBJECTS: usize = 40_000;

#[test]
fn a_batch_of_more_keys_than_a_request_may_have_is_answered_in_order() {
    let config = MasterConfig { message_limits: Limits { max_elements: MOST }, ..MasterConfig::embedded() };
    let master = Master::start(config).unwrap();
    let address = master.rpc_address().to_string();
    let _node = node(&address, 64 * MIB);
    let client = requester(&address);
    let mut items: Vec<(String, Vec<u8>)> =
        (0..OBJECTS).map(|at| (format!("k{at}"), at.to_string().into_bytes())).collect();
    // The first and the last of the batch have one key: the first is stored.
    items.push(("k0".into(), b"other".to_vec()));
    let stored = client.batch_put(&items, &plain());
    assert!(
        stored.iter().all(|outcome| *outcome == Ok(PutOutcome::Stored)),
        "{:?}",
        stored.iter().find(|o| o.is_err())
    );
    items.pop();

    let all: Vec<String> = (0..OBJECTS).flat_map(|at| [format!("k{at}"), format!("missing{at}")]).collect();
    assert!(all.len() > MOST as usize);
    let is_there = |at: usize| at.is_multiple_of(2);
    let there = client.batch_exists(&all);
    assert!(there.len() == all.len() && there.iter().enumerate().all(|(at, there)| *there == Ok(is_there(at))));
    let got = client.batch_get(&all);
    assert_eq!(got.len(), all.len());
    for (at, got) in got.into_iter().enumerate() {
        match is_there(at) {
            true => assert_eq!(got.as_ref(), Ok(&items[at / 2].1), "{}", all[at]),
            false => assert_eq!(got, Err(Error::NotFound), "{}", all[at]),
        }
    }
    let gone = client.batch_remove(&all, true);
    let expected = |at| if is_there(at) { Ok(()) } else { Err(Error::NotFound) };
    assert!(gone.len() == all.len() && gone.into_iter().enumerate().all(|(at, gone)| gone == expected(at)));
}
