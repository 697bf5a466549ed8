//! Peers that failed a short time ago.
//!
//! A dead node stays in the master's lists until its lifetime ends (10 s). Without a memory of its own the client would
//! pay for the same dead peer in every call until then. A suspect is asked last, never left out: it may hold the only copy.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use yb_types::MonotonicTime;

/// How long a peer is asked last after a failure.
const SUSPECT_FOR: Duration = Duration::from_secs(3);
/// More suspects than this and the oldest is forgotten: a bound on memory and on the time of a look.
const MOST_SUSPECTS: usize = 64;

/// The peers and until when they are suspect.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    /// Entries in the list, so that the usual case (none) takes no lock.
    count: AtomicUsize,
    list: Mutex<Vec<(String, MonotonicTime)>>,
}

impl Suspects {
    /// The peer failed just now.
    pub(crate) fn add(&self, endpoint: &str, now: MonotonicTime) {
        let mut list = self.list.lock();
        list.retain(|(name, until)| *until > now && name != endpoint);
        if list.len() >= MOST_SUSPECTS {
            list.remove(0);
        }
        list.push((endpoint.to_owned(), now + SUSPECT_FOR));
        self.count.store(list.len(), Ordering::Release);
    }

    /// Whether the peer failed a short time ago.
    pub(crate) fn contains(&self, endpoint: &str, now: MonotonicTime) -> bool {
        if self.count.load(Ordering::Acquire) == 0 {
            return false;
        }
        let mut list = self.list.lock();
        list.retain(|(_, until)| *until > now);
        self.count.store(list.len(), Ordering::Release);
        list.iter().any(|(name, _)| name == endpoint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suspect_is_forgotten_in_time_and_in_number() {
        let suspects = Suspects::default();
        let now = MonotonicTime::from_millis(1000);
        assert!(!suspects.contains("a:1", now));
        suspects.add("a:1", now);
        suspects.add("a:1", now);
        assert!(suspects.contains("a:1", now));
        assert!(!suspects.contains("a:1", now + SUSPECT_FOR));
        for i in 0..200 {
            suspects.add(&format!("b:{i}"), now);
        }
        assert!(!suspects.contains("b:0", now) && suspects.contains("b:199", now));
        assert_eq!(suspects.list.lock().len(), MOST_SUSPECTS);
    }
}
