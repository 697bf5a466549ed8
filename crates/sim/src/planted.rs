//! Faults that are planted to see whether the checkers find them: in the real catalog, and in the model of clients and nodes.

use yb_catalog::Fault;

use crate::{Broken, Options, Slip, run};

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    /// In the catalog.
    Catalog(Fault),
    /// In a client or a node.
    Party(Slip),
}

impl Planted {
    /// All that must be found.
    pub const ALL: &[Planted] = &[
        Planted::Catalog(Fault::AnyGeneration),
        Planted::Catalog(Fault::FreeOnRevoke),
        Planted::Catalog(Fault::PublishEarly),
        Planted::Catalog(Fault::FreeUnderLease),
        Planted::Catalog(Fault::EvictUnderLease),
        Planted::Catalog(Fault::RemoveUnderLease),
        Planted::Catalog(Fault::RemountWithoutRest),
        Planted::Catalog(Fault::ReuseWithheld),
        Planted::Catalog(Fault::EndForAnybody),
        Planted::Catalog(Fault::ForgetOvertaken),
        Planted::Catalog(Fault::AnyWrite),
        Planted::Catalog(Fault::FreeOfDeadWriter),
        Planted::Catalog(Fault::LeakWithheld),
        Planted::Catalog(Fault::SleepCounts),
        Planted::Catalog(Fault::RefusedPutErases),
        Planted::Catalog(Fault::ReuseUnstruck),
        Planted::Catalog(Fault::PlaceUnread),
        Planted::Catalog(Fault::AdoptGone),
        Planted::Catalog(Fault::AdoptOlder),
        Planted::Catalog(Fault::IgnoreRoster),
        Planted::Party(Slip::NoLeaseCheck),
        Planted::Party(Slip::EndsEarly),
        Planted::Party(Slip::BusyIsStored),
        Planted::Party(Slip::StrikesLater),
        Planted::Party(Slip::NoDeadline),
    ];

    /// The first of so many seeds that finds it, and what was found.
    pub fn find(self, seeds: u64) -> Option<(u64, Broken)> {
        let (fault, slip) = match self {
            Planted::Catalog(fault) => (Some(fault), None),
            Planted::Party(slip) => (None, Some(slip)),
        };
        let options = Options { slip, ..Options::default() };
        yb_catalog::plant(fault);
        let found = (0..seeds).find_map(|seed| Some((seed, run(seed, &options).broken?)));
        yb_catalog::plant(None);
        found
    }
}

impl std::fmt::Display for Planted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Planted::Catalog(fault) => write!(f, "{fault:?}"),
            Planted::Party(slip) => write!(f, "{slip:?}"),
        }
    }
}
