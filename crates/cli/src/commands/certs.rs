//! `yuebing certs`: a secret, an authority and a certificate for a pool that has none.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use yb_secure::{Lifetime, POOL_NAME, write_certificates_for, write_secret};

use crate::args::CertsArgs;
use crate::failure::{Failure, Outcome};
use crate::output;

/// The names of the last call, one a line, so that a renewal does not lose them.
const NAMES: &str = "names";

/// Writes the files and says what to do with them.
pub fn run(args: &CertsArgs) -> Outcome {
    let failed = |error: &dyn std::fmt::Display| Failure::failed(error.to_string());
    if let Some(bad) = args.names.iter().find(|name| !is_name(name)) {
        return Err(Failure::usage(format!("{bad:?} is neither a host name nor an IP address")));
    }
    let folder = &args.folder;
    std::fs::create_dir_all(folder).map_err(|error| Failure::file(folder, &error))?;
    // Whoever uses the lines below may stand in another folder.
    let folder = &folder.canonicalize().map_err(|error| Failure::file(folder, &error))?;
    if !folder.join("secret").exists() {
        write_secret(folder).map_err(|error| failed(&error))?;
    }
    let names = names(folder, &args.names)?;
    let from = Duration::from_millis(yb_env::epoch_millis());
    let lifetime = args.days.map(|days| Lifetime { from, days });
    write_certificates_for(folder, &names, lifetime).map_err(|error| failed(&error))?;
    let path = |name: &str| folder.join(name).display().to_string();
    let for_days = args.days.map_or_else(|| "for ever".to_owned(), |days| format!("for {days} days"));
    let lines = [
        format!("# Every process of the pool; the certificate is for {} and valid {for_days}.", told(&names)),
        format!("export YUEBING_SECRET_FILE={}", path("secret")),
        format!("export YUEBING_TLS_CA={}", path("ca.pem")),
        format!("export YUEBING_TLS_CERT={}", path("cert.pem")),
        format!("export YUEBING_TLS_KEY={}", path("key.pem")),
        "export YUEBING_TLS_MUTUAL=true      # callers show a certificate too; false: the secret alone".to_owned(),
        format!(
            "# Another host gets secret, ca.pem, cert.pem and key.pem ({POOL_NAME} stands in for every host), or a"
        ),
        "# certificate of its own: yuebing certs FOLDER NAME with copies of secret, ca.pem and ca.key in FOLDER."
            .to_owned(),
        "# ca.key makes certificates: keep it where no process of the pool runs.".to_owned(),
    ];
    lines.iter().try_for_each(output::line)
}

fn told(names: &[String]) -> String {
    let all: Vec<&str> = std::iter::once(POOL_NAME).chain(names.iter().map(String::as_str)).collect();
    format!("the name{} {}", if all.len() == 1 { "" } else { "s" }, all.join(", "))
}

/// The names that are given, else those of the last call.
fn names(folder: &Path, given: &[String]) -> Outcome<Vec<String>> {
    let path = folder.join(NAMES);
    if given.is_empty() {
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        return Ok(kept.lines().filter(|name| is_name(name)).map(str::to_owned).collect());
    }
    std::fs::write(&path, given.join("\n") + "\n").map_err(|error| Failure::file(&path, &error))?;
    Ok(given.to_vec())
}

/// Whether a certificate can be for it: an IP address, or labels of letters, digits and hyphens.
fn is_name(name: &str) -> bool {
    let is_label = |label: &str| {
        let legal = label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_');
        legal && (1..=63).contains(&label.len()) && !label.starts_with('-') && !label.ends_with('-')
    };
    name.parse::<IpAddr>().is_ok()
        || (name.len() <= 253 && name.strip_prefix("*.").unwrap_or(name).split('.').all(is_label))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_kept() {
        for good in ["node-7.example", "10.0.0.5", "fd00::1", "localhost", "*.pool.example"] {
            assert!(is_name(good), "{good}");
        }
        for bad in ["", "bad name", "a..b", "-x", "x\ny"] {
            assert!(!is_name(bad), "{bad:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        let given = ["node-7.example".to_owned(), "10.0.0.5".to_owned()];
        assert_eq!(names(folder.path(), &[]).unwrap(), Vec::<String>::new());
        assert_eq!(names(folder.path(), &given).unwrap(), given);
        assert_eq!(names(folder.path(), &[]).unwrap(), given);
    }
}
