//! Nodes that were another master's meanwhile.
//!
//! **Problem.** Two masters are alive (a partition, an address that moves and moves back), and a node goes from one to the other
//! and comes back before the first has given it up. The other one has given its memory out: what the first one knows of it
//! is not what lies there.
//!
//! **Rule.** A node that says that another master told it what it has, though this one has told it something already, is
//! as one that was given up: its objects are forgotten, and it mounts anew. It has to say so for half a second and nothing
//! else meanwhile: a message of before may come late. What another master had is written to only when
//! nobody can be at work on that one's word any more ([`Catalog::rest_after`]).
//!
//! **Return.** The other one writes only when this one has ceased to offer the node's objects. So a ping of a node that was
//! silent so long is not believed alone: its segments stay as they were, `Offline`, until it has applied a batch that it was
//! told since ([`turn_to`], [`Catalog::take_back`]). A word of before that comes late has not.

use std::time::Duration;

use yb_types::{ClientId, MonotonicTime};

use super::feed::{Feed, Phase, State};
use super::tell::SyncCall;
use crate::catalog::Catalog;
use crate::clients::CHECK_LATE;
use crate::effects::{Effects, UnmountCause};
use crate::segment::{MountedSegment, Reach};

/// A node that follows asks every tenth of a second. Who says for so long that it followed another master, and never that it
/// follows this one, is not a message of long ago that came late.
const LATE: Duration = Duration::from_millis(500);

/// Where a node was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// Here.
    Here,
    /// It says that it was another master's, or said so long ago: it is to ask again.
    Unclear,
    /// With another master.
    Elsewhere,
}

impl Catalog {
    /// Whether a segment whose node followed this master was another master's since.
    pub fn was_elsewhere(&self, call: &SyncCall) -> Whereabouts {
        let Ok(segment) = self.kept_segment(call.client, call.segment) else { return Whereabouts::Here };
        let Some(feed) = segment.feed().filter(|feed| !feed.is_logged()) else { return Whereabouts::Here };
        let is_foreign = call.incarnation != 0 && call.incarnation != self.settings.first_replica_id;
        let is_awaited = segment.awaits_word();
        let mut state = feed.state();
        // A node names the master of before until it has heard of this one.
        let may_tell = state.is_followed || is_awaited && !is_of_before(&state, call);
        if !is_foreign || !matches!(state.phase, Phase::Live) || !may_tell {
            return Whereabouts::Here;
        }
        let since = *state.doubted.get_or_insert(call.now);
        if call.now.since(since) < LATE { Whereabouts::Unclear } else { Whereabouts::Elsewhere }
    }

    /// Takes the segments of a client out of the pool, and has it mount them anew with its next ping.
    pub fn disown(&self, client: ClientId, now: MonotonicTime, effects: &mut Effects) {
        let mut clients = self.clients.lock();
        let mut registry = self.segments.registry();
        clients.set_strange(client);
        registry.keepers().stray(client);
        self.unmount_all_of(&mut registry, &[(client, UnmountCause::Elsewhere)].into(), now, effects);
    }

    /// Offers again what was kept back, if its node has just said that it follows this master since it came back.
    pub(super) fn take_back(&self, call: &SyncCall, segment: &MountedSegment, feed: &Feed) {
        if !segment.awaits_word() || call.incarnation != self.settings.first_replica_id {
            return;
        }
        let clients = self.clients.lock();
        let mut registry = self.segments.registry();
        let mut state = feed.state();
        let reach = clients.reach(call.client).filter(|reach| *reach < Reach::Offline);
        let Some(reach) = reach.filter(|_| state.recalled == Some(call.applied)) else { return };
        state.recalled = None;
        drop(state);
        if segment.set_reach(reach) {
            self.segments.refresh(&mut registry);
        }
    }

    /// Lets memory rest that another master had a moment ago: it offers it until it has missed the node, to readers that
    /// have their leases after that. A master that has just begun is the next one of the same pool: it waited already.
    pub(super) fn rest_after(&self, segment: &MountedSegment, now: MonotonicTime) {
        // Not from the registry: that is locked before feeds.
        let born = self.roll.born_by(now);
        if now > born + self.settings.client_ttl {
            segment.rest_until(now + self.longest_offer());
        }
    }

    /// So long another master that lives may offer what lies with a node that left it, and its readers may read on: it may
    /// look late at who is silent.
    pub(crate) fn longest_offer(&self) -> Duration {
        self.settings.client_ttl + CHECK_LATE + self.longest_use()
    }
}

/// Whether a node still names whom it named before it came back.
fn is_of_before(state: &State, call: &SyncCall) -> bool {
    state.named == Some(call.incarnation) || state.read_from == call.incarnation
}

/// Lets a segment follow what is heard of its client: whose node may have been another master's meanwhile waits for its word.
/// Answers whether that changed anything.
pub(crate) fn turn_to(segment: &MountedSegment, reach: Reach) -> bool {
    let Some(feed) = segment.feed().filter(|_| segment.awaits_word()) else { return segment.set_reach(reach) };
    // What it was told before this return it may have applied before it went.
    feed.state().recalled = None;
    false
}
