//! Why a command failed, and the exit code that says so to scripts.

use std::fmt;
use std::process::ExitCode;

/// The exit codes. They are part of the command's interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It was done.
    Done = 0,
    /// It failed.
    Failed = 1,
    /// The command line is wrong. The same number as the argument parser uses.
    Usage = 2,
    /// There is no such object.
    Miss = 3,
    /// The master does not answer.
    Unreachable = 4,
    /// Bytes were not what they must be.
    WrongBytes = 5,
    /// The pool has no room.
    NoSpace = 6,
    /// Stopped by a signal.
    Interrupted = 130,
}

/// An error with its exit code. The text says what failed, where, and what may help.
#[derive(Debug)]
pub struct Failure {
    /// What the process answers.
    pub exit: Exit,
    text: String,
}

/// What a command answers.
pub type Outcome<T = ()> = Result<T, Failure>;

impl Failure {
    /// A failure with an exit code of its own.
    pub fn new(exit: Exit, text: impl Into<String>) -> Self {
        Failure { exit, text: text.into() }
    }

    /// A failure without a more telling exit code.
    pub fn failed(text: impl Into<String>) -> Self {
        Failure::new(Exit::Failed, text)
    }

    /// A wrong command line.
    pub fn usage(text: impl Into<String>) -> Self {
        Failure::new(Exit::Usage, text)
    }

    /// What went wrong with this file.
    pub fn file(path: &std::path::Path, error: &std::io::Error) -> Self {
        Failure::failed(format!("{}: {error}", path.display()))
    }

    /// Stopped by a signal; what was done until then.
    pub fn interrupted(so_far: impl fmt::Display) -> Self {
        Failure::new(Exit::Interrupted, format!("interrupted: {so_far}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}
