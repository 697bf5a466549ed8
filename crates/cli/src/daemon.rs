//! The daemons: master and node, under the peer's names or ours. They take the peer's flags, not ours.

use std::ffi::{CStr, OsString};
use std::process::ExitCode;

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

fn start(name: &str, arguments: Vec<OsString>, run: impl FnOnce(&[String]) -> ExitCode) -> ExitCode {
    let arguments: Result<Vec<String>, OsString> = arguments.into_iter().map(OsString::into_string).collect();
    let arguments = match arguments {
        Ok(arguments) => arguments,
        Err(bad) => {
            eprintln!("{name}: not UTF-8: {bad:?}");
            return Exit::Usage.into();
        }
    };
    match supervise::die_with_parent() {
        Ok(()) => run(&arguments),
        Err(failure) => {
            eprintln!("{name}: {failure}");
            failure.exit.into()
        }
    }
}
