//! Managed weight revisions (0.3.14).

use yb_pack::Pack;

macro_rules! open_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $value:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Pack)]
        #[pack(transparent)]
        pub struct $name(pub u8);

        impl $name {
            $($(#[$vdoc])* pub const $variant: $name = $name($value);)*
        }
    };
}

open_enum! {
    /// The error type of the weight functions. Unknown numbers are kept.
    WeightManagementError {
        /// A name part is empty, or similar.
        INVALID_ARGUMENT = 1,
        /// No such revision, lease or operation.
        NOT_FOUND = 2,
        /// Repeated with other arguments.
        CONFLICT = 3,
        /// The expected generation is not the current one.
        STALE_GENERATION = 4,
        /// A member is not where it should be.
        NOT_READY = 5,
        /// Another operation runs.
        BUSY = 6,
        /// Too late.
        LEASE_EXPIRED = 7,
        /// No generation left.
        GENERATION_EXHAUSTED = 8,
        /// Not written.
        DURABILITY_FAILED = 9,
    }
}
open_enum! {
    /// Whether a revision can be read. Unknown numbers are kept.
    WeightAvailabilityState {
        /// Members are arriving.
        IMPORTING = 0,
        /// All there.
        READY = 1,
        /// Some are missing.
        DEGRADED = 2,
        /// Going away.
        DELETING = 3,
        /// Gone.
        DELETED = 4,
    }
}
open_enum! {
    /// On which tier a revision lies. Unknown numbers are kept.
    WeightResidencyState {
        /// Not known.
        UNKNOWN = 0,
        /// In memory.
        HOT = 1,
        /// On disk.
        COLD = 2,
        /// Both.
        MIXED = 3,
        /// Nowhere.
        ABSENT = 4,
    }
}
open_enum! {
    /// What is being done to a revision. Unknown numbers are kept.
    WeightOperationState {
        /// Nothing.
        NONE = 0,
        /// Out of memory.
        EVICTING = 1,
        /// Into memory.
        REHYDRATING = 2,
        /// Missing members.
        REPAIRING = 3,
    }
}

/// A result of the weight functions.
pub type WeightResult<T> = Result<T, WeightManagementError>;

macro_rules! weight_structs {
    ($($(#[$doc:meta])* $name:ident { $($(#[$fdoc:meta])* $field:ident: $ty:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, Pack)]
        pub struct $name<'a> { $($(#[$fdoc])* pub $field: $ty,)* }
    )*};
}

weight_structs! {
    /// Which weights.
    WeightRevisionIdentity {
        /// Whose.
        tenant_id: &'a [u8],
        /// Name, first part.
        name_space: &'a [u8],
        /// Name, second part.
        resource_id: &'a [u8],
        /// Name, third part.
        revision: &'a [u8],
        /// Name, fourth part; from 1.
        weight_generation: u64,
    }
    /// What a revision consists of.
    WeightManifestReference {
        /// Key of the manifest object.
        manifest_key: &'a [u8],
        /// Hex SHA-256 of the manifest.
        manifest_sha256: &'a [u8],
        /// Group of the payload objects.
        payload_group_id: &'a [u8],
        /// Hex SHA-256 over the payload keys.
        payload_keys_sha256: &'a [u8],
        /// Payload objects.
        payload_count: u64,
        /// Bytes.
        logical_bytes: u64,
    }
    /// What is known of a revision.
    WeightRevisionMetadata {
        /// Which.
        identity: WeightRevisionIdentity<'a>,
        /// Its parts.
        manifest: WeightManifestReference<'a>,
        /// Whether it can be read.
        availability: WeightAvailabilityState,
        /// On which tier.
        residency: WeightResidencyState,
        /// What is being done to it.
        operation: WeightOperationState,
        /// Which operation that is.
        operation_id: u64,
        /// Grows with each change.
        metadata_generation: u64,
        /// Milliseconds since 1970.
        created_at_ms: u64,
        /// Milliseconds since 1970.
        updated_at_ms: u64,
    }
    /// A revision with its leases.
    WeightRevisionView {
        /// The revision.
        metadata: WeightRevisionMetadata<'a>,
        /// Leases that live.
        active_lease_count: u64,
        /// When the first of them ends, milliseconds since 1970.
        nearest_lease_expiry_ms: Option<u64>,
    }
    /// The right to use a revision for a while.
    WeightRevisionLease {
        /// Its id.
        lease_id: u64,
        /// Which revision.
        identity: WeightRevisionIdentity<'a>,
        /// Who holds it.
        holder: &'a [u8],
        /// Milliseconds since 1970.
        expires_at_ms: u64,
        /// Generation at the time.
        fenced_metadata_generation: u64,
    }
    /// A change of tier that runs.
    WeightResidencyOperation {
        /// Its id.
        operation_id: u64,
        /// Which revision.
        identity: WeightRevisionIdentity<'a>,
        /// What it does.
        operation: WeightOperationState,
        /// Where to.
        target_residency: WeightResidencyState,
        /// Generation at the time.
        fenced_metadata_generation: u64,
        /// Milliseconds since 1970.
        started_at_ms: u64,
        /// Milliseconds since 1970.
        updated_at_ms: u64,
        /// Members done.
        processed_members: u64,
        /// Members in all.
        total_members: u64,
        /// Where it stands.
        cursor: &'a [u8],
        /// Why it stopped.
        message: &'a [u8],
    }
    /// A page of revisions.
    ListWeightRevisionsResponse {
        /// The revisions.
        revisions: Vec<WeightRevisionView<'a>>,
        /// For the next page; empty = last.
        next_page_token: &'a [u8],
    }
    /// An import that begins.
    BeginWeightImportRequest {
        /// Which revision.
        identity: WeightRevisionIdentity<'a>,
        /// May be empty.
        payload_group_id: &'a [u8],
        /// Payload objects.
        expected_payload_count: u64,
        /// Bytes.
        expected_logical_bytes: u64,
    }
    /// An import that ends.
    CommitWeightImportRequest {
        /// Which revision.
        identity: WeightRevisionIdentity<'a>,
        /// Generation it must have.
        expected_metadata_generation: u64,
        /// Its parts.
        manifest: WeightManifestReference<'a>,
    }
    /// A revision at a generation: an import to abort, a revision to delete.
    WeightRevisionAt {
        /// Which revision.
        identity: WeightRevisionIdentity<'a>,
        /// Generation it must have.
        expected_metadata_generation: u64,
    }
    /// A revision to look up.
    GetWeightRevisionRequest {
        /// Which.
        identity: WeightRevisionIdentity<'a>,
    }
    /// Revisions to list.
    ListWeightRevisionsRequest {
        /// Whose.
        tenant_id: &'a [u8],
        /// Name, first part.
        name_space: &'a [u8],
        /// Name, second part.
        resource_id: &'a [u8],
        /// From the page before.
        page_token: &'a [u8],
        /// Revisions of a page.
        limit: u32,
    }
    /// A lease to take.
    AcquireWeightRevisionLeaseRequest {
        /// Which revision.
        identity: WeightRevisionIdentity<'a>,
        /// Generation it must have.
        expected_metadata_generation: u64,
        /// Who.
        holder: &'a [u8],
        /// How long, in milliseconds.
        ttl_ms: u64,
    }
    /// A lease to prolong.
    RenewWeightRevisionLeaseRequest {
        /// Whose.
        tenant_id: &'a [u8],
        /// Which.
        lease_id: u64,
        /// How long from now, in milliseconds.
        ttl_ms: u64,
    }
    /// A lease to give back.
    ReleaseWeightRevisionLeaseRequest {
        /// Whose.
        tenant_id: &'a [u8],
        /// Which.
        lease_id: u64,
    }
    /// A change of tier to begin.
    StartWeightResidencyOperationRequest {
        /// Which revision.
        identity: WeightRevisionIdentity<'a>,
        /// Generation it must have.
        expected_metadata_generation: u64,
        /// Where to.
        target_residency: WeightResidencyState,
    }
    /// A change of tier to look up.
    QueryWeightOperationRequest {
        /// Whose.
        tenant_id: &'a [u8],
        /// Which.
        operation_id: u64,
    }
}

macro_rules! weight_args {
    ($($name:ident: $request:ident;)*) => {$(
        #[doc = concat!("A [`", stringify!($request), "`] of a tenant.")]
        #[derive(Clone, Debug, PartialEq, Eq, Pack)]
        #[pack(args)]
        pub struct $name<'a> {
            /// The request.
            pub request: $request<'a>,
            /// Whose.
            pub tenant_id: &'a [u8],
        }
    )*};
}

weight_args! {
    BeginWeightImportArgs: BeginWeightImportRequest;
    CommitWeightImportArgs: CommitWeightImportRequest;
    WeightRevisionAtArgs: WeightRevisionAt;
    GetWeightRevisionArgs: GetWeightRevisionRequest;
    ListWeightRevisionsArgs: ListWeightRevisionsRequest;
    AcquireWeightRevisionLeaseArgs: AcquireWeightRevisionLeaseRequest;
    RenewWeightRevisionLeaseArgs: RenewWeightRevisionLeaseRequest;
    ReleaseWeightRevisionLeaseArgs: ReleaseWeightRevisionLeaseRequest;
    StartWeightResidencyOperationArgs: StartWeightResidencyOperationRequest;
    QueryWeightOperationArgs: QueryWeightOperationRequest;
}
