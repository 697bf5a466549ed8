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
    let up = Up { master: &pool.master, admin: &pool.admin, node_bytes: pool.node_bytes, processes };
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
         \x20 export MOONCAKE_MASTER={} YUEBING_ADMIN={}\n\
         \x20 yuebing put readme README.md; yuebing status\n\
         \nCtrl-C ends the pool.",
        output::pairs(&rows),
        up.master,
        up.master,
        up.admin
    )
}
