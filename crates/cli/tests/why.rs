//! A call that failed says who stood in the way: the node that is silent, the writer, the lease.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod common;

use common::{Master, Way, code, copies, error_text, home, wait_until};
use rustix::process::Signal;
use yb_client::{Client, Error, Finding, NoRoom, Obstacle};

fn finding<T: std::fmt::Debug>(answer: Result<T, Error>) -> (Error, Finding) {
    let error = answer.unwrap_err();
    let finding = error.finding().unwrap_or_else(|| panic!("nothing is known of {error:?}")).clone();
    (error, finding)
}

/// How often the client asked why.
fn questions(client: &Client) -> u64 {
    client.rpc_times().iter().filter(|times| times.name == "Why").map(|times| times.answered.count()).sum()
}

#[test]
fn a_silent_node_a_writer_and_a_lease_are_named() {
    // The object is known to the end of the test, however long the machine takes.
    let master = Master::start(&["--client_ttl=10", "--client_suspicion_ttl_sec=600", "--default_kv_lease_ttl=600000"]);
    let node = master.node(Way::Tcp, &[]);
    let (client, writer) = (master.client(Way::Tcp), master.client(Way::Tcp));
    wait_until("there is room", || client.put("key", b"bytes", &copies(1)).is_ok());

    // A put of another client that has not ended.
    assert!(writer.put_session_start(&["written"], &[1000], &copies(1))[0].is_ok());
    let (error, busy) = finding(client.get("written"));
    assert_eq!((error.code().0, busy.obstacle, busy.writer), (-703, Obstacle::Writer, Some(writer.client_id())));
    let host = busy.writer_host.unwrap();
    assert!(host.starts_with("127.0.0.1:") && busy.age.is_some(), "{error}");
    assert!(error.to_string().contains(&host) && error.retryable(), "{error}");
    let (_, own) = finding(writer.get("written"));
    assert_eq!(own.obstacle, Obstacle::OwnWrite);
    let said = master.command(&["get", "written", "-"]);
    assert!(code(&said) != 0 && error_text(&said).contains(&host), "{}", error_text(&said));
    assert!(writer.put_session_revoke(&["written"])[0].is_ok());

    // A lease.
    client.get("key").unwrap();
    let (error, leased) = finding(client.remove("key", false));
    assert_eq!((error.code().0, leased.obstacle), (-706, Obstacle::Lease));
    assert!(leased.left.is_some_and(|left| !left.is_zero()), "{error}");
    let said = master.command(&["rm", "key"]);
    assert!(code(&said) != 0 && error_text(&said).contains("the last lease ends in"), "{}", error_text(&said));

    // An object that fits nowhere.
    let large = client.put("large", &vec![0; 65 << 20], &copies(1)).unwrap_err();
    assert!(matches!(large, Error::NoSpace(NoRoom::LargerThanAnySegment { .. })), "{large}");
    assert_eq!(large.cause(), Some("too_large"));

    // The only node stands still.
    let address = home(&client, "key");
    let name = node
        .flags
        .iter()
        .find_map(|flag| flag.strip_prefix("--port="))
        .map(|port| format!("127.0.0.1:{port}"))
        .unwrap();
    node.process.signal(Signal::STOP).unwrap();
    wait_until("its objects are not offered", || client.exists("key") == Ok(false));
    let (error, silent) = finding(client.get("key"));
    assert_eq!((error.code().0, silent.obstacle, error.peer()), (-703, Obstacle::SilentNode, Some(address.as_str())));
    assert!(silent.age.is_some_and(|age| age.as_secs() >= 10), "{error}");
    let before = questions(&client);
    assert_eq!(client.get("missing"), Err(Error::NotFound));
    assert_eq!(questions(&client), before, "a miss needs no reason");
    let of_many = client.batch_get(&["missing", "key", "key"]);
    assert_eq!(questions(&client), before + 1, "one question a call");
    assert_eq!(of_many[0], Err(Error::NotFound));
    assert_eq!(finding(of_many[1].clone()).1.node.as_deref(), Some(name.as_str()));
    let said = master.command(&["get", "key", "-"]);
    assert!(code(&said) != 0 && error_text(&said).contains(&name), "{}", error_text(&said));
    node.process.signal(Signal::CONT).unwrap();
    wait_until("it is back", || client.exists("key") == Ok(true));
    let before = questions(&client);
    assert_eq!(client.get("key").unwrap(), b"bytes");
    assert_eq!(questions(&client), before, "nor does success");
}
