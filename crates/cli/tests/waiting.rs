//! A node that is started before its master waits for it, says so, and ends when it is asked to; what waiting does not mend
//! ends it at once.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

use common::{Master, PATIENCE, Process, Way, code, copies, error_text, free_port, node_flags, wait_until, yuebing};
use rustix::process::Signal;

/// What a page says under `/health`; nothing while nobody listens.
fn health(port: u16) -> String {
    let mut answer = String::new();
    if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) {
        let _ = stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n");
        let _ = stream.read_to_string(&mut answer);
    }
    answer
}

/// A node whose master is to be at a port, what it logs, and the port of its page.
fn early_node(master: u16) -> (Process, tempfile::NamedTempFile, u16) {
    let (page, log) = (free_port(), tempfile::NamedTempFile::new().unwrap());
    let at = format!("--http_port={page}");
    let flags = node_flags(&format!("127.0.0.1:{master}"), Way::Tcp, &["--enable_http_server=true", &at]);
    let errors = Stdio::from(log.reopen().unwrap());
    (Process::start(yuebing(&flags).stdout(Stdio::null()).stderr(errors)).unwrap(), log, page)
}

#[test]
fn a_node_waits_for_a_master_that_comes_later() {
    let port = free_port();
    let (_node, _log, page) = early_node(port);
    wait_until("the page says that it waits", || health(page).contains("waiting for the master"));
    assert!(health(page).starts_with("HTTP/1.1 503"));
    let master = Master::start_at(port, &[]);
    let client = master.client(Way::Tcp);
    wait_until("it takes objects", || client.put("key", b"value", &copies(1)).is_ok());
    wait_until("the page says that it is well", || health(page).contains("\"healthy\""));
}

#[test]
fn a_node_that_waits_says_so_once_and_ends_well_when_it_is_asked_to() {
    for signal in [Signal::TERM, Signal::INT] {
        let (mut node, log, page) = early_node(free_port());
        wait_until("it waits", || health(page).contains("waiting for the master"));
        node.signal(signal).unwrap();
        assert_eq!(node.ends_within(PATIENCE).unwrap().code(), Some(0), "{signal:?}");
        let log = std::fs::read_to_string(log.path()).unwrap();
        assert_eq!(log.matches("waiting for the master: cannot connect").count(), 1, "{log}");
    }
}

#[test]
fn what_waiting_does_not_mend_ends_a_node_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let secret = |name: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, format!("{name} is what nobody guesses\n")).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
        format!("--secret_file={}", path.display())
    };
    let master = Master::start(&[&secret("one")]);
    let node = |master: &str, more: &[&str]| yuebing(&node_flags(master, Way::Tcp, more)).output().unwrap();
    let secured = master.address.to_string();
    let nobody = format!("127.0.0.1:{}", free_port());
    for (address, more, why) in [
        (&secured, vec![secret("another")], "the secrets are not the same"),
        (&secured, vec![], "takes secured connections only"),
        (&nobody, vec!["--master_wait_seconds=0".to_owned()], "refused"),
        (&"10.0.0.1".to_owned(), vec![], "address"),
        (&"127.0.0.1:port".to_owned(), vec![], "address"),
    ] {
        let more: Vec<&str> = more.iter().map(String::as_str).collect();
        let output = node(address, &more);
        let text = error_text(&output);
        assert!(code(&output) == 1 && text.contains(why), "{address} {more:?}: {text}");
    }
    // And one that may wait for a second says what it met when that is over.
    let output = node(&nobody, &["--master_wait_seconds=1"]);
    assert!(code(&output) == 1 && error_text(&output).contains("no master answers at"), "{}", error_text(&output));
}
