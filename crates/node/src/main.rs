//! The storage node as a program of its own; `yuebing node` is the same.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    yb_node::run("yb-node", &arguments)
}
