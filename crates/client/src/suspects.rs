//! Peers that failed a short time ago: who is asked last, who is not asked at all, and when again. Pure.
//!
//! A dead node stays in the master's lists for a while. Without a memory of its own the client would pay for the same dead
//! peer in every call until then. See `docs/client.md`, section Suspects.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use yb_types::MonotonicTime;

/// How long a failure is remembered.
const REMEMBERED: Duration = Duration::from_secs(10);
/// How long a peer is left alone after it was found to be gone; twice as long after each vain try.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// And no longer than this, so that one that is back is found.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// A peer that goes on failing is news again after this time.
const TOLD_AGAIN: Duration = Duration::from_secs(2);
/// So many failures in a row of a peer that is only slow, and it is left alone like one that is gone.
const SLOW_FAILURES: u32 = 3;
/// More suspects than this and the oldest is forgotten: a bound on memory and on the time of a look.
const MOST_SUSPECTS: usize = 64;

/// How a peer failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failing {
    /// Refused, reset, or its process is known to be gone: news that comes from the peer's kernel.
    Gone,
    /// No answer in time, or one that makes no sense.
    Slow,
    /// No answer within the time that a call waits for it that can go elsewhere.
    Late,
}

/// What is known of a peer.
#[derive(Debug)]
struct Suspect {
    endpoint: String,
    reason: String,
    /// In a row.
    failures: u32,
    failed_at: MonotonicTime,
    /// When it was news.
    told_at: MonotonicTime,
    /// When the master was told.
    reported_at: Option<MonotonicTime>,
    /// Nobody asks it before this time.
    ask_at: MonotonicTime,
    pause: Duration,
}

/// A peer that is not asked now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Barred {
    reason: String,
    ago: Duration,
    again_in: Duration,
}

impl std::fmt::Display for Barred {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Barred { reason, ago, again_in } = self;
        write!(f, "not asked: it failed {ago:.0?} ago ({reason}), and is asked again in {again_in:.0?}")
    }
}

/// What a question about a peer finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Leave {
    /// Nothing is known against it.
    Free,
    /// It failed; this call finds out how it is now, and others leave it alone meanwhile.
    Trial,
    /// It is to be left alone.
    Barred(Barred),
}

/// The peers that failed.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    /// Entries in the list, so that the usual case (none) takes no lock.
    count: AtomicUsize,
    list: Mutex<Vec<Suspect>>,
}

impl Suspects {
    /// The peer failed just now. Answers whether that is news: nothing was known against it, or it
    /// was told a while ago.
    pub(crate) fn failed(&self, endpoint: &str, how: Failing, reason: &str, now: MonotonicTime) -> bool {
        let mut list = self.list.lock();
        forget(&mut list, now);
        let at = list.iter().position(|suspect| suspect.endpoint == endpoint);
        let known = at.map(|at| list.remove(at));
        let told_at = known.as_ref().map(|known| known.told_at).filter(|told| now.since(*told) < TOLD_AGAIN);
        let reported_at = known.as_ref().and_then(|known| known.reported_at);
        let (failures, pause) = known.map_or((0, FIRST_PAUSE), |known| (known.failures, known.pause));
        // Who is late is asked last, and by those who have nowhere else to go as ever.
        let failures = failures + u32::from(how != Failing::Late);
        let is_left_alone = how == Failing::Gone || (how == Failing::Slow && failures >= SLOW_FAILURES);
        let (ask_at, next) = if is_left_alone { (now + pause, (pause * 2).min(LONGEST_PAUSE)) } else { (now, pause) };
        if list.len() >= MOST_SUSPECTS {
            list.remove(0);
        }
        let (endpoint, reason) = (endpoint.to_owned(), reason.to_owned());
        let is_news = told_at.is_none();
        let told_at = told_at.unwrap_or(now);
        list.push(Suspect { endpoint, reason, failures, failed_at: now, told_at, reported_at, ask_at, pause: next });
        self.count.store(list.len(), Ordering::Release);
        is_news
    }

    /// Whether the master is to be told of a suspect now: it was not, or a while ago. It counts as told from now on.
    pub(crate) fn report(&self, endpoint: &str, now: MonotonicTime) -> bool {
        let mut list = self.list.lock();
        let Some(suspect) = list.iter_mut().find(|suspect| suspect.endpoint == endpoint) else { return false };
        let is_due = suspect.reported_at.is_none_or(|at| now.since(at) >= TOLD_AGAIN);
        if is_due {
            suspect.reported_at = Some(now);
        }
        is_due
    }

    /// The master did not get the word of it.
    pub(crate) fn unreported(&self, endpoint: &str) {
        if let Some(suspect) = self.list.lock().iter_mut().find(|suspect| suspect.endpoint == endpoint) {
            suspect.reported_at = None;
        }
    }

    /// The peer did what it was asked to. Answers whether something was known against it.
    pub(crate) fn answered(&self, endpoint: &str) -> bool {
        let mut list = self.list.lock();
        let before = list.len();
        list.retain(|suspect| suspect.endpoint != endpoint);
        self.count.store(list.len(), Ordering::Release);
        list.len() < before
    }

    /// Whether there is any.
    pub(crate) fn any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Whether the peer is one.
    pub(crate) fn contains(&self, endpoint: &str, now: MonotonicTime) -> bool {
        self.any() && {
            let mut list = self.list.lock();
            forget(&mut list, now);
            self.count.store(list.len(), Ordering::Release);
            list.iter().any(|suspect| suspect.endpoint == endpoint)
        }
    }

    /// Whether the peer may be asked now.
    pub(crate) fn ask(&self, endpoint: &str, now: MonotonicTime) -> Leave {
        if !self.any() {
            return Leave::Free;
        }
        let mut list = self.list.lock();
        let Some(suspect) = list.iter_mut().find(|suspect| suspect.endpoint == endpoint) else { return Leave::Free };
        if now < suspect.ask_at {
            let (ago, again_in) = (now.since(suspect.failed_at), suspect.ask_at.since(now));
            return Leave::Barred(Barred { reason: suspect.reason.clone(), ago, again_in });
        }
        if suspect.failures >= SLOW_FAILURES || suspect.pause > FIRST_PAUSE {
            suspect.ask_at = now + suspect.pause;
        }
        Leave::Trial
    }
}

fn forget(list: &mut Vec<Suspect>, now: MonotonicTime) {
    list.retain(|suspect| now.since(suspect.failed_at) < REMEMBERED || now < suspect.ask_at);
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: fn(u64) -> MonotonicTime = MonotonicTime::from_millis;

    #[test]
    fn who_is_gone_is_left_alone_for_growing_times_and_tried_by_one_call_at_a_time() {
        let suspects = Suspects::default();
        assert_eq!((suspects.any(), suspects.ask("a:1", AT(0))), (false, Leave::Free));
        assert!(suspects.failed("a:1", Failing::Gone, "refused", AT(1000)));
        assert!(suspects.contains("a:1", AT(1000)) && !suspects.contains("b:1", AT(1000)));
        let Leave::Barred(barred) = suspects.ask("a:1", AT(1060)) else { panic!("it is asked at once") };
        assert_eq!(barred.to_string(), "not asked: it failed 60ms ago (refused), and is asked again in 40ms");
        assert_eq!(suspects.ask("b:1", AT(1060)), Leave::Free);
        // One call tries, the others do not wait for what it finds.
        assert_eq!(suspects.ask("a:1", AT(1100)), Leave::Trial);
        assert!(matches!(suspects.ask("a:1", AT(1100)), Leave::Barred(_)));
        assert!(!suspects.failed("a:1", Failing::Gone, "refused", AT(1101)), "that is no news");
        assert!(matches!(suspects.ask("a:1", AT(1300)), Leave::Barred(_)));
        assert_eq!(suspects.ask("a:1", AT(1301)), Leave::Trial);
        assert!(suspects.answered("a:1") && !suspects.answered("a:1"));
        assert_eq!((suspects.any(), suspects.ask("a:1", AT(1302))), (false, Leave::Free));
        assert!(suspects.failed("a:1", Failing::Gone, "refused", AT(1303)), "news again");
    }

    #[test]
    fn the_master_is_told_of_a_suspect_again_after_a_while_and_when_it_did_not_hear() {
        let suspects = Suspects::default();
        assert!(!suspects.report("a:1", AT(1000)), "nothing is known against it");
        suspects.failed("a:1", Failing::Gone, "refused", AT(1000));
        assert!(suspects.report("a:1", AT(1000)) && !suspects.report("a:1", AT(2999)));
        suspects.failed("a:1", Failing::Gone, "refused", AT(2999));
        assert!(!suspects.report("a:1", AT(2999)) && suspects.report("a:1", AT(3000)));
        suspects.unreported("a:1");
        assert!(suspects.report("a:1", AT(3001)));
    }

    #[test]
    fn who_is_slow_is_asked_on_until_it_was_so_three_times() {
        let suspects = Suspects::default();
        for (failure, at) in [1000, 1100].into_iter().enumerate() {
            assert_eq!(suspects.failed("a:1", Failing::Slow, "no answer", AT(at)), failure == 0);
            assert_eq!(suspects.ask("a:1", AT(at)), Leave::Trial);
            assert_eq!(suspects.ask("a:1", AT(at)), Leave::Trial, "many may ask");
        }
        suspects.failed("a:1", Failing::Slow, "no answer", AT(1200));
        assert!(matches!(suspects.ask("a:1", AT(1299)), Leave::Barred(_)));
    }

    #[test]
    fn who_is_late_is_asked_last_and_never_left_alone() {
        let suspects = Suspects::default();
        for at in 1000..1010 {
            suspects.failed("a:1", Failing::Late, "nothing moved", AT(at));
            assert!(suspects.contains("a:1", AT(at)));
            assert_eq!(suspects.ask("a:1", AT(at)), Leave::Trial);
        }
    }

    #[test]
    fn pauses_and_memory_are_bounded() {
        let suspects = Suspects::default();
        let mut now = AT(1000);
        for _ in 0..20 {
            suspects.failed("a:1", Failing::Gone, "refused", now);
            now = now + LONGEST_PAUSE;
            assert_eq!(suspects.ask("a:1", now), Leave::Trial);
        }
        assert!(!suspects.contains("a:1", now + REMEMBERED));
        for i in 0..200 {
            suspects.failed(&format!("b:{i}"), Failing::Gone, "refused", now);
        }
        assert!(!suspects.contains("b:0", now) && suspects.contains("b:199", now));
        assert_eq!(suspects.list.lock().len(), MOST_SUSPECTS);
    }
}
