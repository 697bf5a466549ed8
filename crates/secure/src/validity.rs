//! When a certificate is valid, how near its end is, and what the log says of that while a process runs.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, Error, RootCertStore};

const DAY: Duration = Duration::from_secs(86_400);
/// How long before the end it is told; of a short life, the last third.
const NOTICE: Duration = Duration::from_secs(14 * 86_400);
/// How long before the end it is told again; of a short life, the last tenth.
const LAST_NOTICE: Duration = DAY;

/// When a certificate is valid; both times since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// Not before this.
    pub from: Duration,
    /// Not after this.
    pub until: Duration,
}

/// Where a time lies in that of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// The certificate is not valid yet; so long until then.
    NotYet(Duration),
    /// It is, and will be for a while.
    Good,
    /// It ends soon: so much is left. 14 days before the end, or in the last third of a shorter life.
    Soon(Duration),
    /// It ends very soon. A day before the end, or in the last tenth of a shorter life.
    VerySoon(Duration),
    /// It ended so long ago.
    Over(Duration),
}

impl Validity {
    /// Of the chain in a PEM file, from which connections can be made: of all its certificates together. `None`: it cannot be
    /// read, and whoever uses it says why.
    pub fn read(path: &Path) -> Option<Self> {
        let chain: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path).ok()?.collect();
        Validity::of(&chain.ok()?)
    }

    /// Of all certificates of a chain together.
    pub(crate) fn of(chain: &[CertificateDer<'static>]) -> Option<Self> {
        let each = chain.iter().filter_map(of_one);
        each.reduce(|a, b| Validity { from: a.from.max(b.from), until: a.until.min(b.until) })
    }

    /// Where `now`, a time since 1970, lies in it.
    pub fn standing(&self, now: Duration) -> Standing {
        let Some(left) = self.until.checked_sub(now) else { return Standing::Over(now.saturating_sub(self.until)) };
        if now < self.from {
            return Standing::NotYet(self.from.saturating_sub(now));
        }
        let life = self.until.saturating_sub(self.from);
        if left <= LAST_NOTICE.min(life / 10) {
            Standing::VerySoon(left)
        } else if left <= NOTICE.min(life / 3) {
            Standing::Soon(left)
        } else {
            Standing::Good
        }
    }
}

/// Verifying it against no authority: its time is looked at before everything else, and the error tells both ends of it.
fn of_one(certificate: &CertificateDer<'static>) -> Option<Validity> {
    use CertificateError::{ExpiredContext, NotValidYetContext};
    let parsed = ParsedCertificate::try_from(certificate).ok()?;
    let algorithms = rustls::crypto::ring::default_provider().signature_verification_algorithms.all;
    let at = |now: Duration| {
        let now = UnixTime::since_unix_epoch(now);
        verify_server_cert_signed_by_trust_anchor(&parsed, &RootCertStore::empty(), &[], now, algorithms)
    };
    let seconds = |time: UnixTime| Duration::from_secs(time.as_secs());
    let Err(Error::InvalidCertificate(ExpiredContext { not_after, .. })) = at(Duration::MAX) else { return None };
    let from = match at(Duration::ZERO) {
        Err(Error::InvalidCertificate(NotValidYetContext { not_before, .. })) => seconds(not_before),
        _ => Duration::ZERO,
    };
    Some(Validity { from, until: seconds(not_after) })
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Standing::NotYet(left) => write!(f, "it is not valid yet, but in {}", span(*left)),
            Standing::Good => f.write_str("it is valid"),
            Standing::Soon(left) | Standing::VerySoon(left) => write!(f, "it ends in {}", span(*left)),
            Standing::Over(since) => write!(f, "it expired {} ago", span(*since)),
        }
    }
}

/// A time in the largest unit of which there are two.
fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    let units = [(86_400, "days"), (3600, "hours"), (60, "minutes")];
    let found = units.into_iter().find(|(unit, _)| seconds >= 2 * unit);
    found.map_or_else(|| format!("{seconds} seconds"), |(unit, name)| format!("{} {name}", seconds / unit))
}

/// What was said in the log of one certificate: each standing once.
#[derive(Debug, Default)]
pub(crate) struct Told(Option<std::mem::Discriminant<Standing>>);

impl Told {
    /// Says what is new.
    pub(crate) fn look(&mut self, path: &str, validity: Validity, now: Duration) {
        let standing = validity.standing(now);
        if self.0.replace(std::mem::discriminant(&standing)) == Some(std::mem::discriminant(&standing)) {
            return;
        }
        let why = standing.to_string();
        match standing {
            Standing::Good => {}
            Standing::Soon(_) | Standing::VerySoon(_) => tracing::warn!(
                event = "certificate_ends_soon",
                path,
                why,
                "connections by TLS with this certificate fail then; a new file is taken without a restart"
            ),
            Standing::NotYet(_) | Standing::Over(_) => tracing::warn!(
                event = "certificate_not_valid",
                path,
                why,
                "connections by TLS with this certificate fail; a new file is taken without a restart"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn day(n: u64) -> Duration {
        Duration::from_secs(n * 86_400)
    }

    #[test]
    fn the_end_is_told_in_time_and_of_a_short_life_too() {
        let long = Validity { from: day(1000), until: day(1365) };
        assert_eq!(long.standing(day(999)), Standing::NotYet(day(1)));
        assert_eq!(long.standing(day(1350)), Standing::Good);
        assert_eq!(long.standing(day(1351)), Standing::Soon(day(14)));
        assert_eq!(long.standing(day(1364)), Standing::VerySoon(day(1)));
        assert_eq!(long.standing(day(1365)), Standing::VerySoon(day(0)), "valid up to that second");
        assert_eq!(long.standing(day(1366)), Standing::Over(day(1)));
        let short = Validity { from: day(1000), until: day(1001) };
        assert_eq!(short.standing(day(1000) + day(1) / 2), Standing::Good);
        assert!(matches!(short.standing(day(1000) + day(3) / 4), Standing::Soon(_)));
        assert!(matches!(short.standing(day(1001) - day(1) / 20), Standing::VerySoon(_)));
        assert_eq!(long.standing(day(1367)).to_string(), "it expired 2 days ago");
        assert_eq!(long.standing(day(1364)).to_string(), "it ends in 24 hours");
    }

    #[cfg(feature = "certificates")]
    #[test]
    fn both_ends_are_read_from_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cert.pem");
        assert_eq!(Validity::read(&path), None);
        let lifetime = crate::Lifetime { from: day(20_000), days: 10 };
        crate::write_certificates_for(folder.path(), &[], Some(lifetime)).unwrap();
        let hour = Duration::from_secs(3600);
        let own = Validity { from: day(20_000) - hour, until: day(20_010) };
        assert_eq!(Validity::read(&path), Some(own));
        // A chain is valid as long as all of it is. The authority's is, for as long as one can say.
        let authority = std::fs::read_to_string(folder.path().join("ca.pem")).unwrap();
        let chain = std::fs::read_to_string(&path).unwrap() + &authority;
        std::fs::write(&path, chain).unwrap();
        assert_eq!(Validity::read(&path), Some(own));
        let authority = Validity::read(&folder.path().join("ca.pem")).unwrap();
        assert!(authority.standing(day(20_000)) == Standing::Good, "{authority:?}");
    }

    /// A log as text.
    #[derive(Clone, Default)]
    struct Lines(std::sync::Arc<parking_lot::Mutex<Vec<u8>>>);

    impl std::io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn each_step_to_the_end_is_said_once() {
        let lines = Lines::default();
        let of_log = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || of_log.clone()).finish();
        let validity = Validity { from: day(1000), until: day(1365) };
        tracing::subscriber::with_default(subscriber, || {
            let mut told = Told::default();
            (1300 * 4..1370 * 4).for_each(|quarter| told.look("a.pem", validity, day(quarter) / 4));
        });
        let log = String::from_utf8(lines.0.lock().clone()).unwrap();
        let times = |word: &str| log.matches(word).count();
        assert_eq!((times("certificate_ends_soon"), times("certificate_not_valid")), (2, 1), "{log}");
        assert!(log.contains("it ends in 14 days") && log.contains("it ends in 24 hours"), "{log}");
    }
}
