//! The struct_pack body format: literals, type codes, encoding, decoding.
#![forbid(unsafe_code)]
