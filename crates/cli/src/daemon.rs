//! The daemons: master and node, under the peer's names or ours. They take the peer's flags, not ours.

use std::ffi::{CStr, OsString};
use std::process::ExitCode;

use rustix::process::{Resource, getrlimit, setrlimit};
use yb_master::CommandStyle;

use crate::failure::Exit;
use crate::supervise;

/// `mooncake_master`, `yuebing master`
pub fn master(name: &str, style: CommandStyle, arguments: Vec<OsString>) -> ExitCode {
    if style == CommandStyle::Peer {
        show_as(c"mooncake_master");
    }
    start(name, arguments, |arguments| yb_master::run(arguments, style))
}

/// `mooncake_client`, `yuebing node`
pub fn node(name: &str, arguments: Vec<OsString>) -> ExitCode {
    if name == "mooncake_client" {
        show_as(c"mooncake_client");
    }
    start(name, arguments, |arguments| yb_node::run(name, arguments))
}

/// Gives the process the name under which the peer's users look for it, whatever the file is called.
fn show_as(name: &CStr) {
    if let Err(error) = rustix::thread::set_name(name) {
        eprintln!("{}: the process keeps the name of its file: {error}", name.to_string_lossy());
    }
}

/// Raises the limit of open files as far as it goes without rights: the usual one, 1024, is less than what a thousand
/// strangers' connections take, and then nobody else would get in.
fn take_all_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(error) = setrlimit(Resource::Nofile, limit) {
        eprintln!("the limit of open files stays as it is: {error}");
    }
}

fn start(name: &str, arguments: Vec<OsString>, run: impl FnOnce(&[String]) -> ExitCode) -> ExitCode {
    let arguments: Result<Vec<String>, OsString> = arguments.into_iter().map(OsString::into_string).collect();
    let arguments = match arguments {
        Ok(arguments) => arguments,
        Err(bad) => {
            eprintln!("{name}: not UTF-8: {bad:?}");
            return Exit::Usage.into();
        }
    };
    take_all_descriptors();
    match supervise::die_with_parent() {
        Ok(()) => run(&arguments),
        Err(failure) => {
            eprintln!("{name}: {failure}");
            failure.exit.into()
        }
    }
}
