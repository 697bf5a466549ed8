//! What can be set about the stores.

use std::fmt;
use std::time::Duration;

use crate::error::{StoreError, StoreErrorKind};

/// Time limits and credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct StoreSettings {
    /// How long a connection may take.
    pub connect_timeout: Duration,
    /// How long a whole operation may take.
    pub timeout: Duration,
    /// Longest record that is read, in bytes.
    pub max_value: u64,
    /// Sent to HTTP servers as a bearer token (`MC_METADATA_HTTP_TOKEN`).
    pub http_token: Option<String>,
    /// `MC_REDIS_USERNAME`.
    pub redis_user: Option<String>,
    /// `MC_REDIS_PASSWORD`.
    pub redis_password: Option<String>,
    /// `MC_REDIS_DB_INDEX`, 0 to 255.
    pub redis_database: u8,
}

/// Secrets are not shown.
impl fmt::Debug for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreSettings")
            .field("connect_timeout", &self.connect_timeout)
            .field("timeout", &self.timeout)
            .field("max_value", &self.max_value)
            .field("http_token", &self.http_token.is_some())
            .field("redis_user", &self.redis_user)
            .field("redis_password", &self.redis_password.is_some())
            .field("redis_database", &self.redis_database)
            .finish()
    }
}

impl Default for StoreSettings {
    fn default() -> Self {
        StoreSettings {
            connect_timeout: Duration::from_millis(1500),
            timeout: Duration::from_secs(3),
            max_value: 128 << 20,
            http_token: None,
            redis_user: None,
            redis_password: None,
            redis_database: 0,
        }
    }
}

impl StoreSettings {
    /// The defaults, changed by the peer's environment variables.
    ///
    /// # Errors
    /// [`StoreErrorKind::BadAddress`] for a database number that is none: another database must not be used instead.
    pub fn from_env(lookup: impl Fn(&str) -> Option<String>) -> Result<Self, StoreError> {
        let text = |name: &str| lookup(name).filter(|value| !value.is_empty());
        let redis_database = match text("MC_REDIS_DB_INDEX") {
            None => 0,
            Some(number) => number.parse().map_err(|_| {
                StoreError::new(
                    StoreErrorKind::BadAddress,
                    "redis",
                    format!("MC_REDIS_DB_INDEX={number} is not 0 to 255"),
                )
            })?,
        };
        Ok(StoreSettings {
            http_token: text("MC_METADATA_HTTP_TOKEN"),
            redis_user: text("MC_REDIS_USERNAME"),
            redis_password: text("MC_REDIS_PASSWORD"),
            redis_database,
            ..StoreSettings::default()
        })
    }
}
