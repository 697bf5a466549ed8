//! `yuebing drain`: empties segments through the master's drain jobs, and shows how far it is.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::args::DrainArgs;
use crate::connect;
use crate::failure::{Exit, Failure, Outcome};
use crate::signals::Signals;
use crate::size::bytes;
use crate::{http, output};

/// Between two questions.
const PERIOD: Timespec = Timespec { tv_sec: 0, tv_nsec: 500_000_000 };

/// What the master says of a job; the peer's master does not know how many objects are left.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Job {
    job_id: String,
    status: i64,
    status_name: String,
    segments: Vec<String>,
    succeeded_units: u64,
    failed_units: u64,
    blocked_units: u64,
    active_units: u64,
    left_units: Option<u64>,
    migrated_bytes: u64,
    message: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Created {
    success: bool,
    job_id: String,
    error_message: String,
}

impl Job {
    fn has_ended(&self) -> bool {
        self.status >= 3
    }
}

/// Creates a job, or looks at one; with `--watch` waits for its end.
pub fn run(args: &DrainArgs) -> Outcome {
    let admin = connect::admin(&args.admin)?;
    if args.cancel {
        return cancel(&admin, args);
    }
    let id = match &args.job {
        Some(id) => id.clone(),
        None => create(&admin, args)?,
    };
    let job = if args.watch { watch(&admin, &id, args.json)? } else { query(&admin, &id)? };
    if args.json {
        output::json(&job)?;
    } else {
        output::line(text(&job))?;
    }
    match job.status_name.as_str() {
        "FAILED" => Err(Failure::failed(job.message)),
        _ => Ok(()),
    }
}

fn create(admin: &str, args: &DrainArgs) -> Outcome<String> {
    if args.segments.is_empty() {
        return Err(Failure::usage("name the segments to drain (yuebing status shows them), or --job ID"));
    }
    let order = json!({
        "segments": args.segments, "target_segments": args.to, "max_concurrency": args.concurrency,
    });
    let created: Created = ask(admin, "POST", "/api/v1/drain_jobs", &order.to_string())?;
    if !created.success {
        let hint = match created.error_message.as_str() {
            "SEGMENT_NOT_FOUND" => "no segment of that name is mounted (yuebing status shows them)",
            "UNAVAILABLE_IN_CURRENT_STATUS" => "a segment or target is not in status OK",
            _ => "the master refused it",
        };
        return Err(Failure::failed(format!(
            "cannot drain {}: {hint}: {}",
            args.segments.join(", "),
            created.error_message
        )));
    }
    Ok(created.job_id)
}

fn cancel(admin: &str, args: &DrainArgs) -> Outcome {
    let Some(id) = &args.job else { return Err(Failure::usage("--cancel needs --job ID")) };
    let answer: Created = ask(admin, "POST", &format!("/api/v1/drain_jobs/cancel?job_id={id}"), "")?;
    match answer.success {
        true => output::line(format!("job {id} is called off")),
        false if answer.error_message == "UNAVAILABLE_IN_CURRENT_STATUS" => {
            let text =
                "moves are under way, or the job has ended; no new move starts for 10 s, so try again in a moment";
            Err(Failure::failed(format!("job {id}: {text}")))
        }
        false => Err(Failure::failed(format!("job {id}: {}", answer.error_message))),
    }
}

fn query(admin: &str, id: &str) -> Outcome<Job> {
    let answer: serde_json::Value = ask(admin, "GET", &format!("/api/v1/drain_jobs/query?job_id={id}"), "")?;
    if answer["success"] != true {
        let message = answer["error_message"].as_str().unwrap_or("no answer");
        return Err(Failure::failed(format!("job {id}: {message}")));
    }
    serde_json::from_value(answer).map_err(|error| Failure::failed(format!("job {id}: {error}")))
}

fn ask<T: serde::de::DeserializeOwned>(admin: &str, method: &str, path: &str, body: &str) -> Outcome<T> {
    let unreachable = |error: String| {
        Failure::new(
            Exit::Unreachable,
            format!("{error}\nIs this the master's admin port? Name it with --admin host:port."),
        )
    };
    let answer = http::request(admin, method, path, body).map_err(unreachable)?;
    serde_json::from_slice(&answer.body).map_err(|_| {
        let text = String::from_utf8_lossy(&answer.body).trim().to_owned();
        Failure::failed(format!("http://{admin}{path}: status {}: {text}", answer.status))
    })
}

/// Until the job ends, or a signal comes: the job goes on without us.
fn watch(admin: &str, id: &str, quiet: bool) -> Outcome<Job> {
    let signals = Signals::catch()?;
    let bar = if quiet {
        ProgressBar::hidden()
    } else {
        ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(8))
    };
    if let Ok(style) = ProgressStyle::with_template("{elapsed_precise} {wide_bar} {pos}/{len} objects, {msg}") {
        bar.set_style(style);
    }
    bar.enable_steady_tick(Duration::from_millis(500));
    loop {
        let job = query(admin, id)?;
        show(&bar, &job);
        if job.has_ended() {
            bar.finish_and_clear();
            return Ok(job);
        }
        let mut descriptors = [PollFd::new(&signals, PollFlags::IN)];
        let _ = poll(&mut descriptors, Some(&PERIOD));
        if signals.received() {
            bar.finish_and_clear();
            let text = format!("the job goes on; see it with: yuebing drain --job {id} --watch");
            return Err(Failure::new(Exit::Interrupted, text));
        }
    }
}

fn show(bar: &ProgressBar, job: &Job) {
    let done = job.succeeded_units;
    if let Some(left) = job.left_units {
        bar.set_length(done + left);
    }
    bar.set_position(done);
    let mut message = format!("{} moved, {} under way", bytes(job.migrated_bytes), job.active_units);
    if job.blocked_units > 0 {
        message.push_str(&format!(", {} blocked", job.blocked_units));
    }
    bar.set_message(message);
}

fn text(job: &Job) -> String {
    let mut rows = vec![
        ("job", job.job_id.clone()),
        ("status", format!("{} ({})", job.status_name, job.message)),
        ("segments", job.segments.join(", ")),
        ("moved", format!("{} objects, {}", job.succeeded_units, bytes(job.migrated_bytes))),
    ];
    if let Some(left) = job.left_units {
        rows.push(("left", format!("{left} objects, {} under way", job.active_units)));
    }
    if job.blocked_units + job.failed_units > 0 {
        rows.push(("blocked", format!("{} objects, {} failed", job.blocked_units, job.failed_units)));
    }
    output::pairs(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_of_either_master_for_people() {
        let ours = r#"{"success":true,"job_id":"1-2","status":2,"status_name":"RUNNING","segments":["a:1"],
            "succeeded_units":3,"blocked_units":1,"left_units":7,"migrated_bytes":1048576,"message":"Drain job running"}"#;
        let job: Job = serde_json::from_str(ours).unwrap();
        let shown = text(&job);
        assert!(
            shown.contains("3 objects, 1 MiB") && shown.contains("7 objects") && shown.contains("1 objects, 0 failed")
        );
        assert!(!job.has_ended());
        let theirs =
            r#"{"success":true,"job_id":"1-2","status":3,"status_name":"SUCCEEDED","segments":["a:1"],"type":0}"#;
        let job: Job = serde_json::from_str(theirs).unwrap();
        assert!(job.has_ended() && job.left_units.is_none() && !text(&job).contains("left"));
    }
}
