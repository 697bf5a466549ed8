//! `yuebing up`: a pool on this machine, until Ctrl-C.

use serde::Serialize;

use crate::args::UpArgs;
use crate::failure::{Exit, Outcome};
use crate::output;
use crate::pool::{EmbeddedPool, PoolOptions};
use crate::progress::during;
use crate::signals::Signals;
use crate::size;

#[derive(Serialize)]
struct Up<'a> {
    master: &'a str,
    admin: &'a str,
    node_bytes: u64,
    processes: Vec<Process<'a>>,
    environment: Vec<Variable>,
}

/// A variable that whoever connects to the pool needs as well as this process.
#[derive(Serialize)]
struct Variable {
    name: &'static str,
    /// `None`: it is a secret, and shown nowhere.
    value: Option<String>,
}

/// What secures the pool: files, whose paths are shown as whole ones; values; secrets.
const FILES: [&str; 5] =
    ["YUEBING_SECRET_FILE", "YUEBING_TLS_CA", "YUEBING_TLS_CERT", "YUEBING_TLS_KEY", "YUEBING_ADMIN_TOKEN_FILE"];
const VALUES: [&str; 4] = ["YUEBING_TLS_MUTUAL", "YUEBING_TLS_NAME", "YUEBING_PLAIN_FROM", "YUEBING_PLAIN_TO"];
const SECRETS: [&str; 2] = ["YUEBING_SECRET", "YUEBING_ADMIN_TOKEN"];

/// Those that are set.
fn securing(lookup: impl Fn(&str) -> Option<String>) -> Vec<Variable> {
    let lookup = |name: &str| lookup(name).filter(|value| !value.is_empty());
    let whole = |path: String| std::path::absolute(&path).map_or(path, |path| path.display().to_string());
    let files = FILES.into_iter().filter_map(|name| Some((name, Some(whole(lookup(name)?)))));
    let values = VALUES.into_iter().filter_map(|name| Some((name, Some(lookup(name)?))));
    let secrets = SECRETS.into_iter().filter_map(|name| lookup(name).map(|_| (name, None)));
    files.chain(values).chain(secrets).map(|(name, value)| Variable { name, value }).collect()
}

/// A value as a word of a shell.
fn quoted(value: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:,=@%".contains(c);
    match !value.is_empty() && value.chars().all(plain) {
        true => value.to_owned(),
        false => format!("'{}'", value.replace('\'', r"'\''")),
    }
}

#[derive(Serialize)]
struct Process<'a> {
    name: &'a str,
    pid: u32,
}

/// Starts the pool, says how to use it, waits.
pub fn run(args: &UpArgs) -> Outcome {
    let signals = Signals::catch()?;
    let options = PoolOptions {
        nodes: args.nodes,
        memory_bytes: args.memory.0,
        port: args.port,
        admin_port: args.admin_port,
        master_flags: args.master_flags.clone(),
    };
    let doing = format!("starting a master and {} nodes", args.nodes);
    let mut pool = match during(doing, || EmbeddedPool::start(&options, &signals)) {
        // Leaving when asked to is no failure, also early.
        Err(failure) if failure.exit == Exit::Interrupted => return Ok(()),
        other => other?,
    };
    let processes = pool.members().map(|(name, pid)| Process { name, pid }).collect();
    let environment = securing(|name| std::env::var(name).ok());
    let up = Up { master: &pool.master, admin: &pool.admin, node_bytes: pool.node_bytes, processes, environment };
    if args.json {
        output::json(&up)?;
    } else {
        output::line(banner(&up))?;
    }
    let ran = pool.run(&signals);
    let stopped = pool.stop();
    ran.and(stopped)?;
    if !args.json {
        output::line("The pool has left.")?;
    }
    Ok(())
}

fn banner(up: &Up<'_>) -> String {
    let mut rows: Vec<(&str, String)> = Vec::new();
    for process in &up.processes {
        rows.push((
            process.name,
            match process.name {
                "master" => format!("{}, admin http://{}, pid {}", up.master, up.admin, process.pid),
                _ => format!("{} lent, pid {}", size::bytes(up.node_bytes), process.pid),
            },
        ));
    }
    format!(
        "{}\n\nPython:\n\
         \x20 from mooncake.store import MooncakeDistributedStore\n\
         \x20 store = MooncakeDistributedStore()\n\
         \x20 store.setup(\"127.0.0.1\", \"P2PHANDSHAKE\", 0, 16 << 20, \"tcp\", \"\", \"{}\")\n\
         \x20 store.put(\"hello\", b\"world\"); print(store.get(\"hello\"))\n\
         \nShell:\n\
         \x20 export MOONCAKE_MASTER={} YUEBING_ADMIN={}\n{}\
         \x20 yuebing put readme README.md; yuebing status\n\
         \nCtrl-C ends the pool.",
        output::pairs(&rows),
        up.master,
        up.master,
        up.admin,
        exports(&up.environment)
    )
}

/// Lines to paste beside the one with the addresses: without these, a secured pool lets nobody in.
fn exports(variables: &[Variable]) -> String {
    let mut text = String::new();
    let shown = variables.iter().filter_map(|variable| Some((variable.name, variable.value.as_deref()?)));
    let shown: Vec<String> = shown.map(|(name, value)| format!("{name}={}", quoted(value))).collect();
    if !shown.is_empty() {
        text += &format!("  export {}\n", shown.join(" "));
    }
    for secret in variables.iter().filter(|variable| variable.value.is_none()) {
        text += &format!("  export {}=…   (as here; it is not shown)\n", secret.name);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_pastes_gets_what_secures_the_pool_and_no_secret() {
        assert_eq!(exports(&securing(|_| None)), "");
        let set = [
            ("YUEBING_SECRET_FILE", "/etc/yuebing/secret"),
            ("YUEBING_TLS_CA", "/with space/it's.pem"),
            ("YUEBING_TLS_MUTUAL", "1"),
            ("YUEBING_ADMIN_TOKEN", "token-0123"),
            ("YUEBING_TLS_NAME", ""),
        ];
        let text = exports(&securing(|name| Some(set.iter().find(|(own, _)| *own == name)?.1.to_owned())));
        let expected = "  export YUEBING_SECRET_FILE=/etc/yuebing/secret YUEBING_TLS_CA='/with space/it'\\''s.pem' \
                        YUEBING_TLS_MUTUAL=1\n  export YUEBING_ADMIN_TOKEN=…   (as here; it is not shown)\n";
        assert_eq!(text, expected);
        let relative = securing(|name| (name == "YUEBING_SECRET_FILE").then(|| "secret".to_owned()));
        let path = relative.first().and_then(|variable| variable.value.clone()).unwrap();
        assert!(path.starts_with('/') && path.ends_with("/secret"), "another terminal is elsewhere: {path}");
    }
}
