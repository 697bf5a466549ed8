//! An authority of a pool's own, and certificates of it: enough for a pool without another one.
//!
//! They do not expire. Whoever has an authority takes its certificates instead.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};

use crate::settings::POOL_NAME;

/// Certificates could not be written.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file.
    #[error("{path}: {error}")]
    File {
        /// Which.
        path: String,
        /// The system's answer.
        error: std::io::Error,
    },
    /// A name that no certificate can carry, or a key that is none.
    #[error("no certificate can be made: {0}")]
    Made(#[from] rcgen::Error),
}

/// Writes into `folder`: `ca.pem` and `ca.key` if there is no `ca.key`, then `cert.pem` and `key.pem`, a certificate for
/// [`POOL_NAME`] and for `names` (host names, IP addresses). Keys are readable for their owner only.
///
/// # Errors
/// [`CertificateError`].
pub fn write_certificates(folder: &Path, names: &[String]) -> Result<(), CertificateError> {
    write_certificates_for(folder, names, None)
}

/// How long a certificate is valid.
#[derive(Clone, Copy, Debug)]
pub struct Lifetime {
    /// From this time on, since 1970; an hour before it, because clocks differ.
    pub from: Duration,
    /// So many days.
    pub days: u32,
}

/// As [`write_certificates`], the certificate for a lifetime; `None`: for as long as a certificate can say. The authority that is
/// made is for as long as it can say.
///
/// # Errors
/// [`CertificateError`].
pub fn write_certificates_for(
    folder: &Path,
    names: &[String],
    lifetime: Option<Lifetime>,
) -> Result<(), CertificateError> {
    let (ca_key_path, ca_path) = (folder.join("ca.key"), folder.join("ca.pem"));
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.distinguished_name.push(DnType::CommonName, "authority of a Yuebing pool");
    let ca_key = match std::fs::read_to_string(&ca_key_path) {
        Ok(text) => KeyPair::from_pem(&text)?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let key = KeyPair::generate()?;
            write(&ca_key_path, &key.serialize_pem(), 0o600)?;
            write(&ca_path, &params.self_signed(&key)?.pem(), 0o644)?;
            key
        }
        Err(error) => return Err(failed(&ca_key_path, error)),
    };
    let all = std::iter::once(POOL_NAME.to_owned()).chain(names.iter().cloned());
    let mut own = CertificateParams::new(all.collect::<Vec<_>>())?;
    own.distinguished_name.push(DnType::CommonName, POOL_NAME);
    if let Some(Lifetime { from, days }) = lifetime {
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        own.not_before = epoch + from.saturating_sub(Duration::from_secs(3600));
        own.not_after = epoch + from + Duration::from_secs(u64::from(days) * 86_400);
    }
    let key = KeyPair::generate()?;
    let certificate = own.signed_by(&key, &Issuer::new(params, ca_key))?;
    write(&folder.join("key.pem"), &key.serialize_pem(), 0o600)?;
    write(&folder.join("cert.pem"), &certificate.pem(), 0o644)
}

/// Writes `secret` into `folder`: 32 random bytes as 64 hexadecimal digits, readable for its owner only.
///
/// # Errors
/// [`CertificateError::File`].
pub fn write_secret(folder: &Path) -> Result<(), CertificateError> {
    use ring::rand::{SecureRandom, SystemRandom};
    let path = folder.join("secret");
    let mut bytes = [0_u8; 32];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| failed(&path, std::io::Error::other("the system has no randomness")))?;
    let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    write(&path, &format!("{text}\n"), 0o600)
}

fn write(path: &Path, text: &str, mode: u32) -> Result<(), CertificateError> {
    // A new file beside it that takes its place: whoever reads it sees the old one or the new one.
    let beside = path.with_extension("new");
    let written = std::fs::OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&beside);
    written
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| std::fs::rename(&beside, path))
        .map_err(|error| failed(path, error))
}

fn failed(path: &Path, error: std::io::Error) -> CertificateError {
    CertificateError::File { path: path.display().to_string(), error }
}
