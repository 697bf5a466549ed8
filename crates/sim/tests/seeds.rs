//! The cluster holds under some hundred seeds, the same seed gives the same run, and slips of clients and nodes are found.
#![forbid(unsafe_code)]

use yb_sim::{Options, Slip, run};

#[test]
fn the_same_seed_gives_the_same_run() {
    let tally = |seed| run(seed, &Options::default()).tally;
    for seed in [3, 14, 159] {
        let first = tally(seed);
        assert!(first.events > 500, "seed {seed} does nothing: {first:?}");
        assert_eq!(tally(seed), first, "seed {seed} gave two runs");
        assert_ne!(tally(seed + 1).digest, first.digest);
    }
    let readable = Options { readable: true, ..Options::default() };
    let (first, second) = (run(8, &readable), run(8, &readable));
    assert_eq!(first.lines, second.lines);
    assert_eq!(first.tally, tally(8), "words change nothing");
}

#[test]
fn the_cluster_holds() {
    let mut sum = (0, 0, 0, 0);
    for seed in 0..150 {
        let outcome = run(seed, &Options::default());
        if let Some(broken) = outcome.broken {
            panic!("seed {seed} at {} ms: {}; replay: make sim SEED={seed}", broken.at_ms, broken.what);
        }
        let tally = outcome.tally;
        sum = (sum.0 + tally.right, sum.1 + tally.stored, sum.2 + tally.evicted, sum.3 + tally.faults);
    }
    let (right, stored, evicted, faults) = sum;
    // A world in which nothing succeeds, or nothing goes wrong, proves nothing.
    assert!(right > 5000 && stored > 2000 && evicted > 200 && faults > 500, "{sum:?}");
}

#[test]
fn slips_of_clients_and_nodes_are_found() {
    let slips = [Slip::NoLeaseCheck, Slip::EndsEarly, Slip::BusyIsStored];
    for slip in slips {
        let options = Options { slip: Some(slip), ..Options::default() };
        // What breaks without the slip would prove nothing.
        let found = (0..1000).find_map(|seed| Some((seed, run(seed, &options).broken?)));
        match found {
            Some((seed, broken)) => println!("{slip:?}: seed {seed}: {}", broken.what),
            None => panic!("{slip:?} is not found within 1,000 seeds"),
        }
    }
}
