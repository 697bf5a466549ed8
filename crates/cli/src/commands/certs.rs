//! `yuebing certs`: a secret, an authority and a certificate for a pool that has none.

use yb_secure::{POOL_NAME, write_certificates, write_secret};

use crate::args::CertsArgs;
use crate::failure::{Failure, Outcome};
use crate::output;

/// Writes the files and says what to do with them.
pub fn run(args: &CertsArgs) -> Outcome {
    let folder = &args.folder;
    let failed = |error: &dyn std::fmt::Display| Failure::failed(error.to_string());
    std::fs::create_dir_all(folder).map_err(|error| failed(&format!("{}: {error}", folder.display())))?;
    if !folder.join("secret").exists() {
        write_secret(folder).map_err(|error| failed(&error))?;
    }
    write_certificates(folder, &args.names).map_err(|error| failed(&error))?;
    let path = |name: &str| folder.join(name).display().to_string();
    let lines = [
        format!("# Every process of the pool; the certificate is for the name {POOL_NAME}. Keep ca.key elsewhere."),
        format!("export YUEBING_SECRET_FILE={}", path("secret")),
        format!("export YUEBING_TLS_CA={}", path("ca.pem")),
        format!("export YUEBING_TLS_CERT={}", path("cert.pem")),
        format!("export YUEBING_TLS_KEY={}", path("key.pem")),
    ];
    lines.iter().try_for_each(output::line)
}
