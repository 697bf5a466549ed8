//! `yuebing rm`: removes objects, and says how many stayed and why.

use std::os::unix::ffi::OsStrExt;

use serde::Serialize;
use yb_client::{Client, Error, Removed};
use yb_types::ErrorCode;

use crate::args::RmArgs;
use crate::commands::objects::named;
use crate::connect::{connect, failure};
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::progress::during;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Counts {
    removed: u64,
    /// Stayed because somebody read them a short time ago; nothing from a master of Mooncake.
    leased: Option<u64>,
    /// Stayed because somebody writes, copies or uses them; nothing from a master of Mooncake.
    busy: Option<u64>,
}

impl From<Removed> for Counts {
    fn from(Removed { removed, leased, busy }: Removed) -> Self {
        Counts { removed, leased, busy }
    }
}

/// `rm KEY...`, `rm --prefix TEXT`, `rm --regex PATTERN`, `rm --all`
pub fn run(args: &RmArgs) -> Outcome {
    let pattern = match &args.prefix {
        Some(prefix) => Some(format!("^{}", regex::escape(prefix))),
        None => args.regex.clone(),
    };
    let client = connect(&args.master, &args.tenant)?;
    let outcome = match pattern {
        Some(pattern) => many(&client, Some(&pattern), args),
        None if args.all => many(&client, None, args),
        None => single(&client, args),
    };
    client.close();
    outcome
}

fn many(client: &Client, pattern: Option<&str>, args: &RmArgs) -> Outcome {
    let what = pattern.map_or("all objects".to_owned(), |pattern| format!("what {pattern:?} matches"));
    let removed = during(format!("removing {what}"), || client.remove_matching(pattern, args.force));
    let counts = Counts::from(removed.map_err(|error| failure(&what, &error))?);
    match args.json {
        true => output::json(&counts)?,
        false => output::line(format!("removed {}", counts.removed))?,
    }
    match stayed(counts) {
        Some(text) => Err(Failure::failed(text)),
        None => Ok(()),
    }
}

/// What was to go and did not, and what would help.
fn stayed(counts: Counts) -> Option<String> {
    let some = |count: Option<u64>| count.filter(|count| *count > 0);
    let leased = some(counts.leased).map(|count| {
        format!(
            "{count} {} not removed: read a short time ago; try again when the leases have ended, or use --force",
            were(count)
        )
    });
    let busy = some(counts.busy).map(|count| {
        format!("{count} {} not removed: being written, copied or used now; try again later", were(count))
    });
    let lines: Vec<String> = leased.into_iter().chain(busy).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

fn were(count: u64) -> &'static str {
    if count == 1 { "object was" } else { "objects were" }
}

fn single(client: &Client, args: &RmArgs) -> Outcome {
    let keys: Vec<&[u8]> = args.keys.iter().map(|key| key.as_bytes()).collect();
    let answers = client.batch_remove(&keys, args.force);
    if args.json {
        output::json(&tally(&answers))?;
    }
    let mut first = Ok(());
    for (key, answer) in keys.iter().zip(answers) {
        if let Err(error) = answer {
            let failure = failure(&named(key), &error);
            match first {
                Ok(()) => first = Err(failure),
                Err(_) => yb_env::complain!("yuebing: {failure}"),
            }
        }
    }
    first
}

fn tally(answers: &[Result<(), Error>]) -> Counts {
    let count = |is: fn(ErrorCode) -> bool| {
        answers.iter().filter_map(|answer| answer.as_ref().err()).filter(|error| is(error.code())).count() as u64
    };
    let busy = |code: ErrorCode| {
        let codes =
            [ErrorCode::REPLICA_IS_NOT_READY, ErrorCode::OBJECT_HAS_REPLICATION_TASK, ErrorCode::OBJECT_REPLICA_BUSY];
        codes.contains(&code)
    };
    Counts {
        removed: answers.iter().filter(|answer| answer.is_ok()).count() as u64,
        leased: Some(count(|code| code == ErrorCode::OBJECT_HAS_LEASE)),
        busy: Some(count(busy)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stayed_is_told_with_what_helps() {
        let counts = |leased, busy| Counts { removed: 2, leased, busy };
        assert_eq!(stayed(counts(None, None)), None);
        assert_eq!(stayed(counts(Some(0), Some(0))), None);
        let text = stayed(counts(Some(3), Some(1))).unwrap();
        assert!(text.starts_with("3 objects were not removed") && text.contains("--force"), "{text}");
        assert!(text.contains("\n1 object was not removed: being written"), "{text}");
    }
}
