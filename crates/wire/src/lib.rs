//! The RPC wire: frames, and the schema table of every function in every generation.
//!
//! Problem: peers of several generations talk to us, and nothing on the wire tells which. Function ids never change,
//! the layouts do. So there is one table ([`schema`]) with a row per function; its argument and result types carry the
//! generations on their members, and ids, type codes, codecs, dispatch, metric names and the docs page come from it.
//!
//! Invariants: pure (bytes in, bytes out); no input panics; nothing is allocated before limits are checked; a frame
//! that is refused says whether the connection can go on.
//!
//! Where to start: [`frame`] cuts a byte stream into frames, [`WireProfile`] decodes requests and encodes replies,
//! [`ReplyWriter`] writes big replies without building them, [`call`] has one marker type per function.
#![forbid(unsafe_code)]

mod codec;
pub mod frame;
pub mod messages;
mod profile;
mod reply;
pub mod schema;
pub mod side_channel;
mod transport_error;

pub use codec::{WireError, decode_reply, encode_error_reply, encode_reply, encode_request};
pub use profile::WireProfile;
pub use reply::{BufferHolderRef, BufferRef, DfsRef, DiskRef, LocalDiskRef, ReplicaKindRef, ReplicaRef, ReplyWriter};
pub use schema::{Call, CallVisitor, Noun, Rpc, Service, Signature, WireTable, call};
pub use transport_error::{ErrorBody, TransportError};
pub use yb_pack::{DecodeError, EncodeError, Form, Limits, List, PackMap, Scratch};
pub use yb_types::WireVersion;
