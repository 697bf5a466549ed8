//! What was found, for people and for programs.

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// As it should be, or not needed here.
    Ok,
    /// Works, but slower, or not in every case.
    Warn,
    /// Does not work.
    Fail,
}

/// One line of the report.
#[derive(Clone, Debug, Serialize)]
pub struct Check {
    /// A name that stays.
    pub id: String,
    /// How bad it is.
    #[serde(rename = "status")]
    pub level: Level,
    /// What was found.
    pub text: String,
    /// What to do about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// The same as values.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub details: Map<String, Value>,
}

impl Check {
    fn new(id: &str, level: Level, text: impl Into<String>, hint: Option<String>) -> Self {
        Check { id: id.to_owned(), level, text: text.into(), hint, details: Map::new() }
    }

    /// As it should be.
    pub fn ok(id: &str, text: impl Into<String>) -> Self {
        Check::new(id, Level::Ok, text, None)
    }

    /// Not as good as it could be.
    pub fn warn(id: &str, text: impl Into<String>, hint: impl Into<String>) -> Self {
        Check::new(id, Level::Warn, text, Some(hint.into()))
    }

    /// Broken.
    pub fn fail(id: &str, text: impl Into<String>, hint: impl Into<String>) -> Self {
        Check::new(id, Level::Fail, text, Some(hint.into()))
    }

    /// Adds a value for programs.
    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.details.insert(key.to_owned(), value.into());
        self
    }
}

/// All lines, and what follows from them.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Version of this shape.
    schema: u32,
    /// Version of the program.
    version: &'static str,
    /// Whether nothing failed.
    pub ok: bool,
    /// The answer in words.
    verdict: String,
    /// What failed, as `id: text`.
    reasons: Vec<String>,
    /// Milliseconds that it took.
    elapsed_ms: u64,
    checks: Vec<Check>,
}

impl Report {
    /// Sums up.
    pub fn new(checks: Vec<Check>, elapsed: Duration) -> Self {
        let ids = |level: Level| -> Vec<&str> {
            checks.iter().filter(|check| check.level == level).map(|check| check.id.as_str()).collect()
        };
        let (failed, warned) = (ids(Level::Fail), ids(Level::Warn));
        let verdict = match (failed.is_empty(), warned.is_empty()) {
            (true, true) => "yes: this machine can take part in a pool".to_owned(),
            (true, false) => format!("yes: this machine can take part in a pool, but look at {}", warned.join(", ")),
            (false, _) => format!("no: {} failed", failed.join(", ")),
        };
        let failures = checks.iter().filter(|check| check.level == Level::Fail);
        Report {
            schema: 1,
            version: env!("CARGO_PKG_VERSION"),
            ok: failed.is_empty(),
            verdict,
            reasons: failures.map(|check| format!("{}: {}", check.id, check.text)).collect(),
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            checks,
        }
    }

    /// One line a check, its hint below it, the answer at the end.
    pub fn text(&self) -> String {
        let width = self.checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
        let mut lines = Vec::new();
        for check in &self.checks {
            let level = match check.level {
                Level::Ok => "ok  ",
                Level::Warn => "warn",
                Level::Fail => "FAIL",
            };
            lines.push(format!("{level}  {:width$}  {}", check.id, check.text));
            if let Some(hint) = &check.hint {
                lines.push(format!("{:1$}-> {hint}", "", width + 8));
            }
        }
        lines.push(self.verdict.clone());
        lines.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_says_yes_or_no_and_why() {
        let ok = Check::ok("a", "fine").with("n", 3);
        let warned = Check::warn("bb", "slow", "do this");
        let failed = Check::fail("c", "gone", "do that");
        let last = |checks: Vec<Check>| {
            let report = Report::new(checks, Duration::from_millis(5));
            (report.ok, report.text().lines().last().unwrap().to_owned())
        };
        assert_eq!(last(vec![ok.clone()]), (true, "yes: this machine can take part in a pool".to_owned()));
        assert!(
            last(vec![ok.clone(), warned.clone()]).1.starts_with("yes: ")
                && last(vec![warned.clone()]).1.ends_with("bb")
        );
        assert_eq!(last(vec![ok.clone(), warned.clone(), failed.clone()]), (false, "no: c failed".to_owned()));
        let report = Report::new(vec![ok, warned, failed], Duration::from_millis(5));
        assert_eq!(report.reasons, ["c: gone"]);
        assert!(report.text().contains("warn  bb  slow\n          -> do this"), "{}", report.text());
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["checks"][0], serde_json::json!({"id":"a","status":"ok","text":"fine","details":{"n":3}}));
        assert_eq!(json["checks"][2]["hint"], "do that");
    }
}
