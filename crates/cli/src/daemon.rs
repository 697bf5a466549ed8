//! The daemons: master and node, under the peer's names or ours. They take the peer's flags, not ours.

use std::ffi::OsString;
use std::process::ExitCode;

use yb_master::CommandStyle;

use crate::failure::Exit;
use crate::supervise;

/// `mooncake_master`, `yuebing master`
pub fn master(name: &str, style: CommandStyle, arguments: Vec<OsString>) -> ExitCode {
    start(name, arguments, |arguments| yb_master::run(arguments, style))
}

/// `mooncake_client`, `yuebing node`
pub fn node(name: &str, arguments: Vec<OsString>) -> ExitCode {
    start(name, arguments, |arguments| yb_node::run(name, arguments))
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
