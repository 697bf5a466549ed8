//! Faults planted in the catalog, one at a time, and how soon the simulator finds each. `make sim-faults`.
#![forbid(unsafe_code)]

use yb_catalog::{Fault, plant};
use yb_sim::{Options, run};

/// A fault must be found within so many seeds.
const SEEDS: u64 = 1000;

const FAULTS: &[Fault] = &[
    Fault::FreeOnRevoke,
    Fault::FreeUnderLease,
    Fault::RemoveUnderLease,
    Fault::EvictUnderLease,
    Fault::AnyGeneration,
    Fault::ForgetOvertaken,
    Fault::PublishEarly,
    Fault::RemountWithoutRest,
    Fault::FreeOfDeadWriter,
    Fault::ReuseWithheld,
    Fault::LeakWithheld,
    Fault::EndForAnybody,
    Fault::SleepCounts,
    Fault::RefusedPutErases,
];

#[test]
fn every_fault_is_found() {
    let mut missed = Vec::new();
    for &fault in FAULTS {
        plant(Some(fault));
        let found = (0..SEEDS).find_map(|seed| Some((seed, run(seed, &Options::default()).broken?)));
        plant(None);
        match found {
            Some((seed, broken)) => println!("{fault:?}: seed {seed}: {}", broken.what),
            None => missed.push(fault),
        }
    }
    assert!(missed.is_empty(), "not found within {SEEDS} seeds: {missed:?}");
}
