//! The row of the table.

use crate::value::Value;
use crate::{SettingsError, nearest};

/// Type of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Yes or no.
    Bool,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 32 bits.
    U32,
    /// Unsigned, 64 bits.
    U64,
    /// Double.
    F64,
    /// Any text.
    Text,
    /// A time: whole milliseconds, or a number with `ms`, `s`, `m` or `h`.
    Duration,
    /// A size: bytes, or a number with `KiB`, `MiB`, `GiB`, `TiB` (or `KB`, `MB`, `GB`, `TB`, also binary).
    Bytes,
    /// Texts separated by commas; a repeated flag adds to the list.
    List,
}

impl Kind {
    /// The word gflags uses for it.
    pub const fn gflags_name(self) -> &'static str {
        match self {
            Kind::Bool => "bool",
            Kind::I32 => "int32",
            Kind::I64 => "int64",
            Kind::U32 => "uint32",
            Kind::U64 => "uint64",
            Kind::F64 => "double",
            Kind::Text | Kind::Duration | Kind::Bytes | Kind::List => "string",
        }
    }
}

/// What a number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A plain number or text.
    None,
    /// Bytes.
    Bytes,
    /// Seconds.
    Seconds,
    /// Milliseconds.
    Millis,
    /// A share, 0 to 1.
    Ratio,
    /// A TCP port.
    Port,
    /// A host or `host:port`.
    Address,
    /// A file or directory.
    Path,
}

impl Unit {
    /// What a plain number of it means, in words; empty for plain values.
    pub const fn words(self) -> &'static str {
        match self {
            Unit::Seconds => "seconds, without a unit",
            Unit::Millis => "milliseconds, without a unit",
            other => other.name(),
        }
    }

    /// Its name in help and docs; empty for plain values.
    pub const fn name(self) -> &'static str {
        match self {
            Unit::None => "",
            Unit::Bytes => "bytes",
            Unit::Seconds => "s",
            Unit::Millis => "ms",
            Unit::Ratio => "ratio",
            Unit::Port => "port",
            Unit::Address => "address",
            Unit::Path => "path",
        }
    }
}

/// Which values are legal beyond the type.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Validity {
    /// All of the type.
    Any,
    /// Whole numbers between two bounds, both legal.
    Range(i128, i128),
    /// Doubles between two bounds, both legal.
    Ratio(f64, f64),
    /// One of these texts.
    OneOf(&'static [&'static str]),
}

/// Since which release of the peer a setting exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// Peer 0.3.13 or before.
    V0_3_13,
    /// Peer 0.3.14.
    V0_3_14,
    /// The peer does not have it.
    Ours,
}

/// What this build does with a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Works as documented.
    Honoured,
    /// The peer's, its feature is not built: refused when set off its default.
    NotBuilt(&'static str),
    /// The peer's, meaningless here whatever it says; accepted. The text says why.
    NoEffect(&'static str),
}

/// One setting: everything the parser, the file reader, help and docs need.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name of flag and file key, with underscores.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// Default, in the form a user would type.
    pub default: &'static str,
    /// What a number means.
    pub unit: Unit,
    /// Legal values.
    pub validity: Validity,
    /// Who has it.
    pub since: Since,
    /// What this build does with it.
    pub class: Class,
    /// One or two sentences for people.
    pub doc: &'static str,
    /// Other names: accepted as flag and as file key.
    pub aliases: &'static [&'static str],
    /// Environment variable that replaces the default.
    pub env: Option<&'static str>,
    /// Whether it can change while the process runs.
    pub live: bool,
    /// Whether its value must not be shown.
    pub secret: bool,
}

impl Setting {
    const fn new(name: &'static str, kind: Kind, default: &'static str, doc: &'static str, since: Since) -> Self {
        Setting {
            name,
            kind,
            default,
            unit: Unit::None,
            validity: Validity::Any,
            since,
            class: Class::Honoured,
            doc,
            aliases: &[],
            env: None,
            live: false,
            secret: false,
        }
    }

    /// A setting of the peer (0.3.13), honoured.
    pub const fn peer(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Self {
        Self::new(name, kind, default, doc, Since::V0_3_13)
    }

    /// A setting that the peer has since 0.3.14, honoured.
    pub const fn peer14(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Self {
        Self::new(name, kind, default, doc, Since::V0_3_14)
    }

    /// A setting of our own.
    pub const fn ours(name: &'static str, kind: Kind, default: &'static str, doc: &'static str) -> Self {
        Self::new(name, kind, default, doc, Since::Ours)
    }

    /// Its feature is not built.
    pub const fn not_built(mut self, feature: &'static str) -> Self {
        self.class = Class::NotBuilt(feature);
        self
    }

    /// Accepted, without effect, for this reason.
    pub const fn no_effect(mut self, why: &'static str) -> Self {
        self.class = Class::NoEffect(why);
        self
    }

    /// Gives the unit.
    pub const fn unit(mut self, unit: Unit) -> Self {
        self.unit = unit;
        self
    }

    /// Whole numbers between the bounds.
    pub const fn range(mut self, low: i128, high: i128) -> Self {
        self.validity = Validity::Range(low, high);
        self
    }

    /// A TCP port; 0 is legal.
    pub const fn port(mut self) -> Self {
        self.unit = Unit::Port;
        self.validity = Validity::Range(0, 65535);
        self
    }

    /// A share from 0 to 1.
    pub const fn ratio(mut self) -> Self {
        self.unit = Unit::Ratio;
        self.validity = Validity::Ratio(0.0, 1.0);
        self
    }

    /// One of these texts.
    pub const fn one_of(mut self, legal: &'static [&'static str]) -> Self {
        self.validity = Validity::OneOf(legal);
        self
    }

    /// Other names.
    pub const fn alias(mut self, aliases: &'static [&'static str]) -> Self {
        self.aliases = aliases;
        self
    }

    /// Environment variable that replaces the default.
    pub const fn env(mut self, variable: &'static str) -> Self {
        self.env = Some(variable);
        self
    }

    /// It can change while the process runs.
    pub const fn live(mut self) -> Self {
        self.live = true;
        self
    }

    /// Its value is shown nowhere.
    pub const fn secret(mut self) -> Self {
        self.secret = true;
        self
    }

    /// The text as a legal value of this setting.
    ///
    /// # Errors
    /// [`SettingsError::Illegal`], naming what would be legal.
    pub fn parse(&self, text: &str) -> Result<Value, SettingsError> {
        Value::parse(self, text).map_err(|why| SettingsError::Illegal {
            name: self.name.to_owned(),
            text: text.to_owned(),
            why,
        })
    }
}

/// Every setting of one program.
#[derive(Debug)]
pub struct Table {
    /// The program's name in help.
    pub program: &'static str,
    /// Headings and their settings, in the order of help and docs.
    pub groups: &'static [(&'static str, &'static [Setting])],
}

impl Table {
    /// Every row, in order.
    pub fn settings(&self) -> impl Iterator<Item = &'static Setting> + '_ {
        self.groups.iter().flat_map(|(_, settings)| settings.iter())
    }

    /// The row with this name or alias; `-` counts as `_`.
    pub fn find(&self, name: &str) -> Option<&'static Setting> {
        let name = name.replace('-', "_");
        self.settings().find(|s| s.name == name || s.aliases.contains(&name.as_str()))
    }

    pub(crate) fn unknown(&self, place: &str, name: &str, prefix: &str) -> SettingsError {
        let names = self.settings().flat_map(|s| std::iter::once(s.name).chain(s.aliases.iter().copied()));
        SettingsError::Unknown {
            place: place.to_owned(),
            name: name.to_owned(),
            suggestion: nearest(&name.trim_start_matches('-').replace('-', "_"), names).map(|n| format!("{prefix}{n}")),
        }
    }
}
