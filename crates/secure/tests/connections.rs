//! Connections over real sockets, in every mode: who gets in, who does not, and what both sides are told.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::Duration;

use common::{Certificates, Echo, LIMIT, OTHER_SECRET, SECRET, dial, settings};
use yb_secure::{Networks, Refusal, SecureError, Security, SecuritySettings};

fn echoes(settings: &SecuritySettings, echo: &Echo) {
    let client = Security::open(settings).unwrap().unwrap();
    let mut socket = dial(&client, echo.address).unwrap();
    let data: Vec<u8> = (0..3_000_000u32).map(|n| (n * 7 + (n >> 9)) as u8).collect();
    let mut sender = socket.try_clone().unwrap();
    let sent = data.clone();
    let writing = std::thread::scope(|scope| {
        let writing = scope.spawn(move || {
            sender.write_all(&sent).unwrap();
            sender.shutdown(Shutdown::Write).unwrap();
        });
        let mut got = Vec::new();
        socket.read_to_end(&mut got).unwrap();
        assert!(got == data, "{} of {} bytes", got.len(), data.len());
        writing.join()
    });
    writing.unwrap();
}

#[test]
fn every_mode_carries_every_byte_and_the_end() {
    let certificates = Certificates::new();
    let modes = [
        settings().secret(SECRET).done(),
        settings().tls(&certificates).done(),
        settings().tls(&certificates).mutual().done(),
        settings().tls(&certificates).mutual().secret(SECRET).done(),
    ];
    for mode in modes {
        let echo = Echo::start(&mode);
        echoes(&mode, &echo);
        common::until("it is counted", || echo.stats().secured == 1);
    }
}

/// Both ends are said while bytes are still in the network's buffers; they come all the same.
#[test]
fn the_last_bytes_come_however_the_ends_meet() {
    let certificates = Certificates::new();
    let mode = settings().tls(&certificates).done();
    let echo = Echo::start(&mode);
    (0..25).for_each(|_| echoes(&mode, &echo));
}

#[test]
fn both_sides_must_want_the_same() {
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let refusal = |server: &SecuritySettings, client: &SecuritySettings| {
        let echo = Echo::start(server);
        let client = Security::open(client).unwrap().unwrap();
        let error = dial(&client, echo.address).unwrap_err();
        let refused = || {
            let stats = echo.stats();
            stats.refused_secret + stats.refused_tls + stats.refused_other
        };
        // The client may know it before the server has counted.
        common::until("the refusal is counted", || refused() > 0);
        (error, echo.stats())
    };
    let secret = settings().secret(SECRET).done();
    let tls = settings().tls(&certificates).done();
    let both = settings().tls(&certificates).secret(SECRET).done();
    let (error, stats) = refusal(&secret, &settings().secret(OTHER_SECRET).done());
    assert_eq!((error, stats.refused_secret), (SecureError::Refused(Refusal::WrongSecret), 1));
    let (error, stats) = refusal(&secret, &tls);
    assert_eq!((error, stats.refused_other), (SecureError::Refused(Refusal::WantsSecret), 1));
    assert_eq!(refusal(&tls, &secret).0, SecureError::Refused(Refusal::WantsTls));
    assert_eq!(refusal(&tls, &both).0, SecureError::Refused(Refusal::WantsTls));
    assert_eq!(refusal(&both, &tls).0, SecureError::Refused(Refusal::WantsBoth));
    let (error, stats) = refusal(&both, &settings().tls(&certificates).secret(OTHER_SECRET).done());
    assert_eq!((error, stats.refused_secret), (SecureError::Refused(Refusal::WrongSecret), 1));
    let (error, stats) = refusal(&tls, &settings().tls(&others).done());
    assert!(matches!(&error, SecureError::Tls(why) if why.contains("not of this pool")), "{error}");
    assert_eq!(stats.refused_tls, 1);
    let (error, _) = refusal(&settings().tls(&certificates).mutual().done(), &settings().ca(&certificates).done());
    assert!(matches!(error, SecureError::Tls(_)), "no certificate of the client's: {error}");
    let mut by_address = settings().tls(&certificates).done();
    by_address.tls_name = Some("address".to_owned());
    echoes(&by_address, &Echo::start(&tls));
    let mut named = settings().tls(&certificates).done();
    named.tls_name = Some("somebody.else".to_owned());
    assert!(matches!(refusal(&tls, &named).0, SecureError::Tls(_)), "another name than the certificate's");
}

#[test]
fn the_plain_wire_is_taken_from_the_addresses_that_may_speak_it() {
    let plain_echo = |echo: &Echo, first: &[u8]| {
        let mut socket = TcpStream::connect(echo.address).unwrap();
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        // A connection that is refused may have ended before this, and may end in a reset.
        let _ = socket.write_all(first);
        let _ = socket.shutdown(Shutdown::Write);
        let mut got = Vec::new();
        let _ = socket.read_to_end(&mut got);
        got
    };
    let from = |list: &str| Some(list.parse::<Networks>().unwrap());
    let here = SecuritySettings { plain_from: from("127.0.0.0/8"), ..settings().secret(SECRET).done() };
    let echo = Echo::start(&here);
    // Also what begins as a hello and goes on otherwise.
    for first in [&b"\x15 a request"[..], b"\x89YBSE and no more", b"\x89\0\0\0\0\0\0\0"] {
        assert_eq!(plain_echo(&echo, first), first);
    }
    echoes(&here, &echo);
    common::until("all are counted", || (echo.stats().plain, echo.stats().secured) == (3, 1));
    for elsewhere in [
        settings().secret(SECRET).done(),
        SecuritySettings { plain_from: from("10.0.0.0/8"), ..settings().secret(SECRET).done() },
    ] {
        let echo = Echo::start(&elsewhere);
        assert_eq!(plain_echo(&echo, b"\x15 a request"), Refusal::PlainClosed.encode());
        common::until("it is counted", || echo.stats().refused_plain == 1);
        assert_eq!(echo.stats().plain, 0);
    }
    let closed = SecuritySettings { plain_from: from("10.0.0.0/8"), ..SecuritySettings::default() };
    let echo = Echo::start(&closed);
    assert_eq!(plain_echo(&echo, b"\x15 a request"), b"");
    common::until("it is counted", || echo.stats().refused_plain == 1);
}

#[test]
fn a_server_without_security_is_an_error_and_not_a_way_back_to_the_plain_wire() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let closing = std::thread::scope(|scope| {
        let closing = scope.spawn(|| {
            let (mut socket, _) = listener.accept().unwrap();
            let mut seen = [0; 64];
            let got = socket.read(&mut seen).unwrap();
            seen[..got].to_vec()
        });
        let client = Security::open(&settings().secret(SECRET).done()).unwrap().unwrap();
        let error = dial(&client, address).unwrap_err();
        assert!(error.to_string().contains("plain wire only"), "{error}");
        closing.join()
    });
    let seen = closing.unwrap();
    assert!(!seen.windows(SECRET.len()).any(|part| part == SECRET.as_bytes()));
}

#[test]
fn who_says_nothing_is_shown_out_and_a_slow_one_is_not() {
    let echo = Echo::start(&settings().secret(SECRET).done());
    let mut silent = TcpStream::connect(echo.address).unwrap();
    silent.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut half = TcpStream::connect(echo.address).unwrap();
    half.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    half.write_all(b"\x89YBS").unwrap();
    for socket in [&mut silent, &mut half] {
        // The end, or a reset because of what was not read.
        let end = socket.read_to_end(&mut Vec::new());
        assert!(!matches!(&end, Err(error) if error.kind() == std::io::ErrorKind::WouldBlock), "{end:?}");
    }
    common::until("both are counted", || echo.stats().refused_silent == 2);
}

#[test]
fn noise_harms_nobody() {
    let certificates = Certificates::new();
    let mode = settings().tls(&certificates).secret(SECRET).done();
    let echo = Echo::start(&mode);
    let mut rng = yb_env::Rng::seeded(11);
    for turn in 0..300 {
        let mut socket = TcpStream::connect(echo.address).unwrap();
        let mut bytes = if turn % 3 == 0 { Vec::new() } else { b"\x89YBSEC\x01\x03".to_vec() };
        bytes.extend((0..rng.below(400)).map(|_| rng.next_u64() as u8));
        if turn % 2 == 0 && bytes.len() > 8 {
            bytes.splice(8..8, [22, 3, 1, 0, 40]);
        }
        let _ = socket.write_all(&bytes);
        let _ = socket.shutdown(Shutdown::Write);
        socket.set_read_timeout(Some(LIMIT)).unwrap();
        let _ = socket.read_to_end(&mut Vec::new());
    }
    echoes(&mode, &echo);
    common::until("nothing is left", || echo.stats().in_care == 0);
}

#[test]
fn changed_files_are_used_without_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    std::fs::write(&path, SECRET).unwrap();
    let server = SecuritySettings { secret_file: Some(path.clone()), ..SecuritySettings::default() };
    let echo = Echo::start(&server);
    let old = Security::open(&settings().secret(SECRET).done()).unwrap().unwrap();
    let new = Security::open(&settings().secret(OTHER_SECRET).done()).unwrap().unwrap();
    assert!(dial(&old, echo.address).is_ok() && dial(&new, echo.address).is_err());
    std::fs::write(&path, format!("{OTHER_SECRET}\n{SECRET}\n")).unwrap();
    common::until("the new secret holds", || dial(&new, echo.address).is_ok());
    assert!(dial(&old, echo.address).is_ok(), "the second line is accepted too");
    std::fs::write(&path, "short").unwrap();
    std::fs::write(&path, OTHER_SECRET).unwrap();
    common::until("the old secret is out", || dial(&old, echo.address).is_err());
    assert!(dial(&new, echo.address).is_ok());
}

#[test]
fn files_that_cannot_be_used_stop_the_start() {
    let certificates = Certificates::new();
    let folder = tempfile::tempdir().unwrap();
    let empty = folder.path().join("empty");
    std::fs::write(&empty, "").unwrap();
    let base = settings().tls(&certificates).done();
    for (wrong, named) in [
        (SecuritySettings { tls_ca: Some(folder.path().join("none")), ..base.clone() }, "tls_ca"),
        (SecuritySettings { tls_ca: Some(empty.clone()), ..base.clone() }, "tls_ca"),
        (SecuritySettings { tls_cert: Some(empty.clone()), ..base.clone() }, "tls_cert"),
        (SecuritySettings { tls_key: Some(empty.clone()), ..base.clone() }, "tls_key"),
        (SecuritySettings { secret_file: Some(empty.clone()), ..base.clone() }, "secret"),
    ] {
        let error = Security::open(&wrong).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
    assert!(Security::open(&SecuritySettings::default()).unwrap().is_none());
    let only_ca = Security::open(&settings().ca(&certificates).done()).unwrap().unwrap();
    assert!(only_ca.can_serve().is_err(), "it could not show a certificate");
}

/// What a log is written into.
#[derive(Clone, Default)]
struct Lines(std::sync::Arc<std::sync::Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Lines {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }

    /// Runs something whose log this is.
    fn during<T>(&self, body: impl FnOnce() -> T) -> T {
        let lines = self.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || lines.clone()).finish();
        tracing::subscriber::with_default(subscriber, body)
    }
}

/// The log of opening such settings.
fn log_of(settings: &SecuritySettings) -> String {
    let lines = Lines::default();
    lines.during(|| Security::open(settings).unwrap().unwrap());
    lines.text()
}

#[test]
fn a_certificate_that_ends_while_it_is_used_is_said_and_a_new_one_taken() {
    let certificates = Certificates::new();
    let mut settings = settings().tls(&certificates).done();
    let folder = settings.tls_cert.clone().unwrap();
    let folder = folder.parent().unwrap();
    // Its last second comes in two or three.
    let now = Duration::from_secs(yb_env::epoch_millis() / 1000);
    let lifetime = yb_secure::Lifetime { from: now + Duration::from_secs(3) - Duration::from_secs(86_400), days: 1 };
    yb_secure::write_certificates_for(folder, &[], Some(lifetime)).unwrap();
    settings.tls_mutual = true;
    let lines = Lines::default();
    lines.during(|| {
        let security = Security::open(&settings).unwrap().unwrap();
        assert_eq!(security.certificate_ends(), now.as_secs() + 3);
        // Nobody connects: who looks at the page of metrics is enough, and a thread looks once a minute.
        let ended = || security.certificate_ends() > 0 && lines.text().contains("certificate_not_valid");
        common::until("the end is said", ended);
        assert!(lines.text().contains("it expired"), "{}", lines.text());
        yb_secure::write_certificates(folder, &[]).unwrap();
        common::until("the new one is in use", || security.certificate_ends() > now.as_secs() + 86_400);
    });
    let log = lines.text();
    assert_eq!(log.matches("certificate_not_valid").count(), 1, "said once: {log}");
}

#[test]
fn open_keys_and_certificates_out_of_time_are_said_at_the_start() {
    use std::os::unix::fs::PermissionsExt;
    let good = Certificates::new();
    assert_eq!(log_of(&settings().tls(&good).done()), "");
    let folder = tempfile::tempdir().unwrap();
    let lifetime = yb_secure::Lifetime { from: Duration::from_secs(1_000_000_000), days: 1 };
    yb_secure::write_certificates_for(folder.path(), &[], Some(lifetime)).unwrap();
    yb_secure::write_secret(folder.path()).unwrap();
    let path = |name: &str| Some(folder.path().join(name));
    for name in ["secret", "key.pem"] {
        let open = std::fs::Permissions::from_mode(0o644);
        std::fs::set_permissions(folder.path().join(name), open).unwrap();
    }
    let (secret_file, tls_cert, tls_key) = (path("secret"), path("cert.pem"), path("key.pem"));
    let log = log_of(&SecuritySettings { secret_file, tls_cert, tls_key, ..SecuritySettings::default() });
    let times = |word: &str| log.matches(word).count();
    assert_eq!((times("secret_readable"), times("certificate_not_valid")), (2, 1), "{log}");
    assert!(log.contains("secret_file") && log.contains("tls_key") && log.contains("expired"), "{log}");
}
