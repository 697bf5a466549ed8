//! Nodes at which a client found nobody.
//!
//! The word of a client is taken for so much: nothing more is placed at the node until it pings or the master has found
//! somebody there; it looks for itself. Only what the master finds counts further: a node whose data address refuses a connection is not offered to
//! readers, and its unfinished writes are given up unless it pings soon ([`yb_catalog::Catalog::doubt`]). A client that lies costs one connection
//! every half second.
//!
//! For the writes of the client itself its word counts more: they go elsewhere for a while, whatever the master finds
//! ([`yb_catalog::Catalog::note_cut`]). A route may be gone between the two of them alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use yb_catalog::{Effects, HeldBack};
use yb_types::{ClientId, ErrorCode, MonotonicTime};

use crate::dial::can_dial;
use crate::shared::Shared;

/// An address is looked at no more often than this.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
/// Addresses remembered; a report beyond is answered and not followed.
const MOST_ADDRESSES: usize = 1024;

/// A client that finds a node slow is heard again about the same one no sooner than this.
const HEARD_AGAIN: Duration = Duration::from_secs(5);
/// Words of clients on slow nodes that are remembered; beyond, none is followed.
const MOST_WORDS: usize = 4096;

/// When addresses were looked at last, and who said of which that they are slow.
#[derive(Debug, Default)]
pub(crate) struct Suspects {
    looked: Mutex<BTreeMap<String, MonotonicTime>>,
    slow: Mutex<BTreeMap<(ClientId, String), MonotonicTime>>,
}

impl Suspects {
    /// Whether a client's word that the node at an address is slow counts: once in a while.
    fn hears(&self, by: ClientId, endpoint: &str, now: MonotonicTime) -> bool {
        let mut slow = self.slow.lock();
        let word = (by, endpoint.to_owned());
        if slow.get(&word).is_some_and(|at| now.since(*at) < HEARD_AGAIN) {
            return false;
        }
        if slow.len() >= MOST_WORDS {
            slow.retain(|_, at| now.since(*at) < HEARD_AGAIN);
        }
        let is_room = slow.len() < MOST_WORDS;
        if is_room {
            slow.insert(word, now);
        }
        is_room
    }

    /// Whether an address is to be looked at now.
    fn begin(&self, endpoint: &str, now: MonotonicTime) -> bool {
        let mut looked = self.looked.lock();
        if looked.get(endpoint).is_some_and(|at| now.since(*at) < BETWEEN_LOOKS) {
            return false;
        }
        if looked.len() >= MOST_ADDRESSES {
            looked.retain(|_, at| now.since(*at) < BETWEEN_LOOKS);
        }
        if looked.len() >= MOST_ADDRESSES {
            return false;
        }
        looked.insert(endpoint.to_owned(), now);
        true
    }
}

/// What a client found.
pub(crate) struct Report<'a> {
    pub(crate) by: ClientId,
    pub(crate) endpoint: &'a str,
    pub(crate) reason: &'a str,
    /// Whether it comes from where that client is: else it says nothing of the client's own writes.
    pub(crate) is_own: bool,
}

/// Holds the node back and looks for itself. Who answers is trusted again at once.
///
/// # Errors
/// `SEGMENT_NOT_FOUND` when no segment is reached at the address.
pub(crate) fn report(shared: &Arc<Shared>, report: &Report<'_>, effects: &mut Effects) -> Result<(), ErrorCode> {
    let owners = owners(shared, report)?;
    let is_news = note_cuts(shared, report, &owners);
    if !hold(shared, report, (&owners, HeldBack::Missing), effects) {
        return Ok(());
    }
    let Report { by, endpoint, .. } = *report;
    let dialer = shared.dialer.as_ref().filter(|_| can_dial(endpoint));
    if let Some(dialer) = dialer {
        let (later, address) = (Arc::clone(shared), endpoint.to_owned());
        dialer.check(vec![address.clone()], move |verdict| match verdict {
            Ok(()) => {
                refute(&later, (by, &address), is_news);
                trust_again(&later, &owners);
            }
            Err(why) => confirm(&later, &owners, (&address, &why)),
        });
    }
    Ok(())
}

/// Holds a node back that did not take in time what a client wrote. A connection proves nothing of it (the kernel of a
/// process that stands still accepts them), a ping does. One that is slow only for the client that says so would be held
/// back for nothing: a client is heard about a node once in five seconds, and no more than half of the nodes are held back
/// together, so that one sick or lying client does not stop the writes of others.
///
/// # Errors
/// As [`report`].
pub(crate) fn report_slow(shared: &Arc<Shared>, report: &Report<'_>, effects: &mut Effects) -> Result<(), ErrorCode> {
    let owners = owners(shared, report)?;
    note_cuts(shared, report, &owners);
    // Also where it is not followed: it counts as said.
    let is_heard = shared.suspects.hears(report.by, report.endpoint, shared.clock.now());
    let (held, all) = shared.catalog.held_back();
    if !is_heard || (held + owners.len()) * 2 > all {
        shared.metrics.shared_lane().add(shared.metrics.reports_disbelieved, 1);
        return Ok(());
    }
    hold(shared, report, (&owners, HeldBack::Slow), effects);
    Ok(())
}

/// Whose segments are reached at the address.
fn owners(shared: &Shared, report: &Report<'_>) -> Result<BTreeSet<ClientId>, ErrorCode> {
    shared.metrics.shared_lane().add(shared.metrics.suspects_reported, 1);
    let owners = shared.catalog.clients_at(report.endpoint);
    if owners.is_empty() { Err(ErrorCode::SEGMENT_NOT_FOUND) } else { Ok(owners) }
}

/// Has the client's own writes go elsewhere for a while. Answers whether that is news.
fn note_cuts(shared: &Shared, report: &Report<'_>, owners: &BTreeSet<ClientId>) -> bool {
    let now = shared.clock.now();
    let note = |owner: &&ClientId| report.is_own && shared.catalog.note_cut(report.by, **owner, now);
    owners.iter().filter(note).count() > 0
}

/// Only the client does not reach the node.
fn refute(shared: &Shared, (by, endpoint): (ClientId, &str), is_news: bool) {
    shared.metrics.shared_lane().add(shared.metrics.suspects_refuted, 1);
    if is_news {
        tracing::warn!(event = "suspect_refuted", %by, endpoint, "a client cannot reach a node that answers the master: its writes go elsewhere for a while");
    }
}

/// Holds them back, unless that was done a moment ago.
fn hold(
    shared: &Shared,
    report: &Report<'_>,
    (owners, why): (&BTreeSet<ClientId>, HeldBack),
    effects: &mut Effects,
) -> bool {
    let Report { by, endpoint, reason, .. } = report;
    if !shared.suspects.begin(endpoint, shared.clock.now()) {
        return false;
    }
    tracing::info!(event = "suspect_reported", %by, endpoint, reason, "a client cannot reach a node; looking");
    for owner in owners {
        shared.catalog.hold_back(*owner, why, effects);
    }
    true
}

/// Somebody answers: what the client met has passed, or was the client's own.
fn trust_again(shared: &Shared, owners: &BTreeSet<ClientId>) {
    let now = shared.clock.now();
    let mut effects = Effects::default();
    for owner in owners {
        shared.catalog.let_go(*owner, now, &mut effects);
    }
    shared.carry_out(&mut effects, shared.metrics.shared_lane());
}

/// The master found nobody either.
fn confirm(shared: &Shared, owners: &BTreeSet<ClientId>, (endpoint, why): (&str, &str)) {
    let lane = shared.metrics.shared_lane();
    lane.add(shared.metrics.suspects_confirmed, 1);
    tracing::warn!(event = "suspect_confirmed", endpoint, "nobody answers at the data address of a node: {why}");
    let (mut effects, now) = (Effects::default(), shared.clock.now());
    for owner in owners {
        shared.catalog.doubt(*owner, now, &mut effects);
    }
    shared.carry_out(&mut effects, lane);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_looked_at_now_and_then_and_their_number_is_bounded() {
        let suspects = Suspects::default();
        let at = MonotonicTime::from_millis;
        assert!(suspects.begin("a:1", at(1000)) && !suspects.begin("a:1", at(1499)) && suspects.begin("a:1", at(1500)));
        let begun = (0..2 * MOST_ADDRESSES).filter(|i| suspects.begin(&format!("b:{i}"), at(1600))).count();
        assert_eq!(begun, MOST_ADDRESSES - 1);
        assert!(suspects.begin("c:1", at(2100)), "old ones make room");
    }
}
