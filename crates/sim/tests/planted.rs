//! Each planted fault is found within two thousand seeds. `make sim-faults` prints by which.
#![forbid(unsafe_code)]

use yb_sim::Planted;

#[test]
fn every_fault_is_found() {
    let missed: Vec<_> = Planted::ALL.iter().filter(|planted| planted.find(1000).is_none()).collect();
    assert!(missed.is_empty(), "not found within 2,000 seeds: {missed:?}");
}
