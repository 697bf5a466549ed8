//! What is said in the log of an address: each reason once, and again much later.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use parking_lot::Mutex;
use yb_types::MonotonicTime;

/// Most that is remembered.
const NAMED: usize = 1024;
/// Reasons that are remembered of one address: nobody takes the places of others.
const REASONS: usize = 16;
/// After how long the same is said again.
const AGAIN: Duration = Duration::from_secs(600);

/// By address and fingerprint of the reason: who mends one thing wants to read of the next.
type Named = BTreeMap<(IpAddr, u64), MonotonicTime>;

/// What was said lately of which address.
#[derive(Debug, Default)]
pub struct News(Mutex<Named>);

impl News {
    /// Whether this was not said of that address in the last ten minutes; it counts as said from now on. No more than 16 reasons
    /// of one address, 1,024 of all, are news in that time.
    pub fn is_news(&self, peer: IpAddr, reason: &str, now: MonotonicTime) -> bool {
        let mut fingerprint = DefaultHasher::new();
        reason.hash(&mut fingerprint);
        let key = (peer, fingerprint.finish());
        let mut named = self.0.lock();
        if named.get(&key).is_some_and(|since| now.since(*since) < AGAIN) {
            return false;
        }
        let is_full =
            |named: &Named| named.len() >= NAMED || named.range((peer, 0)..=(peer, u64::MAX)).count() >= REASONS;
        if is_full(&named) {
            named.retain(|_, since| now.since(*since) < AGAIN);
        }
        // From so many addresses at once, or so many reasons of one: the counters tell.
        if is_full(&named) {
            return false;
        }
        named.insert(key, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u32) -> IpAddr {
        IpAddr::from(n.to_be_bytes())
    }

    #[test]
    fn an_address_is_named_once_for_a_reason_and_again_much_later() {
        let (all, now) = (News::default(), MonotonicTime(1 << 40));
        let news = |n: u32, reason: &str, now| all.is_news(address(n), reason, now);
        assert!(news(1, "secret", now) && !news(1, "secret", now) && news(2, "secret", now));
        assert!(news(1, "no certificate", now) && news(1, "expired", now), "who mended one thing reads of the next");
        let taken = (0..5000).filter(|n| news(*n, "plain", now)).count();
        assert!(taken < NAMED && all.0.lock().len() <= NAMED, "{taken}");
        assert!(news(1, "secret", now + AGAIN));
    }

    #[test]
    fn one_address_does_not_take_the_places_of_others() {
        let (news, now) = (News::default(), MonotonicTime(1 << 40));
        let taken = (0..5000).filter(|n| news.is_news(address(1), &format!("made up {n}"), now)).count();
        assert_eq!(taken, REASONS);
        assert!(news.is_news(address(2), "secret", now));
    }
}
