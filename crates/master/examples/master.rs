//! A master alone, for trying things out: `cargo run -p yb-master --example master -- --rpc_port=50051`.

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    yb_master::run(&arguments, yb_master::CommandStyle::Ours)
}
