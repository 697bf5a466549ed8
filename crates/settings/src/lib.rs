//! One table of every setting, from which flags, config files, environment and help come.
#![forbid(unsafe_code)]
