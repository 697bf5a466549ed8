//! Segments come and go.
//!
//! An unmount is visible at once: nothing more is placed in the segment and no lookup answers with it. What the catalog
//! still keeps of its objects is forgotten later in small steps, see [`Catalog::upkeep`].

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use yb_types::{ClientId, ErrorCode, MonotonicTime, Segment, SegmentId, SegmentStatus};

use crate::catalog::Catalog;
use crate::clients::{Clients, Found, Sign};
use crate::effects::{Effects, MountRefusal, SegmentGone, UnmountCause};
use crate::planted::{Fault, planted};
use crate::segment::{MountedSegment, Place, Reach};
use crate::segments::{Registry, ranges_meet};

/// What the segments of a pool may hold together: 4 EiB.
const POOL_BYTES_MAX: u64 = 1 << 62;

impl Catalog {
    /// Adds a segment to the pool; its client is in good standing from here on. Repeating it changes nothing.
    ///
    /// Memory that another client had mounted at the same endpoint and address is taken to be gone: two living processes
    /// cannot have it.
    ///
    /// # Errors
    /// See [`MountRefusal`]; nothing changed then.
    pub fn mount(
        &self,
        segment: Segment,
        client: ClientId,
        now: MonotonicTime,
        effects: &mut Effects,
    ) -> Result<(), MountRefusal> {
        check_range(&segment)?;
        let mut clients = self.clients.lock();
        let mut registry = self.segments.registry();
        self.check_sum(&registry, std::slice::from_ref(&segment))?;
        match registry.get(segment.id) {
            Some(mounted) if mounted.owner() != client => return Err(MountRefusal::Different(segment.id)),
            Some(mounted) if mounted.status() != SegmentStatus::OK => {
                return Err(MountRefusal::OnItsWayOut(segment.id));
            }
            Some(_) => {}
            None => {
                check_overlap(&registry, &segment, client)?;
                self.check_count(&registry, client, std::slice::from_ref(&segment))?;
            }
        }
        self.hear_of(&mut clients, &mut registry, client, now)?;
        let mut mounting =
            Mounting { clients: &mut clients, registry: &mut registry, client, again: false, now, effects };
        self.add_if_missing(&mut mounting, segment, MonotonicTime(0));
        clients.set_good(client);
        self.look_at_roll(&mut registry, now);
        Ok(())
    }

    /// Tells the segments of a client that the master did not know, or knew in part; puts the client in good standing.
    /// All or nothing.
    ///
    /// Such memory was in the pool before, perhaps of a master that is gone: whoever got its addresses then may still
    /// read them under a lease, or write them. So nothing is placed in it for the length of a lease, or of a write where that
    /// is longer, counted from when this master [began](Self::begins), or from when this master gave the memory up.
    ///
    /// # Errors
    /// See [`MountRefusal`]; nothing changed then.
    pub fn remount(
        &self,
        segments: Vec<Segment>,
        client: ClientId,
        now: MonotonicTime,
        effects: &mut Effects,
    ) -> Result<(), MountRefusal> {
        let mut clients = self.clients.lock();
        let mut registry = self.segments.registry();
        self.check_sum(&registry, &segments)?;
        check_apart(&segments)?;
        for segment in &segments {
            check_range(segment)?;
            match registry.get(segment.id) {
                Some(mounted) if mounted.owner() != client || !is_same(mounted.info(), segment) => {
                    return Err(MountRefusal::Different(segment.id));
                }
                Some(_) => {}
                None => check_overlap(&registry, segment, client)?,
            }
        }
        self.check_count(&registry, client, &segments)?;
        self.hear_of(&mut clients, &mut registry, client, now)?;
        let rests_until = registry.born_by(now) + self.longest_use();
        let rests_until = if planted(Fault::RemountWithoutRest) { now } else { rests_until };
        let mut mounting =
            Mounting { clients: &mut clients, registry: &mut registry, client, again: true, now, effects };
        for segment in segments {
            self.add_if_missing(&mut mounting, segment, rests_until);
        }
        clients.set_good(client);
        // Before its node is told anything.
        self.look_at_roll(&mut registry, now);
        Ok(())
    }

    /// Sums of bytes are taken all over the catalog; none may leave its word. What is mounted already adds nothing.
    fn check_sum(&self, registry: &Registry, more: &[Segment]) -> Result<(), MountRefusal> {
        let mut new = more.iter().filter(|segment| registry.get(segment.id).is_none()).peekable();
        let first = new.peek().copied();
        let total = new.map(|segment| segment.size).fold(self.segments.capacity().0, u64::saturating_add);
        match first {
            Some(first) if total > POOL_BYTES_MAX => Err(MountRefusal::PoolTooLarge(first.id)),
            _ => Ok(()),
        }
    }

    /// Every segment costs memory of the master, and time of each change of their table.
    fn check_count(&self, registry: &Registry, client: ClientId, more: &[Segment]) -> Result<(), MountRefusal> {
        let new = || more.iter().filter(|segment| registry.get(segment.id).is_none());
        let Some(first) = new().next() else { return Ok(()) };
        let all = registry.iter().count() + new().count();
        let own = registry.iter().filter(|segment| segment.owner() == client).count() + new().count();
        match all > self.settings.segments_max || own > self.settings.segments_per_client_max {
            true => Err(MountRefusal::TooManySegments(first.id)),
            false => Ok(()),
        }
    }

    /// A mount is a sign of life.
    fn hear_of(
        &self,
        clients: &mut Clients,
        registry: &mut Registry,
        client: ClientId,
        now: MonotonicTime,
    ) -> Result<(), MountRefusal> {
        match clients.seen(client, now, self.settings.clients_max) {
            Sign::NoRoom => return Err(MountRefusal::TooManyClients(client)),
            Sign::Fine => {}
            Sign::Back => self.follow(registry, &BTreeMap::from([(client, Reach::Online)])),
        }
        Ok(())
    }

    fn add_if_missing(&self, mounting: &mut Mounting<'_>, segment: Segment, rests_until: MonotonicTime) {
        let Mounting { clients, registry, client, again, now, effects } = mounting;
        let (client, now) = (*client, *now);
        if registry.get(segment.id).is_some() {
            return;
        }
        for old in registry.overlapping(&segment) {
            self.take_away(registry, &old, UnmountCause::Replaced, now, effects);
        }
        for old in registry.at_the_address_of(&segment, client) {
            if clients.doubt(old, Found::Another, now) {
                self.follow(registry, &BTreeMap::from([(old, Reach::Offline)]));
                effects.clients_turned.push((old, Reach::Offline));
                self.counters.add(|c| &c.clients_offline, 1);
            }
        }
        let mut quiet_until = registry.quiet_until(&segment).max(rests_until);
        if registry.keepers().has_strayed(client) {
            quiet_until = quiet_until.max(now + self.longest_offer());
        }
        let room = Arc::clone(self.segments.room());
        let feed = registry.keepers().feed(client, segment.id, *again);
        self.segments.note_feed(feed.is_some());
        let place = |index| Place { index, quiet_until, mounted: now, room, feed };
        // The registry gives itself away for the time.
        let mut standings = std::mem::take(registry.standings());
        self.segments.add(registry, |index| {
            let mounted = MountedSegment::new(segment, client, place(index), &self.settings);
            standings.settle(&mounted, *again);
            mounted
        });
        *registry.standings() = standings;
    }

    /// Takes a segment out of the pool. An unknown id is fine: it is out. A client that has no other has left, unless it
    /// pings from then on.
    ///
    /// # Errors
    /// `INVALID_PARAMS` for anyone but the client that mounted it.
    pub fn unmount(
        &self,
        id: SegmentId,
        client: ClientId,
        now: MonotonicTime,
        effects: &mut Effects,
    ) -> Result<(), ErrorCode> {
        let mut clients = self.clients.lock();
        let mut registry = self.segments.registry();
        let Some(segment) = registry.get(id).cloned() else { return Ok(()) };
        if segment.owner() != client {
            return Err(ErrorCode::INVALID_PARAMS);
        }
        self.take_away(&mut registry, &segment, UnmountCause::Asked, now, effects);
        if !registry.iter().any(|segment| segment.owner() == client) {
            clients.leaves(client, now);
        }
        self.segments.refresh(&mut registry);
        Ok(())
    }

    /// Lets a segment take nothing more; what it holds stays readable until it is unmounted. Repeating it is fine.
    ///
    /// # Errors
    /// `SEGMENT_NOT_FOUND` when the client has no segment at all, `INVALID_PARAMS` when this one is not its own,
    /// `UNAVAILABLE_IN_CURRENT_STATUS` once it has been drained: the peer's answers to a graceful unmount.
    pub fn begin_to_leave(&self, id: SegmentId, client: ClientId) -> Result<(), ErrorCode> {
        let mut registry = self.segments.registry();
        let mut owned = registry.iter().filter(|segment| segment.owner() == client).peekable();
        if owned.peek().is_none() {
            return Err(ErrorCode::SEGMENT_NOT_FOUND);
        }
        let segment = owned.find(|segment| segment.info().id == id).cloned().ok_or(ErrorCode::INVALID_PARAMS)?;
        drop(owned);
        if !segment.turn(SegmentStatus::GRACEFULLY_UNMOUNTING) {
            return Err(ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS);
        }
        self.segments.refresh(&mut registry);
        Ok(())
    }

    /// Lets all segments of these names take nothing more, to be emptied. All or nothing.
    ///
    /// # Errors
    /// `SEGMENT_NOT_FOUND` when a name has no segment, `UNAVAILABLE_IN_CURRENT_STATUS` when a segment is not `OK`.
    pub fn set_draining(&self, names: &[impl AsRef<str>]) -> Result<(), ErrorCode> {
        self.change_named(names, SegmentStatus::OK, SegmentStatus::DRAINING)
    }

    /// Notes that all segments of these names are empty. All or nothing.
    ///
    /// # Errors
    /// `SEGMENT_NOT_FOUND` when a name has no segment any more, `UNAVAILABLE_IN_CURRENT_STATUS` when a segment is not
    /// `DRAINING`.
    pub fn set_drained(&self, names: &[impl AsRef<str>]) -> Result<(), ErrorCode> {
        self.change_named(names, SegmentStatus::DRAINING, SegmentStatus::DRAINED)
    }

    /// Lets those segments of these names take objects again that are `DRAINING` or `DRAINED`; others, and names without a
    /// segment, stay as they are.
    pub fn set_ok(&self, names: &[impl AsRef<str>]) {
        let mut registry = self.segments.registry();
        for name in names {
            for segment in registry.named(name.as_ref()) {
                segment.turn(SegmentStatus::OK);
            }
        }
        self.segments.refresh(&mut registry);
    }

    fn change_named(&self, names: &[impl AsRef<str>], from: SegmentStatus, to: SegmentStatus) -> Result<(), ErrorCode> {
        let mut registry = self.segments.registry();
        let mut changing = Vec::new();
        for name in names {
            let before = changing.len();
            changing.extend(registry.named(name.as_ref()).cloned());
            if changing.len() == before {
                return Err(ErrorCode::SEGMENT_NOT_FOUND);
            }
        }
        if changing.iter().any(|segment| segment.status() != from) {
            return Err(ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS);
        }
        for segment in changing {
            segment.turn(to);
        }
        self.segments.refresh(&mut registry);
        Ok(())
    }

    /// Unmounts all segments of some clients, in one walk.
    pub(crate) fn unmount_all_of(
        &self,
        registry: &mut Registry,
        clients: &BTreeMap<ClientId, UnmountCause>,
        now: MonotonicTime,
        effects: &mut Effects,
    ) {
        let cause = |segment: &Arc<MountedSegment>| clients.get(&segment.owner()).copied();
        let owned: Vec<_> =
            registry.iter().filter_map(|segment| Some((Arc::clone(segment), cause(segment)?))).collect();
        for (segment, cause) in owned {
            self.take_away(registry, &segment, cause, now, effects);
        }
        self.segments.refresh(registry);
    }

    fn take_away(
        &self,
        registry: &mut Registry,
        segment: &MountedSegment,
        cause: UnmountCause,
        now: MonotonicTime,
        effects: &mut Effects,
    ) {
        let Some(segment) = self.segments.detach(registry, segment.info().id) else { return };
        let (info, owner) = (segment.info(), segment.owner());
        if segment.used().0 > 0 {
            // Its readers hold leases on it, and its client may come back with the same memory.
            registry.remember_lost(info, now, now + self.longest_use());
        }
        effects.segments_gone.push(SegmentGone { id: info.id, name: info.name.clone(), owner, cause });
        self.chores.lock().add_sweep(segment);
    }

    /// Notes how full the local disk of a client is, for the placement that goes by it. An unknown capacity (0 or less)
    /// counts as an empty disk.
    pub fn report_disk(&self, client: ClientId, capacity: i64, used: i64) {
        let share = if capacity > 0 { capacity.saturating_sub(used) as f64 / capacity as f64 } else { 1.0 };
        let registry = self.segments.registry();
        for segment in registry.iter().filter(|segment| segment.owner() == client) {
            segment.set_disk_free_share(share.clamp(0.0, 1.0));
        }
    }

    /// Says that clients are answered from now on, by nobody else than this master: what a forerunner promised to readers
    /// is promised at this time or before. Without it memory that comes by [`remount`](Self::remount) rests longer.
    pub fn begins(&self, now: MonotonicTime) {
        self.segments.registry().set_born(now);
        self.relearning.begin(now);
        self.roll.begin(self.settings.first_replica_id, now);
    }

    /// Who mounted a segment, `None` when it is not mounted.
    pub fn segment_owner(&self, id: SegmentId) -> Option<ClientId> {
        self.segments.registry().get(id).map(|segment| segment.owner())
    }

    /// The segments of a client.
    pub fn segments_of(&self, client: ClientId) -> Vec<SegmentId> {
        let registry = self.segments.registry();
        registry.iter().filter(|segment| segment.owner() == client).map(|segment| segment.info().id).collect()
    }

    /// Names of the segments of a client, each once, but those that segments of others have too.
    pub fn names_of(&self, client: ClientId) -> Vec<String> {
        let registry = self.segments.registry();
        let own = registry.iter().filter(|segment| segment.owner() == client);
        let names: BTreeSet<String> = own.map(|segment| segment.info().name.clone()).collect();
        let is_shared = |name: &String| registry.named(name).any(|segment| segment.owner() != client);
        names.into_iter().filter(|name| !is_shared(name)).collect()
    }

    /// The state of the first segment of a name, `None` when there is none.
    pub fn segment_status_by_name(&self, name: &str) -> Option<SegmentStatus> {
        self.segments.registry().iter().find(|segment| segment.info().name == name).map(|segment| segment.status())
    }

    /// The state of a segment, `None` when it is not mounted.
    pub fn segment_status(&self, id: SegmentId) -> Option<SegmentStatus> {
        self.segments.registry().get(id).map(|segment| segment.status())
    }
}

/// A mount that was accepted.
struct Mounting<'a> {
    clients: &'a mut Clients,
    registry: &'a mut Registry,
    client: ClientId,
    /// The memory was in the pool before.
    again: bool,
    now: MonotonicTime,
    effects: &'a mut Effects,
}

/// Bytes of a name of a segment, of its address, host and protocol: each is kept and said many times.
const NAME_MAX: usize = 4096;

fn check_range(segment: &Segment) -> Result<(), MountRefusal> {
    let texts = [&segment.name, &segment.te_endpoint, &segment.host_id, &segment.protocol];
    if texts.iter().any(|text| text.len() > NAME_MAX) {
        return Err(MountRefusal::NameTooLong(segment.id));
    }
    if segment.base == 0 || segment.size == 0 {
        return Err(MountRefusal::EmptyRange(segment.id));
    }
    match segment.base.checked_add(segment.size) {
        Some(_) => Ok(()),
        None => Err(MountRefusal::RangeTooLong(segment.id)),
    }
}

/// Segments of one call must not be the same memory: the later one would replace the earlier one.
fn check_apart(segments: &[Segment]) -> Result<(), MountRefusal> {
    let mut sorted: Vec<&Segment> = segments.iter().collect();
    sorted.sort_unstable_by_key(|segment| (&segment.te_endpoint, segment.base));
    for pair in sorted.windows(2) {
        let [a, b] = pair else { continue };
        let is_same_memory = a.te_endpoint == b.te_endpoint && ranges_meet(a.base, a.size, b.base, b.size);
        if is_same_memory && a.id != b.id {
            return Err(MountRefusal::Overlap(b.id, a.id));
        }
    }
    Ok(())
}

fn check_overlap(registry: &Registry, segment: &Segment, client: ClientId) -> Result<(), MountRefusal> {
    let own = registry.overlapping(segment).into_iter().find(|other| other.owner() == client);
    own.map_or(Ok(()), |other| Err(MountRefusal::Overlap(segment.id, other.info().id)))
}

/// Compares what the peer compares.
fn is_same(a: &Segment, b: &Segment) -> bool {
    (a.base, a.size, &a.name, &a.te_endpoint, &a.protocol, &a.host_id)
        == (b.base, b.size, &b.name, &b.te_endpoint, &b.protocol, &b.host_id)
}
