//! What one listening port speaks.

use yb_pack::{Limits, peek_code};

use crate::schema::{Call, Rpc, Service, Signature, WireTable};
use crate::{WireError, WireVersion};

/// The generations that a port decodes, and the one it encodes.
///
/// 0.3.13 and 0.3.14 share a port: every code but one is the same, the one that differs is told apart by its code,
/// and what 0.3.14 appends to replies is skipped by 0.3.13. No other pair can share one, because their replies differ
/// and nothing in a request tells which is wanted.
#[derive(Clone, Copy, Debug)]
pub struct WireProfile {
    primary: &'static WireTable,
    also: Option<&'static WireTable>,
}

impl WireProfile {
    /// 0.3.13 and 0.3.14 together.
    pub fn main() -> WireProfile {
        WireProfile { primary: WireTable::of(WireVersion::V0_3_14), also: Some(WireTable::of(WireVersion::V0_3_13)) }
    }

    /// One generation (`--compat_listen=0.3.12:50061`). For 0.3.13 and 0.3.14 this is [`WireProfile::main`].
    pub fn of(version: WireVersion) -> WireProfile {
        if version >= WireVersion::V0_3_13 {
            return WireProfile::main();
        }
        WireProfile::exactly(version)
    }

    /// One generation and nothing else: for clients and tools that know their peer.
    pub fn exactly(version: WireVersion) -> WireProfile {
        WireProfile { primary: WireTable::of(version), also: None }
    }

    /// The table that replies are encoded with.
    pub fn table(&self) -> &'static WireTable {
        self.primary
    }

    /// The generation that replies are encoded for.
    pub fn version(&self) -> WireVersion {
        self.primary.version()
    }

    /// The function with this id, if a port with this profile serves it for `service`. Our own functions are served
    /// everywhere.
    pub fn lookup(&self, service: Service, function_id: u32) -> Option<Rpc> {
        self.primary.lookup(function_id).filter(|rpc| rpc.service() == service || rpc.service() == Service::Yuebing)
    }

    /// Ids, types and codes of a function for replies.
    ///
    /// # Errors
    /// When the generation does not have it.
    pub fn signature(&self, rpc: Rpc) -> Result<&'static Signature, WireError> {
        self.primary.signature(rpc)
    }

    /// Decodes the arguments of a request.
    ///
    /// # Errors
    /// When the body is of no generation of this port, cut short, or beyond a limit: answer
    /// [`INVALID_ARGUMENTS`](crate::TransportError::INVALID_ARGUMENTS) and keep the connection.
    pub fn decode_args<'a, C: Call>(&self, body: &'a [u8], limits: Limits) -> Result<C::Args<'a>, WireError> {
        let signature = self.primary.signature(C::RPC)?;
        let mut ty = &signature.args;
        if !ty.is_absent()
            && let Some(also) = self.also
            && let Some(code) = peek_code(body)
            && !ty.accepts(code)
            && let Ok(older) = also.signature(C::RPC)
            && older.args.accepts(code)
        {
            ty = &older.args;
        }
        yb_pack::decode(body, ty, limits).map_err(|source| WireError::Decode { rpc: C::RPC, source })
    }
}
