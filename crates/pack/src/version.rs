//! The generation of a wire, as an ordinal.

/// A generation of the wire. Only the order matters here; the names belong to whoever defines the generations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u16);
