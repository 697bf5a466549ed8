//! `yuebing node drain`, `yuebing drain`: empties nodes through the master's drain jobs, and shows how far that is.

use std::collections::BTreeSet;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::admin::{self, Segment};
use crate::args::DrainArgs;
use crate::connect;
use crate::failure::{Exit, Failure, Outcome};
use crate::signals::Signals;
use crate::size::bytes;
use crate::{output, token};

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
    dropped_units: u64,
    created_at_ms_epoch: u64,
    last_updated_at_ms_epoch: u64,
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

/// Begins a drain, or looks at one; waits for its end unless that is not wanted.
pub fn run(args: &DrainArgs) -> Outcome {
    let admin = connect::admin(&args.admin)?;
    let wanted = match &args.job {
        Some(_) => Vec::new(),
        None => choose(&args.nodes, &admin::status(&admin)?.segments)?,
    };
    if args.cancel {
        return cancel(&admin, args, &wanted);
    }
    let id = match &args.job {
        Some(id) => id.clone(),
        None => create(&admin, args, &wanted)?,
    };
    let job = if args.no_wait { query(&admin, &id)? } else { watch(&admin, &id, args.json)? };
    if args.json {
        output::json(&job)?;
    } else {
        output::line(text(&job))?;
    }
    match job.status_name.as_str() {
        "FAILED" => Err(Failure::failed(format!("{}; {TAKES_AGAIN}", job.message))),
        "CANCELED" if !args.no_wait => Err(Failure::failed(format!("the drain was called off; {TAKES_AGAIN}"))),
        _ => Ok(()),
    }
}

/// What a drain without success leaves behind.
const TAKES_AGAIN: &str = "what was moved stays where it is, and the nodes take objects again";

/// The segments that are meant: by name, by host, or by the client that lends them.
fn choose(wanted: &[String], segments: &[Segment]) -> Outcome<Vec<String>> {
    let known = || {
        let rows = segments.iter().map(|segment| {
            let status = segment.status.as_deref().unwrap_or("-");
            format!("\n  {}  {status}, {} in use", output::shown(&segment.name), bytes(segment.used_bytes))
        });
        if segments.is_empty() { "\n  (none: the pool has no memory)".to_owned() } else { rows.collect() }
    };
    if wanted.is_empty() {
        return Err(Failure::usage(format!("name the nodes to empty, or --job ID; there are:{}", known())));
    }
    let host = |name: &str| name.rsplit_once(':').map_or(name, |(host, _)| host).trim_matches(['[', ']']).to_owned();
    let mut chosen: Vec<String> = Vec::new();
    for name in wanted {
        let exact = segments.iter().any(|segment| &segment.name == name);
        let is_meant = |segment: &&Segment| match exact {
            true => &segment.name == name,
            false => host(&segment.name) == *name || segment.client.as_ref() == Some(name),
        };
        for segment in segments.iter().filter(is_meant) {
            // A name may be there twice: of a node that was started again, and of the process before it.
            if !chosen.contains(&segment.name) {
                chosen.push(segment.name.clone());
            }
        }
        if !segments.iter().any(|segment| is_meant(&segment)) {
            return Err(Failure::failed(format!("no node {name:?} lends memory to the pool; there are:{}", known())));
        }
    }
    Ok(chosen)
}

fn create(admin: &str, args: &DrainArgs, segments: &[String]) -> Outcome<String> {
    let mut order = json!({
        "segments": segments, "target_segments": args.to, "max_concurrency": args.concurrency,
    });
    if let (Some(seconds), Some(order)) = (args.deadline, order.as_object_mut()) {
        order.insert("deadline_seconds".to_owned(), json!(seconds));
    }
    let created: Created = ask(admin, "POST", "/api/v1/drain_jobs", &order.to_string())?;
    if created.success {
        return Ok(created.job_id);
    }
    // Somebody may have begun it already.
    if created.error_message == "UNAVAILABLE_IN_CURRENT_STATUS"
        && let Some(job) = of_segments(admin, segments, |job| !job.has_ended() || job.status_name == "SUCCEEDED")?
    {
        return Ok(job.job_id);
    }
    let hint = match created.error_message.as_str() {
        "SEGMENT_NOT_FOUND" => "a node of that name lends no memory (yuebing status shows them)",
        "UNAVAILABLE_IN_CURRENT_STATUS" => {
            "one of the nodes, or of those that are to take the objects, is being emptied or leaves"
        }
        _ => "the master refused it",
    };
    Err(Failure::failed(format!("cannot drain {}: {hint}: {}", segments.join(", "), created.error_message)))
}

/// The newest job of just these segments.
fn of_segments(admin: &str, segments: &[String], is_wanted: impl Fn(&Job) -> bool) -> Outcome<Option<Job>> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct List {
        jobs: Vec<Job>,
    }
    let sorted = |names: &[String]| names.iter().cloned().collect::<BTreeSet<String>>();
    // Mooncake's master has no list.
    let list: List = ask(admin, "GET", "/api/v1/drain_jobs/list", "").unwrap_or_default();
    Ok(list.jobs.into_iter().find(|job| sorted(&job.segments) == sorted(segments) && is_wanted(job)))
}

/// Calls off a drain that runs, or has drained nodes take objects again.
fn cancel(admin: &str, args: &DrainArgs, segments: &[String]) -> Outcome {
    let job = match &args.job {
        Some(id) => Some(query(admin, id)?),
        None => of_segments(admin, segments, |job| !job.has_ended())?,
    };
    let Some(job) = job.filter(|job| !job.has_ended()) else {
        return undo(admin, &job_segments(admin, args, segments)?);
    };
    let id = &job.job_id;
    let answer: Created = ask(admin, "POST", &format!("/api/v1/drain_jobs/cancel?job_id={id}"), "")?;
    match answer.success {
        true => output::line(format!("the drain is called off (job {id}); {TAKES_AGAIN}")),
        false if answer.error_message == "UNAVAILABLE_IN_CURRENT_STATUS" => {
            let text = "moves are under way; no new one starts for 10 s, so try again in a moment";
            Err(Failure::failed(format!("job {id}: {text}")))
        }
        false => Err(Failure::failed(format!("job {id}: {}", answer.error_message))),
    }
}

fn job_segments(admin: &str, args: &DrainArgs, segments: &[String]) -> Outcome<Vec<String>> {
    match &args.job {
        Some(id) => Ok(query(admin, id)?.segments),
        None => Ok(segments.to_vec()),
    }
}

fn undo(admin: &str, segments: &[String]) -> Outcome {
    for segment in segments {
        let order = json!({"segment": segment}).to_string();
        let answer: Created = ask(admin, "POST", "/api/v1/drain_jobs/undo", &order)?;
        if !answer.success {
            let why = match answer.error_message.as_str() {
                "UNAVAILABLE_IN_CURRENT_STATUS" => "it is not drained, and no drain of just these nodes runs",
                "SEGMENT_NOT_FOUND" => "no node of that name lends memory",
                other => other,
            };
            return Err(Failure::failed(format!("{segment}: {why}")));
        }
    }
    output::line(format!("{} take objects again", segments.join(", ")))
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
    let (answer, token) = admin::request(admin, method, path, body)?;
    if answer.status == 401 {
        let text = token::hint(token.as_ref());
        return Err(Failure::failed(format!("http://{admin}{path}: this call needs a token: {text}")));
    }
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
            let text = format!(
                "the drain goes on; watch it: yuebing node drain --job {id}; call it off: yuebing node drain --job {id} --cancel"
            );
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
    let moved = job.succeeded_units.saturating_sub(job.dropped_units);
    let took = job.last_updated_at_ms_epoch.saturating_sub(job.created_at_ms_epoch);
    let mut rows = vec![
        ("nodes", job.segments.join(", ")),
        ("drain", format!("{} ({})", job.status_name, job.message)),
        ("moved", format!("{moved} objects, {}, in {:.1} s", bytes(job.migrated_bytes), took as f64 / 1000.0)),
    ];
    if job.dropped_units > 0 {
        rows.push(("dropped", format!("{} objects that every other node has too", job.dropped_units)));
    }
    if let Some(left) = job.left_units.filter(|left| *left > 0 || !job.has_ended()) {
        rows.push((
            if job.has_ended() { "stayed" } else { "left" },
            format!("{left} objects, {} under way", job.active_units),
        ));
    }
    if job.blocked_units + job.failed_units > 0 {
        rows.push(("blocked", format!("{} objects, {} failed", job.blocked_units, job.failed_units)));
    }
    rows.push(("job", job.job_id.clone()));
    if job.status_name == "SUCCEEDED" {
        rows.push(("next", "end the nodes: they take no objects any more, and hold none".to_owned()));
    }
    output::pairs(&rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_go_by_name_host_or_client() {
        let row = |name: &str, client: &str| Segment {
            name: name.to_owned(),
            client: Some(client.to_owned()),
            ..Segment::default()
        };
        let segments =
            [row("10.0.0.1:7", "1-1"), row("10.0.0.1:8", "1-2"), row("[fe80::1]:7", "1-3"), row("host", "1-3")];
        let choose = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|&name| name.to_owned()).collect();
            super::choose(&wanted, &segments).map_err(|failure| failure.to_string())
        };
        assert_eq!(choose(&["10.0.0.1:8"]).unwrap(), ["10.0.0.1:8"]);
        assert_eq!(choose(&["10.0.0.1", "10.0.0.1:7"]).unwrap(), ["10.0.0.1:7", "10.0.0.1:8"]);
        assert_eq!(choose(&["1-3"]).unwrap(), ["[fe80::1]:7", "host"]);
        assert_eq!(choose(&["fe80::1"]).unwrap(), ["[fe80::1]:7"]);
        assert!(choose(&["10.0.0.9"]).unwrap_err().contains("10.0.0.1:8"));
        assert!(choose(&[]).unwrap_err().contains("10.0.0.1:7"));
    }

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
