//! Settings of a process, declared once.
//!
//! A daemon of the pool takes its settings from gflags-style arguments, a YAML or JSON file and a few environment
//! variables. Written by hand, the four places (parser, file reader, help, docs) drift apart, and a misspelt key is
//! silently ignored. Here every setting is one row of a [`Table`]; parser, file reader, help and docs page read it.
//!
//! Invariants: a name that is not in the table is refused and the nearest known one is named; a setting of the peer
//! whose feature is not built is refused when it is set to anything but its default, naming the feature; an argument
//! wins over the file, the file over the environment, the environment over the default.
//!
//! ```
//! use yb_settings::{Arguments, Kind, Setting, Table, parse_arguments};
//! static TABLE: Table = Table {
//!     program: "example",
//!     groups: &[("Network", &[Setting::ours("port", Kind::U32, "80", "Port to listen on").range(1, 65535)])],
//! };
//! let Arguments::Run(given) = parse_arguments(&TABLE, &["--port=81".to_owned()], &|_| None).unwrap() else { panic!() };
//! let values = TABLE.resolve(given, &|_| None).unwrap();
//! assert_eq!(values.number("port"), 81);
//! let error = parse_arguments(&TABLE, &["--prt=81".to_owned()], &|_| None).unwrap_err();
//! assert!(error.to_string().contains("--port"));
//! ```
#![forbid(unsafe_code)]

mod arguments;
mod explain;
mod file;
mod help;
pub mod master;
mod nearest;
mod reload;
mod security;
mod setting;
mod value;
mod values;
mod variables;

pub use arguments::{Arguments, HelpStyle, parse_arguments};
pub use explain::{Explained, explain};
pub use help::{docs_page, help_gflags, help_plain};
pub use nearest::{misspelt, nearest};
pub use reload::{Change, Reload, reload};
pub use security::{SECURITY, SECURITY_TITLE};
pub use setting::{Class, Kind, Setting, Since, Table, Unit, Validity};
pub use value::{Value, parse_duration_ms};
pub use values::{Given, Source, Values};
pub use variables::{UnknownVariable, unknown_variables};

/// Why a setting was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SettingsError {
    /// No such setting.
    #[error("unknown {place} {name:?}{}", suggestion.as_ref().map(|s| format!("; did you mean {s}?")).unwrap_or_default())]
    Unknown {
        /// Where it stood: "flag" or "key in FILE".
        place: String,
        /// As written.
        name: String,
        /// The nearest known name, in the form to type.
        suggestion: Option<String>,
    },
    /// The text does not fit the setting's type or range.
    #[error("illegal value {text:?} for {name}: {why}")]
    Illegal {
        /// The setting.
        name: String,
        /// As written.
        text: String,
        /// What would be legal.
        why: String,
    },
    /// A flag that needs a value stood at the end.
    #[error("flag --{0} needs a value")]
    MissingValue(String),
    /// A setting of the peer whose feature this build has not.
    #[error("{name}={text} needs {feature}, which is not built yet; leave it at its default ({default})")]
    NotBuilt {
        /// The setting.
        name: &'static str,
        /// The value asked for.
        text: String,
        /// The feature it belongs to.
        feature: &'static str,
        /// The only value accepted.
        default: &'static str,
    },
    /// An argument that is not a flag.
    #[error("unexpected argument {0:?} (flags look like --name=value)")]
    Positional(String),
    /// A file of settings or flags could not be read.
    #[error("cannot read {path}: {why}")]
    File {
        /// Its path.
        path: String,
        /// The system's or the parser's words.
        why: String,
    },
    /// `--fromenv` names a variable that is not set.
    #[error("--fromenv={0}: the environment variable FLAGS_{0} is not set")]
    NoEnvironment(String),
    /// Two settings contradict each other.
    #[error("{0}")]
    Conflict(String),
}
