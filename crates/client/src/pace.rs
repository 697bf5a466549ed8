//! How long peers take to answer, and from when on one of them is late. Pure.
//!
//! A reader that has another replica does not wait for a peer that is stopped, or drowned in work, for as long as a call may
//! take: when nothing has moved for [`Pace::bound`], the next replica is read. The bound comes from what the peer itself took
//! lately, as TCP's own timers do: its mean and its mean deviation.

use std::time::Duration;

use parking_lot::Mutex;

/// A peer is not late before this time: threads are descheduled, and disks of virtual machines pause, for as long.
const LEAST: Duration = Duration::from_millis(50);
/// The bound for a peer of which nothing is known.
const UNKNOWN: Duration = Duration::from_millis(200);
/// The bound is so many mean deviations above the mean.
const DEVIATIONS: u32 = 8;
/// Peers remembered; the one seen first is forgotten.
const MOST_PEERS: usize = 256;

#[derive(Debug)]
struct Peer {
    endpoint: String,
    mean: Duration,
    deviation: Duration,
}

/// What is known of all peers.
#[derive(Debug, Default)]
pub(crate) struct Pace(Mutex<Vec<Peer>>);

impl Pace {
    /// A peer served a small read in this time.
    pub(crate) fn took(&self, endpoint: &str, time: Duration) {
        let mut peers = self.0.lock();
        if let Some(peer) = peers.iter_mut().find(|peer| peer.endpoint == endpoint) {
            peer.deviation = (peer.deviation * 3 + peer.mean.abs_diff(time)) / 4;
            peer.mean = (peer.mean * 7 + time) / 8;
            return;
        }
        if peers.len() >= MOST_PEERS {
            peers.remove(0);
        }
        peers.push(Peer { endpoint: endpoint.to_owned(), mean: time, deviation: time / 2 });
    }

    /// How long nothing may move before the peer is late; `most` at most.
    pub(crate) fn bound(&self, endpoint: &str, most: Duration) -> Duration {
        let peers = self.0.lock();
        let known = peers.iter().find(|peer| peer.endpoint == endpoint);
        known.map_or(UNKNOWN, |peer| (peer.mean + peer.deviation * DEVIATIONS).max(LEAST)).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn the_bound_follows_what_the_peer_took() {
        let (pace, most) = (Pace::default(), MS(500));
        assert_eq!((pace.bound("a:1", most), pace.bound("a:1", MS(100))), (UNKNOWN, MS(100)));
        for _ in 0..50 {
            pace.took("a:1", Duration::from_micros(300));
            pace.took("b:1", MS(40));
        }
        assert_eq!(pace.bound("a:1", most), LEAST);
        assert!(pace.bound("b:1", most) < MS(60), "a steady peer is late soon");
        for time in [10, 90].into_iter().cycle().take(50) {
            pace.took("b:1", MS(time));
        }
        assert!(pace.bound("b:1", most) > MS(200), "one that varies is given time");
        assert_eq!(pace.bound("b:1", MS(70)), MS(70));
    }

    #[test]
    fn the_number_of_peers_is_bounded() {
        let pace = Pace::default();
        for peer in 0..1000 {
            pace.took(&format!("p:{peer}"), MS(1));
        }
        assert_eq!(pace.0.lock().len(), MOST_PEERS);
    }
}
