//! The two masters: the peer's as a process, ours in this one, with the same flags.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use yb_env::Clock;
use yb_master::MasterConfig;
use yb_settings::master::MASTER;
use yb_settings::{Arguments, parse_arguments};
use yb_types::WireVersion;

/// What both are started with.
pub struct Setup {
    pub version: WireVersion,
    pub tenants: &'static [&'static str],
    pub many_tenants: bool,
    pub seed: u64,
}

impl Setup {
    fn flags(&self, port: u16, admin: u16) -> Vec<String> {
        let lease = super::LEASE.as_millis();
        let mut flags = vec![
            format!("--rpc_port={port}"),
            format!("--metrics_port={admin}"),
            "--rpc_address=127.0.0.1".to_owned(),
            format!("--default_kv_lease_ttl={lease}"),
            "--put_start_discard_timeout_sec=2".to_owned(),
            "--client_ttl=3600".to_owned(),
            // The default differs between the generations.
            "--max_kv_soft_pin_ttl=86400000".to_owned(),
            "--eviction_high_watermark_ratio=0.99".to_owned(),
            format!("--enable_multi_tenants={}", self.many_tenants),
        ];
        if self.many_tenants {
            // Each side its own file: it is rewritten.
            let path = std::env::temp_dir().join(format!("quotas-{}-{port}-{admin}.yaml", std::process::id()));
            let policies =
                "version: 1\ntenants:\n  - name: default\n    quota: 1TB\n  - name: second\n    quota: 1TB\n";
            std::fs::write(&path, policies).unwrap();
            flags.push(format!("--tenant_quota_connector_uri={}", path.display()));
        }
        flags
    }
}

pub enum Master {
    Peer { child: Child, address: SocketAddr },
    Ours { master: Box<yb_master::Master> },
}

impl Drop for Master {
    fn drop(&mut self) {
        if let Master::Peer { child, .. } = self {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Master {
    /// `None`, and a line that says so, where the peer's package is not installed.
    pub fn peer(setup: &Setup) -> Option<Master> {
        let version = if setup.version >= WireVersion::V0_3_14 { "v0.3.14" } else { "v0.3.13.post1" };
        let Some(binary) = binary(version) else {
            eprintln!("skipped: neither YB_PEER_VENVS nor target/peer has the peer's {version}");
            return None;
        };
        let (port, admin) = (free_port(), free_port());
        let child = Command::new(binary)
            .args(setup.flags(port, admin))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let mut master = Master::Peer { child, address };
        let clock = Clock::real();
        let begin = clock.now();
        while TcpStream::connect(address).is_err() {
            let Master::Peer { child, .. } = &mut master else { unreachable!("it is the peer's") };
            assert!(child.try_wait().unwrap().is_none(), "the peer's master ended");
            assert!(clock.now().since(begin) < Duration::from_secs(20), "the peer's master does not listen");
            yb_env::sleep(Duration::from_millis(10));
        }
        Some(master)
    }

    pub fn ours(setup: &Setup) -> Master {
        let mut flags = setup.flags(0, 0);
        flags.push("--dial_back=false".to_owned());
        // The peer makes no lost replica again, so there are no such tasks to fetch.
        flags.push("--repair_bytes_per_second=0".to_owned());
        let Arguments::Run(given) = parse_arguments(&MASTER, &flags, &|_| None).unwrap() else {
            panic!("flags that start a master")
        };
        let values = MASTER.resolve(given, &|_| None).unwrap();
        let mut config = MasterConfig::from_values(&values).unwrap();
        config.listen = SocketAddr::from(([127, 0, 0, 1], 0));
        Master::Ours { master: Box::new(yb_master::Master::start(config).unwrap()) }
    }

    pub fn address(&self) -> SocketAddr {
        match self {
            Master::Peer { address, .. } => *address,
            Master::Ours { master } => master.rpc_address(),
        }
    }
}

fn free_port() -> u16 {
    yb_env::free_port().unwrap()
}

fn binary(version: &str) -> Option<PathBuf> {
    let made = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/peer");
    let environments = std::env::var_os("YB_PEER_VENVS").map_or(made, PathBuf::from);
    let pythons = std::fs::read_dir(environments.join(version).join("lib")).ok()?.flatten();
    pythons.map(|python| python.path().join("site-packages/mooncake/mooncake_master")).find(|path| path.exists())
}
