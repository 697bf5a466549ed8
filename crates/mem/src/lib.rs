//! Memory: memfd segments, mappings, registered regions, descriptor passing, copies.
