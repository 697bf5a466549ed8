//! `yuebing doctor`: whether this machine can take part in a pool, and what to do where it cannot.
//!
//! Every probe runs on a thread of its own and has a deadline of its own, so that one that hangs (a peer that says nothing, a
//! name server that is away) costs a line, not the answer.

mod addresses;
mod devices;
mod limits;
mod memory;
mod peers;
mod python;
mod report;
mod security;
mod versions;

use std::net::TcpStream;
use std::sync::mpsc;
use std::time::Duration;

use yb_env::Clock;

use crate::args::{DEFAULT_MASTER, DoctorArgs};
use crate::failure::{Exit, Failure, Outcome};
use crate::output;
use report::{Check, Report};

/// What a probe may take. The whole run takes little more, for all run at once.
const PATIENCE: Duration = Duration::from_secs(8);
/// What a probe should give a peer, so that it can still say what did not answer.
const PEER_PATIENCE: Duration = Duration::from_secs(5);

/// What the usual address of a master on this machine may take to answer.
const GUESS_PATIENCE: Duration = Duration::from_millis(500);

type Probe = Box<dyn FnOnce() -> Vec<Check> + Send>;

/// Runs all probes and prints what they found.
pub fn run(args: &DoctorArgs) -> Outcome {
    let clock = Clock::real();
    let started = clock.now();
    let checks = run_all(probes(args), &clock);
    let report = Report::new(checks, clock.now().since(started));
    if args.json {
        output::json(&report)?;
    } else {
        output::line(report.text())?;
    }
    if report.ok { Ok(()) } else { Err(Failure::new(Exit::Failed, "")) }
}

/// The probes in the order in which they are told.
fn probes(args: &DoctorArgs) -> Vec<(&'static str, Probe)> {
    let mut list: Vec<(&'static str, Probe)> = Vec::new();
    let master = master_to_ask(args);
    let place = addresses::Place {
        host: args.host.clone(),
        advertise: args.advertise.clone(),
        port: args.port,
        towards: master.clone().ok().flatten().or_else(|| args.peer.first().cloned()),
    };
    list.push(("addresses", Box::new(move || addresses::check(&place))));
    let admin = args.pool.given();
    let asks_usual_port = admin.is_none();
    if let Ok(Some(master)) = master.clone() {
        list.push(("local-hostname", Box::new(move || peers::local_hostname(&master).into_iter().collect())));
    }
    match master {
        Ok(Some(master)) => list.push(("master", Box::new(move || peers::pool(&master, asks_usual_port)))),
        Ok(None) => {}
        Err(why) => list.push(("master", Box::new(move || vec![Check::fail("master", why, "mend or unset it")]))),
    }
    if let Some(admin) = admin {
        list.push(("versions", Box::new(move || vec![versions::check(&admin, false)])));
    }
    for peer in args.peer.clone() {
        list.push(("peer", Box::new(move || vec![peers::peer(&peer, PEER_PATIENCE)])));
    }
    list.push(("limits", Box::new(limits::check)));
    let wanted = args.memory.map(|size| size.0);
    list.push(("memory", Box::new(move || memory::check(wanted))));
    list.push(("security", Box::new(security::check)));
    let pythons = args.python.clone();
    list.push(("python", Box::new(move || python::check(&pythons))));
    let device = args.cxl.clone().or_else(|| std::env::var_os("MC_CXL_DEV_PATH").map(Into::into));
    list.push(("devices", Box::new(move || devices::check(device.as_deref()))));
    list
}

/// The master that is named, else the one at the usual address if there is one. The error is a text.
fn master_to_ask(args: &DoctorArgs) -> Result<Option<String>, String> {
    let named = args.pool.master.named().map_err(|failure| failure.to_string())?;
    let address = DEFAULT_MASTER.parse().map_err(|error| format!("{DEFAULT_MASTER}: {error}"))?;
    let there = || TcpStream::connect_timeout(&address, GUESS_PATIENCE).is_ok();
    Ok(named.or_else(|| there().then(|| DEFAULT_MASTER.to_owned())))
}

/// Runs probes side by side; one that does not end in time becomes a failed check.
fn run_all(probes: Vec<(&'static str, Probe)>, clock: &Clock) -> Vec<Check> {
    let until = clock.now() + PATIENCE;
    let started: Vec<_> = probes
        .into_iter()
        .map(|(name, probe)| {
            let (sender, receiver) = mpsc::channel();
            let thread = yb_env::spawn_thread("yb-doctor", move || drop(sender.send(probe())));
            (name, thread.map(|_| receiver))
        })
        .collect();
    let mut checks = Vec::new();
    for (name, thread) in started {
        let left = until.since(clock.now()).max(Duration::from_millis(1));
        match thread.map(|receiver| receiver.recv_timeout(left)) {
            Ok(Ok(found)) => checks.extend(found),
            Ok(Err(mpsc::RecvTimeoutError::Timeout)) => {
                let hint = "something behind it hangs: a name server, a file system, a device";
                checks.push(Check::fail(name, format!("no result within {} s", PATIENCE.as_secs()), hint));
            }
            Ok(Err(mpsc::RecvTimeoutError::Disconnected)) => {
                checks.push(Check::fail(name, "the probe broke off", "this is a defect of yuebing: please report it"));
            }
            Err(error) => checks.push(Check::fail(name, format!("no thread: {error}"), "raise the limit of processes")),
        }
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::report::Level;

    #[test]
    fn a_probe_that_breaks_off_is_a_line_and_hides_no_other() {
        let probes: Vec<(&'static str, Probe)> = vec![
            ("first", Box::new(|| vec![Check::ok("a", "fine")])),
            ("broken", Box::new(|| std::panic::resume_unwind(Box::new("broken")))),
            ("last", Box::new(|| vec![Check::ok("b", "fine too")])),
        ];
        let checks = run_all(probes, &Clock::real());
        let names: Vec<_> = checks.iter().map(|check| (check.id.as_str(), check.level)).collect();
        assert_eq!(names, [("a", Level::Ok), ("broken", Level::Fail), ("b", Level::Ok)]);
    }
}
