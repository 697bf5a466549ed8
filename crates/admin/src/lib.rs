//! The admin HTTP service of the master: metrics, health, listings, status page.
#![forbid(unsafe_code)]
