//! Generations of the wire.
//!
//! The peer has no version negotiation: every change of a field is another wire. These are the generations in order;
//! a port speaks one of them (0.3.13 and 0.3.14 together on the main port).

use std::fmt;
use std::str::FromStr;

use yb_pack::Version;

macro_rules! generations {
    ($($(#[$doc:meta])* $name:ident = $ordinal:literal, $text:literal $(, also $alias:literal)?;)*) => {
        /// A generation of the peer's wire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        #[allow(non_camel_case_types, reason = "the names follow the peer's version numbers")]
        pub enum WireVersion {
            $($(#[$doc])* $name = $ordinal,)*
        }

        impl WireVersion {
            /// Every generation, oldest first.
            pub const ALL: &'static [WireVersion] = &[$(WireVersion::$name),*];

            /// Its name, as in `--compat_listen=0.3.12:50061`.
            pub const fn name(self) -> &'static str {
                match self { $(WireVersion::$name => $text,)* }
            }
        }

        impl FromStr for WireVersion {
            type Err = UnknownWireVersion;
            fn from_str(s: &str) -> Result<Self, Self::Err> {
                match s {
                    $($text => Ok(WireVersion::$name),)*
                    $($($alias => Ok(WireVersion::$name),)?)*
                    _ => Err(UnknownWireVersion(s.to_owned())),
                }
            }
        }

        /// The same as [`yb_pack::Version`] constants, for `since` and `until` attributes.
        pub mod generation {
            use super::{Version, WireVersion};
            $($(#[$doc])* pub const $name: Version = WireVersion::$name.ordinal();)*
        }
    };
}

generations! {
    /// 0.3.9 (2026-02). Known from the peer's source only.
    V0_3_9 = 0, "0.3.9";
    /// 0.3.10 (2026-03). Known from the peer's source only.
    V0_3_10 = 1, "0.3.10";
    /// 0.3.10.post1 (2026-04). Known from the peer's source only.
    V0_3_10_POST1 = 2, "0.3.10.post1";
    /// 0.3.10.post2 (2026-04).
    V0_3_10_POST2 = 3, "0.3.10.post2";
    /// 0.3.11 and 0.3.11.post1 (2026-05).
    V0_3_11 = 4, "0.3.11", also "0.3.11.post1";
    /// 0.3.12 (2026-07).
    V0_3_12 = 5, "0.3.12";
    /// 0.3.12.post1 (2026-07).
    V0_3_12_POST1 = 6, "0.3.12.post1";
    /// 0.3.13 and 0.3.13.post1 (2026-08).
    V0_3_13 = 7, "0.3.13", also "0.3.13.post1";
    /// 0.3.14 (2026-11).
    V0_3_14 = 8, "0.3.14";
}

impl WireVersion {
    /// The newest generation.
    pub const LATEST: WireVersion = WireVersion::V0_3_14;

    /// Its place in the order of generations.
    pub const fn ordinal(self) -> Version {
        Version(self as u16)
    }
}

impl fmt::Display for WireVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A name of no generation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no wire generation is named {0:?}; legal are {legal}", legal = legal_names())]
pub struct UnknownWireVersion(pub String);

fn legal_names() -> String {
    WireVersion::ALL.iter().map(|v| v.name()).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_and_ordinals_count_up() {
        for (ordinal, version) in WireVersion::ALL.iter().enumerate() {
            assert_eq!(version.name().parse(), Ok(*version));
            assert_eq!(version.ordinal(), Version(ordinal as u16));
        }
        assert_eq!("0.3.13.post1".parse(), Ok(WireVersion::V0_3_13));
        assert!("0.3.8".parse::<WireVersion>().unwrap_err().to_string().contains("0.3.12.post1"));
    }
}
