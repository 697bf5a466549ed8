//! Calls over HTTP that were refused to who made them: counted, and said in the log.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use yb_env::Clock;
use yb_secure::News;

/// Why a call is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It needs a token and shows none.
    NoToken,
    /// It shows another token.
    WrongToken,
    /// There is no token, and it does not come from this host, or from a page of somebody else in a browser here.
    NotLocal,
    /// Calls that change something are answered at another address.
    Elsewhere,
}

impl Refusal {
    const ALL: [Refusal; 4] = [Refusal::NoToken, Refusal::WrongToken, Refusal::NotLocal, Refusal::Elsewhere];

    fn word(self) -> &'static str {
        match self {
            Refusal::NoToken => "no_token",
            Refusal::WrongToken => "wrong_token",
            Refusal::NotLocal => "not_local",
            Refusal::Elsewhere => "wrong_address",
        }
    }
}

/// The refused calls of one server.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    counts: [AtomicU64; Refusal::ALL.len()],
    news: News,
}

impl Refusals {
    /// Counts one, and says it if that was not done lately of this address. `path` must be one of the server's, not any text
    /// of the caller.
    pub(crate) fn refused(&self, refusal: Refusal, peer: Option<IpAddr>, path: &str) {
        let at = Refusal::ALL.iter().position(|other| *other == refusal);
        if let Some(counter) = at.and_then(|at| self.counts.get(at)) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        let Some(peer) = peer else { return };
        let reason = refusal.word();
        if self.news.is_news(peer, reason, Clock::real().now()) {
            tracing::warn!(event = "http_refused", %peer, path, reason, "a call over HTTP was refused");
        }
    }

    /// How many so far, by reason.
    pub(crate) fn counts(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let words = Refusal::ALL.iter().map(|refusal| refusal.word());
        words.zip(self.counts.iter().map(|count| count.load(Ordering::Relaxed)))
    }
}
