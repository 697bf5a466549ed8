//! The protocols that a segment may be reached by.

/// A protocol, by the peer's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are the peer's")]
pub enum Protocol {
    Tcp,
    Rdma,
    Barex,
    Efa,
    Cxi,
    Ub,
    Nccl,
    Ascend,
    Nvlink,
    NvlinkIntra,
    Hip,
    Maca,
    Musa,
    Ubshmem,
    SunriseLink,
    Cxl,
    Nvmeof,
}

const NAMES: [(&str, Protocol); 17] = [
    ("tcp", Protocol::Tcp),
    ("rdma", Protocol::Rdma),
    ("barex", Protocol::Barex),
    ("efa", Protocol::Efa),
    ("cxi", Protocol::Cxi),
    ("ub", Protocol::Ub),
    ("nccl", Protocol::Nccl),
    ("ascend", Protocol::Ascend),
    ("nvlink", Protocol::Nvlink),
    ("nvlink_intra", Protocol::NvlinkIntra),
    ("hip", Protocol::Hip),
    ("maca", Protocol::Maca),
    ("musa", Protocol::Musa),
    ("ubshmem", Protocol::Ubshmem),
    ("sunrise_link", Protocol::SunriseLink),
    ("cxl", Protocol::Cxl),
    ("nvmeof", Protocol::Nvmeof),
];

impl Protocol {
    /// The protocol of that name; `None` for a name that nobody speaks.
    pub fn from_name(name: &str) -> Option<Self> {
        NAMES.iter().find(|(known, _)| *known == name).map(|(_, protocol)| *protocol)
    }

    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, known)| *known == self).map_or("", |(name, _)| name)
    }

    /// Buffers carry one remote key for each device.
    pub fn has_keys(self) -> bool {
        matches!(self, Protocol::Rdma | Protocol::Barex | Protocol::Efa | Protocol::Cxi)
    }

    /// Buffers carry an exported handle, and are useless without it.
    pub fn has_handle(self) -> bool {
        use Protocol as P;
        matches!(self, P::Nvlink | P::NvlinkIntra | P::Hip | P::Maca | P::Musa | P::Ubshmem | P::SunriseLink)
    }

    /// May stand beside others in one segment.
    pub fn is_combinable(self) -> bool {
        use Protocol as P;
        matches!(self, P::Cxl | P::Tcp | P::Rdma | P::Hip | P::Maca | P::Musa)
    }

    /// Segments of it list NICs and a priority matrix.
    pub(super) fn has_devices(self) -> bool {
        self.has_keys() || self == Protocol::Ub
    }
}

impl std::fmt::Display for Protocol {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
