//! `yuebing put`, `get`, `stat`, `ls`, `rm`: single objects by hand. Keys and values are bytes.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use regex::bytes::Regex;
use serde::Serialize;
use yb_client::PutOutcome;
use yb_types::{ReplicaDescriptor, ReplicaKind, ReplicateConfig};

use crate::admin;
use crate::args::{GetArgs, LsArgs, PutArgs, RmArgs, StatArgs};
use crate::connect::{self, connect, failure};
use crate::failure::{Failure, Outcome};
use crate::output;
use crate::progress::during;
use crate::size::bytes;

/// A pipe or device may have no end, and a value is in memory before it is stored.
const MOST_OF_A_STREAM: u64 = 1 << 30;

#[derive(Serialize)]
struct Put {
    key: String,
    bytes: usize,
    /// False if the key was there already; then nothing changed.
    stored: bool,
}

#[derive(Serialize)]
struct Removed {
    removed: u64,
}

/// `put KEY FILE`
pub fn put(args: &PutArgs) -> Outcome {
    let value = read_input(&args.file)?;
    let client = connect(&args.master, &args.tenant)?;
    let key = args.key.as_bytes();
    let config = ReplicateConfig { replica_num: args.replicas, ..ReplicateConfig::default() };
    let doing = format!("storing {}, {}", named(key), bytes(value.len() as u64));
    let outcome = during(doing, || client.put(key, &value, &config)).map_err(|e| failure(&named(key), &e))?;
    client.close();
    if args.json {
        let (key, stored) = (output::key_text(key), outcome == PutOutcome::Stored);
        return output::json(&Put { key, bytes: value.len(), stored });
    }
    match outcome {
        PutOutcome::Stored => Ok(()),
        PutOutcome::AlreadyExists => {
            eprintln!("yuebing: {} exists already and was not changed; rm it first to replace it", named(key));
            Ok(())
        }
    }
}

/// `get KEY [FILE]`
pub fn get(args: &GetArgs) -> Outcome {
    let client = connect(&args.master, &args.tenant)?;
    let key = args.key.as_bytes();
    let doing = format!("reading {}", named(key));
    let value = during(doing, || client.get(key)).map_err(|e| failure(&named(key), &e))?;
    client.close();
    match args.file.as_deref().filter(|path| path.as_os_str() != "-") {
        None => output::bytes(&value),
        Some(path) => write_output(path, &value).map_err(|e| Failure::file(path, &e)),
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

/// `rm KEY...`, `rm --regex PATTERN`, `rm --all`
pub fn rm(args: &RmArgs) -> Outcome {
    let client = connect(&args.master, &args.tenant)?;
    if let Some(pattern) = &args.regex {
        let doing = format!("removing what {pattern:?} matches");
        let count = during(doing, || client.remove_by_regex(pattern, args.force)).map_err(|e| failure(pattern, &e))?;
        client.close();
        return print_removed(count, args.json);
    }
    if args.all {
        let removed = during("removing all objects", || client.remove_all(args.force));
        let count = removed.map_err(|e| failure("remove all", &e))?;
        client.close();
        return print_removed(count, args.json);
    }
    let keys: Vec<&[u8]> = args.keys.iter().map(|key| key.as_bytes()).collect();
    let answers = client.batch_remove(&keys, args.force);
    client.close();
    let mut first = Ok(());
    if args.json {
        print_removed(answers.iter().filter(|answer| answer.is_ok()).count() as u64, true)?;
    }
    for (key, answer) in keys.iter().zip(answers) {
        if let Err(error) = answer {
            let failure = failure(&named(key), &error);
            match first {
                Ok(()) => first = Err(failure),
                Err(_) => eprintln!("yuebing: {failure}"),
            }
        }
    }
    first
}

fn print_removed(removed: u64, json: bool) -> Outcome {
    if json { output::json(&Removed { removed }) } else { output::line(format!("removed {removed}")) }
}

fn named(key: &[u8]) -> String {
    format!("key {:?}", output::key_text(key))
}

fn read_input(path: &Path) -> Outcome<Vec<u8>> {
    let mut data = Vec::new();
    let mut read = || -> io::Result<bool> {
        if path.as_os_str() == "-" {
            return read_stream(&mut io::stdin().lock(), &mut data, MOST_OF_A_STREAM);
        }
        let mut file = File::open(path)?;
        match file.metadata()?.is_file() {
            true => file.read_to_end(&mut data).map(|_| true),
            false => read_stream(&mut file, &mut data, MOST_OF_A_STREAM),
        }
    };
    match read().map_err(|e| Failure::file(path, &e))? {
        true => Ok(data),
        false => Err(Failure::failed(format!(
            "{}: more than {} from something that is no file, which may have no end; write it to a file first",
            path.display(),
            bytes(MOST_OF_A_STREAM)
        ))),
    }
}

/// False: there is more than `most`.
fn read_stream(from: &mut impl Read, data: &mut Vec<u8>, most: u64) -> io::Result<bool> {
    from.take(most.saturating_add(1)).read_to_end(data)?;
    Ok(data.len() as u64 <= most)
}

/// A file gets the whole value or keeps what it had; a device or pipe is written straight.
fn write_output(path: &Path, value: &[u8]) -> io::Result<()> {
    if std::fs::metadata(path).is_ok_and(|m| !m.is_file()) {
        return File::options().write(true).open(path)?.write_all(value);
    }
    let directory =
        path.parent().filter(|p| !p.as_os_str().is_empty()).map_or_else(|| PathBuf::from("."), PathBuf::from);
    let mut file = tempfile::Builder::new().prefix(".yuebing-").tempfile_in(directory)?;
    file.write_all(value)?;
    let mask = rustix::process::umask(rustix::fs::Mode::empty());
    rustix::process::umask(mask);
    let mode = rustix::fs::Mode::from_raw_mode(0o666 & !mask.as_raw_mode());
    rustix::fs::fchmod(file.as_file(), mode)?;
    file.persist(path).map_err(|e| e.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_stream_without_an_end_is_given_up() {
        let mut data = Vec::new();
        assert!(!read_stream(&mut io::repeat(0), &mut data, 1000).unwrap());
        let (mut whole, mut data) = (&[7; 1000][..], Vec::new());
        assert!(read_stream(&mut whole, &mut data, 1000).unwrap() && data.len() == 1000);
    }

    #[test]
    fn a_file_is_replaced_whole_and_readable() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("out");
        write_output(&path, b"first, longer").unwrap();
        write_output(&path, b"second").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
        assert_ne!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o200, 0);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
        write_output(Path::new("/dev/null"), b"x").unwrap();
        assert!(write_output(&directory.path().join("no/such"), b"x").is_err());
    }
}
