//! The struct_pack body format: literals, type codes, encoding, decoding.
//!
//! Problem: a peer accepts a message only if a 32-bit code, the MD5 of a byte string that describes the type, equals
//! its own. One changed field changes the code, and every generation of the peer has other fields. So layouts are
//! described once, on the Rust types (`#[derive(Pack)]` with `since` and `until` attributes), and literal, code,
//! encoder and decoder are computed from that for the [`Version`] asked for.
//!
//! Invariants:
//! - Decoding is lenient (with and without literal, any size width, trailing bytes, unknown high metainfo bits, the
//!   value wrapped in a one-element tuple); encoding is strict (smallest width, no padding garbage).
//! - No input makes the decoder allocate more than the bytes that are there justify: element counts are capped by the
//!   bytes that remain and by [`Limits::max_elements`] for a whole message.
//! - No input panics.
//!
//! Format source: section 3 and 14.2 of the wire description (yalantinglibs struct_pack, line 0.5.7).
#![forbid(unsafe_code)]

mod body;
mod encode;
mod impls;
mod list;
mod literal;
mod reader;
mod traits;
mod version;
mod writer;

pub use body::{BodyType, decode, peek_code};
pub use encode::{BodyWriter, Form, OpenList, Scratch, encode};
pub use impls::{CharSpan, PackMap, U8List};
pub use list::{List, ListIter};
pub use literal::{Literal, literal_code, name_code};
pub use reader::{DecodeError, Limits, Reader};
pub use traits::{Levels, MemoryCopied, Pack, Unpack};
pub use version::Version;
pub use writer::{EncodeError, SizeWidth, Writer};
pub use yb_pack_derive::Pack;
