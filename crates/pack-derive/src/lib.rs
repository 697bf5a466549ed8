//! Derive macro for the struct_pack body format.
#![forbid(unsafe_code)]
