//! Every variable of the table is what the table says: honoured, ignored with a line in the log, or refused.
#![allow(clippy::unwrap_used, reason = "a test may")]

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use yb_client::environment::{Treatment, VARIABLES, page, report_ignored, report_misspelt, report_unknown};
use yb_client::{ClientConfig, HugePages};
use yb_transfer::EngineSettings;

/// A configuration from these variables.
fn from(pairs: &[(&str, &str)]) -> Result<ClientConfig, String> {
    ClientConfig::from_env(&lookup(pairs)).map_err(|error| error.to_string())
}

/// As [`from`], with what joins a pool.
fn loaded(pairs: &[(&str, &str)]) -> ClientConfig {
    let all: Vec<(&str, &str)> = [("MOONCAKE_MASTER", "m:1")].into_iter().chain(pairs.iter().copied()).collect();
    ClientConfig::load(&lookup(&all)).unwrap()
}

fn lookup(pairs: &[(&str, &str)]) -> impl Fn(&str) -> Option<String> {
    let pairs: Vec<(String, String)> = pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    move |name| pairs.iter().rev().find(|(known, _)| known == name).map(|(_, value)| value.clone())
}

fn engine(name: &str, value: &str) -> EngineSettings {
    EngineSettings::from_env(lookup(&[(name, value)]))
}

/// Whether the variable changes what it is there to change.
fn is_honoured(name: &str) -> bool {
    let set = |value: &str| from(&[(name, value)]).unwrap();
    let joined = |value: &str| loaded(&[(name, value)]);
    let engine = |value: &str| engine(name, value);
    match name {
        "MOONCAKE_CONFIG_PATH" => {
            let file = tempfile::NamedTempFile::new().unwrap();
            let text = r#"{"local_hostname": "f", "metadata_server": "P2PHANDSHAKE", "master_server_address": "f:1"}"#;
            std::fs::write(file.path(), text).unwrap();
            joined(file.path().to_str().unwrap()).local_hostname == "f"
        }
        "MOONCAKE_MASTER" => joined("other:2").master_address == "other:2",
        "MOONCAKE_LOCAL_HOSTNAME" => joined("me").local_hostname == "me",
        "MOONCAKE_TE_META_DATA_SERVER" => {
            let other = ClientConfig::load(&lookup(&[("MOONCAKE_MASTER", "m:1"), (name, "ftp://x")]));
            joined("etcd://x:2379").metadata_server == "etcd://x:2379" && other.is_err()
        }
        "MOONCAKE_GLOBAL_SEGMENT_SIZE" => joined("1.5GB").global_segment_size == 3 << 29,
        "MOONCAKE_LOCAL_BUFFER_SIZE" => joined("2kb").local_buffer_size == 2048,
        "MOONCAKE_PROTOCOL" => {
            let config = loaded(&[(name, "RPC_ONLY"), ("MOONCAKE_GLOBAL_SEGMENT_SIZE", "0")]);
            config.protocol == "rpc_only"
        }
        "MOONCAKE_DEVICE" => joined("mlx5_0").device_names == "mlx5_0",
        "MOONCAKE_TENANT_ID" => joined("t").tenant_id == "t",
        "MOONCAKE_OFFLOAD_ENABLED" => {
            ClientConfig::load(&lookup(&[("MOONCAKE_MASTER", "m:1"), (name, "true")])).is_err()
        }
        "MOONCAKE_ENABLE_CLIENT_HTTP_SERVER" => joined("on").page.unwrap().port() == 9300,
        "MOONCAKE_CLIENT_HTTP_PORT" => {
            let on = ("MOONCAKE_ENABLE_CLIENT_HTTP_SERVER", "1");
            loaded(&[on, (name, "77")]).page.unwrap().port() == 77
        }
        "YB_CLIENT_HTTP_HOST" => {
            let on = ("MOONCAKE_ENABLE_CLIENT_HTTP_SERVER", "1");
            loaded(&[on, (name, "127.0.0.1")]).page.unwrap().ip().is_loopback()
        }
        "MOONCAKE_STORE_CHECKSUM" => set("yes").checksum && !set("no").checksum,
        "MC_STORE_LOCAL_HOT_CACHE_SIZE" => set("1GB").hot_cache.bytes == 1 << 30,
        "MC_STORE_LOCAL_HOT_ADMISSION_THRESHOLD" => {
            set("7").hot_cache.threshold == 7 && from(&[(name, "256")]).is_err()
        }
        "MC_STORE_USE_HUGEPAGE" => {
            set("").segment_memory.huge_pages == HugePages::Reserved2M
                && set("0").segment_memory.huge_pages == HugePages::Advise
        }
        "MC_STORE_HUGEPAGE_SIZE" => {
            let config = from(&[("MC_STORE_USE_HUGEPAGE", "1"), (name, "1GB")]).unwrap();
            config.segment_memory.huge_pages == HugePages::Reserved1G && from(&[(name, "4MB")]).is_err()
        }
        "MC_STORE_NUMA_SOCKET_ID" => set("1").segment_memory.numa_node == Some(1),
        "MC_STORE_CLIENT_MIN_PORT" => set("13000").port_range == Some(13_000..=14_300),
        "MC_STORE_CLIENT_MAX_PORT" => set("13000").port_range == Some(12_300..=13_000) && from(&[(name, "1")]).is_err(),
        "MC_STORE_CLIENT_METRIC" => !set("0").metrics.enabled && set("1").metrics.enabled,
        "MC_STORE_CLIENT_METRIC_INTERVAL" => set("5").metrics.report_every == Duration::from_secs(5),
        "MC_STORE_CLUSTER_ID" => set("c").metrics.cluster_id == "c",
        "MC_RPC_TIMEOUT_MS" => {
            set("1500").limits.base == Duration::from_millis(1500) && set("-1").limits.base == Duration::from_secs(3600)
        }
        "MC_RPC_CONNECT_TIMEOUT_MS" => set("90").connect_timeout == Duration::from_millis(90),
        "YB_SHM" => !set("0").shared_memory && !engine("0").shm,
        "YB_REPLICAS" => set("2").least_replicas == 2,
        "YB_LOCAL_FIRST" => set("1").local_first && !set("0").local_first,
        "YB_HOST_ID" => set("node7").host_id() == "node7",
        "YB_POPULATE" => set("1").populate_segment,
        // Tried in tests/python/scripts: empty_values.py, log_level.py.
        "YB_ALLOW_EMPTY" | "YB_LOG" => true,
        "MC_TCP_PROTO" => engine("1").version_1_only,
        "MC_TCP_LANES_PER_PEER" | "MC_TCP_MAX_CONNECTIONS_PER_PEER" => engine("7").lanes_per_peer == 7,
        "MC_TCP_PROGRESS_TIMEOUT_SEC" | "MC_TCP_STATUS_TIMEOUT_SEC" => {
            engine("9").progress_timeout == Duration::from_secs(9)
        }
        "MC_HANDSHAKE_CONNECT_TIMEOUT" => engine("9").connect_timeout == Duration::from_secs(9),
        "MC_HANDSHAKE_LISTEN_BACKLOG" => engine("9").backlog == 9,
        "MC_HANDSHAKE_MAX_LENGTH" => engine("2097152").handshake_max_length == 2 << 20,
        "MC_HANDSHAKE_MAX_NOTIFY_ENTRIES" => engine("9").max_notifications == 9,
        "MC_DISABLE_METACACHE" => engine("1").metadata_max_age == Some(Duration::ZERO),
        "MC_TE_METADATA_REFRESH_INTERVAL_SECONDS" => engine("9").metadata_max_age == Some(Duration::from_secs(9)),
        "MC_CXL_DEV_PATH" => engine("/dev/dax0.0").cxl.is_some(),
        "MC_CXL_DEV_SIZE" => {
            let both = EngineSettings::from_env(lookup(&[("MC_CXL_DEV_PATH", "/dev/dax0.0"), (name, "4096")]));
            both.cxl.unwrap().size == Some(4096)
        }
        "YUEBING_SECRET" => set("a secret of its own").security.is_some() && from(&[(name, "short")]).is_err(),
        "YUEBING_SECRET_FILE" | "YUEBING_TLS_CA" => from(&[(name, "/nowhere")]).unwrap_err().contains("/nowhere"),
        "YUEBING_TLS_CERT" | "YUEBING_TLS_KEY" => from(&[(name, "/nowhere")]).is_err(),
        "YUEBING_TLS_MUTUAL" => from(&[(name, "1")]).is_err() && from(&[(name, "0")]).is_ok(),
        "YUEBING_TLS_NAME" | "YUEBING_PLAIN_TO" => {
            let secret = ("YUEBING_SECRET", "a secret of its own");
            let security = |more| from(&[secret, (name, more)]).unwrap().security;
            security("10.0.0.1") != from(&[secret]).unwrap().security
        }
        "YUEBING_PLAIN_FROM" => set("none").security.is_some() && set("any").security.is_none(),
        _ => false,
    }
}

#[test]
fn every_honoured_variable_changes_what_it_is_there_for() {
    let honoured = VARIABLES.iter().filter(|variable| variable.treatment == Treatment::Honoured);
    let failing: Vec<&str> = honoured.map(|variable| variable.name).filter(|name| !is_honoured(name)).collect();
    assert!(failing.is_empty(), "{failing:?}");
}

#[test]
fn every_refused_variable_is_named_in_the_error() {
    for variable in VARIABLES {
        if let Treatment::Refused { harmless, .. } = variable.treatment {
            let error = from(&[(variable.name, "rdma")]).unwrap_err();
            assert!(error.contains(variable.name), "{error}");
            assert!(harmless.iter().all(|value| from(&[(variable.name, value)]).is_ok()));
        }
    }
}

#[test]
fn a_value_that_cannot_be_read_is_an_error_that_names_the_variable() {
    for name in [
        "MOONCAKE_STORE_CHECKSUM",
        "MC_STORE_LOCAL_HOT_CACHE_SIZE",
        "MC_STORE_NUMA_SOCKET_ID",
        "MC_RPC_TIMEOUT_MS",
        "MC_STORE_CLIENT_METRIC_INTERVAL",
        "MC_STORE_CLIENT_MIN_PORT",
        "YB_LOCAL_FIRST",
        "YB_REPLICAS",
        "YB_CLIENT_HTTP_HOST",
    ] {
        assert!(from(&[(name, "perhaps")]).unwrap_err().contains(name), "{name}");
        assert!(from(&[(name, " ")]).is_ok(), "blank is not set: {name}");
    }
}

/// What the log got.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What is logged meanwhile.
fn log_of(act: impl FnOnce()) -> String {
    let lines = Lines::default();
    let of_log = lines.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || of_log.clone()).finish();
    tracing::subscriber::with_default(subscriber, act);
    let bytes = lines.0.lock().clone();
    String::from_utf8(bytes).unwrap()
}

#[test]
fn what_is_misspelt_has_a_line_in_the_log_with_the_nearest_name() {
    let log = log_of(|| report_unknown(["YUEBING_SECRT", "YB_SHM", "HOME"].map(str::to_owned)));
    assert!(log.lines().count() == 1 && log.contains("did you mean YUEBING_SECRET?"), "{log}");
    let log = log_of(|| report_misspelt(["MOONCAKE_MASTR", "MOONCAKE_MASTER", "MC_FOO"].map(str::to_owned)));
    assert!(log.lines().count() == 1 && log.contains("did you mean MOONCAKE_MASTER?"), "{log}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    let text = r#"{"local_hostname": "f", "metadata_server": "P2PHANDSHAKE", "master_server_address": "f:1",
        "global_segment_sise": "1GB", "tenant_id": "a", "tenantid": "b", "prefill_url": "of a connector"}"#;
    std::fs::write(path, text).unwrap();
    let log = log_of(|| drop(ClientConfig::load(&lookup(&[("MOONCAKE_CONFIG_PATH", path)])).unwrap()));
    assert!(log.lines().count() == 1 && log.contains("did you mean global_segment_size?"), "{log}");
}

#[test]
fn every_ignored_variable_that_is_set_has_a_line_in_the_log() {
    assert_eq!(log_of(|| report_ignored(&|_| None)), "");
    let log = log_of(|| report_ignored(&|_| Some("1".to_owned())));
    for variable in VARIABLES {
        let ignored = matches!(variable.treatment, Treatment::Ignored(_));
        assert_eq!(log.contains(&format!("\"{}\"", variable.name)), ignored, "{}", variable.name);
    }
}

#[test]
fn the_page_is_what_the_table_says() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/settings-client.md");
    if std::env::var_os("YB_BLESS").is_some() {
        std::fs::write(path, page()).unwrap();
    }
    assert!(std::fs::read_to_string(path).unwrap() == page(), "docs/settings-client.md is not what the table says");
}
