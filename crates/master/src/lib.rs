//! The master process: catalog, RPC service, janitor and admin HTTP put together.
#![forbid(unsafe_code)]
