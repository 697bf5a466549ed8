//! What the system says about this process: memory, from `/proc/self`.

use yb_metrics::TextWriter;

/// Memory of this process in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessMemory {
    /// Resident, all kinds.
    pub(crate) resident: u64,
    /// Of these, memory of its own.
    pub(crate) anonymous: u64,
    file: u64,
    shared: u64,
    peak: u64,
    virtual_size: u64,
    swapped: u64,
}

impl ProcessMemory {
    /// As of now; zeros where the system does not tell.
    pub(crate) fn now() -> ProcessMemory {
        std::fs::read_to_string("/proc/self/status").map(|text| Self::parse(&text)).unwrap_or_default()
    }

    fn parse(text: &str) -> ProcessMemory {
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let kib = line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
            kib.unwrap_or(0).saturating_mul(1024)
        };
        ProcessMemory {
            resident: field("VmRSS"),
            anonymous: field("RssAnon"),
            file: field("RssFile"),
            shared: field("RssShmem"),
            peak: field("VmHWM"),
            virtual_size: field("VmSize"),
            swapped: field("VmSwap"),
        }
    }

    /// Under the names of the peer's 0.3.14.
    pub(super) fn write(&self, out: &mut TextWriter) {
        for (name, help, value) in [
            ("mooncake_process_rss_bytes", "Resident memory of this process", self.resident),
            ("mooncake_process_rss_anon_bytes", "Of it, memory of its own", self.anonymous),
            ("mooncake_process_rss_file_bytes", "Of it, mapped files", self.file),
            ("mooncake_process_rss_shmem_bytes", "Of it, memory shared with others", self.shared),
            ("mooncake_process_rss_peak_bytes", "Most resident memory so far", self.peak),
            ("mooncake_process_vsize_bytes", "Address space of this process", self.virtual_size),
            ("mooncake_process_swap_bytes", "Memory that was swapped out", self.swapped),
        ] {
            out.gauge(name, help, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_the_system() {
        let text = "Name:\tx\nVmPeak:\t 9 kB\nVmHWM:\t  40 kB\nVmRSS:\t  30 kB\nRssAnon:\t 20 kB\nRssFile: 1 MB\n";
        let memory = ProcessMemory::parse(text);
        assert_eq!((memory.peak, memory.resident, memory.anonymous), (40 << 10, 30 << 10, 20 << 10));
        assert_eq!((memory.file, memory.swapped), (0, 0), "what is not understood is 0");
        assert!(ProcessMemory::now().resident > 0);
    }
}
