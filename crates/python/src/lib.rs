//! The Python extension module `mooncake._native`.
