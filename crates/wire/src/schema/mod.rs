//! Every function, once.
//!
//! [`Rpc`] has a variant per row of the table in `table.rs`; [`WireTable`] is that table in one generation, with ids,
//! literals and codes computed. To add a function of our own: write its argument and result types in
//! `messages/own.rs`, add a row with service `Yuebing`, run `YB_BLESS=1 cargo test -p yb-wire --test docs`.

mod docs;
mod table;

use std::sync::OnceLock;

use yb_pack::{BodyType, Pack, Unpack, name_code};
use yb_types::WireVersion;

use crate::WireError;
pub use docs::render as render_docs;
pub use table::{Rpc, call};

/// Who serves a function; decides how its name is qualified.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Service {
    /// The master.
    Master,
    /// A client, for other clients.
    Client,
    /// Ours; no peer knows it.
    Yuebing,
}

impl Service {
    /// What stands before a function's name when its id is computed.
    pub const fn prefix(self) -> &'static str {
        match self {
            Service::Master => "mooncake::WrappedMasterService::",
            Service::Client => "mooncake::RealClient::",
            Service::Yuebing => "yuebing::",
        }
    }
}

/// What a function is about: a chapter of the docs, a module of [`messages`](crate::messages).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Noun {
    /// Session start and liveness.
    Session,
    /// Segments of memory.
    Segment,
    /// Tasks, copy and move.
    Task,
    /// Lookups and existence.
    Lookup,
    /// Put and upsert.
    Put,
    /// Removal and eviction.
    Remove,
    /// Offload to disk and promotion.
    Offload,
    /// NVMe-oF segments.
    Nof,
    /// Managed weight revisions.
    Weight,
    /// Between clients.
    Peer,
    /// The local helper service.
    Local,
    /// Our own.
    Own,
}

/// A function with its types: the marker types in [`call`] implement it.
pub trait Call {
    /// Which function.
    const RPC: Rpc;
    /// Its arguments.
    type Args<'a>: Pack + Unpack<'a>;
    /// Its result.
    type Reply<'a>: Pack + Unpack<'a>;
}

/// Work that is done with the types of a function that is only known at run time (tools, tests).
pub trait CallVisitor {
    /// What comes out.
    type Output;
    /// Does it.
    fn visit<C: Call>(self) -> Self::Output;
}

/// One row of the table.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) service: Service,
    pub(crate) noun: Noun,
    pub(crate) since: WireVersion,
    pub(crate) types: fn(WireVersion) -> (BodyType, BodyType),
    pub(crate) describe: fn(WireVersion) -> (String, String),
    pub(crate) note: &'static str,
}

pub(crate) fn types_of<C: Call>(version: WireVersion) -> (BodyType, BodyType) {
    let version = version.ordinal();
    (BodyType::of::<C::Args<'static>>(version), BodyType::of::<C::Reply<'static>>(version))
}

pub(crate) fn describe<C: Call>(version: WireVersion) -> (String, String) {
    let (mut args, mut reply) = (String::new(), String::new());
    <C::Args<'static> as Pack>::describe(version.ordinal(), &mut args);
    <C::Reply<'static> as Pack>::describe(version.ordinal(), &mut reply);
    (args, reply)
}

impl Rpc {
    /// The name without its qualification.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The name whose MD5 gives the id.
    pub fn qualified_name(self) -> String {
        format!("{}{}", self.service().prefix(), self.name())
    }

    /// Who serves it.
    pub fn service(self) -> Service {
        self.row().service
    }

    /// What it is about.
    pub fn noun(self) -> Noun {
        self.row().noun
    }

    /// The first generation that has it. No generation dropped a function that a master served.
    pub fn since(self) -> WireVersion {
        self.row().since
    }

    /// The name in metrics: snake case, e.g. `batch_exist_key`.
    pub fn metric_name(self) -> &'static str {
        static NAMES: OnceLock<Vec<String>> = OnceLock::new();
        let names = NAMES.get_or_init(|| Rpc::ALL.iter().map(|rpc| snake_case(&format!("{rpc:?}"))).collect());
        names.get(self as usize).map_or("", String::as_str)
    }
}

fn snake_case(name: &str) -> String {
    let mut out = String::new();
    let mut lower_before = false;
    for c in name.chars() {
        if c.is_ascii_uppercase() && lower_before {
            out.push('_');
        }
        lower_before = c.is_ascii_lowercase() || c.is_ascii_digit();
        out.push(c.to_ascii_lowercase());
    }
    out
}

/// A function in one generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Its id.
    pub function_id: u32,
    /// Its arguments.
    pub args: BodyType,
    /// Its result.
    pub reply: BodyType,
}

/// Slots of the id table; a power of two well above the number of functions.
const ID_SLOTS: usize = 1024;

/// The schema in one generation.
#[derive(Debug)]
pub struct WireTable {
    version: WireVersion,
    signatures: Vec<Option<Signature>>,
    ids: Vec<Option<(u32, Rpc)>>,
}

impl WireTable {
    /// The table of a generation; computed at the first call.
    pub fn of(version: WireVersion) -> &'static WireTable {
        static TABLES: [OnceLock<WireTable>; WireVersion::ALL.len()] =
            [const { OnceLock::new() }; WireVersion::ALL.len()];
        TABLES[version as usize].get_or_init(|| WireTable::compute(version))
    }

    fn compute(version: WireVersion) -> WireTable {
        let mut table = WireTable { version, signatures: Vec::new(), ids: vec![None; ID_SLOTS] };
        for rpc in Rpc::ALL {
            let row = rpc.row();
            if row.since > version {
                table.signatures.push(None);
                continue;
            }
            let function_id = name_code(&rpc.qualified_name());
            let (args, reply) = (row.types)(version);
            table.signatures.push(Some(Signature { function_id, args, reply }));
            table.insert(function_id, *rpc);
        }
        table
    }

    fn insert(&mut self, function_id: u32, rpc: Rpc) {
        let mut slot = function_id as usize % ID_SLOTS;
        while self.ids[slot].is_some() {
            slot = (slot + 1) % ID_SLOTS;
        }
        self.ids[slot] = Some((function_id, rpc));
    }

    /// The generation.
    pub fn version(&self) -> WireVersion {
        self.version
    }

    /// The function with this id, of any service.
    pub fn lookup(&self, function_id: u32) -> Option<Rpc> {
        let mut slot = function_id as usize % ID_SLOTS;
        while let Some((id, rpc)) = self.ids[slot] {
            if id == function_id {
                return Some(rpc);
            }
            slot = (slot + 1) % ID_SLOTS;
        }
        None
    }

    /// Id and types of a function.
    ///
    /// # Errors
    /// When the generation does not have it.
    pub fn signature(&self, rpc: Rpc) -> Result<&Signature, WireError> {
        match self.signatures.get(rpc as usize) {
            Some(Some(signature)) => Ok(signature),
            _ => Err(WireError::NoSuchRpc { rpc, version: self.version }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_is_found_by_its_id_and_by_no_other() {
        for version in WireVersion::ALL {
            let table = WireTable::of(*version);
            for rpc in Rpc::ALL {
                let id = name_code(&rpc.qualified_name());
                assert_eq!(table.lookup(id), (rpc.since() <= *version).then_some(*rpc));
                assert_eq!(table.lookup(id.wrapping_add(1)), None);
            }
        }
    }

    #[test]
    fn metric_names() {
        assert_eq!(Rpc::BatchExistKey.metric_name(), "batch_exist_key");
        assert_eq!(Rpc::GetAllNofSegments.metric_name(), "get_all_nof_segments");
        assert_eq!(Rpc::Hello.metric_name(), "hello");
    }
}
