//! What the system allows a process.

use std::fs;

use rustix::process::{Resource, getrlimit};

use super::report::Check;
use crate::size::bytes;

/// Descriptors that a busy node needs: connections of peers, of clients, lanes.
const FILES_WANTED: u64 = 4096;
/// Fewer than this, and the sockets of one node do not fit.
const FILES_NEEDED: u64 = 128;
/// Ports for outgoing connections that are few.
const PORTS_WANTED: u32 = 10_000;
/// 2024-01-01: no clock that is set shows less.
const EARLIEST: u64 = 1_704_067_200_000;
/// 2100-01-01.
const LATEST: u64 = 4_102_444_800_000;

/// All limits.
pub fn check() -> Vec<Check> {
    let has_rdma = fs::read_dir("/sys/class/infiniband").is_ok_and(|mut list| list.next().is_some());
    let clock_source = text("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    vec![
        locked_memory(getrlimit(Resource::Memlock).current, has_rdma),
        open_files(getrlimit(Resource::Nofile).current, getrlimit(Resource::Nofile).maximum),
        ephemeral_ports(text("/proc/sys/net/ipv4/ip_local_port_range").as_deref()),
        ptrace_scope(text("/proc/sys/kernel/yama/ptrace_scope").as_deref()),
        clock(yb_env::epoch_millis(), clock_source.as_deref()),
    ]
}

fn text(path: &str) -> Option<String> {
    fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
}

fn locked_memory(limit: Option<u64>, has_rdma: bool) -> Check {
    let Some(limit) = limit else {
        return Check::ok("memlock", "no limit on locked memory").with("limit", "unlimited");
    };
    let told = format!("{} may be locked", bytes(limit));
    let check = match has_rdma && limit < 64 << 30 {
        true => Check::warn(
            "memlock",
            format!("{told}; RDMA pins all memory that it registers"),
            "ulimit -l unlimited, or LimitMEMLOCK=infinity in the service, or --ulimit memlock=-1 for a container",
        ),
        false => Check::ok("memlock", format!("{told}; only RDMA and fixed buffers need it")),
    };
    check.with("limit", limit)
}

fn open_files(soft: Option<u64>, hard: Option<u64>) -> Check {
    let Some(limit) = soft else { return Check::ok("open-files", "no limit").with("limit", "unlimited") };
    let hint = match hard {
        Some(hard) if hard <= limit => {
            "raise the hard limit: LimitNOFILE=65536 in the service, or --ulimit nofile=65536"
        }
        _ => "ulimit -n 65536, or LimitNOFILE=65536 in the service",
    };
    let check = match limit {
        few if few < FILES_NEEDED => {
            Check::fail("open-files", format!("{limit} descriptors: too few for one node"), hint)
        }
        few if few < FILES_WANTED => {
            Check::warn("open-files", format!("{limit} descriptors: every peer and client needs some"), hint)
        }
        _ => Check::ok("open-files", format!("{limit} descriptors")),
    };
    check.with("limit", limit)
}

fn ephemeral_ports(range: Option<&str>) -> Check {
    let mut bounds = range.unwrap_or_default().split_whitespace().map(str::parse::<u32>);
    let (Some(Ok(first)), Some(Ok(last))) = (bounds.next(), bounds.next()) else {
        return Check::warn("ephemeral-ports", "the kernel does not tell the range", "is /proc mounted?");
    };
    let count = (last + 1).saturating_sub(first);
    let check = match count < PORTS_WANTED {
        true => Check::warn(
            "ephemeral-ports",
            format!("only {count} ports ({first} to {last}) for outgoing connections"),
            "sysctl -w net.ipv4.ip_local_port_range='32768 60999'",
        ),
        false => Check::ok("ephemeral-ports", format!("{count} ports, {first} to {last}")),
    };
    check.with("first", first).with("last", last)
}

/// Whether another process's memory can be read without its help.
fn ptrace_scope(scope: Option<&str>) -> Check {
    let (usable, text) = match scope {
        None => (true, "no restriction: memory that peers on this host registered themselves is copied by process_vm"),
        Some("0") => (true, "0: memory that peers on this host registered themselves is copied by process_vm"),
        Some("1") if is_root() => (true, "1, and this is root: process_vm works"),
        Some("1") => {
            (false, "1: memory that peers registered themselves goes over TCP, if they do not allow us by prctl")
        }
        Some("2") if is_root() => (true, "2, and this is root: process_vm works"),
        Some(_) => (false, "closed: memory that peers registered themselves goes over TCP"),
    };
    match usable {
        true => Check::ok("ptrace-scope", text),
        false => Check::warn(
            "ptrace-scope",
            text,
            "sysctl -w kernel.yama.ptrace_scope=0, or let engines allocate the memory",
        ),
    }
    .with("scope", scope)
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn clock(epoch_millis: u64, source: Option<&str>) -> Check {
    if !(EARLIEST..LATEST).contains(&epoch_millis) {
        let hint = "set it: timedatectl set-ntp true. Timestamps of metadata, and logs, are wrong until then";
        return Check::fail("clock", format!("the clock stands at {} s since 1970", epoch_millis / 1000), hint);
    }
    let check = match source {
        Some(slow @ ("hpet" | "acpi_pm" | "jiffies" | "refined-jiffies")) => Check::warn(
            "clock",
            format!("clock source {slow}: each look at the time costs a microsecond or more"),
            "boot with tsc=reliable if the processor's counter is trustworthy",
        ),
        Some(source) => Check::ok("clock", format!("set, clock source {source}")),
        None => Check::ok("clock", "set"),
    };
    check.with("epoch_ms", epoch_millis).with("source", source)
}

#[cfg(test)]
mod tests {
    use super::super::report::Level::{Fail, Ok, Warn};
    use super::*;

    #[test]
    fn limits_are_judged_by_what_is_needed() {
        assert_eq!(locked_memory(None, true).level, Ok);
        assert_eq!(locked_memory(Some(8 << 20), true).level, Warn);
        assert_eq!(locked_memory(Some(8 << 20), false).level, Ok);
        let files = |soft| open_files(soft, Some(100)).level;
        assert_eq!([files(None), files(Some(65_536)), files(Some(1024)), files(Some(64))], [Ok, Ok, Warn, Fail]);
        let ports = |range| ephemeral_ports(range).level;
        assert_eq!([ports(Some("32768\t60999")), ports(Some("60000 60999")), ports(None)], [Ok, Warn, Warn]);
        assert_eq!(ptrace_scope(Some("3")).level, Warn);
        assert_eq!([ptrace_scope(None).level, ptrace_scope(Some("0")).level], [Ok, Ok]);
    }

    #[test]
    fn a_clock_that_is_not_set_fails() {
        assert_eq!(clock(1_000_000, Some("tsc")).level, Fail);
        assert_eq!(clock(1_795_964_581_001, Some("tsc")).level, Ok);
        assert_eq!(clock(1_795_964_581_001, Some("hpet")).level, Warn);
    }
}
