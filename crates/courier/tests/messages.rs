//! The recorded messages in both roles, and messages between a client and a server over real sockets.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver as Queue, Sender, channel};
use std::time::Duration;

use yb_courier::{
    Client, ClientLimits, DATA, Dtype, Receiver, SendError, Server, TENSOR, Taken, TensorHead, data, tensor,
};
use yb_rpc::{ClientCore, Parts, Payload, RpcAddress};

const PATIENCE: Duration = Duration::from_secs(20);

/// Passes messages on.
struct Passing {
    to: Sender<Taken>,
}

impl Receiver for Passing {
    fn receive(&self, message: Taken) {
        let _ = self.to.send(message);
    }
}

fn server(threads: usize) -> (Server, Queue<Taken>, String) {
    let (to, taken) = channel();
    let server = Server::start("127.0.0.1:0", threads, Arc::new(Passing { to })).expect("a server");
    let address = format!("127.0.0.1:{}", server.port());
    (server, taken, address)
}

fn client(timeout: Duration) -> Client {
    Client::new(ClientLimits { connections: 4, timeout })
}

fn send(client: &Client, address: &str, function: u32, payload: Payload) -> Result<(), SendError> {
    let (done, outcome) = channel();
    client.send(address, function, payload, move |result| {
        let _ = done.send(result);
    });
    outcome.recv_timeout(PATIENCE).expect("an outcome")
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks_exact(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

/// Sequence number, data, request and reply as recorded.
type Recorded = (u32, Vec<u8>, Vec<u8>, Vec<u8>);

fn recorded() -> Vec<Recorded> {
    let lines =
        include_str!("vectors/messages.jsonl").lines().map(|line| serde_json::from_str(line).expect("a recorded line"));
    let recorded = lines.map(|line: serde_json::Value| {
        let reply = bytes(line["reply_hex"].as_str().expect("a recorded line"));
        match line["request_hex"].as_str() {
            Some(request) => (0, b"hello-rpc".to_vec(), bytes(request), reply),
            None => {
                let data = vec![b'x'; 2000];
                let prefix = bytes(line["request_prefix_hex"].as_str().expect("a recorded line"));
                (1, data.clone(), [prefix, data].concat(), reply)
            }
        }
    });
    let recorded: Vec<_> = recorded.collect();
    assert_eq!(recorded.len(), 2);
    recorded
}

#[test]
fn we_send_the_recorded_bytes_and_understand_the_replies() {
    let mut core = ClientCore::new(RpcAddress::Tcp(([127, 0, 0, 1], 1).into()), u32::MAX);
    for (sequence, content, request, reply) in recorded() {
        let payload = data(&content);
        let mut out = Vec::new();
        let parts = Parts { body: &payload.body, attachment: &payload.attachment };
        assert_eq!(core.begin_with(DATA, parts, (), &mut out), Ok(sequence));
        assert_eq!(out, request);
        let mut answers = Vec::new();
        core.feed(&reply, |done| answers.push(done.result)).unwrap();
        assert!(matches!(&answers[..], [Ok(_)]), "{answers:?}");
    }
}

#[test]
fn we_answer_the_recorded_requests_with_the_recorded_bytes() {
    let (_server, taken, address) = server(1);
    let mut peer = TcpStream::connect(address).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    for (_, content, request, reply) in recorded() {
        peer.write_all(&request).unwrap();
        let mut answer = vec![0; reply.len()];
        peer.read_exact(&mut answer).unwrap();
        assert_eq!(answer, reply);
        let message = taken.recv_timeout(PATIENCE).unwrap();
        assert_eq!((message.head, message.whole), (None, content));
        assert_eq!(message.from, Some(peer.local_addr().unwrap()));
    }
}

#[test]
fn data_of_every_length_arrive_whole() {
    let (_server, taken, address) = server(4);
    let client = client(PATIENCE);
    for length in [0, 1, 255, 256, 1024, 1025, 65_536, 3 << 20] {
        let content: Vec<u8> = (0..length).map(|i| (i * 31 + i / 256) as u8).collect();
        send(&client, &address, DATA, data(&content)).unwrap();
        assert!(taken.recv_timeout(PATIENCE).unwrap().whole == content, "{length} bytes");
    }
}

#[test]
fn tensors_keep_their_type_and_shape() {
    let (_server, taken, address) = server(1);
    let client = client(PATIENCE);
    let elements: Vec<u8> = (0..48).collect();
    for (name, shape) in [("float32", vec![3u64, 4]), ("bfloat16", vec![1, 2, 3, 2, 2]), ("bool", vec![48])] {
        let head = TensorHead { dtype: Dtype::named(name).unwrap(), shape };
        send(&client, &address, TENSOR, tensor(Some(&head), &elements)).unwrap();
        let message = taken.recv_timeout(PATIENCE).unwrap();
        assert_eq!((message.head.as_ref(), message.elements()), (Some(&head), &elements[..]));
    }
    // As the peer sends it: no head anywhere.
    send(&client, &address, TENSOR, tensor(None, &elements)).unwrap();
    assert_eq!(taken.recv_timeout(PATIENCE).unwrap().head, None);
    // As the peer's programs send it: the head in front of the bytes, in whatever function.
    let head = TensorHead { dtype: Dtype::named("int16").unwrap(), shape: vec![24] };
    let marked = [head.to_bytes().unwrap(), elements.clone()].concat();
    for (function, payload) in [(DATA, data(&marked)), (TENSOR, tensor(None, &marked))] {
        send(&client, &address, function, payload).unwrap();
        let message = taken.recv_timeout(PATIENCE).unwrap();
        assert_eq!((message.head.as_ref(), message.elements()), (Some(&head), &elements[..]));
        assert_eq!(message.whole, marked, "what a receiver of data gets");
    }
}

#[test]
fn one_connection_keeps_its_order_and_a_slow_receiver_delays_no_other() {
    struct Gate(Sender<Vec<u8>>, parking_lot::Mutex<Queue<()>>);
    impl Receiver for Gate {
        fn receive(&self, message: Taken) {
            if message.whole == b"slow" {
                let _ = self.1.lock().recv_timeout(PATIENCE);
            }
            let _ = self.0.send(message.whole);
        }
    }
    let ((to, taken), (open, gate)) = (channel(), channel());
    let server = Server::start("127.0.0.1:0", 8, Arc::new(Gate(to, parking_lot::Mutex::new(gate)))).unwrap();
    let address = format!("127.0.0.1:{}", server.port());
    let client = client(PATIENCE);
    let (done, slow) = channel();
    client.send(&address, DATA, data(b"slow"), move |result| drop(done.send(result)));
    // Other connections are handed out by other threads; a few are tried, as two may share one.
    let mut passed = 0;
    for _ in 0..64 {
        let (done, outcome) = channel();
        client.send(&address, DATA, data(b"quick"), move |result| drop(done.send(result)));
        passed += usize::from(outcome.recv_timeout(Duration::from_millis(300)).is_ok());
        if passed > 0 {
            break;
        }
    }
    assert!(passed > 0, "every connection waits for the slow one");
    assert!(slow.try_recv().is_err());
    open.send(()).unwrap();
    assert_eq!(slow.recv_timeout(PATIENCE).unwrap(), Ok(()));
    drop(taken);
}

#[test]
fn failures_are_told() {
    let client = client(Duration::from_millis(300));
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap().to_string();
    // It accepts and says nothing.
    assert!(matches!(send(&client, &address, DATA, data(b"x")), Err(SendError::Rpc(_))));
    drop(nobody);
    assert!(matches!(send(&client, &address, DATA, data(b"x")), Err(SendError::Rpc(_))));
    for wrong in ["", "nonsense", "127.0.0.1", "127.0.0.1:99999", "unix:/tmp/x"] {
        assert!(matches!(send(&client, wrong, DATA, data(b"x")), Err(SendError::Address { .. })), "{wrong:?}");
        if wrong != "unix:/tmp/x" {
            let (to, _) = channel();
            assert!(Server::start(wrong, 1, Arc::new(Passing { to })).is_err(), "{wrong:?}");
        }
    }
}

#[test]
fn other_functions_and_other_arguments_are_refused_and_the_connection_goes_on() {
    let (_server, taken, address) = server(1);
    let client = client(PATIENCE);
    let refused = |result: Result<(), SendError>| match result {
        Err(SendError::Rpc(yb_rpc::RpcError::Refused { code, .. })) => code,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(send(&client, &address, 0x1234, data(b"x"))), 11);
    assert_eq!(refused(send(&client, &address, DATA, Payload::from(vec![1, 2, 3]))), 4);
    send(&client, &address, DATA, data(b"still here")).unwrap();
    assert_eq!(taken.recv_timeout(PATIENCE).unwrap().whole, b"still here");
}

#[test]
fn a_receiver_may_stop_its_own_server() {
    struct Last(parking_lot::Mutex<Option<Server>>);
    impl Receiver for Last {
        fn receive(&self, _: Taken) {
            drop(self.0.lock().take());
        }
    }
    let last = Arc::new(Last(parking_lot::Mutex::new(None)));
    let server = Server::start("127.0.0.1:0", 1, Arc::clone(&last) as Arc<dyn Receiver>).unwrap();
    let address = format!("127.0.0.1:{}", server.port());
    *last.0.lock() = Some(server);
    assert!(send(&client(PATIENCE), &address, DATA, data(b"stop")).is_err(), "nobody is left to answer");
    assert!(last.0.lock().is_none());
}
