//! Telling a node what was published in its segment and what is to be struck out, batch by batch.

use std::sync::Arc;
use std::time::Duration;

use yb_alloc::NodeId;
use yb_types::{ClientId, ErrorCode, MonotonicTime, SegmentId};

use super::feed::{Batch, Feed, Mention, Phase, Reading, State};
use super::roster::Verdict;
use super::{Keeper, Published};
use crate::catalog::Catalog;
use crate::entry::{Entry, Replica, flag};
use crate::extras::SoftPin;
use crate::segment::MountedSegment;
use crate::shard::ShardState;

/// So long a node that brings a directory may take to tell which roster it heard last; older ones of ours never do.
const INTRODUCTION: Duration = Duration::from_secs(3);
/// Strikes of one batch.
const STRIKES_MAX: usize = 8192;

/// A node says how far it is.
#[derive(Clone, Copy, Debug)]
pub struct SyncCall {
    /// The node.
    pub client: ClientId,
    /// Its segment.
    pub segment: SegmentId,
    /// The master that told what it has; 0: it has nothing.
    pub incarnation: u64,
    /// The last batch of that master that it has applied.
    pub applied: u64,
    /// Objects that it takes at a time.
    pub limit: usize,
    /// Now.
    pub now: MonotonicTime,
}

/// What a node is to do with what it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Strike out, then note what was published.
    Apply,
    /// The same, after striking out everything that it has.
    ClearFirst,
    /// First tell all that it has, see [`Catalog::adopt`].
    Tell,
}

/// What a node is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Number of this life of the master.
    pub incarnation: u64,
    /// Number of the batch; one that the node has applied already says nothing.
    pub batch: u64,
    /// What to do.
    pub order: Order,
    /// First bytes, from the start of the segment, of extents to strike out before anything else.
    pub struck: Vec<u64>,
    /// The present roster's number, 0: there is none yet. A node [fetches](Catalog::introduce) one that it does not have
    /// before it does anything of this.
    pub roster: u64,
    /// It is struck out as something may have gone while its node was away. Said once.
    pub disbelieved: bool,
}

impl Catalog {
    /// Notes what a client says of its directories. Counts for segments that it mounts from here on.
    pub fn expect_directory(&self, client: ClientId, keeper: Keeper) {
        self.segments.registry().keepers().note(client, keeper);
    }

    /// Tells a node the next batch. `sink` gets what was published, to be noted after the strikes.
    ///
    /// # Errors
    /// `SEGMENT_NOT_FOUND` when the segment is not mounted by this client; `UNAVAILABLE_IN_CURRENT_STATUS` when no
    /// directory is kept for it: what the node has of it is worth nothing; `REPLICA_IS_NOT_READY`: it is to
    /// [introduce](Self::introduce) itself, and to ask again.
    pub fn tell_directory(&self, call: &SyncCall, sink: impl FnMut(Published<'_>)) -> Result<Told, ErrorCode> {
        self.tell_keeper(call, |feed| !feed.is_logged(), sink)
    }

    /// Tells whoever keeps the directory, if `is_kept` says that it is the caller.
    pub(super) fn tell_keeper(
        &self,
        call: &SyncCall,
        is_kept: impl Fn(&Feed) -> bool,
        mut sink: impl FnMut(Published<'_>),
    ) -> Result<Told, ErrorCode> {
        let segment = self.kept_segment(call.client, call.segment)?;
        let feed = segment.feed().filter(|feed| is_kept(feed)).ok_or(ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS)?;
        feed.hear(call.now);
        self.take_back(call, &segment, feed);
        let (incarnation, is_awaited) = (self.settings.first_replica_id, segment.awaits_word());
        let mut state = feed.state();
        if call.incarnation == incarnation {
            (state.is_followed, state.doubted) = (true, None);
        }
        if !is_awaited && state.named.is_none() {
            state.named = Some(call.incarnation);
            if matches!(state.phase, Phase::Live) && call.incarnation != 0 && call.incarnation != incarnation {
                // It brings nothing, but another master may have given its memory out.
                self.rest_after(&segment, call.now);
            }
        }
        let last = state.batch;
        let roster = self.roll.number();
        let mut empty =
            Told { incarnation, batch: 0, order: Order::Tell, struck: Vec::new(), roster, disbelieved: false };
        match self.step(call, &segment, feed, &mut state) {
            Step::Wait => return Err(ErrorCode::REPLICA_IS_NOT_READY),
            Step::Tell => return Ok(empty),
            Step::Repeat => {}
            Step::Next => {
                let done = std::mem::take(&mut state.in_flight);
                state.acknowledged += done.strikes.len() as u64;
                self.prepare(call, &mut state, is_awaited);
                drop(state);
                feed.count_struck(&done.strikes);
                segment.struck(&done.strikes, call.now);
                state = feed.state();
            }
            Step::Abandon(refused) => {
                drop(state);
                segment.free_refused(&refused);
                state = feed.state();
                clear(&mut state, &segment, self.applied_here(call));
            }
            Step::Clear => clear(&mut state, &segment, self.applied_here(call)),
            Step::Disbelieve => {
                empty.disbelieved = true;
                clear(&mut state, &segment, self.applied_here(call));
            }
        }
        if is_awaited && state.batch != last {
            state.recalled = Some(state.batch);
        }
        let order = if state.in_flight.clear { Order::ClearFirst } else { Order::Apply };
        let struck = state.in_flight.strikes.iter().map(|strike| strike.extent.offset).collect();
        let told = Told { batch: state.batch, order, struck, ..empty };
        let mentions = state.in_flight.mentions.clone();
        // Shards are locked before feeds.
        drop(state);
        mentions.iter().for_each(|mention| self.show(mention, &segment, call.now, &mut sink));
        Ok(told)
    }

    pub(super) fn kept_segment(&self, client: ClientId, id: SegmentId) -> Result<Arc<MountedSegment>, ErrorCode> {
        let segment = self.segments.registry().get(id).cloned().filter(|segment| segment.owner() == client);
        segment.ok_or(ErrorCode::SEGMENT_NOT_FOUND)
    }

    /// The last batch of this life of the master that a node says it has applied, as far as it can be.
    fn applied_here(&self, call: &SyncCall) -> u64 {
        if call.incarnation == self.settings.first_replica_id { call.applied.min(1 << 48) } else { 0 }
    }

    fn step(&self, call: &SyncCall, segment: &MountedSegment, feed: &Feed, state: &mut State) -> Step {
        let own = self.settings.first_replica_id;
        let is_foreign = call.incarnation != 0 && call.incarnation != own;
        match &state.phase {
            // A page is worked on, or it tells what it was asked for.
            Phase::Reading(None) => return Step::Tell,
            Phase::Reading(Some(_)) if call.incarnation == state.read_from => return Step::Tell,
            // Another process has the memory now, and threw away what was being read.
            Phase::Reading(Some(_)) => {
                let phase = std::mem::replace(&mut state.phase, Phase::Clearing);
                return Step::Abandon(phase.refused());
            }
            Phase::Unread => return self.begin_to_read(call, segment, feed, state),
            Phase::Clearing if call.incarnation == own && call.applied == state.batch => feed.begin(state),
            Phase::Clearing => return Step::Clear,
            // The answer to its last page was lost.
            Phase::Live if is_foreign && call.incarnation == state.read_from && state.batch == 0 => return Step::Tell,
            Phase::Live => {}
        }
        let applied = match call.incarnation {
            incarnation if incarnation == own => Some(call.applied),
            0 => Some(0),
            _ => None,
        };
        match applied {
            Some(applied) if applied == state.batch => Step::Next,
            Some(applied) if applied + 1 == state.batch => Step::Repeat,
            _ => Step::Clear,
        }
    }

    /// The first word of a node that said that it brings something.
    fn begin_to_read(&self, call: &SyncCall, segment: &MountedSegment, feed: &Feed, state: &mut State) -> Step {
        if call.incarnation == 0 {
            feed.begin(state);
            return Step::Next;
        }
        let is_foreign = call.incarnation != self.settings.first_replica_id;
        let is_wanted = is_foreign && self.relearning.look(call.now);
        let verdict = if is_wanted { self.verdict(call, feed, state) } else { Verdict::Believe };
        if verdict == Verdict::Wait {
            return Step::Wait;
        }
        if is_foreign {
            self.rest_after(segment, call.now);
        }
        if verdict == Verdict::Disbelieve {
            state.phase = Phase::Clearing;
            return Step::Disbelieve;
        }
        if is_wanted && let Some(at) = segment.restore() {
            state.phase = Phase::Reading(Some(Reading { at, refused: Vec::new() }));
            state.read_from = call.incarnation;
            return Step::Tell;
        }
        state.phase = Phase::Clearing;
        Step::Clear
    }

    /// Whether what its node brings is up to date.
    fn verdict(&self, call: &SyncCall, feed: &Feed, state: &mut State) -> Verdict {
        if feed.is_logged() {
            // Of a log everything counts, or nothing.
            return Verdict::Believe;
        }
        let asked = *state.asked.get_or_insert(call.now);
        self.roll.verdict(call.segment, call.now.since(asked) >= INTRODUCTION)
    }

    /// Makes the next batch, if there is anything to say. To a node that came back there is: the number of the batch.
    fn prepare(&self, call: &SyncCall, state: &mut State, is_awaited: bool) {
        let strikes = state.strikes.len().min(STRIKES_MAX);
        let mentions = state.mentions.len().min(call.limit);
        if strikes + mentions > 0 || is_awaited && state.recalled.is_none() {
            state.batch += 1;
            state.in_flight = Batch {
                clear: false,
                strikes: state.strikes.drain(..strikes).collect(),
                mentions: state.mentions.drain(..mentions).collect(),
            };
        }
    }

    /// Shows the replica that a mention means, if it is still there.
    fn show(
        &self,
        mention: &Mention,
        segment: &MountedSegment,
        now: MonotonicTime,
        sink: &mut impl FnMut(Published<'_>),
    ) {
        let (shard, slot) = ((mention.member >> 32) as usize, mention.member as u32);
        let Some(shard) = self.shards.get(shard) else { return };
        let state = shard.state.read();
        let is_meant = |entry: &&Entry| {
            entry.is_finished() && (mention.generation == 0 || entry.generation().0.get() == mention.generation)
        };
        let Some(entry) = state.slab.get(slot).filter(is_meant) else { return };
        let tenant = if self.tenants.is_multi() { self.tenants.name(entry.tenant) } else { None };
        let soft_pin = entry.soft_pin().and_then(|pin| match pin {
            SoftPin::Until(until) if until > now => Some(until.since(now)),
            _ => None,
        });
        let is_here = |replica: &&Replica| replica.segment == segment.index() && replica.is_complete();
        for replica in entry.replicas.as_slice().iter().filter(is_here) {
            sink(Published {
                offset: replica.offset,
                size: entry.size,
                generation: entry.generation().0.get(),
                replica: replica.id(),
                writer: entry.creator,
                checksum: entry.checksum(),
                hard_pin: entry.has(flag::HARD_PIN),
                soft_pin,
                data_type: entry.data_type,
                tenant: tenant.as_deref().unwrap_or_default(),
                group: entry.membership().map_or("", |own| own.group.id()),
                key: entry.key.as_slice(),
            });
        }
    }

    /// An object has become readable: nodes that keep directories are to be told.
    #[cold]
    pub(crate) fn mention(&self, state: &ShardState, member: u64, slot: u32) {
        let entry = &state.slab[slot];
        let table = self.segments.load();
        let mention = Mention { member, generation: entry.generation().0.get() };
        for replica in entry.replicas.as_slice().iter().filter(|replica| replica.is_complete()) {
            if let Some(feed) = table.live(replica.segment).and_then(|segment| segment.feed()) {
                feed.mention(mention);
            }
        }
    }
}

/// What is to be answered.
enum Step {
    /// It is not decided yet what becomes of what it has.
    Wait,
    /// It is to tell first.
    Tell,
    /// What it was told already, once more.
    Repeat,
    /// What comes next; what it was told is done.
    Next,
    /// What it has is of no use.
    Clear,
    /// The same, as its node was away while something went.
    Disbelieve,
    /// The same, and what is left of reading it is free.
    Abandon(Vec<NodeId>),
}

/// The next batch strikes out everything, and says all that is there.
fn clear(state: &mut State, segment: &MountedSegment, applied: u64) {
    let all = std::mem::take(&mut state.strikes);
    state.in_flight.strikes.extend(all);
    state.in_flight.mentions.clear();
    state.in_flight.clear = true;
    state.mentions = everything(segment);
    // Under another mount by this same master the node may have come as far: what it says it has done is never this one.
    state.batch = state.batch.max(applied) + 1;
}

/// All objects of a segment.
fn everything(segment: &MountedSegment) -> Vec<Mention> {
    let (mut found, mut next) = (Vec::new(), Some(0));
    while let Some(from) = next {
        next = segment.scan(from, u32::MAX, &mut found);
    }
    found.iter().map(|owned| Mention { member: owned.owner, generation: 0 }).collect()
}
