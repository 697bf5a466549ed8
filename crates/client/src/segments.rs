//! Lending memory to the pool, and taking it back.
//!
//! A segment is first registered with an engine that serves, then mounted at the master: nobody is told of memory that
//! cannot be reached. Taking back goes the other way round, and the memory is the caller's again only when no transfer
//! uses it. A client that lent nothing at setup gets an engine that serves when it lends something for the first time.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use yb_env::Rng;
use yb_transfer::{
    Access, Coherence, Engine, ForeignMemory, HugePages, Location, MapError, MemoryDevice, MemorySegment,
    RegistryError, SegmentOptions,
};
use yb_types::{ErrorCode, Segment, SegmentId};

use crate::config::RPC_ONLY;
use crate::core::Core;
use crate::deadline::Deadline;
use crate::directory::{Ports, Table};
use crate::heartbeat::{Membership, Pulse, capabilities};
use crate::kept::{Begun, Misfit};
use crate::link::{CAPABILITY_DIRECTORY, CAPABILITY_QUIESCE, CorruptReplica, MasterLink};
use crate::reach::warn_if_out_of_reach;
use crate::setup::{link_settings, start, start_engine};
use crate::{Error, MIN_SEGMENT_BYTES, Result};

/// Segments start at a multiple of this, as the peer's do.
const ALIGNMENT: u64 = 16 << 20;
/// What a place in a file has to be a multiple of.
const PAGE: u64 = 4096;

impl Core {
    /// Makes memory and lends it.
    pub(crate) fn mount_new(&self, size: u64, options: SegmentOptions) -> Result<SegmentId> {
        check_size(size)?;
        let engine = self.lender()?;
        let memory = allocate(engine, size, SegmentOptions { alignment: ALIGNMENT, ..options })
            .map_err(|error| Error::setup("segment memory", format!("{size} bytes: {error}")))?;
        if self.config.populate_segment {
            engine.populate_behind(&memory);
        }
        self.mount(engine, memory.address(), size)
    }

    /// Lends the memory that outlives this process, with what an earlier one left in it.
    pub(crate) fn mount_kept(&self, rng: &mut Rng) -> Result<SegmentId> {
        let mut kept = self.kept.lock();
        let kept = kept.as_mut().ok_or_else(|| Error::invalid("there is no memory file"))?;
        let engine = self.lender()?;
        let memory = ForeignMemory::of_device(Arc::clone(&kept.device), 0, kept.device.len());
        let memory = memory.map_err(|error| Error::setup("the memory file", error))?;
        let (address, size) = (memory.address(), memory.len());
        let registered = engine.register_memory_at(memory, Access::Remote, Location::default());
        registered.map_err(|error| Error::invalid(error.to_string()))?;
        let port = engine.endpoint().and_then(|name| name.rsplit(':').next()?.parse().ok()).unwrap_or(0);
        let ports = Ports { handshake: port, data: engine.own_desc().data_port };
        let Begun { segment, table, journal, was_lent, misfits } = kept.begin(self.client_id, ports, rng)?;
        self.directories.add(segment, table, Some(journal));
        let mounted = self.mount_as(engine, segment, (address, size), was_lent)?;
        self.report_misfits(&misfits);
        Ok(mounted)
    }

    /// Tells a master of ours that lives on which objects did not survive: it asks back and offers them no more. Without that
    /// word it hears it from the first reader.
    fn report_misfits(&self, misfits: &[Misfit]) {
        self.counters.objects_corrupt.add(misfits.len() as u64);
        let deadline = self.short_word();
        for Misfit { object, found, written } in misfits {
            let entry = object.entry(0);
            let (tenant, replica) = (Some(entry.tenant), entry.replica);
            let corrupt = CorruptReplica { tenant, key: entry.key, replica, written: *written, found: *found };
            match self.link.report_corrupt(&corrupt, &deadline) {
                Ok(()) => self.counters.corrupt_reported.add(1),
                // One that was restarted does not know it: nobody told.
                Err(Error::Refused { .. }) => {}
                Err(error) => return tracing::warn!(%error, "the master was not told of objects with other bytes"),
            }
        }
    }

    /// Lends a part of a file or of a device that can be mapped.
    pub(crate) fn mount_file(&self, path: &Path, offset: u64, size: u64) -> Result<SegmentId> {
        check_size(size)?;
        if !offset.is_multiple_of(PAGE) {
            return Err(Error::invalid(format!("offset {offset} is no multiple of the page size")));
        }
        let end = offset.checked_add(size).ok_or_else(|| Error::invalid("the range exceeds every file"))?;
        let failed = |error: &dyn std::fmt::Display| Error::setup("mapping a file", format!("{path:?}: {error}"));
        let file = MemoryDevice::open(path, Some(end), Coherence::Hardware).map_err(|error| failed(&error))?;
        let memory = ForeignMemory::of_device(Arc::new(file), offset, size).map_err(|error| failed(&error))?;
        self.mount_memory(memory)
    }

    /// Lends memory of the caller.
    pub(crate) fn mount_memory(&self, memory: ForeignMemory) -> Result<SegmentId> {
        let (address, size) = (memory.address(), memory.len());
        check_size(size)?;
        let engine = self.lender()?;
        let registered = engine.register_memory_at(memory, Access::Remote, Location::default());
        registered.map_err(|error| Error::invalid(error.to_string()))?;
        self.mount(engine, address, size)
    }

    /// The engine through which peers reach what this client lends.
    fn lender(&self) -> Result<&Engine> {
        if self.is_closed() {
            return Err(Error::Closed);
        }
        if self.config.protocol == RPC_ONLY {
            return Err(Error::invalid("a client with protocol \"rpc_only\" lends no memory"));
        }
        if self.engine.endpoint().is_some() {
            return Ok(&self.engine);
        }
        let _turn = self.lent.turn();
        if let Some(lender) = self.lender.get() {
            return Ok(lender);
        }
        let lender = start_engine(&self.config, &self.clock, self.client_id, true)?;
        Ok(self.lender.get_or_init(|| lender))
    }

    /// Tells the master of registered memory. A failure takes it out of the engine again.
    fn mount(&self, engine: &Engine, address: u64, size: u64) -> Result<SegmentId> {
        let id = SegmentId(Rng::from_entropy().uuid());
        self.directories.add(id, Table::default(), None);
        self.mount_as(engine, id, (address, size), false)
    }

    /// The same, of a segment with a directory. `was_lent`: by an earlier process.
    fn mount_as(
        &self,
        engine: &Engine,
        id: SegmentId,
        (address, size): (u64, u64),
        was_lent: bool,
    ) -> Result<SegmentId> {
        let segment = Segment {
            id,
            name: self.hostname.clone(),
            base: address,
            size,
            te_endpoint: engine.name().unwrap_or_default().to_owned(),
            protocol: self.config.protocol.clone(),
            host_id: self.config.host_id().to_owned(),
            ..Segment::default()
        };
        warn_if_out_of_reach(&segment.te_endpoint, &self.config.master_address);
        self.join(engine, segment, was_lent).inspect_err(|_| {
            if let Err(error) = engine.unregister(address, self.config.limits.base) {
                tracing::warn!(%error, "memory that could not be lent is still in use");
            }
        })?;
        Ok(id)
    }

    fn join(&self, engine: &Engine, segment: Segment, was_lent: bool) -> Result<()> {
        let _turn = self.lent.turn();
        if let Some(by) = engine.name_taken_by() {
            let reason = format!("the engine at {by} has taken the name {:?}", engine.name().unwrap_or_default());
            return Err(Error::setup("mounting the segment", reason));
        }
        let deadline = || start(&self.clock, &self.config);
        let first = self.membership.lock().is_none();
        let id = segment.id;
        let ours = if first { self.introduce(&deadline()).inspect_err(|_| self.directories.remove(id))? } else { None };
        if let Some((version, _)) = &ours {
            tracing::debug!(%version, "the master is one of ours");
        }
        let mounted = if was_lent {
            self.link.remount(vec![segment.clone()], &deadline())
        } else {
            self.link.mount(&segment, &deadline())
        };
        mounted.map_err(|error| {
            self.directories.remove(id);
            match error {
                Error::Refused { code, .. } => Error::setup("mounting the segment", code),
                // A master of ours dials the advertised address back, and says so when nobody answers there.
                Error::Rejected { message, .. } => Error::setup("mounting the segment", message),
                other => other,
            }
        })?;
        self.lent.add(segment);
        let started = if first { self.start_heartbeat(engine, ours) } else { Ok(()) };
        let refused = if self.is_closed() { Err(Error::Closed) } else { started };
        refused.inspect_err(|_| {
            // The mount stands already.
            self.lent.remove(id);
            self.directories.remove(id);
            let _ = self.link.unmount(id, &deadline());
        })
    }

    /// Tells the master who this is; what it says of itself if it is one of ours.
    fn introduce(&self, deadline: &Deadline) -> Result<Option<(String, u64)>> {
        let ours = self.link.hello(capabilities(self.directories.introduce()), deadline)?;
        let keeps = ours.as_ref().is_some_and(|(_, capabilities)| capabilities & CAPABILITY_DIRECTORY != 0);
        self.directories.before_mount(keeps);
        Ok(ours)
    }

    fn start_heartbeat(&self, engine: &Engine, ours: Option<(String, u64)>) -> Result<()> {
        let connection = || MasterLink::new(link_settings(&self.config, self.client_id, 1), self.clock.clone());
        let can = |bit| ours.as_ref().is_some_and(|(_, capabilities)| capabilities & bit != 0);
        let keeper = if can(CAPABILITY_DIRECTORY) { Some(connection()?) } else { None };
        let pulse = Pulse {
            link: connection()?,
            clock: self.clock.clone(),
            interval: self.config.ping_interval,
            counters: Arc::clone(&self.counters),
            engine: engine.clone(),
            client_id: self.client_id,
            puts: Arc::clone(&self.puts),
            asks: can(CAPABILITY_QUIESCE),
            lent: Arc::clone(&self.lent),
            directories: Arc::clone(&self.directories),
        };
        *self.membership.lock() = Some(Membership::start(pulse, keeper)?);
        Ok(())
    }

    /// Takes segments back: at once, or with `grace` after that time, during which their objects can be read.
    pub(crate) fn unmount(&self, ids: &[SegmentId], grace: Duration) -> Result<()> {
        let mut first = Ok(());
        for id in ids {
            let left = if grace.is_zero() { self.unmount_now(*id) } else { self.unmount_later(*id, grace) };
            first = first.and(left);
        }
        first
    }

    fn unmount_now(&self, id: SegmentId) -> Result<()> {
        let _turn = self.lent.turn();
        self.known(id)?;
        self.link.unmount(id, &start(&self.clock, &self.config))?;
        self.directories.remove(id);
        let Some(address) = self.lent.remove(id) else { return Ok(()) };
        let engine = self.lender.get().unwrap_or(&self.engine);
        match engine.unregister(address, self.config.limits.base) {
            Err(error @ RegistryError::Busy { .. }) => {
                Err(Error::invalid(format!("segment {id} has left the pool, but its memory is still in use: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// The heartbeat gives the memory back when the master has let go of it.
    fn unmount_later(&self, id: SegmentId, grace: Duration) -> Result<()> {
        let _turn = self.lent.turn();
        self.known(id)?;
        self.link.unmount_after(id, grace, &start(&self.clock, &self.config))?;
        self.lent.let_leave(id);
        Ok(())
    }

    fn known(&self, id: SegmentId) -> Result<()> {
        let code = ErrorCode::SEGMENT_NOT_FOUND;
        if self.lent.has(id) { Ok(()) } else { Err(Error::from_master("UnmountSegment", code)) }
    }
}

fn check_size(size: u64) -> Result<()> {
    if size >= MIN_SEGMENT_BYTES {
        return Ok(());
    }
    Err(Error::invalid(format!("a segment of {size} bytes is below the smallest of {MIN_SEGMENT_BYTES}")))
}

/// Memory with the pages that were asked for; where the host has none of them, with ordinary ones.
fn allocate(engine: &Engine, size: u64, options: SegmentOptions) -> std::result::Result<Arc<MemorySegment>, MapError> {
    let reserved = matches!(options.huge_pages, HugePages::Reserved2M | HugePages::Reserved1G);
    match engine.allocate(size, options, Access::Remote) {
        Err(error) if reserved => {
            tracing::warn!(%error, size, "no reserved huge pages for the segment; ordinary pages are used");
            engine.allocate(size, SegmentOptions { huge_pages: HugePages::Advise, ..options }, Access::Remote)
        }
        made => made,
    }
}
