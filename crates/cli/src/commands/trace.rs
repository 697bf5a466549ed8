//! `yuebing trace`: make traces, and look at them.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};

use yb_replay::generate::generate_each;
use yb_replay::stat::{TraceCounter, TraceStat};
use yb_replay::trace::write_request;
use yb_replay::{Request, TraceReader};

use crate::args::{TraceCommand, TraceGenerateArgs, TraceStatArgs};
use crate::failure::{Failure, Outcome};
use crate::interrupt::Interruptible;
use crate::output;

/// Runs one of the two.
pub fn run(command: &TraceCommand) -> Outcome {
    match command {
        TraceCommand::Generate(args) => run_generate(args),
        TraceCommand::Stat(args) => run_stat(args),
    }
}

fn run_generate(args: &TraceGenerateArgs) -> Outcome {
    let work = Interruptible::start("nothing was written")?;
    let requests = generate_each(args.requests, args.seed);
    // What is written ends with a whole line.
    work.hold();
    let written = match &args.out {
        Some(path) if path.as_os_str() != "-" => {
            let failed = |error: io::Error| Failure::file(path, &error);
            let file = File::create(path).map_err(failed)?;
            write_all(BufWriter::new(file), requests, &work).map_err(failed)?
        }
        _ => {
            let mut written = 0;
            output::quiet_pipe(
                write_all(BufWriter::new(io::stdout().lock()), requests, &work).map(|all| written = all),
            )?;
            written
        }
    };
    match work.is_asked() && written < args.requests {
        true => Err(Failure::interrupted(format_args!("{written} of {} requests were written", args.requests))),
        false => Ok(()),
    }
}

/// Until a signal comes; how many.
fn write_all(mut sink: impl Write, requests: impl Iterator<Item = Request>, work: &Interruptible) -> io::Result<usize> {
    let mut written = 0;
    for request in requests.take_while(|_| !work.is_asked()) {
        write_request(&mut sink, &request)?;
        written += 1;
    }
    sink.flush()?;
    Ok(written)
}

fn run_stat(args: &TraceStatArgs) -> Outcome {
    let mut counter = TraceCounter::default();
    let name = args.file.display();
    if args.file.as_os_str() == "-" {
        count(TraceReader::new(io::stdin().lock()), &mut counter)
    } else {
        let file = File::open(&args.file).map_err(|e| Failure::file(&args.file, &e))?;
        count(TraceReader::new(BufReader::new(file)), &mut counter)
    }
    .map_err(|e| Failure::failed(format!("{name}: {e}")))?;
    let stat = counter.stat();
    if args.json { output::json(&stat) } else { output::line(text(&stat)) }
}

fn count<R: io::BufRead>(reader: TraceReader<R>, counter: &mut TraceCounter) -> Result<(), yb_replay::TraceError> {
    for request in reader {
        counter.add(&request?);
    }
    Ok(())
}

fn text(stat: &TraceStat) -> String {
    output::pairs(&[
        ("requests", stat.requests.to_string()),
        ("duration", format!("{:.0} s", stat.duration_ms as f64 / 1000.0)),
        ("input tokens", format!("{:.0} a request", stat.mean_input_tokens)),
        ("output tokens", format!("{:.0} a request", stat.mean_output_tokens)),
        ("blocks", format!("{}, most in one request {}", stat.blocks, stat.longest_request_blocks)),
        ("unique blocks", stat.unique_blocks.to_string()),
        ("ideal block hit ratio", format!("{:.4}", stat.ideal_block_hit_ratio)),
        ("ideal prefix hit ratio", format!("{:.4}", stat.ideal_prefix_hit_ratio)),
    ])
}
