//! Memory that can be lent and shared, and io_uring.

use std::fs;
use std::path::Path;

use yb_transfer::{MemorySegment, SegmentOptions};

use super::report::Check;
use crate::size::bytes;

/// What a segment is tried with.
const TRIED: u64 = 4 << 20;
/// `/dev/shm` below this is what container runtimes give without being asked.
const SMALL_SHM: u64 = 1 << 30;

/// All of it. `wanted` is how much a node is to lend.
pub fn check(wanted: Option<u64>) -> Vec<Check> {
    let mut checks = vec![
        huge_pages(Path::new("/sys/kernel/mm")),
        shared_memory(Path::new("/dev/shm")),
        memory_files(
            MemorySegment::create(TRIED, SegmentOptions { populate: true, ..SegmentOptions::default() }).err(),
        ),
        io_uring(yb_uring::probe().err(), yb_uring::DiskRing::new(8, 0).err()),
    ];
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let allowed = group_room(Path::new("/sys/fs/cgroup"), &read("/proc/self/cgroup"));
    checks.push(room(wanted, &read("/proc/meminfo"), allowed));
    checks
}

/// Bytes that the control groups of this process (of a container, a service) still allow; `None` without a limit. `root` is
/// `/sys/fs/cgroup`, `own` the text of `/proc/self/cgroup`.
fn group_room(root: &Path, own: &str) -> Option<u64> {
    let read = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    let left = |folder: &Path, limit: &str, used: &str| {
        // The older kind writes a huge number where there is no limit.
        let limit = read(&folder.join(limit)).filter(|limit| *limit < 1 << 60)?;
        Some(limit.saturating_sub(read(&folder.join(used)).unwrap_or(0)))
    };
    let place = |line: &str| Some(line.split_once(':')?.1.split_once(':')?.1.trim_start_matches('/').to_owned());
    let unified = own.lines().find(|line| line.starts_with("0::")).and_then(place).unwrap_or_default();
    let unified = root.join(unified);
    let groups = unified.ancestors().take_while(|folder| folder.starts_with(root));
    let older = left(&root.join("memory"), "memory.limit_in_bytes", "memory.usage_in_bytes");
    groups.filter_map(|folder| left(folder, "memory.max", "memory.current")).chain(older).min()
}

fn number(path: &Path) -> u64 {
    fs::read_to_string(path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// `root` is `/sys/kernel/mm`.
fn huge_pages(root: &Path) -> Check {
    let reserved = |size: &str| {
        let pool = root.join("hugepages").join(size);
        (number(&pool.join("free_hugepages")), number(&pool.join("nr_hugepages")))
    };
    let (free, all) = reserved("hugepages-2048kB");
    let (free_1g, all_1g) = reserved("hugepages-1048576kB");
    let advice = fs::read_to_string(root.join("transparent_hugepage/shmem_enabled")).unwrap_or_default();
    let advised = advice.split('[').nth(1).and_then(|rest| rest.split(']').next()).unwrap_or("never");
    let on_advice = matches!(advised, "advise" | "always" | "within_size" | "force");
    let told = format!("2 MiB: {free} of {all} reserved are free; 1 GiB: {free_1g} of {all_1g}; on advice: {advised}");
    let check = match on_advice || free > 0 || free_1g > 0 {
        true => Check::ok("huge-pages", told),
        false => Check::warn(
            "huge-pages",
            format!("{told}: segments are made of 4 KiB pages"),
            "echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled, or reserve some: sysctl vm.nr_hugepages=N",
        ),
    };
    check.with("free_2m", free).with("free_1g", free_1g).with("shmem_enabled", advised)
}

fn shared_memory(path: &Path) -> Check {
    match rustix::fs::statvfs(path) {
        Ok(stat) => {
            let (size, free) = (stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize);
            let told = format!("{} free of {} in {}", bytes(free), bytes(size), path.display());
            let check = match size < SMALL_SHM {
                true => Check::warn(
                    "dev-shm",
                    format!("{told}: buffers of PyTorch and of SharedSegment live there"),
                    "--shm-size=16g for a container, or mount -o remount,size=16g /dev/shm",
                ),
                false => Check::ok("dev-shm", told),
            };
            check.with("size", size).with("free", free)
        }
        Err(error) => {
            let hint = "mount -t tmpfs tmpfs /dev/shm";
            Check::warn("dev-shm", format!("{}: {error}; our own segments do not need it", path.display()), hint)
        }
    }
}

fn memory_files(refused: Option<yb_transfer::MapError>) -> Check {
    match refused {
        None => Check::ok("memory-files", "memfd works: processes of this host can map each other's segments"),
        Some(error) => Check::fail(
            "memory-files",
            format!("no segment of {}: {error}", bytes(TRIED)),
            "segments are memfd files: check the seccomp profile, the memory limit of the container, and free memory",
        ),
    }
}

fn io_uring(sockets: Option<std::io::Error>, files: Option<std::io::Error>) -> Check {
    let hint =
        "sysctl kernel.io_uring_disabled=0, and a seccomp profile that allows io_uring_setup, _enter and _register";
    let check = match (&sockets, &files) {
        (None, None) => Check::ok("io-uring", "works, for files and for servers"),
        (Some(error), None) => {
            Check::warn("io-uring", format!("works for files; servers use epoll ({error})"), "Linux 6.1 or newer")
        }
        (_, Some(error)) => {
            Check::warn("io-uring", format!("{error}: servers use epoll, files plain reads and writes"), hint)
        }
    };
    check.with("servers", sockets.is_none()).with("files", files.is_none())
}

/// `allowed`: what a container still allows, if it has a limit.
fn room(wanted: Option<u64>, meminfo: &str, allowed: Option<u64>) -> Check {
    let available = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = available.and_then(|text| text.trim().trim_end_matches("kB").trim().parse::<u64>().ok());
    let Some(free) = kib.map(|kib| kib << 10) else {
        return Check::warn("free-memory", "the kernel does not tell how much is free", "is /proc mounted?");
    };
    let available = allowed.map_or(free, |allowed| allowed.min(free));
    let limit = match allowed {
        Some(allowed) if allowed < free => {
            format!(", as the limit of the container says (the machine has {})", bytes(free))
        }
        _ => String::new(),
    };
    let wish = wanted.map(|wanted| format!(", {} are wanted", bytes(wanted))).unwrap_or_default();
    let told = format!("{} are available{limit}{wish}", bytes(available));
    if let Some(little) = wanted.filter(|wanted| *wanted < yb_client::MIN_SEGMENT_BYTES) {
        let told =
            format!("{} are to be lent, a node lends at least {}", bytes(little), bytes(yb_client::MIN_SEGMENT_BYTES));
        return Check::fail("free-memory", told, "name a unit, as in --memory 64GiB; a number alone is bytes");
    }
    let check = match wanted.is_some_and(|wanted| available < wanted) {
        true => Check::fail("free-memory", told, "lend less, or add memory: a pool that swaps is slower than none"),
        false => Check::ok("free-memory", told),
    };
    check.with("available", available).with("wanted", wanted).with("allowed", allowed)
}

#[cfg(test)]
mod tests {
    use super::super::report::Level::{Fail, Ok, Warn};
    use super::*;

    #[test]
    fn huge_pages_by_advice_or_by_reservation() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(huge_pages(root.path()).level, Warn);
        let advice = root.path().join("transparent_hugepage");
        fs::create_dir_all(&advice).unwrap();
        fs::write(advice.join("shmem_enabled"), "always within_size [never]\n").unwrap();
        assert_eq!(huge_pages(root.path()).level, Warn);
        fs::write(advice.join("shmem_enabled"), "always [advise] never\n").unwrap();
        assert_eq!(huge_pages(root.path()).level, Ok);
        fs::remove_dir_all(&advice).unwrap();
        let pool = root.path().join("hugepages/hugepages-2048kB");
        fs::create_dir_all(&pool).unwrap();
        fs::write(pool.join("free_hugepages"), "12\n").unwrap();
        let check = huge_pages(root.path());
        assert_eq!((check.level, check.details["free_2m"].as_u64()), (Ok, Some(12)));
    }

    #[test]
    fn the_tightest_group_counts() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(group_room(root, "0::/\n"), None);
        let inner = root.join("system/pod");
        fs::create_dir_all(&inner).unwrap();
        fs::write(root.join("system/memory.max"), "1000\n").unwrap();
        fs::write(root.join("system/memory.current"), "400\n").unwrap();
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        assert_eq!(group_room(root, "12:pids:/x\n0::/system/pod\n"), Some(600));
        fs::write(inner.join("memory.max"), "50\n").unwrap();
        assert_eq!(group_room(root, "0::/system/pod\n"), Some(50));
    }

    #[test]
    fn what_is_missing_is_told() {
        assert_eq!(shared_memory(Path::new("/no/such/place")).level, Warn);
        let forbidden = || Some(std::io::Error::from_raw_os_error(1));
        assert_eq!(io_uring(None, None).level, Ok);
        assert_eq!(io_uring(forbidden(), forbidden()).level, Warn);
        let meminfo = "MemTotal: 9 kB\nMemAvailable:   2097152 kB\n";
        assert_eq!(room(None, meminfo, None).level, Ok);
        assert_eq!(room(Some(1 << 30), meminfo, None).level, Ok);
        assert_eq!(room(Some(3 << 30), meminfo, None).level, Fail);
        assert_eq!(room(Some(1), "", None).level, Warn);
        let bounded = room(Some(1 << 30), meminfo, Some(1 << 29));
        let little = room(Some(64), meminfo, None);
        assert!(little.level == Fail && little.text.starts_with("64 B are to be lent"), "{little:?}");
        assert!(bounded.level == Fail && bounded.text.contains("limit of the container"), "{bounded:?}");
        let refused = MemorySegment::create(0, SegmentOptions::default()).err();
        assert_eq!(memory_files(refused).level, Fail);
    }
}
