//! Reading and writing a file through the engine, beside a plain loop: `cargo run --release -p yb-bench --example file -- PATH
//! [MiB]`, one JSON line a block size.
#![forbid(unsafe_code)]

use std::path::PathBuf;

use yb_bench::file::{FileLoad, run};
use yb_transfer::FileSettings;

fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = PathBuf::from(arguments.next().unwrap_or_else(|| "yb-file-bench".to_owned()));
    let mib: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(512);
    for block in [64 << 10, 1 << 20, 16 << 20] {
        let batch = ((64 << 20) / block).clamp(1, 64) as usize;
        let load = FileLoad { size: mib << 20, block, batch, settings: FileSettings::default() };
        let figures = serde_json::to_string(&run(&path, &load)?)?;
        println!("{{\"block\":{block},\"figures\":{figures}}}");
    }
    std::fs::remove_file(&path)
}
