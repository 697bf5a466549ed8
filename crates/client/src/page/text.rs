//! What a client has counted, for machines and for people.

use std::fmt::Write;

use yb_metrics::TextWriter;

use crate::core::Core;
use crate::counters::{Durations, LATENCY_BOUNDS_US, MetricsSnapshot};

/// The names of calls as the peer's page has them, and where they are counted.
fn calls(counted: &MetricsSnapshot) -> [(&'static str, &'static str, &Durations); 4] {
    [
        ("get", "read", &counted.get_latency),
        ("batch_get", "read", &counted.batch_get_latency),
        ("put", "write", &counted.put_latency),
        ("batch_put", "write", &counted.batch_put_latency),
    ]
}

/// Prometheus text: the families of the peer's clients as far as they mean something here, and our own.
pub(super) fn prometheus(core: &Core) -> String {
    let counted = core.counters.snapshot();
    let cluster = core.config.metrics.cluster_id.as_str();
    let mut common = vec![("client_mode", "real")];
    if !cluster.is_empty() {
        common.push(("cluster_id", cluster));
    }
    let mut out = Page { out: TextWriter::default(), common };
    out.counter("mooncake_transfer_read_bytes", "Bytes read", counted.bytes_read);
    out.counter("mooncake_transfer_write_bytes", "Bytes written, each replica counted", counted.bytes_written);
    for (call, _, durations) in calls(&counted) {
        let name = format!("mooncake_transfer_{call}_latency");
        out.family(&name, "histogram", "Duration of calls in microseconds");
        out.histogram(&name, None, durations);
    }
    for side in ["read", "write"] {
        let of_side = || calls(&counted).into_iter().filter(move |(_, kind, _)| *kind == side);
        let name = format!("mooncake_transfer_{side}_operation_count");
        out.family(&name, "counter", "Calls");
        of_side().for_each(|(call, _, durations)| out.sample(&name, Some(("op_name", call)), durations.count()));
        let name = format!("mooncake_transfer_{side}_operation_latency");
        out.family(&name, "histogram", "Duration of calls in microseconds");
        of_side().for_each(|(call, _, durations)| out.histogram(&name, Some(("op_name", call)), durations));
    }
    requests(&mut out, core);
    for (name, value) in counted.named() {
        out.counter(&format!("yuebing_client_{name}_total"), &name.replace('_', " "), value);
    }
    let name = "yuebing_client_failures_total";
    out.family(name, "counter", "Objects that calls failed for");
    for (reason, count) in counted.failures.iter() {
        out.sample(name, Some(("reason", reason.word())), count);
    }
    out.gauge("yuebing_client_lent_bytes", "Bytes lent to the pool", core.lent.bytes());
    out.gauge("yuebing_client_hot_cache_bytes", "Bytes in the hot cache", core.hot_bytes());
    connections(&mut out, core);
    out.out.into_string()
}

/// Connections that others make to this process: what came of them, and those that broke a bound.
fn connections(out: &mut Page<'_>, core: &Core) {
    let secured = core.config.security.as_ref();
    let security = secured.map(|security| security.stats()).unwrap_or_default();
    let name = "yuebing_security_connections_total";
    out.family(name, "counter", "Connections by what came of them: let in secured or plain, or refused and why");
    for (outcome, count) in security.outcomes() {
        out.sample(name, Some(("outcome", outcome)), count);
    }
    let help = "Connections that are being secured, or are encrypted, now";
    out.gauge("yuebing_security_connections_in_care", help, security.in_care);
    let help = "When the own certificate (tls_cert) ends, in seconds since 1970; 0: there is none";
    let ends = secured.map_or(0, |security| security.certificate_ends());
    out.gauge("yuebing_certificate_expires_timestamp_seconds", help, ends);
    let engines = core.engines().map(|engine| engine.stats());
    let sums = engines.fold((0, 0), |sum, stats| (sum.0 + stats.data_connections, sum.1 + stats.refused_connections));
    out.gauge("yuebing_data_connections", "Connections to the data port that are open now", sums.0);
    let help = "Connections to the data and the handshake port that were refused or closed: bound, silence, bad frame";
    out.counter("yuebing_data_connections_refused_total", help, sums.1);
}

fn requests(out: &mut Page<'_>, core: &Core) {
    let used = core.link.times();
    out.family("mooncake_client_rpc_count", "counter", "Requests that the master answered");
    for rpc in &used {
        out.sample("mooncake_client_rpc_count", Some(("rpc_name", rpc.name)), rpc.answered.count());
    }
    out.family("yuebing_client_rpc_unanswered_total", "counter", "Requests that the master did not answer");
    for rpc in &used {
        out.sample("yuebing_client_rpc_unanswered_total", Some(("rpc_name", rpc.name)), rpc.unanswered);
    }
    out.family("mooncake_client_rpc_latency", "histogram", "Duration of answered requests in microseconds");
    for rpc in &used {
        out.histogram("mooncake_client_rpc_latency", Some(("rpc_name", rpc.name)), &rpc.answered);
    }
}

/// A text whose samples all have the labels of the client.
struct Page<'a> {
    out: TextWriter,
    common: Vec<(&'a str, &'a str)>,
}

impl<'a> Page<'a> {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.out.family(name, kind, help);
    }

    fn sample(&mut self, name: &str, label: Option<(&'a str, &str)>, value: u64) {
        let labels: Vec<(&str, &str)> = self.common.iter().copied().chain(label).collect();
        self.out.sample(name, &labels, value);
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "counter", help);
        self.sample(name, None, value);
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.family(name, "gauge", help);
        self.sample(name, None, value);
    }

    fn histogram(&mut self, name: &str, label: Option<(&'a str, &str)>, durations: &Durations) {
        let labels: Vec<(&str, &str)> = self.common.iter().copied().chain(label).collect();
        let bucket = format!("{name}_bucket");
        let mut below = 0;
        for (index, count) in durations.buckets.iter().enumerate() {
            below += count;
            let bound = LATENCY_BOUNDS_US.get(index).map_or("+Inf".to_owned(), u64::to_string);
            let with_bound: Vec<(&str, &str)> = labels.iter().copied().chain([("le", bound.as_str())]).collect();
            self.out.sample(&bucket, &with_bound, below);
        }
        self.out.sample(&format!("{name}_sum"), &labels, durations.sum_us);
        self.out.sample(&format!("{name}_count"), &labels, durations.count());
    }
}

/// A few lines for people: what was done, how long it took, what went wrong.
pub(crate) fn summary(core: &Core) -> String {
    let counted = core.counters.snapshot();
    let mut text = format!("client {} of {}\n", core.hostname, core.link.address());
    for (call, _, durations) in calls(&counted) {
        let count = durations.count();
        if let Some(average) = durations.sum_us.checked_div(count) {
            let _ = writeln!(text, "{call}: {count} calls, {average} us on average");
        }
    }
    for rpc in core.link.times() {
        let count = rpc.answered.count();
        let average = rpc.answered.sum_us.checked_div(count).unwrap_or(0);
        let _ = writeln!(text, "{}: {count} answers, {average} us on average, {} without", rpc.name, rpc.unanswered);
    }
    for (name, value) in counted.named().into_iter().filter(|(_, value)| *value > 0) {
        let _ = writeln!(text, "{}: {value}", name.replace('_', " "));
    }
    text
}
