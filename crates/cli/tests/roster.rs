//! What was removed or replaced while its node was away does not come back with it when the master was started anew.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod common;

use std::time::Duration;

use common::{Master, Node, Way, copies, value, within};
use yb_client::Client;

const LEN: usize = 4096;

/// What the pool shows under a key: the version, or nothing.
fn shown(client: &Client, key: &str) -> Option<u64> {
    let got = client.get(key).ok()?;
    (1..3).find(|version| got == value(*version, LEN))
}

/// Who is back first when the master is started anew.
#[derive(Clone, Copy, PartialEq)]
enum First {
    /// The node that stayed.
    Stayed,
    /// The node that was away.
    Away,
    /// There is no other one.
    Alone,
}

/// A removed key, a replaced one, and one that nothing happens to, all on a node that goes away; then the master dies.
fn what_went_stays_gone(master_flags: &[&str], first: First) {
    let has_second = first != First::Alone;
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let file = format!("--segment_file={}", directory.path().join("memory").display());
    let journal = format!("--journal_file={}", directory.path().join("journal").display());
    let mut flags = vec!["--default_kv_lease_ttl=500", "--client_suspicion_ttl_sec=300"];
    flags.extend(master_flags);
    if !has_second {
        flags.push(&journal);
    }
    let mut master = Master::start(&flags);
    let mut away = master.node(Way::Tcp, &[file.as_str()]);
    let client = master.client(Way::Tcp);
    for key in ["removed", "replaced", "untouched"] {
        within("stored", common::PATIENCE, || client.put(key, &value(1, LEN), &copies(1)).is_ok());
    }
    let _second = has_second.then(|| master.node(Way::Tcp, &[]));
    if has_second {
        let is_there = || client.put("probe", &value(1, LEN), &copies(2)).is_ok();
        within("the other node is there", common::PATIENCE, is_there);
    }
    yb_env::sleep(Duration::from_secs(1));
    away.process.kill();
    client.remove("removed", true).unwrap();
    if has_second {
        let replace = || client.upsert("replaced", &value(2, LEN), &copies(1)).is_ok();
        within("replaced on the other node", common::PATIENCE, replace);
        let store = || client.put("beside", &value(1, LEN), &copies(1)).is_ok();
        within("stored beside it", common::PATIENCE, store);
    } else {
        client.remove("replaced", true).unwrap();
    }
    // Time itself is the matter: what went a moment before the master died may come back.
    yb_env::sleep(Duration::from_secs(6));
    master.process.kill();
    master.start_again();
    // What is old is never shown, not even for a moment.
    let is_known = || {
        assert_eq!((shown(&client, "removed"), shown(&client, "replaced") == Some(1)), (None, false));
        !has_second || (shown(&client, "replaced") == Some(2) && shown(&client, "beside") == Some(1))
    };
    if first == First::Stayed {
        within("what lies on the node that stayed is known", common::PATIENCE, is_known);
    }
    away = Node::start(away.flags.clone());
    within("what lies on the node that stayed is known", common::PATIENCE, is_known);
    let stored = || client.put("new", &value(1, LEN), &copies(1)).is_ok();
    within("the pool is in use", common::PATIENCE, stored);
    // Until every node has been read, and then some.
    for _ in 0..20 {
        assert_eq!(shown(&client, "removed"), None);
        assert_eq!(shown(&client, "replaced"), has_second.then_some(2));
        yb_env::sleep(Duration::from_millis(200));
    }
    drop(away);
}

#[test]
fn what_was_removed_or_replaced_while_its_node_was_away_stays_gone_as_another_node_knows() {
    what_went_stays_gone(&[], First::Stayed);
}

#[test]
fn what_went_stays_gone_where_the_node_that_was_away_is_back_first() {
    what_went_stays_gone(&[], First::Away);
}

#[test]
fn what_was_removed_while_the_only_node_was_away_stays_gone_as_the_log_knows() {
    what_went_stays_gone(&["--journal_sync=false"], First::Alone);
}
