//! The chaos run: `cargo test -p yb-cli --test chaos` plays it briefly, `make chaos MINUTES=30 SEED=n` as long as wanted.

fn main() -> std::process::ExitCode {
    yb_chaos::command::main(env!("CARGO_BIN_EXE_yuebing").into())
}
