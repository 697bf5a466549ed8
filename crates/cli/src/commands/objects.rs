//! `yuebing put`, `get`, `stat`, `ls`: single objects by hand. Keys and values are bytes.

use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;

use regex::bytes::Regex;
use serde::Serialize;
use yb_client::PutOutcome;
use yb_types::{ReplicaDescriptor, ReplicaKind, ReplicateConfig};

use crate::admin;
use crate::args::{GetArgs, LsArgs, PutArgs, StatArgs};
use crate::connect::{self, connect, failure};
use crate::failure::{Failure, Outcome};
use crate::files;
use crate::interrupt::Interruptible;
use crate::output;
use crate::progress::during;
use crate::size::bytes;

#[derive(Serialize)]
struct Put {
    key: String,
    bytes: usize,
    /// False if the key was there already; then nothing changed.
    stored: bool,
}

/// `put KEY FILE`
pub fn put(args: &PutArgs) -> Outcome {
    let key = args.key.as_bytes();
    if key.is_empty() {
        return Err(Failure::usage("the key is empty"));
    }
    let work = Interruptible::start("nothing was stored")?;
    let value = files::read(&args.file)?;
    let client = connect(&args.master, &args.tenant)?;
    let config = ReplicateConfig { replica_num: args.replicas, ..ReplicateConfig::default() };
    let name = named(key);
    let doing = format!("storing {name}, {}", bytes(value.len() as u64));
    work.so_far({
        let name = name.clone();
        move || format!("{name} was being stored: it is there whole or not at all, yuebing stat says which")
    });
    let outcome = during(doing, || client.put(key, &value, &config));
    work.hold();
    let outcome = outcome.map_err(|e| failure(&name, &e))?;
    client.close();
    if args.json {
        let (key, stored) = (output::key_text(key), outcome == PutOutcome::Stored);
        return output::json(&Put { key, bytes: value.len(), stored });
    }
    match outcome {
        PutOutcome::Stored => Ok(()),
        PutOutcome::AlreadyExists => {
            yb_env::complain!("yuebing: {name} exists already and was not changed; rm it first to replace it");
            Ok(())
        }
    }
}

/// `get KEY [FILE]`
pub fn get(args: &GetArgs) -> Outcome {
    let key = args.key.as_bytes();
    let work = Interruptible::start("nothing was written")?;
    let target = args.file.as_deref().filter(|path| path.as_os_str() != "-");
    // Before anything is moved.
    target.map_or(Ok(()), files::check_target)?;
    let client = connect(&args.master, &args.tenant)?;
    let doing = format!("reading {}", named(key));
    let value = during(doing, || client.get(key)).map_err(|e| failure(&named(key), &e))?;
    client.close();
    match target {
        None => files::write_out(&value, &work),
        Some(path) => files::write(path, &value, &work),
    }
}

#[derive(Serialize)]
struct Stat {
    key: String,
    bytes: Option<u64>,
    checksum: Option<u64>,
    replicas: Vec<Replica>,
}

#[derive(Serialize)]
struct Replica {
    id: u64,
    kind: &'static str,
    status: i32,
    place: String,
    address: Option<u64>,
}

/// `stat KEY`
pub fn stat(args: &StatArgs) -> Outcome {
    let client = connect(&args.master, &args.tenant)?;
    let key = args.key.as_bytes();
    let found = client.query(key).map_err(|e| failure(&named(key), &e))?;
    client.close();
    let stat = Stat {
        key: output::key_text(key),
        bytes: found.size(),
        checksum: found.checksum,
        replicas: found.replicas.iter().map(replica).collect(),
    };
    if args.json {
        return output::json(&stat);
    }
    let mut rows =
        vec![("key", stat.key), ("size", stat.bytes.map_or("?".to_owned(), |n| format!("{n} ({})", bytes(n))))];
    if let Some(checksum) = stat.checksum {
        rows.push(("checksum", format!("{checksum:016x}")));
    }
    for replica in stat.replicas {
        let state = if replica.status == 3 { "readable" } else { "not readable" };
        let address = replica.address.map(|a| format!(" at {a:#x}")).unwrap_or_default();
        rows.push(("replica", format!("{} {} {}{address}, {state}", replica.id, replica.kind, replica.place)));
    }
    output::line(output::pairs(&rows))
}

fn replica(replica: &ReplicaDescriptor) -> Replica {
    let (kind, place, address) = match &replica.kind {
        ReplicaKind::Memory(m) => ("memory", m.buffer.transport_endpoint.clone(), Some(m.buffer.buffer_address)),
        ReplicaKind::Nof(n) => ("nvme-of", n.buffer.transport_endpoint.clone(), Some(n.buffer.buffer_address)),
        ReplicaKind::Disk(d) => ("disk", d.file_path.clone(), None),
        ReplicaKind::LocalDisk(d) => ("local disk", d.transport_endpoint.clone(), None),
        ReplicaKind::Dfs(d) => ("dfs", d.file_path.clone(), Some(d.offset)),
    };
    Replica { id: replica.id.0, kind, status: replica.status.0, place: output::shown(&place), address }
}

/// `ls`: from the admin port, so that looking changes no lease.
pub fn ls(args: &LsArgs) -> Outcome {
    let pattern = args.regex.as_deref().map(Regex::new).transpose();
    let pattern = pattern.map_err(|e| Failure::usage(format!("--regex: {e}")))?;
    let prefix = args.prefix.as_deref().map(OsStr::as_bytes).unwrap_or_default();
    let admin = connect::admin(&args.admin)?;
    let mut keys = match args.tenant.name() {
        Some(tenant) => admin::keys_of(&admin, tenant)?,
        None => admin::keys(&admin)?,
    };
    keys.retain(|key| key.starts_with(prefix) && pattern.as_ref().is_none_or(|p| p.is_match(key)));
    keys.sort_unstable();
    if args.json {
        return output::json(&keys.iter().map(|key| output::key_text(key)).collect::<Vec<_>>());
    }
    // Who pipes the keys on gets them byte by byte; a terminal gets nothing that it would obey.
    let for_people = io::stdout().is_terminal();
    let mut text = Vec::new();
    for key in keys {
        match for_people {
            true => text.extend_from_slice(output::key_text(&key).as_bytes()),
            false => text.extend_from_slice(&key),
        }
        text.push(b'\n');
    }
    output::bytes(&text)
}

pub(super) fn named(key: &[u8]) -> String {
    format!("key {:?}", output::key_text(key))
}
