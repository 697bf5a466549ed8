//! Prints what the engine itself costs: `cargo run --release -p yb-bench --example engine_costs`.

fn main() {
    match yb_bench::transfer::costs::measure(500_000) {
        Ok(costs) => println!("{costs:#?}"),
        Err(error) => eprintln!("cannot measure: {error}"),
    }
}
