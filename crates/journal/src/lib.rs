//! Logs that outlive their process. Pure: bytes in, bytes out.
//!
//! - [`frame`]: one record after the other, each with its length and its checksum; tells an end that was torn from damage.
//! - [`text`]: numbers and texts inside a record, and the record of an object.
//! - [`Record`], [`Image`]: what the log of a master says, and what comes of reading it.
#![forbid(unsafe_code)]

pub mod frame;
mod image;
mod record;
pub mod text;

pub use image::{Damage, Held, Image, read};
pub use record::{FORMAT, Head, Noted, Record, RosterNote, SegmentNote};
