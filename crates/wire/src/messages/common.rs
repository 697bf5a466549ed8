//! Argument lists that several functions share.

use yb_pack::{List, Pack};
use yb_types::generation::V0_3_12;
use yb_types::{ClientId, DEFAULT_TENANT, ErrorCode};

/// A business result.
pub type ErrorOr<T> = Result<T, ErrorCode>;

/// No arguments: an empty body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct NoArgs {}

/// A client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct ClientArgs {
    /// Who asks.
    pub client_id: ClientId,
}

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct KeyArgs<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Whose key.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
}

/// Keys.
#[derive(Clone, Debug, PartialEq, Pack)]
#[pack(args)]
pub struct KeysArgs<'a> {
    /// The keys.
    pub keys: List<'a, &'a [u8]>,
    /// Whose keys.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
}

/// A pattern over keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct PatternArgs<'a> {
    /// ECMAScript regular expression, searched anywhere in the key.
    pub regex: &'a [u8],
    /// Whose keys.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
}

/// A client and a key of its.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct ClientKeyArgs<'a> {
    /// Who asks.
    pub client_id: ClientId,
    /// The key.
    pub key: &'a [u8],
    /// Whose key.
    #[pack(since = V0_3_12, default = DEFAULT_TENANT.as_bytes())]
    pub tenant_id: &'a [u8],
}

/// A segment's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Pack)]
#[pack(args)]
pub struct NameArgs<'a> {
    /// The name.
    pub segment_name: &'a [u8],
}
