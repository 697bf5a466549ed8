//! What is asked for: files, variables, lists of addresses.

use std::path::PathBuf;

use yb_settings::Values;

use crate::networks::{BadNetworks, Networks};
use crate::secret::Secret;

/// The name that certificates of a pool carry unless another is set.
pub const POOL_NAME: &str = "yuebing";

/// How connections are secured, as set. The default asks for nothing: the plain wire for everybody.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecuritySettings {
    /// The shared secret by itself; a file is better.
    pub secret: Option<Secret>,
    /// File with the shared secret, one a line: the first is used, all are accepted. Read again when it changes.
    pub secret_file: Option<PathBuf>,
    /// PEM file of the authorities that certificates must come from. With it, connections that this process makes
    /// are TLS.
    pub tls_ca: Option<PathBuf>,
    /// PEM file of the own certificate and what leads from it to the authority. With it, connections that this process
    /// takes are TLS.
    pub tls_cert: Option<PathBuf>,
    /// PEM file of its key.
    pub tls_key: Option<PathBuf>,
    /// Whether clients must show a certificate too.
    pub tls_mutual: bool,
    /// The name that a server's certificate must carry; `None` = [`POOL_NAME`], `address` = the address that was dialled.
    pub tls_name: Option<String>,
    /// From where the compatible plain wire is taken; `None` = from everywhere, or from nowhere where there is a secret
    /// or TLS.
    pub plain_from: Option<Networks>,
    /// To where connections are plain although there is a secret or TLS; `None` = nowhere.
    pub plain_to: Option<Networks>,
}

/// Security that cannot be had as asked for. Nothing falls back to the plain wire.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecurityError {
    /// The shared secret cannot be used.
    #[error("the shared secret of {whence}: {why}")]
    Secret {
        /// File or variable.
        whence: String,
        /// What is wrong; never the secret.
        why: String,
    },
    /// A certificate, key or authority cannot be used.
    #[error("{what} {path}: {why}")]
    Tls {
        /// Which setting.
        what: &'static str,
        /// Its file.
        path: String,
        /// What is wrong.
        why: String,
    },
    /// Somebody meant to secure the process, and what was to say by what came out empty.
    #[error("{0} is set, but empty: give it a value, or do not set it; nothing falls back to the plain wire")]
    Empty(&'static str),
    /// Settings that only make sense together.
    #[error("{0}")]
    Conflict(&'static str),
    /// A list of addresses that is none.
    #[error("{name}: {error}")]
    Networks {
        /// Which setting.
        name: &'static str,
        /// What is wrong.
        error: BadNetworks,
    },
    /// No thread, no descriptor.
    #[error("secured connections cannot be served: {0}")]
    System(String),
}

/// The variable with the secret itself.
const SECRET: &str = "YUEBING_SECRET";
/// Names of the settings: as a flag or in a file, and as a variable.
pub(crate) const PLAIN_FROM: (&str, &str) = ("plain_from", "YUEBING_PLAIN_FROM");
pub(crate) const PLAIN_TO: (&str, &str) = ("plain_to", "YUEBING_PLAIN_TO");

/// Variables that are refused when they are set and empty.
const NEVER_EMPTY: [&str; 11] = [
    SECRET,
    "YUEBING_SECRET_FILE",
    "YUEBING_TLS_CA",
    "YUEBING_TLS_CERT",
    "YUEBING_TLS_KEY",
    "YUEBING_TLS_MUTUAL",
    "YUEBING_TLS_NAME",
    "YUEBING_ADMIN_TOKEN",
    "YUEBING_ADMIN_TOKEN_FILE",
    PLAIN_FROM.1,
    PLAIN_TO.1,
];

fn refuse_empty(lookup: impl Fn(&str) -> Option<String>) -> Result<(), SecurityError> {
    let is_empty = |name: &&str| lookup(name).is_some_and(|text| text.trim().is_empty());
    NEVER_EMPTY.into_iter().find(is_empty).map_or(Ok(()), |name| Err(SecurityError::Empty(name)))
}

impl SecuritySettings {
    /// From variables; none of them may be set and empty. See `docs/security.md`.
    ///
    /// # Errors
    /// A value that makes no sense.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, SecurityError> {
        refuse_empty(&lookup)?;
        let get = |name: &str| lookup(name).map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        let secret = get(SECRET).map(|text| Secret::parse(&text, SECRET)).transpose()?;
        let mutual = get("YUEBING_TLS_MUTUAL").map(|text| text.to_ascii_lowercase());
        let tls_mutual = match mutual.as_deref() {
            None | Some("0" | "false" | "no" | "off") => false,
            Some("1" | "true" | "yes" | "on") => true,
            Some(_) => return Err(SecurityError::Conflict("YUEBING_TLS_MUTUAL is neither true nor false")),
        };
        Ok(SecuritySettings {
            secret,
            secret_file: get("YUEBING_SECRET_FILE").map(PathBuf::from),
            tls_ca: get("YUEBING_TLS_CA").map(PathBuf::from),
            tls_cert: get("YUEBING_TLS_CERT").map(PathBuf::from),
            tls_key: get("YUEBING_TLS_KEY").map(PathBuf::from),
            tls_mutual,
            tls_name: get("YUEBING_TLS_NAME"),
            plain_from: networks(PLAIN_FROM.1, get(PLAIN_FROM.1).as_deref())?,
            plain_to: networks(PLAIN_TO.1, get(PLAIN_TO.1).as_deref())?,
        })
    }

    /// From settings of a process whose table has [`yb_settings::SECURITY`], and the secret itself from its variable.
    ///
    /// # Errors
    /// A value that makes no sense.
    pub fn from_values(values: &Values, lookup: impl Fn(&str) -> Option<String>) -> Result<Self, SecurityError> {
        refuse_empty(&lookup)?;
        let text = |name: &str| Some(values.text(name).trim()).filter(|text| !text.is_empty());
        let path = |name: &str| text(name).map(PathBuf::from);
        let secret = lookup(SECRET);
        Ok(SecuritySettings {
            secret: secret.map(|secret| Secret::parse(&secret, SECRET)).transpose()?,
            secret_file: path("secret_file"),
            tls_ca: path("tls_ca"),
            tls_cert: path("tls_cert"),
            tls_key: path("tls_key"),
            tls_mutual: values.flag("tls_mutual"),
            tls_name: text("tls_name").map(str::to_owned),
            plain_from: networks(PLAIN_FROM.0, text(PLAIN_FROM.0))?,
            plain_to: networks(PLAIN_TO.0, text(PLAIN_TO.0))?,
        })
    }

    /// Whether there is a secret or TLS.
    pub fn secures(&self) -> bool {
        self.secret.is_some() || self.secret_file.is_some() || self.tls_ca.is_some() || self.tls_cert.is_some()
    }

    /// Whether nothing is asked for.
    pub fn is_plain(&self) -> bool {
        !self.secures() && matches!(self.plain_from, None | Some(Networks::Any))
    }

    /// Settings that contradict each other.
    pub(crate) fn check(&self) -> Result<(), SecurityError> {
        let refuse = |text| Err(SecurityError::Conflict(text));
        if self.secret.is_some() && self.secret_file.is_some() {
            return refuse("YUEBING_SECRET and secret_file (YUEBING_SECRET_FILE) are both set");
        }
        if self.tls_cert.is_some() != self.tls_key.is_some() {
            return refuse("tls_cert and tls_key go together");
        }
        if self.tls_mutual && self.tls_ca.is_none() {
            return refuse("tls_mutual needs tls_ca, the authority of the clients' certificates");
        }
        if self.tls_mutual && self.tls_cert.is_none() {
            return refuse("tls_mutual needs tls_cert and tls_key");
        }
        if self.plain_to.is_some() && !self.secures() {
            return refuse("plain_to needs a secret or TLS: without them all connections that are made are plain");
        }
        Ok(())
    }
}

fn networks(name: &'static str, text: Option<&str>) -> Result<Option<Networks>, SecurityError> {
    text.map(|text| text.parse().map_err(|error| SecurityError::Networks { name, error })).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<SecuritySettings, SecurityError> {
        let found = |name: &str| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        SecuritySettings::from_env(found).and_then(|settings| settings.check().map(|()| settings))
    }

    #[test]
    fn nothing_set_is_the_plain_wire() {
        assert!(read(&[]).unwrap().is_plain());
        assert!(read(&[("YUEBING_PLAIN_FROM", "any"), ("YUEBING_TLS_MUTUAL", "0")]).unwrap().is_plain());
        assert!(!read(&[("YUEBING_PLAIN_FROM", "10.0.0.0/8")]).unwrap().is_plain());
        let secured = read(&[("YUEBING_SECRET", "sixteen bytes it is"), ("YUEBING_PLAIN_TO", "10.0.0.0/8")]).unwrap();
        assert!(secured.secures() && !format!("{secured:?}").contains("sixteen"));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for wrong in [
            &[("YUEBING_SECRET", "short")][..],
            &[("YUEBING_SECRET", "")],
            &[("YUEBING_SECRET_FILE", " ")],
            &[("YUEBING_TLS_CA", "")],
            &[("YUEBING_PLAIN_FROM", "")],
            &[("YUEBING_SECRET", "sixteen bytes it is"), ("YUEBING_SECRET_FILE", "/x")],
            &[("YUEBING_TLS_CERT", "/x")],
            &[("YUEBING_TLS_KEY", "/x")],
            &[("YUEBING_TLS_MUTUAL", "perhaps")],
            &[("YUEBING_TLS_MUTUAL", "1"), ("YUEBING_TLS_CERT", "/x"), ("YUEBING_TLS_KEY", "/x")],
            &[("YUEBING_PLAIN_FROM", "10.0.0.0/64")],
            &[("YUEBING_PLAIN_TO", "10.0.0.0/8")],
        ] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }
}
