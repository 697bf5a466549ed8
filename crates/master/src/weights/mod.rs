//! Managed weight revisions (0.3.14): which objects make up a version of a model's weights, and who uses it.
//!
//! The objects are ordinary ones, put by clients into the group that an import names, with hard pins. The book here
//! says of each revision whether all of them are there, on which tier, and who holds a lease on it. It asks for facts about
//! objects and never holds its lock meanwhile.

mod book;
mod sha256;

pub(crate) use book::{At, Book, Identity, Lease, Manifest, Member, Operation, Revision};
