//! How much memory this process may use.

use std::fs;
use std::path::Path;

/// Bytes that this process may use: the memory of the host, or less where a control group (of a container, a service) allows
/// less. `None` where nobody tells.
pub fn memory_limit() -> Option<u64> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    limit(&read("/proc/meminfo"), Path::new("/sys/fs/cgroup"), &read("/proc/self/cgroup"))
}

/// `host` is the text of `/proc/meminfo`, `root` is `/sys/fs/cgroup`, `own` the text of `/proc/self/cgroup`.
fn limit(host: &str, root: &Path, own: &str) -> Option<u64> {
    let total =
        host.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse().ok());
    let total = total.map(|kib: u64| kib << 10);
    let unified = own.lines().find_map(|line| line.strip_prefix("0::/")).unwrap_or_default();
    let unified = root.join(unified);
    let groups =
        unified.ancestors().take_while(|folder| folder.starts_with(root)).map(|folder| folder.join("memory.max"));
    let older = root.join("memory/memory.limit_in_bytes");
    let told = |path: std::path::PathBuf| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok();
    groups.chain([older]).filter_map(told).chain(total).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_limit_counts() {
        let root = std::env::temp_dir().join(format!("yb-env-memory-{}", std::process::id()));
        let inner = root.join("system/one");
        fs::create_dir_all(&inner).unwrap();
        fs::write(root.join("system/memory.max"), "4096\n").unwrap();
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        assert_eq!(limit("MemFree: 1 kB\nMemTotal:  8 kB\n", &root, "0::/system/one\n"), Some(4096));
        assert_eq!(limit("MemTotal:  2 kB\n", &root, "0::/system/one\n"), Some(2048));
        assert_eq!(limit("MemTotal:  8 kB\n", &root, "0::/\n"), Some(8192));
        assert_eq!(limit("", &root, ""), None);
        fs::remove_dir_all(&root).unwrap();
    }
}
