//! A hostile network (case H16): strangers, noise and wrong secrets at every port of a pool, plain and secured; the pool
//! goes on, and no secret is seen anywhere.

#![allow(clippy::unwrap_used, reason = "a step that fails is a failed test")]

mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use common::{free_port, wait_until};
use tempfile::TempDir;

const TOKEN: &str = "token-0123456789abcdef";

/// Which wire a pool speaks.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Wire {
    Plain,
    Secret,
    TlsAndSecret,
}

struct Member(Child);

impl Drop for Member {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A master and a node, with every line that they log at the finest level.
struct Pool {
    folder: TempDir,
    wire: Wire,
    master: u16,
    admin: u16,
    dummies: u16,
    handshake: u16,
    data: u16,
    members: Vec<Member>,
}

impl Pool {
    fn start(wire: Wire) -> Pool {
        let folder = tempfile::tempdir().unwrap();
        let made = Command::new(env!("CARGO_BIN_EXE_yuebing")).arg("certs").arg(folder.path()).output().unwrap();
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        std::fs::write(folder.path().join("token"), format!("{TOKEN}\n")).unwrap();
        let [master, admin, dummies, handshake, data] = std::array::from_fn(|_| free_port());
        let mut pool = Pool { folder, wire, master, admin, dummies, handshake, data, members: Vec::new() };
        let token = pool.folder.path().join("token").display().to_string();
        let flags = [
            "--rpc_address=127.0.0.1".to_owned(),
            format!("--rpc_port={master}"),
            "--metrics_host=127.0.0.1".to_owned(),
            format!("--metrics_port={admin}"),
            format!("--admin_token_file={token}"),
            "--v=2".to_owned(),
        ];
        pool.member("master", &flags);
        wait_until("the master answers", || pool.text("/health").contains(" 200 "));
        let flags = [
            "--host=127.0.0.1".to_owned(),
            format!("--master_server_address=127.0.0.1:{master}"),
            format!("--port={dummies}"),
            format!("--handshake_port={handshake}"),
            format!("--data_port={data}"),
            "--global_segment_size=64MiB".to_owned(),
            "--shared_memory=false".to_owned(),
            "--v=2".to_owned(),
        ];
        pool.member("node", &flags);
        wait_until("the node has joined", || pool.text("/get_all_segments").contains("127.0.0.1"));
        pool
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_yuebing"));
        for name in ["SECRET", "SECRET_FILE", "TLS_CA", "TLS_CERT", "TLS_KEY", "PLAIN_FROM", "PLAIN_TO", "ADMIN_TOKEN"]
        {
            command.env_remove(format!("YUEBING_{name}"));
        }
        command.env_remove("MOONCAKE_CONFIG_PATH").env("YB_SHM", "0").env("RUST_LOG", "trace");
        command.env("MOONCAKE_MASTER", format!("127.0.0.1:{}", self.master));
        command.env("YUEBING_ADMIN", format!("127.0.0.1:{}", self.admin));
        command
    }

    /// With the means of a member of the pool.
    fn friend(&self) -> Command {
        let mut command = self.command();
        let path = |name: &str| self.folder.path().join(name);
        if self.wire != Wire::Plain {
            command.env("YUEBING_SECRET_FILE", path("secret"));
        }
        if self.wire == Wire::TlsAndSecret {
            command.env("YUEBING_TLS_CA", path("ca.pem")).env("YUEBING_TLS_MUTUAL", "1");
            command.env("YUEBING_TLS_CERT", path("cert.pem")).env("YUEBING_TLS_KEY", path("key.pem"));
        }
        command
    }

    fn member(&mut self, kind: &str, flags: &[String]) {
        let log = |end: &str| File::create(self.folder.path().join(format!("{kind}.{end}"))).unwrap();
        let mut command = self.friend();
        command.arg(kind).args(flags).stdin(Stdio::null()).stdout(log("out")).stderr(log("log"));
        self.members.push(Member(command.spawn().unwrap()));
    }

    fn log(&self, kind: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(format!("{kind}.log"))).unwrap()
    }

    /// One request to the admin port.
    fn http(&self, line: &str, headers: &str) -> String {
        let Ok(mut socket) = TcpStream::connect(("127.0.0.1", self.admin)) else { return String::new() };
        let _ = write!(socket, "{line} HTTP/1.0\r\n{headers}\r\n");
        let mut answer = Vec::new();
        let _ = socket.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    fn text(&self, path: &str) -> String {
        self.http(&format!("GET {path}"), "")
    }

    fn metric(&self, sample: &str) -> u64 {
        let page = self.text("/metrics");
        let line = page.lines().find(|line| line.starts_with(sample) && line[sample.len()..].starts_with(' '));
        line.and_then(|line| line.rsplit(' ').next()).and_then(|value| value.parse().ok()).unwrap_or(0)
    }
}

fn run(mut command: Command, arguments: &[&str]) -> Output {
    command.args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// What comes back for these bytes until the server closes, or soon.
fn say(port: u16, bytes: &[u8]) -> Vec<u8> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let _ = socket.write_all(bytes);
    let _ = socket.shutdown(Shutdown::Write);
    let mut got = Vec::new();
    let _ = socket.read_to_end(&mut got);
    got
}

/// Noise, other protocols, claims of huge lengths, half hellos.
fn hostile_bytes() -> Vec<Vec<u8>> {
    let mut rng = yb_env::Rng::seeded(16);
    let mut all: Vec<Vec<u8>> = vec![
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"SSH-2.0-x\r\n".to_vec(),
        [&[21, 0, 0, 0][..], &[0xff; 16]].concat(),
        [&[0xff; 8][..], b"\x01{}"].concat(),
        b"\x89YBSEC\x01\x01".to_vec(),
        [&b"\x89YBSEC\x01\x01"[..], &[7; 64]].concat(),
        [&b"\x89YBSEC\x01\x03"[..], &[7; 300]].concat(),
        b"\x89YBSEC\xff\xff".to_vec(),
        Vec::new(),
    ];
    all.extend((0..20).map(|_| (0..rng.below(200)).map(|_| rng.next_u64() as u8).collect()));
    all
}

/// A command whose token cannot be read, or is not the master's, says so; and the master says and counts what it refused.
fn tokens_are_named_for_what_they_are(pool: &Pool) {
    let set = |variable: &str, value: &str| {
        let mut command = pool.friend();
        command.env_remove("YUEBING_ADMIN_TOKEN_FILE").env(variable, value);
        run(command, &["config", "set", "v=2"])
    };
    let missing = pool.folder.path().join("no-such-token");
    let unreadable = set("YUEBING_ADMIN_TOKEN_FILE", missing.to_str().unwrap());
    let wrong = set("YUEBING_ADMIN_TOKEN", "another");
    let said = |output: &Output, text: &str| {
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(1) && error.contains(text), "{error}");
    };
    said(&unreadable, "no-such-token) cannot be read: No such file");
    said(&wrong, "the token of YUEBING_ADMIN_TOKEN is not the master's");
    let counted = |reason: &str| {
        pool.metric(&format!("yuebing_http_calls_refused_total{{server=\"admin\",reason=\"{reason}\"}}"))
    };
    assert_eq!((counted("no_token"), counted("wrong_token")), (1, 1));
    wait_until("the master says so", || {
        let log = pool.log("master");
        log.lines().any(|line| line.contains("http_refused") && line.contains("wrong_token"))
    });
}

fn a_hostile_network(wire: Wire) {
    let pool = Pool::start(wire);
    let file = pool.folder.path().join("file");
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|n| (n ^ (n >> 7)) as u8).collect();
    std::fs::write(&file, &bytes).unwrap();
    let put = run(pool.friend(), &["put", "key", file.to_str().unwrap()]);
    assert!(put.status.success(), "{wire:?}: {}", String::from_utf8_lossy(&put.stderr));
    let before = pool.http("POST /api/v1/remove_all", "");
    assert!(before.contains(" 401 "), "{before}");
    tokens_are_named_for_what_they_are(&pool);

    for port in [pool.master, pool.dummies, pool.handshake, pool.data, pool.admin] {
        hostile_bytes().iter().for_each(|bytes| drop(say(port, bytes)));
    }
    let mut strangers = Vec::new();
    if wire != Wire::Plain {
        let mut wrong = pool.friend();
        wrong.env_remove("YUEBING_SECRET_FILE").env("YUEBING_SECRET", "the secret of somebody else");
        strangers.push((pool.command(), "secured connections only"));
        strangers.push((wrong, "the secrets are not the same"));
    }
    let count = strangers.len();
    for (stranger, said) in strangers {
        let got = run(stranger, &["get", "key"]);
        let text = String::from_utf8_lossy(&got.stderr).into_owned();
        assert!(!got.status.success() && got.stdout.is_empty(), "{wire:?}");
        assert!(text.contains(said), "{wire:?}: {text}");
    }
    if count > 0 {
        let outcome = |name: &str| format!("yuebing_security_connections_total{{outcome=\"{name}\"}}");
        wait_until("the refusals are counted", || {
            pool.metric(&outcome("refused_plain")) > 0 && pool.metric(&outcome("refused_secret")) > 0
        });
        let lines = pool.log("master").matches("a connection was refused").count();
        assert!(
            (2..=16).contains(&lines),
            "{lines}: one line per reason, 16 of one address at most, not one per connection"
        );
    }

    let got = run(pool.friend(), &["get", "key"]);
    assert!(got.stdout == bytes, "{wire:?}: {}", String::from_utf8_lossy(&got.stderr));
    let removed = pool.http("POST /api/v1/remove_all?force=true", &format!("Authorization: Bearer {TOKEN}\r\n"));
    assert!(removed.contains(" 200 "), "{removed}");
    nothing_is_seen(&pool, &[&put, &got]);
}

/// Looks for the secret, the token and the key in logs, output, settings and arguments.
fn nothing_is_seen(pool: &Pool, outputs: &[&Output]) {
    let read = |name: &str| std::fs::read_to_string(pool.folder.path().join(name)).unwrap();
    let key = read("key.pem");
    let secrets = [read("secret").trim().to_owned(), TOKEN.to_owned(), key.lines().nth(1).unwrap().to_owned()];
    let mut texts = vec![pool.log("master"), pool.log("node"), read("master.out"), read("node.out")];
    texts.extend(outputs.iter().map(|output| String::from_utf8_lossy(&output.stderr).into_owned()));
    for member in &pool.members {
        texts.push(String::from_utf8_lossy(&std::fs::read(format!("/proc/{}/cmdline", member.0.id())).unwrap()).into());
    }
    let explained =
        run(pool.friend(), &["config", "explain", "--json", "--running", &format!("127.0.0.1:{}", pool.admin)]);
    texts.push(String::from_utf8_lossy(&explained.stdout).into_owned());
    texts.push(pool.text("/api/v1/config") + &pool.text("/metrics") + &pool.text("/status.json"));
    assert!(texts[0].contains("TRACE") || texts[0].contains("DEBUG"), "the finest level is on");
    for text in &texts {
        for secret in &secrets {
            assert!(!text.contains(secret.as_str()), "a secret in: {}", &text[..text.len().min(2000)]);
        }
    }
}

#[test]
fn a_hostile_network_on_the_plain_wire() {
    a_hostile_network(Wire::Plain);
}

#[test]
fn a_hostile_network_with_a_secret() {
    a_hostile_network(Wire::Secret);
}

#[test]
fn a_hostile_network_with_tls_and_a_secret() {
    a_hostile_network(Wire::TlsAndSecret);
}

#[test]
fn what_cannot_be_secured_as_asked_for_does_not_start() {
    let folder = tempfile::tempdir().unwrap();
    let short = folder.path().join("short");
    std::fs::write(&short, "hunter2").unwrap();
    let start = |flags: &[String]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_yuebing"));
        command.env_remove("YUEBING_SECRET").env_remove("YUEBING_SECRET_FILE");
        command.arg("master").args(flags).args(["--rpc_port=0", "--port=0", "--metrics_port=0"]).output().unwrap()
    };
    let flag = |name: &str, path: &Path| format!("--{name}={}", path.display());
    for (flags, said) in [
        (vec![flag("secret_file", &short)], "too short"),
        (vec![flag("secret_file", &folder.path().join("none"))], "none"),
        (vec![flag("tls_cert", &short)], "tls_key"),
        (vec![flag("tls_cert", &short), flag("tls_key", &short)], "tls_"),
        (vec!["--plain_from=10.0.0.0/99".to_owned()], "plain_from"),
        (vec![flag("admin_token_file", &folder.path().join("none"))], "admin_token_file"),
    ] {
        let output = start(&flags);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(said), "{flags:?}: {text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
}
