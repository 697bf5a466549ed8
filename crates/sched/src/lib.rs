//! Who goes next, and over which way.
//!
//! [`ClassQueue`] shares one server between classes of traffic; [`RailScheduler`] cuts transfers into slices and spreads
//! them over rails that have different speeds and may fail. Both are pure: time comes in, effects go out, and a driver
//! does what they say. `docs/transfer-scheduler.md` draws the states.
#![forbid(unsafe_code)]

pub mod classes;
pub mod rails;
mod slab;

pub use classes::{ClassQueue, Item, TrafficClass};
pub use rails::{
    Completion, Effect, End, Failure, Fault, Finished, Post, RailEvent, RailId, RailScheduler, RailSettings, RailSpec,
    RailState, RailView, SliceId, TransferId, TransferSpec,
};
