//! Faults that a test plants, to see that it would be found: nothing of it is compiled without the feature `planted`.

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Space of a write that its writer revoked is free at once.
    FreeOnRevoke,
    /// Space of an object that readers have leases on is free at once.
    FreeUnderLease,
    /// A removal without force does not look at leases.
    RemoveUnderLease,
    /// Eviction does not look at leases.
    EvictUnderLease,
    /// A confirmation of an extent is believed whatever generation it names.
    AnyGeneration,
    /// A write that is gone without its writer's doing is not remembered.
    ForgetOvertaken,
    /// An object is readable from the start of its write.
    PublishEarly,
    /// Memory that is mounted again is given out at once.
    RemountWithoutRest,
    /// Space of a dead writer's unfinished write is free at once.
    FreeOfDeadWriter,
    /// Withheld space comes free before its time.
    ReuseWithheld,
    /// Withheld space never comes free.
    LeakWithheld,
    /// A write ends for whoever says so.
    EndForAnybody,
    /// An end or a revoke does not look at which write it names.
    AnyWrite,
    /// A master that slept counts its sleep against its clients.
    SleepCounts,
    /// A put that is refused has taken the object of silent nodes out before.
    RefusedPutErases,
    /// Space that a directory names is given out before the node has struck it out.
    ReuseUnstruck,
    /// Objects are placed in a segment whose directory was not read.
    PlaceUnread,
    /// A directory brings back what left under this master.
    AdoptGone,
    /// Of two writes that directories tell of one key, the older one counts.
    AdoptOlder,
    /// Every directory is believed, whatever went while its node was away.
    IgnoreRoster,
}

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Fault>> = const { std::cell::Cell::new(None) };
}

/// Plants a fault for all catalogs of this thread, or takes it out.
#[cfg(feature = "planted")]
pub fn plant(fault: Option<Fault>) {
    PLANTED.set(fault);
}

/// Whether a fault is planted.
#[inline(always)]
pub(crate) fn planted(fault: Fault) -> bool {
    #[cfg(feature = "planted")]
    return PLANTED.get() == Some(fault);
    #[cfg(not(feature = "planted"))]
    {
        let _ = fault;
        false
    }
}
