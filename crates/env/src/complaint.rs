//! Lines for standard error that may be lost.

use std::fmt;
use std::io::{Write, stderr};

/// As `eprintln!`, which panics where standard error cannot be written: a log disk that is full, a pipe whose reader has
/// gone. That is no reason to end, so here such a line is lost.
///
/// ```
/// yb_env::complain!("{} is not there", "it");
/// ```
#[macro_export]
macro_rules! complain {
    ($($text:tt)+) => { $crate::complain_of(format_args!($($text)+)) };
}

/// What [`complain!`] does.
pub fn complain_of(text: fmt::Arguments<'_>) {
    // In one piece: others may write there too.
    let _ = stderr().write_all(format!("{text}\n").as_bytes());
}
