//! The figures of a run, for people and for programs.

use std::fmt::Write;

use serde::Serialize;

use super::load::Measured;
use super::{RpcBench, ServerCost};

/// The figures of one run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RpcReport {
    /// The operation's name.
    pub operation: &'static str,
    /// Connections.
    pub connections: usize,
    /// Requests under way on each.
    pub outstanding: usize,
    /// Keys per request; 1 for single calls.
    pub batch: u64,
    /// Measured seconds.
    pub seconds: f64,
    /// Operations: keys in batches, pairs of start and end in puts.
    pub operations: u64,
    /// Operations per second.
    pub operations_per_s: f64,
    /// Microseconds of a request, or of the pair of a put.
    pub latency_us: Percentiles,
    /// What the server used, with `--server-pid`.
    pub server: Option<ServerCost>,
    /// Server CPU microseconds per operation.
    pub server_cpu_us_per_operation: Option<f64>,
    /// Server instructions per operation, user and kernel.
    pub server_instructions_per_operation: Option<f64>,
    /// Growth of the server's memory per stored key, in bytes.
    pub server_bytes_per_key: Option<f64>,
}

/// A distribution.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Percentiles {
    /// Arithmetic mean.
    pub mean: f64,
    /// Median.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p999: f64,
    /// Largest.
    pub max: f64,
}

impl RpcReport {
    pub(super) fn new(bench: &RpcBench, measured: Measured, grown: Option<u64>) -> Self {
        let operations = measured.cycles * bench.operations_per_cycle();
        let per_operation = |amount: f64| amount / operations.max(1) as f64;
        let us = |quantile: f64| measured.latency.value_at_quantile(quantile) as f64 / 1e3;
        let latency_us = Percentiles {
            mean: measured.latency.mean() / 1e3,
            p50: us(0.5),
            p90: us(0.9),
            p99: us(0.99),
            p999: us(0.999),
            max: measured.latency.max() as f64 / 1e3,
        };
        let cost = measured.cost.as_ref();
        let instructions = cost.and_then(|cost| cost.user_instructions.zip(cost.kernel_instructions));
        RpcReport {
            operation: bench.operation.name(),
            connections: bench.connections,
            outstanding: bench.outstanding,
            batch: bench.operations_per_cycle(),
            seconds: measured.seconds,
            operations,
            operations_per_s: operations as f64 / measured.seconds.max(1e-9),
            latency_us,
            server_cpu_us_per_operation: cost.map(|cost| per_operation(cost.cpu_s * 1e6)),
            server_instructions_per_operation: instructions.map(|(user, kernel)| per_operation((user + kernel) as f64)),
            server_bytes_per_key: grown.map(|bytes| bytes as f64 / bench.keys.max(1) as f64),
            server: measured.cost,
        }
    }

    /// One object.
    pub fn to_json(&self) -> String {
        // Numbers and strings only: there is nothing that JSON could not hold.
        serde_json::to_string(self).unwrap_or_default()
    }

    /// Lines for people.
    pub fn table(&self) -> String {
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "  {name:<26}{value}");
        };
        let keys = if self.batch > 1 { format!(", {} keys each", self.batch) } else { String::new() };
        let load =
            format!("{}: {} connections x {} requests{keys}", self.operation, self.connections, self.outstanding);
        line("load", load);
        line("operations per second", format!("{:.0}", self.operations_per_s));
        let latency = self.latency_us;
        let spread = format!(
            "p50 {:.1}  p90 {:.1}  p99 {:.1}  p99.9 {:.1}  max {:.0}",
            latency.p50, latency.p90, latency.p99, latency.p999, latency.max
        );
        line("request latency, us", spread);
        if let (Some(cost), Some(per)) = (&self.server, self.server_cpu_us_per_operation) {
            line("server CPU per operation", format!("{per:.3} us ({:.0} % user)", cost.user_share * 100.0));
            match (self.server_instructions_per_operation, &cost.no_instructions_because) {
                (Some(count), _) => line("server instructions", format!("{count:.0} per operation")),
                (None, Some(reason)) => line("server instructions", format!("not counted: {reason}")),
                (None, None) => {}
            }
        }
        if let Some(bytes) = self.server_bytes_per_key {
            line("server memory per key", format!("{bytes:.0} bytes"));
        }
        text
    }
}
