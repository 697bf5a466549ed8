//! Whether this process could secure its connections, and whether others of the host can read what that takes.

use std::path::Path;
use std::time::Duration;

use yb_secure::{Security, SecuritySettings, Standing, Validity, open_to_others};

use super::report::Check;

const ID: &str = "security";

/// From the environment, as every command has it.
pub fn check() -> Vec<Check> {
    let lookup = |name: &str| std::env::var(name).ok();
    let settings = match SecuritySettings::from_env(lookup) {
        Ok(settings) => settings,
        Err(error) => return vec![Check::fail(ID, error.to_string(), "set the variable right, or unset it")],
    };
    let mut checks = Vec::new();
    let secret = settings.secret_file.iter().map(|path| ("the secret file", path));
    let key = settings.tls_key.iter().map(|path| ("the private key", path));
    for (what, path) in secret.chain(key) {
        checks.extend(readable_by_others(what, path));
    }
    if let Some(path) = &settings.tls_cert {
        let now = Duration::from_millis(yb_env::epoch_millis());
        checks.extend(Validity::read(path).and_then(|validity| out_of_time(path, validity, now)));
    }
    // Reads and checks every file that the variables name.
    checks.push(match Security::from_env() {
        Err(error) => Check::fail(ID, error.to_string(), "yuebing certs FOLDER writes files that fit each other"),
        Ok(_) => Check::ok(ID, told(&settings)),
    });
    checks
}

fn told(settings: &SecuritySettings) -> String {
    let secret = settings.secret.is_some() || settings.secret_file.is_some();
    let tls = match (settings.tls_ca.is_some(), settings.tls_cert.is_some()) {
        (true, true) => "TLS both ways",
        (true, false) => "TLS to others",
        (false, true) => "TLS from others",
        (false, false) => "no TLS",
    };
    match (secret, tls) {
        (false, "no TLS") => {
            "no secret and no TLS in the environment: whoever reaches a port reads and writes (yuebing certs)"
                .to_owned()
        }
        (true, tls) => format!("a shared secret, {tls}"),
        (false, tls) => format!("no shared secret, {tls}"),
    }
}

/// A file that only its owner should be able to read.
fn readable_by_others(what: &str, path: &Path) -> Option<Check> {
    // One that is not there is told by whoever reads it.
    open_to_others(path).map(|mode| {
        let text = format!("{what} {} has mode {mode:o}: others of this host may read it", path.display());
        Check::warn(ID, text, format!("chmod 600 {}", path.display()))
    })
}

/// A certificate that is not valid now, or not for long. One that cannot be read is told by whoever uses it.
fn out_of_time(path: &Path, validity: Validity, now: Duration) -> Option<Check> {
    let standing = validity.standing(now);
    let text = format!("the certificate {}: {standing}", path.display());
    let hint =
        "a new one of the same authority (yuebing certs FOLDER --days N); running processes take it by themselves";
    match standing {
        Standing::Good => None,
        Standing::Soon(_) | Standing::VerySoon(_) => Some(Check::warn(ID, text, hint)),
        Standing::Over(_) => Some(Check::fail(ID, text, hint)),
        Standing::NotYet(_) => {
            Some(Check::fail(ID, text, "is the clock of this machine right? Else wait, or a new one"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::report::Level;
    use super::*;

    #[test]
    fn the_time_of_a_certificate_is_told() {
        let day = |n: u64| Duration::from_secs(n * 86_400);
        let validity = Validity { from: day(1000), until: day(2000) };
        let at = |now| {
            let found = out_of_time(Path::new("cert.pem"), validity, now);
            found.map(|check| (check.level, check.text))
        };
        let told = |level, text: &str| Some((level, format!("the certificate cert.pem: {text}")));
        assert_eq!(at(day(1500)), None);
        assert_eq!(at(day(1990)), told(Level::Warn, "it ends in 10 days"));
        assert_eq!(at(day(2003)), told(Level::Fail, "it expired 3 days ago"));
        assert_eq!(at(day(995)), told(Level::Fail, "it is not valid yet, but in 5 days"));
    }

    #[test]
    fn a_secret_that_others_can_read_is_told() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let set = |mode| std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        set(0o600);
        assert!(readable_by_others("the secret file", file.path()).is_none());
        set(0o644);
        let found = readable_by_others("the secret file", file.path()).unwrap();
        assert!(found.level == Level::Warn && found.text.contains("mode 644"), "{found:?}");
        assert!(readable_by_others("the secret file", Path::new("/no/such/file")).is_none());
        assert!(told(&SecuritySettings::default()).contains("no secret and no TLS"));
    }
}
