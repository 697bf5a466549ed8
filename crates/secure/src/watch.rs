//! Who was let in and who was not: counters, and one line in the log per address.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use yb_types::MonotonicTime;

use crate::hello::Refusal;
use crate::shake::SecureError;

/// Addresses that are remembered as named in the log.
const NAMED: usize = 1024;
/// Reasons that are remembered of one address: nobody takes the places of others.
const REASONS: usize = 16;
/// After how long an address is named again.
const AGAIN: Duration = Duration::from_secs(600);

/// What a connection was refused for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The plain wire, from an address that may not speak it.
    Plain,
    /// Nothing, or not enough, within the time.
    Silent,
    /// Anything else.
    Failed(SecureError),
    /// The connection ended before anything was said.
    Left,
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident),* $(,)?) => {
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)*
        }

        /// What came of the connections that were taken, since the start.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct SecurityStats {
            $($(#[doc = $doc])* pub $name: u64,)*
        }

        impl SecurityStats {
            fn named(&self) -> [(&'static str, u64); [$(stringify!($name)),*].len()] {
                [$((stringify!($name), self.$name)),*]
            }

            /// What came of connections, each with its name, for a metrics page: all numbers but [`in_care`](Self::in_care).
            pub fn outcomes(&self) -> impl Iterator<Item = (&'static str, u64)> + use<> {
                self.named().into_iter().filter(|(name, _)| *name != "in_care")
            }
        }

        impl Counters {
            pub(crate) fn stats(&self) -> SecurityStats {
                SecurityStats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Connections that were secured
    secured,
    /// Connections of the plain wire from addresses that may speak it
    plain,
    /// Refused: the plain wire, from an address that may not speak it
    refused_plain,
    /// Refused: the secret was another one
    refused_secret,
    /// Refused: TLS failed (certificate, version)
    refused_tls,
    /// Refused: secured by other means than ours, or broken while it was secured
    refused_other,
    /// Refused: too many other connections were being secured
    refused_crowded,
    /// Refused: not secured in time
    refused_silent,
    /// Connections that are being secured, or are encrypted, now
    in_care,
}

/// Counters and log of one process part.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    pub(crate) counters: Counters,
    /// By address and fingerprint of the reason: who mends one thing wants to read of the next.
    named: Mutex<BTreeMap<(IpAddr, u64), MonotonicTime>>,
}

impl Watch {
    pub(crate) fn secured(&self) {
        self.counters.secured.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn plain(&self) {
        self.counters.plain.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a refusal, and names the address if that was not done lately.
    pub(crate) fn refused(&self, plane: &'static str, peer: IpAddr, why: &Why, now: MonotonicTime) {
        let counters = &self.counters;
        let (counter, reason) = match why {
            Why::Left => return,
            Why::Plain => (&counters.refused_plain, "the plain wire is closed to it (setting plain_from)".to_owned()),
            Why::Silent => (&counters.refused_silent, "it said nothing, or not enough".to_owned()),
            Why::Failed(SecureError::Refused(Refusal::WrongSecret)) => {
                (&counters.refused_secret, "its secret is another one".to_owned())
            }
            Why::Failed(SecureError::Refused(Refusal::Crowded)) => {
                (&counters.refused_crowded, "too many other connections are being secured".to_owned())
            }
            Why::Failed(error @ SecureError::Tls(_)) => (&counters.refused_tls, error.to_string()),
            Why::Failed(SecureError::Refused(refusal)) => {
                (&counters.refused_other, format!("it uses other means ({refusal})"))
            }
            Why::Failed(error) => (&counters.refused_other, error.to_string()),
        };
        counter.fetch_add(1, Ordering::Relaxed);
        if self.is_news(peer, &reason, now) {
            tracing::warn!(event = "connection_refused", plane, %peer, reason, "a connection was refused");
        }
    }

    fn is_news(&self, peer: IpAddr, reason: &str, now: MonotonicTime) -> bool {
        let mut fingerprint = DefaultHasher::new();
        reason.hash(&mut fingerprint);
        let key = (peer, fingerprint.finish());
        let mut named = self.named.lock();
        if named.get(&key).is_some_and(|since| now.since(*since) < AGAIN) {
            return false;
        }
        let is_full = |named: &BTreeMap<(IpAddr, u64), MonotonicTime>| {
            named.len() >= NAMED || named.range((peer, 0)..=(peer, u64::MAX)).count() >= REASONS
        };
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
        let (watch, now) = (Watch::default(), MonotonicTime(1 << 40));
        let news = |n: u32, reason: &str, now| watch.is_news(address(n), reason, now);
        assert!(news(1, "secret", now) && !news(1, "secret", now) && news(2, "secret", now));
        assert!(news(1, "no certificate", now) && news(1, "expired", now), "who mended one thing reads of the next");
        (0..5000).for_each(|n| watch.refused("rpc", address(n), &Why::Plain, now));
        assert_eq!(watch.counters.stats().refused_plain, 5000);
        assert!(watch.named.lock().len() <= NAMED);
        assert!(news(1, "secret", now + AGAIN));
    }

    #[test]
    fn one_address_does_not_take_the_places_of_others() {
        let (watch, now) = (Watch::default(), MonotonicTime(1 << 40));
        for n in 0..5000 {
            watch.refused("rpc", address(1), &Why::Failed(SecureError::Tls(format!("made up {n}"))), now);
        }
        assert!(watch.named.lock().len() <= REASONS);
        assert!(watch.is_news(address(2), "secret", now));
    }
}
