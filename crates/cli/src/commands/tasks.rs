//! `yuebing tasks`: copies and moves, and the jobs that empty segments.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::admin;
use crate::args::TasksArgs;
use crate::connect;
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::size::bytes;

/// What the master remembers.
#[derive(Debug, Serialize)]
struct Tasks {
    /// Wait for a client that does them.
    pending: u64,
    /// Under way.
    processing: u64,
    /// Ended, and still remembered.
    finished: u64,
    /// Newest first.
    drain_jobs: Vec<Job>,
}

/// A job that empties segments.
#[derive(Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Job {
    job_id: String,
    status_name: String,
    segments: Vec<String>,
    succeeded_units: u64,
    failed_units: u64,
    left_units: u64,
    migrated_bytes: u64,
    message: String,
}

/// Asks the admin port and prints.
pub fn run(args: &TasksArgs) -> Outcome {
    let admin = connect::admin(&args.admin)?;
    let counts = admin::call(&admin, "GET", "/api/v1/tasks/counts", "")?;
    let jobs = admin::call(&admin, "GET", "/api/v1/drain_jobs/list", "")?;
    let tasks = tasks(&counts, &jobs)?;
    match args.json {
        true => output::json(&tasks),
        false => output::line(text(&tasks)),
    }
}

fn tasks(counts: &Value, jobs: &Value) -> Outcome<Tasks> {
    let count = |name: &str| counts[name].as_u64().unwrap_or(0);
    let drain_jobs = serde_json::from_value(jobs["jobs"].clone())
        .map_err(|error| Failure::failed(format!("the master's list of jobs cannot be read: {error}")))?;
    Ok(Tasks { pending: count("pending"), processing: count("processing"), finished: count("finished"), drain_jobs })
}

fn text(tasks: &Tasks) -> String {
    let mut text = output::pairs(&[
        ("waiting", tasks.pending.to_string()),
        ("under way", tasks.processing.to_string()),
        ("ended", tasks.finished.to_string()),
    ]);
    if !tasks.drain_jobs.is_empty() {
        let mut table = output::table(&["job", "status", "segments", "moved", "failed", "left", "bytes"], 3);
        for job in &tasks.drain_jobs {
            table.add_row([
                job.job_id.clone(),
                job.status_name.clone(),
                output::shown(&job.segments.join(", ")),
                job.succeeded_units.to_string(),
                job.failed_units.to_string(),
                job.left_units.to_string(),
                bytes(job.migrated_bytes),
            ]);
        }
        text.push_str("\n\n");
        text.push_str(&table.trim_fmt());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn counts_and_jobs_for_people() {
        let counts = json!({"success": true, "pending": 3, "processing": 2, "finished": 7});
        let jobs = json!({"jobs": [{"job_id": "1-2", "status_name": "RUNNING", "segments": ["a:1", "b:1"],
            "succeeded_units": 4, "left_units": 9, "migrated_bytes": 2048}]});
        let shown = text(&tasks(&counts, &jobs).unwrap());
        assert!(shown.contains("waiting    3\n") && shown.contains("a:1, b:1"), "{shown}");
        assert!(shown.lines().last().unwrap().ends_with("2 KiB"), "{shown}");
        assert!(tasks(&counts, &json!({})).is_err());
        assert!(!text(&tasks(&counts, &json!({"jobs": []})).unwrap()).contains("job"));
    }
}
