//! What is said of files at the start although it stops nothing: a secret that others can read, a certificate whose time
//! is over or has not come.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};

/// The mode of a file that others than its owner may read or write; `None`: nobody else may, or it cannot be looked at.
pub fn open_to_others(path: &Path) -> Option<u32> {
    let mode = std::fs::metadata(path).ok()?.permissions().mode() & 0o777;
    (mode & 0o077 != 0).then_some(mode)
}

/// Says in the log that a file whose content is to stay secret is open to others. `setting` names it.
pub fn warn_if_open(setting: &'static str, path: &Path) {
    if let Some(mode) = open_to_others(path) {
        let (path, mode) = (path.display(), format!("{mode:o}"));
        tracing::warn!(event = "secret_readable", setting, %path, mode, "others of this host may read it: chmod 600");
    }
}

/// Says in the log that the own certificate is not valid now: connections with it fail, and others learn it late.
pub(crate) fn warn_if_out_of_time(path: &str, chain: &[CertificateDer<'static>], since_1970: Duration) {
    if let Some(why) = out_of_time(chain, since_1970) {
        tracing::warn!(event = "certificate_not_valid", path, why, "connections by TLS with this certificate fail");
    }
}

fn out_of_time(chain: &[CertificateDer<'static>], since_1970: Duration) -> Option<String> {
    let (own, between) = chain.split_first()?;
    let own = ParsedCertificate::try_from(own).ok()?;
    // The time is looked at before the authority, so it needs none; other findings are for those who connect.
    let nobody = RootCertStore::empty();
    let now = UnixTime::since_unix_epoch(since_1970);
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms.all;
    let found = verify_server_cert_signed_by_trust_anchor(&own, &nobody, between, now, algorithms).err()?;
    use CertificateError::{Expired, ExpiredContext, NotValidYet, NotValidYetContext};
    let Error::InvalidCertificate(error @ (Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })) =
        found
    else {
        return None;
    };
    Some(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_can_read_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        assert_eq!(open_to_others(&path), None, "whoever reads it says that it is not there");
        std::fs::write(&path, "x").unwrap();
        for (mode, told) in [(0o600, None), (0o400, None), (0o640, Some(0o640)), (0o604, Some(0o604))] {
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(open_to_others(&path), told);
        }
    }

    #[cfg(feature = "certificates")]
    #[test]
    fn a_certificate_before_and_after_its_time_is_told() {
        use rustls::pki_types::pem::PemObject;
        let folder = tempfile::tempdir().unwrap();
        let day = |n: u64| Duration::from_secs(n * 86_400);
        let lifetime = crate::Lifetime { from: day(20_000), days: 10 };
        crate::write_certificates_for(folder.path(), &[], Some(lifetime)).unwrap();
        let chain = [CertificateDer::from_pem_file(folder.path().join("cert.pem")).unwrap()];
        assert_eq!(out_of_time(&chain, day(20_005)), None);
        let (before, after) = (out_of_time(&chain, day(19_999)).unwrap(), out_of_time(&chain, day(20_011)).unwrap());
        assert!(before.contains("not valid yet") && after.contains("expired"), "{before}; {after}");
    }
}
