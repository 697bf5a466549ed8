//! Settings of secured processes, for the tests of every crate whose connections can be.

use std::path::Path;

use yb_secure::{Secret, SecuritySettings};

pub const SECRET: &str = "a secret that nobody sees";

/// With that secret, and with mutual TLS by the certificates of a folder.
pub fn settings(secret: Option<&str>, tls: Option<&Path>) -> SecuritySettings {
    let file = |name: &str| tls.map(|folder| folder.join(name));
    SecuritySettings {
        secret: secret.map(|secret| Secret::parse(secret, "the test").unwrap()),
        tls_ca: file("ca.pem"),
        tls_cert: file("cert.pem"),
        tls_key: file("key.pem"),
        tls_mutual: tls.is_some(),
        ..SecuritySettings::default()
    }
}
