//! The client's own HTTP page.
#![allow(clippy::unwrap_used, reason = "a test may")]

mod common;

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};

use common::{MIB, config, node, plain, wait_until};
use yb_client::{Client, ClientConfig, Error, MetricsConfig};
use yb_master::{Master, MasterConfig};

fn with_page(master: &str) -> ClientConfig {
    let metrics = MetricsConfig { cluster_id: "c1".into(), ..MetricsConfig::default() };
    ClientConfig { page: Some(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))), metrics, ..config(master) }
}

/// Sends a request and reads until the page closes the connection.
fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(address: SocketAddr, path: &str) -> String {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n"))
}

/// The value of a sample; the labels are part of the name.
fn sample(page: &str, name: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
}

#[test]
fn it_tells_what_was_counted_and_goes_with_the_client() {
    let mut master = Some(Master::start(MasterConfig::embedded()).unwrap());
    let address = master.as_ref().unwrap().rpc_address().to_string();
    let lender = node(&address, 16 * MIB);
    let client = Client::connect(with_page(&address)).unwrap();
    let page = client.page_address().unwrap();
    client.put("k", &[1; 1000], &plain()).unwrap();
    client.get("k").unwrap();
    client.batch_get(&["k", "k"]);
    let healthy = get(page, "/health");
    assert!(healthy.starts_with("HTTP/1.1 200 OK\r\n"), "{healthy}");
    assert!(healthy.ends_with("{\"status\":\"healthy\",\"code\":0}"));
    let text = get(page, "/metrics");
    let labels = "client_mode=\"real\",cluster_id=\"c1\"";
    assert_eq!(sample(&text, &format!("mooncake_transfer_read_bytes{{{labels}}}")), 3000);
    assert_eq!(sample(&text, &format!("mooncake_transfer_write_bytes{{{labels}}}")), 1000);
    assert_eq!(sample(&text, &format!("mooncake_transfer_get_latency_count{{{labels}}}")), 1);
    assert_eq!(sample(&text, &format!("mooncake_transfer_batch_get_latency_bucket{{{labels},le=\"+Inf\"}}")), 1);
    let operations = format!("mooncake_transfer_write_operation_count{{{labels},op_name=\"put\"}}");
    assert_eq!(sample(&text, &operations), 1);
    assert_eq!(sample(&text, &format!("mooncake_client_rpc_count{{{labels},rpc_name=\"PutEnd\"}}")), 1);
    assert!(get(page, "/metrics/summary").contains("put: 1 calls"));
    assert!(get(page, "/nothing").starts_with("HTTP/1.1 404"));
    assert!(ask(page, "POST /health HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    assert!(ask(page, "hello\r\n\r\n").starts_with("HTTP/1.1 400"));
    // One that says nothing holds up nobody.
    let silent = TcpStream::connect(page).unwrap();
    assert!(get(page, "/health").contains("healthy"));
    drop(silent);
    lender.close();
    drop(master.take());
    let lost = get(page, "/health");
    assert!(lost.starts_with("HTTP/1.1 503") && lost.contains("\"code\":2"), "{lost}");
    client.close();
    assert!(TcpStream::connect(page).is_err(), "closed with the client");
    assert_eq!(client.page_address(), None);
}

#[test]
fn a_port_in_use_fails_the_setup_and_metrics_can_be_turned_off() {
    let master = Master::start(MasterConfig::embedded()).unwrap();
    let address = master.rpc_address().to_string();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let config = ClientConfig { page: Some(taken.local_addr().unwrap()), ..with_page(&address) };
    match Client::connect(config) {
        Err(Error::Setup { stage, .. }) => assert_eq!(stage, "the client's HTTP page"),
        other => panic!("{other:?}"),
    }
    let metrics = MetricsConfig { enabled: false, ..MetricsConfig::default() };
    let client = Client::connect(ClientConfig { metrics, ..with_page(&address) }).unwrap();
    let page = client.page_address().unwrap();
    assert!(get(page, "/metrics").starts_with("HTTP/1.1 404") && get(page, "/health").contains("healthy"));
}

#[test]
fn it_tells_who_was_not_let_in() {
    use yb_secure::{Networks, Security, SecuritySettings};
    let master = Master::start(MasterConfig::embedded()).unwrap();
    let settings = SecuritySettings { plain_from: Some(Networks::none()), ..SecuritySettings::default() };
    let config = ClientConfig {
        security: Security::open(&settings).unwrap(),
        global_segment_size: 16 * MIB,
        ..with_page(&master.rpc_address().to_string())
    };
    let client = Client::connect(config).unwrap();
    let before = get(client.page_address().unwrap(), "/metrics");
    let labels = "client_mode=\"real\",cluster_id=\"c1\"";
    let refused = format!("yuebing_security_connections_total{{{labels},outcome=\"refused_plain\"}}");
    let before = sample(&before, &refused);
    let mut stranger = TcpStream::connect(client.endpoint().unwrap()).unwrap();
    stranger.write_all(&[0; 64]).unwrap();
    // It is closed without an answer of the protocol behind.
    let mut rest = Vec::new();
    let _ = stranger.read_to_end(&mut rest);
    wait_until("the refusal is on the page", || {
        let page = get(client.page_address().unwrap(), "/metrics");
        let is_there = sample(&page, &refused) > before;
        assert!(!is_there || sample(&page, &format!("yuebing_security_connections_in_care{{{labels}}}")) == 0);
        is_there
    });
}
