//! How often the master was asked, and how long its answers took, by function.

use std::time::Duration;

use yb_wire::Rpc;

use crate::counters::{Counter, Durations, Latency};

/// The requests of one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RpcTimes {
    /// Name of the function.
    pub name: &'static str,
    /// Requests that the master answered, whatever the answer was.
    pub answered: Durations,
    /// Requests without an answer.
    pub unanswered: u64,
}

#[derive(Debug, Default)]
struct Row {
    answered: Latency,
    unanswered: Counter,
}

/// A row for every function.
#[derive(Debug)]
pub(crate) struct RpcMeter(Box<[Row]>);

impl Default for RpcMeter {
    fn default() -> Self {
        RpcMeter(Rpc::ALL.iter().map(|_| Row::default()).collect())
    }
}

/// Our own forms of the peer's functions count as these, where dashboards look for them.
fn counted_as(rpc: Rpc) -> Rpc {
    match rpc {
        Rpc::EndWrite => Rpc::PutEnd,
        Rpc::BatchEndWrites => Rpc::BatchPutEnd,
        Rpc::BatchRevokeWrites => Rpc::BatchPutRevoke,
        Rpc::EndCopy => Rpc::CopyEnd,
        Rpc::RevokeCopy => Rpc::CopyRevoke,
        rpc => rpc,
    }
}

impl RpcMeter {
    pub(crate) fn answered(&self, rpc: Rpc, took: Duration) {
        if let Some(row) = self.0.get(counted_as(rpc) as usize) {
            row.answered.record(took);
        }
    }

    pub(crate) fn unanswered(&self, rpc: Rpc) {
        if let Some(row) = self.0.get(counted_as(rpc) as usize) {
            row.unanswered.add(1);
        }
    }

    /// The functions that were used.
    pub(crate) fn used(&self) -> Vec<RpcTimes> {
        let rows = Rpc::ALL.iter().zip(&self.0);
        let times = rows.map(|(rpc, row)| RpcTimes {
            name: rpc.name(),
            answered: row.answered.get(),
            unanswered: row.unanswered.get(),
        });
        times.filter(|times| times.answered.count() + times.unanswered > 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_functions_that_were_used_are_shown() {
        let meter = RpcMeter::default();
        meter.answered(Rpc::GetReplicaList, Duration::from_micros(30));
        meter.answered(Rpc::GetReplicaList, Duration::from_micros(40));
        meter.unanswered(Rpc::PutStart);
        let used = meter.used();
        let shown: Vec<_> =
            used.iter().map(|t| (t.name, t.answered.count(), t.answered.sum_us, t.unanswered)).collect();
        assert!(shown.contains(&("GetReplicaList", 2, 70, 0)) && shown.contains(&("PutStart", 0, 0, 1)), "{shown:?}");
        assert_eq!(shown.len(), 2);
    }
}
