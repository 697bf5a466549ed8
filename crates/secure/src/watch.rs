//! Who was let in and who was not: counters, and one line in the log per address.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use yb_types::MonotonicTime;

use crate::hello::Refusal;
use crate::news::News;
use crate::shake::SecureError;

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
    news: News,
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
        if self.news.is_news(peer, &reason, now) {
            tracing::warn!(event = "connection_refused", plane, %peer, reason, "a connection was refused");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_refusal_is_counted() {
        let (watch, now) = (Watch::default(), MonotonicTime(1 << 40));
        (0..5000_u32).for_each(|n| watch.refused("rpc", IpAddr::from(n.to_be_bytes()), &Why::Plain, now));
        assert_eq!(watch.counters.stats().refused_plain, 5000);
    }
}
