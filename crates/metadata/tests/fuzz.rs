//! Answers that a metadata server should never give, to our HTTP and etcd clients: each call ends in time with a value, none,
//! or an error, holds no more than its bound, and the next one is served by a server that is well.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use yb_env::{Clock, Rng};
use yb_metadata::{EtcdStore, HttpStore, MetadataStore, StoreSettings};

const ANSWERS: u64 = 1_000;
/// A call never takes as long: the settings' times together, and a loaded machine.
const IN_TIME: Duration = Duration::from_secs(30);

/// Makes answers.
struct Maker(Rng);

impl Maker {
    fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.below(of.len())]
    }

    fn answer(&mut self) -> Vec<u8> {
        let status = self.pick(&["200 OK", "404 Not Found", "500 x", "99", "301 Moved", "204 No Content", "x", ""]);
        let body = self.pick(&[
            "",
            "{}",
            "value",
            "{\"kvs\":[{\"value\":\"!!\"}]}",
            "{\"kvs\":[{\"value\":\"dmFsdWU=\"}],\"count\":-1}",
            "{\"kvs\":{\"kvs\":[]}}",
            "{\"deleted\":\"99999999999999999999\"}",
            "5\r\nvalue\r\n0\r\n\r\n",
            "fffffffffffffff\r\nx",
        ]);
        let headers = match self.below(7) {
            0 => "Transfer-Encoding: chunked\r\n".to_owned(),
            1 => "Content-Length: 18446744073709551615\r\n".to_owned(),
            2 => "Content-Length: -5\r\n".to_owned(),
            3 => "Content-Encoding: gzip\r\n".to_owned(),
            4 => "Location: http://127.0.0.1:1/\r\n".to_owned(),
            5 => format!("X: {}\r\n", "y".repeat(self.below(100_000))),
            _ => format!("Content-Length: {}\r\n", body.len()),
        };
        let mut answer = format!("HTTP/1.1 {status}\r\n{headers}Connection: close\r\n\r\n{body}").into_bytes();
        for _ in 0..self.below(4) {
            let at = self.below(answer.len() + 1);
            match self.below(4) {
                0 => answer.truncate(at),
                1 => answer.insert(at, self.0.next_u64() as u8),
                2 if at < answer.len() => answer[at] = [0, b'\r', b'\n', b' ', 0xff][self.below(5)],
                _ => {}
            }
        }
        answer
    }
}

/// Gives each connection the answer of the moment, and closes it; ends when there is none.
fn serve(listener: &TcpListener, answer: &Mutex<Option<Vec<u8>>>) {
    while let Ok((mut socket, _)) = listener.accept() {
        let Some(answer) = answer.lock().unwrap().clone() else { return };
        let _ = socket.set_read_timeout(Some(IN_TIME));
        let mut request = [0; 4096];
        let _ = socket.read(&mut request);
        let _ = socket.write_all(&answer).and_then(|()| socket.shutdown(Shutdown::Write));
        // Until the client has ended too: what it has not read yet would be lost otherwise.
        while socket.read(&mut request).is_ok_and(|read| read > 0) {}
    }
}

fn endure(store: &dyn MetadataStore, listener: TcpListener, good: (&str, &[u8])) {
    let address = listener.local_addr().unwrap();
    let answer: Arc<Mutex<Option<Vec<u8>>>> = Arc::default();
    let say = |bytes: Option<Vec<u8>>| *answer.lock().unwrap() = bytes;
    let (mut maker, clock) = (Maker(Rng::seeded(1)), Clock::real());
    let said = Arc::clone(&answer);
    say(Some(Vec::new()));
    let server = yb_env::spawn_thread("server", move || serve(&listener, &said)).unwrap();
    for turn in 0..ANSWERS {
        let bytes = maker.answer();
        say(Some(bytes.clone()));
        let start = clock.now();
        let failed = store.get("key").err();
        let took = clock.now().since(start);
        assert!(took < IN_TIME, "turn {turn} took {took:?}: {}", bytes.escape_ascii());
        // An answer may be repeated in an error, a flood of it may not.
        let words = failed.map_or(0, |error| error.to_string().len());
        assert!(words < 4096, "turn {turn}: an error of {words} bytes");
    }
    let (body, value) = good;
    let whole = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
    say(Some(whole.into_bytes()));
    // A connection that the last answer left open may be tried first.
    let found = (0..3).find_map(|_| store.get("key").ok());
    assert_eq!(found.flatten().as_deref(), Some(value));
    say(None);
    drop(TcpStream::connect(address).unwrap());
    server.join().unwrap();
}

#[test]
fn http_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/metadata", listener.local_addr().unwrap());
    let store = HttpStore::new(&address, &StoreSettings::default()).unwrap();
    endure(&store, listener, ("value", b"value"));
}

#[test]
fn etcd_answers() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let store = EtcdStore::new(&[address], &StoreSettings::default()).unwrap();
    endure(&store, listener, ("{\"kvs\":[{\"value\":\"dmFsdWU=\"}]}", b"value"));
}
