//! What a run is made of.

use std::time::Duration;

use yb_sched::{RailSettings, RailSpec, TrafficClass, TransferSpec};
use yb_types::MonotonicTime;

/// splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    fn one_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    /// Up to `last`, with every order of magnitude as likely as the others.
    fn magnitude(&mut self, first: u64, last: u64) -> u64 {
        let exponent = self.below(1_000_000) as f64 / 1_000_000.0;
        (first as f64 * (last as f64 / first as f64).powf(exponent)) as u64
    }

    fn millis(&mut self, last: u64) -> Duration {
        Duration::from_micros(self.below(last * 1000 + 1))
    }
}

/// Times are from the start of the run; deadlines of transfers from their submission.
pub struct Scenario {
    pub settings: RailSettings,
    pub rails: Vec<RailSpec>,
    /// Real speeds, bytes in a second.
    pub speeds: Vec<u64>,
    pub latencies: Vec<Duration>,
    /// Slices in a million that fail by the rail's fault.
    pub failure_ppm: Vec<u64>,
    /// Slices in a million that are refused.
    pub refusal_ppm: u64,
    pub transfers: Vec<TransferSpec>,
    pub submits: Vec<Duration>,
    pub cancels: Vec<(usize, Duration)>,
    /// Rail, down, up, and whether nobody says that it is down.
    pub flaps: Vec<(usize, Duration, Duration, bool)>,
}

impl Scenario {
    pub fn calm(rails: Vec<RailSpec>, transfers: Vec<TransferSpec>, settings: RailSettings) -> Self {
        Scenario {
            settings,
            speeds: rails.iter().map(|rail| rail.bytes_per_second).collect(),
            latencies: vec![Duration::from_micros(5); rails.len()],
            failure_ppm: vec![0; rails.len()],
            refusal_ppm: 0,
            submits: vec![Duration::ZERO; transfers.len()],
            cancels: Vec::new(),
            flaps: Vec::new(),
            rails,
            transfers,
        }
    }

    pub fn really(mut self, rail: usize, bytes_per_second: u64) -> Self {
        self.speeds[rail] = bytes_per_second;
        self
    }

    pub fn flap(mut self, rail: usize, down: Duration, up: Duration) -> Self {
        self.flaps.push((rail, down, up, false));
        self
    }

    pub fn submit_at(&mut self, transfer: usize, at: Duration) {
        self.submits[transfer] = at;
    }

    pub fn random(seed: u64) -> Self {
        let mut random = Random(seed);
        let rails: Vec<RailSpec> = (0..1 + random.below(6)).map(|_| rail(&mut random)).collect();
        let transfers: Vec<TransferSpec> =
            (0..1 + random.below(8)).map(|_| transfer(&mut random, rails.len())).collect();
        let settings = RailSettings {
            slice_bytes: [16 << 10, 64 << 10, 64 << 10, 256 << 10][random.below(4) as usize],
            patience: Duration::from_millis(200 + random.below(2_000)),
            ..RailSettings::default()
        };
        let mut scenario = Scenario::calm(rails, transfers, settings);
        for rail in 0..scenario.rails.len() {
            if random.one_in(3) {
                let speed = scenario.speeds[rail];
                scenario.speeds[rail] = (speed / (1 + random.below(4))).max(125_000_000);
            }
            scenario.latencies[rail] = Duration::from_nanos(random.magnitude(1_000, 2_000_000));
            scenario.failure_ppm[rail] = [0, 0, 1_000, 50_000, 900_000][random.below(5) as usize];
            for _ in 0..[0, 0, 1, 3][random.below(4) as usize] {
                let down = random.millis(30);
                let up = down + if random.one_in(8) { random.millis(4_000) } else { random.millis(20) };
                scenario.flaps.push((rail, down, up, random.one_in(10)));
            }
        }
        scenario.refusal_ppm = if random.one_in(10) { 5_000 } else { 0 };
        for number in 0..scenario.transfers.len() {
            scenario.submits[number] = if random.one_in(2) { Duration::ZERO } else { random.millis(20) };
            if random.one_in(8) {
                scenario.cancels.push((number, random.millis(40)));
            }
        }
        scenario
    }
}

fn rail(random: &mut Random) -> RailSpec {
    let mut rail = RailSpec::new(random.magnitude(125_000_000, 50_000_000_000), random.below(4) as u8 % 3);
    if random.one_in(3) {
        rail.window_slices = 1 + random.below(8) as u32;
    }
    if random.one_in(3) {
        rail.window_bytes = 1 + random.below(1 << 20);
    }
    rail
}

fn transfer(random: &mut Random, rails: usize) -> TransferSpec {
    let bytes = if random.one_in(20) { 0 } else { random.magnitude(1, 16 << 20) };
    let mut spec = TransferSpec::new(bytes);
    for _ in 0..random.below(3) {
        spec.borders.push(random.below(bytes + 1));
    }
    if random.one_in(4) {
        let unreachable = |random: &mut Random| random.one_in(6).then_some(RailSpec::UNREACHABLE);
        spec.distances = (0..rails).map(|_| unreachable(random).unwrap_or(random.below(3) as u8)).collect();
    }
    spec.class = TrafficClass(random.below(4) as u8);
    spec.priority = random.below(3) as i8 - 1;
    if random.one_in(4) {
        spec.deadline = Some(MonotonicTime(random.magnitude(100_000, 100_000_000)));
    }
    spec
}
