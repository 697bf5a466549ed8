//! Fuzz targets of what strangers send first, and of what people write; `cargo test` runs them as property tests.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};

use bolero::check;
use common::{Certificates, Echo, LIMIT, SECRET, settings};
use yb_env::Rng;
use yb_secure::{HELLO_LEN, Networks, Opening, Refusal, Security, SecuritySettings};

#[test]
fn first_bytes() {
    check!().with_iterations(20_000).for_each(|input: &[u8]| {
        for bytes in [input.to_vec(), [b"\x89YBSEC", input].concat()] {
            match Opening::parse(&bytes) {
                Opening::NeedMore => assert!(bytes.len() < HELLO_LEN),
                Opening::Plain => assert!(!bytes.starts_with(b"\x89YBSEC")),
                Opening::Secured(_) | Opening::Unknown => {
                    assert!(Refusal::found_in(&bytes).is_none() || bytes[7] >= 0x80)
                }
            }
            // What is decided by some bytes is not changed by more of them.
            let short = bytes.get(..bytes.len().min(HELLO_LEN)).unwrap_or_default();
            assert_eq!(Opening::parse(short), Opening::parse(&bytes));
        }
    });
}

#[test]
fn variables() {
    check!().with_iterations(5_000).for_each(|input: &[u8]| {
        let text = String::from_utf8_lossy(input).into_owned();
        if let Ok(networks) = text.parse::<Networks>() {
            assert_eq!(networks.to_string().parse::<Networks>(), Ok(networks));
        }
        let read = SecuritySettings::from_env(|name| name.starts_with("YUEBING_").then(|| text.clone()));
        if let Err(error) = read {
            // A text that is long enough for a secret is not repeated.
            let secret = text.trim().len() >= 16 && error.to_string().contains("secret");
            assert!(!secret || !error.to_string().contains(text.trim()), "{error}");
        }
    });
}

/// What a client says first: our hello, and the beginning of TLS where there is one.
fn first_words(settings: &SecuritySettings) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = Security::open(settings).unwrap().unwrap();
    let dialling = yb_env::spawn_thread("client", move || drop(common::dial(&client, address))).unwrap();
    let (mut socket, _) = listener.accept().unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let mut words = vec![0; 4096];
    let mut read = 0;
    while read < HELLO_LEN {
        read += socket.read(&mut words[read..]).unwrap();
    }
    drop(socket);
    dialling.join().unwrap();
    words.truncate(read);
    words
}

fn mutated(rng: &mut Rng, words: &[u8]) -> Vec<u8> {
    let mut bytes = words.to_vec();
    for _ in 0..1 + rng.below(4) {
        let at = rng.below(bytes.len() as u64 + 1) as usize;
        match rng.below(5) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, rng.next_u64() as u8),
            2 if at < bytes.len() => bytes[at] ^= 1 << rng.below(8),
            3 => bytes.splice(at..at, rng.next_u64().to_le_bytes()).for_each(drop),
            _ => bytes.extend((0..rng.below(600)).map(|n| (n * 37) as u8)),
        }
    }
    bytes
}

/// Whoever begins like this is told little, and the connection is closed.
fn is_closed(echo: &Echo, bytes: &[u8]) {
    let mut socket = TcpStream::connect(echo.address).unwrap();
    socket.set_read_timeout(Some(LIMIT)).unwrap();
    let _ = socket.write_all(bytes).and_then(|()| socket.shutdown(Shutdown::Write));
    let mut answer = Vec::new();
    if let Err(error) = (&socket).take(1 << 20).read_to_end(&mut answer) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{}", bytes.escape_ascii());
    }
    assert!(answer.len() < 64 << 10, "{} bytes for {}", answer.len(), bytes.escape_ascii());
}

/// Over real sockets, with and without TLS: what begins like one of ours and goes on otherwise is closed, and the next
/// client is let in.
#[test]
fn mutated_openings() {
    let certificates = Certificates::new();
    let modes = [
        settings().secret(SECRET).done(),
        settings().tls(&certificates).done(),
        settings().tls(&certificates).mutual().secret(SECRET).done(),
    ];
    let mut rng = Rng::seeded(1);
    for mode in modes {
        let echo = Echo::start(&mode);
        let words = first_words(&mode);
        assert!(words.starts_with(b"\x89YBSEC"), "{words:?}");
        let all: Vec<Vec<u8>> = (0..320).map(|_| mutated(&mut rng, &words)).collect();
        // Side by side: half a hello is waited for until its deadline.
        std::thread::scope(|scope| {
            for part in all.chunks(16) {
                scope.spawn(|| part.iter().for_each(|bytes| is_closed(&echo, bytes)));
            }
        });
        let client = Security::open(&mode).unwrap().unwrap();
        let mut socket = common::dial(&client, echo.address).unwrap();
        socket.write_all(b"still there").unwrap();
        let mut back = [0; 11];
        socket.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"still there");
        common::until("nothing is left", || echo.stats().in_care <= 1);
    }
}
