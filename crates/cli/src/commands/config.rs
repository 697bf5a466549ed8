//! `yuebing config`: what a setting is, what holds, and where that came from; and changes while a master runs.

use std::ffi::OsString;

use serde_json::{Map, Value, json};
use yb_node::NODE;
use yb_secure::SecuritySettings;
use yb_settings::master::MASTER;
use yb_settings::{Arguments, Explained, explain, parse_arguments};

use crate::admin::call;
use crate::args::{ConfigCommand, ConfigSetArgs, ExplainArgs, without_scheme};
use crate::connect;
use crate::failure::{Exit, Failure, Outcome};
use crate::http;
use crate::output;

/// Runs one of the commands about settings.
pub fn run(command: &ConfigCommand) -> Outcome {
    match command {
        ConfigCommand::Explain(args) => match &args.running {
            Some(admin) => explain_running(without_scheme(admin), args),
            None => explain_given(args),
        },
        ConfigCommand::Set(args) => set(args),
    }
}

/// Of a process that would be started with these flags.
fn explain_given(args: &ExplainArgs) -> Outcome {
    let table = if args.of == "node" { &NODE } else { &MASTER };
    let environment = |name: &str| std::env::var(name).ok();
    let flags: Result<Vec<String>, OsString> = args.flags.iter().cloned().map(OsString::into_string).collect();
    let flags = flags.map_err(|bad| Failure::usage(format!("not UTF-8: {bad:?}")))?;
    let usage = |error: yb_settings::SettingsError| Failure::usage(error.to_string());
    let Arguments::Run(given) = parse_arguments(table, &flags, &environment).map_err(usage)? else {
        return Err(Failure::usage("after -- stand the flags of the process, not --help or --version"));
    };
    let values = table.resolve(given, &environment).map_err(usage)?;
    // What the table takes for a text, the process itself reads further.
    SecuritySettings::from_values(&values, environment).map_err(|error| Failure::usage(error.to_string()))?;
    let found = explain(table, &values, args.name.as_deref()).map_err(usage)?;
    let settings: Vec<Value> = found.iter().map(Explained::json).collect();
    let asked = format!(
        "No running master was asked: this holds in a {} started here with these flags. --running HOST:PORT asks one.",
        args.of
    );
    show(args, &settings, &asked)
}

/// One line a setting, or everything about those that were asked for; and who was asked.
fn show(args: &ExplainArgs, settings: &[Value], asked: &str) -> Outcome {
    if args.json {
        return output::json(&settings);
    }
    if args.name.is_none() && !args.all {
        return output::line(format!(
            "{}\n\n{asked} Everything about a setting: config explain NAME, or --all.",
            table(settings)
        ));
    }
    output::line(format!("{}\n{asked}", settings.iter().map(text).collect::<Vec<_>>().join("\n")))
}

fn table(settings: &[Value]) -> String {
    let mut table = output::table(&["setting", "value", "from", "live"], 4);
    for setting in settings {
        let field = |name: &str| setting[name].as_str().unwrap_or_default().to_owned();
        let value = if field("value").is_empty() { "empty".to_owned() } else { field("value") };
        let live = if setting["live"] == true { "yes" } else { "no" };
        table.add_row([field("name"), value, field("source"), live.to_owned()]);
    }
    table.trim_fmt()
}

/// Of the master whose admin port this is.
fn explain_running(admin: &str, args: &ExplainArgs) -> Outcome {
    let path = match &args.name {
        Some(name) => format!("/api/v1/config?name={}", name.replace('%', "%25").replace('&', "%26")),
        None => "/api/v1/config".to_owned(),
    };
    let answer = http::get(admin, &path).map_err(|error| Failure::new(Exit::Unreachable, error))?;
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_else(|_| json!({}));
    if answer.status != 200 {
        let why = body["error_message"].as_str().unwrap_or("no such page: is this a master of this project?");
        return Err(Failure::failed(format!("http://{admin}{path}: status {}: {why}", answer.status)));
    }
    let settings = body["settings"].as_array().cloned().unwrap_or_default();
    show(args, &settings, &format!("Asked the master at http://{admin}."))
}

/// Changes what holds in a master that runs.
fn set(args: &ConfigSetArgs) -> Outcome {
    let mut changes = Map::new();
    for (name, value) in &args.settings {
        if changes.insert(name.clone(), Value::from(value.clone())).is_some() {
            return Err(Failure::usage(format!("{name} is given twice")));
        }
    }
    let report = call(&connect::admin(&args.admin)?, "PUT", "/api/v1/config", &Value::Object(changes).to_string())?;
    if args.json {
        return output::json(&report);
    }
    let rows = report["applied"].as_array().cloned().unwrap_or_default();
    if rows.is_empty() {
        return output::line("nothing changed: these values hold already");
    }
    let field = |row: &Value, name: &str| row[name].as_str().unwrap_or_default().to_owned();
    let told = rows.iter().map(|row| format!("{}: {} -> {}", field(row, "name"), field(row, "old"), field(row, "new")));
    output::line(told.collect::<Vec<_>>().join("\n"))
}

/// A setting in some lines.
fn text(setting: &Value) -> String {
    let field = |name: &str| setting[name].as_str().unwrap_or_default().to_owned();
    let mut out = format!("{}\n", field("name"));
    for (label, name) in [
        ("value", "value"),
        ("from", "source"),
        ("default", "default"),
        ("legal", "legal"),
        ("meaning", "meaning"),
        ("peer", "peer"),
        ("here", "class"),
    ] {
        let text = field(name);
        out.push_str(&format!("  {label:<12}{}\n", if text.is_empty() { "empty" } else { &text }));
    }
    let live = if setting["live"] == true { "yes, at a reload" } else { "no, needs a restart" };
    out.push_str(&format!("  {:<12}{live}\n", "live"));
    if let Some(variable) = setting["environment"].as_str() {
        out.push_str(&format!("  {:<12}{variable}\n", "environment"));
    }
    out
}
