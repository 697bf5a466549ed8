//! Secret, certificates and keys as they are in their files now.
//!
//! Files are looked at again at most once a second, when a connection is secured. What changed and can be used takes the
//! place of the old; what changed and cannot be used is logged once, and the old stays. That the own certificate ends is
//! said before and when it does.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use yb_env::Clock;
use yb_types::MonotonicTime;

use crate::caution;
use crate::secret::Secret;
use crate::settings::{SecurityError, SecuritySettings};
use crate::validity::{Told, Validity};

/// How often files are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// What both sides of our TLS say that they speak: no other protocol's connection can be led here.
const PROTOCOL: &[u8] = b"yuebing/1";

/// What holds now.
#[derive(Clone, Debug, Default)]
pub(crate) struct Material {
    pub(crate) secret: Option<Secret>,
    pub(crate) server: Option<Arc<ServerConfig>>,
    pub(crate) client: Option<Arc<ClientConfig>>,
}

/// Tells one state of a file from another.
type Stamp = Option<(u64, u64, i64, i64)>;

/// What was read, and how long it is good for.
#[derive(Debug)]
struct Loaded {
    material: Material,
    /// The own certificate: where it is, and its time.
    own: Option<(String, Validity)>,
}

#[derive(Debug)]
pub(crate) struct Kept {
    loaded: Loaded,
    told: Told,
    stamps: Vec<Stamp>,
    looked: MonotonicTime,
}

impl Kept {
    /// Says in the log what is new of the time of the own certificate.
    fn mind_the_time(&mut self) {
        if let Some((path, validity)) = &self.loaded.own {
            self.told.look(path, *validity, Duration::from_millis(yb_env::epoch_millis()));
        }
    }
}

/// The files and what they said last.
#[derive(Debug)]
pub(crate) struct Safe {
    settings: SecuritySettings,
    clock: Clock,
    kept: Mutex<Kept>,
}

impl Safe {
    /// Reads everything.
    pub(crate) fn open(settings: &SecuritySettings, clock: Clock) -> Result<Self, SecurityError> {
        let stamps = stamps(settings);
        let mut kept = Kept { loaded: load(settings)?, told: Told::default(), stamps, looked: clock.now() };
        kept.mind_the_time();
        Ok(Safe { settings: settings.clone(), clock, kept: Mutex::new(kept) })
    }

    /// What holds now.
    pub(crate) fn material(&self) -> Material {
        self.look().loaded.material.clone()
    }

    /// The end of the own certificate, since 1970; `None`: there is none.
    pub(crate) fn ends(&self) -> Option<Duration> {
        self.look().loaded.own.as_ref().map(|(_, validity)| validity.until)
    }

    /// Looks at files and time again, if that was not done in the last second.
    pub(crate) fn look(&self) -> MutexGuard<'_, Kept> {
        let mut kept = self.kept.lock();
        let now = self.clock.now();
        if now.since(kept.looked) < LOOK {
            return kept;
        }
        kept.looked = now;
        let stamps = stamps(&self.settings);
        if stamps != kept.stamps {
            kept.stamps = stamps;
            match load(&self.settings) {
                Ok(loaded) => {
                    tracing::info!(event = "credentials_read", "changed secret or certificates are in use");
                    (kept.loaded, kept.told) = (loaded, Told::default());
                }
                Err(error) => tracing::warn!(
                    event = "credentials_refused",
                    %error,
                    "changed secret or certificates cannot be used; the old ones stay"
                ),
            }
        }
        kept.mind_the_time();
        kept
    }
}

fn stamps(settings: &SecuritySettings) -> Vec<Stamp> {
    let files = [&settings.secret_file, &settings.tls_ca, &settings.tls_cert, &settings.tls_key];
    let stamp = |path: &PathBuf| {
        let about = std::fs::metadata(path).ok()?;
        Some((about.ino(), about.size(), about.mtime(), about.mtime_nsec()))
    };
    files.into_iter().flatten().map(stamp).collect()
}

fn load(settings: &SecuritySettings) -> Result<Loaded, SecurityError> {
    let read = settings.secret_file.as_deref().map(Secret::read).transpose()?;
    for (setting, path) in [("secret_file", &settings.secret_file), ("tls_key", &settings.tls_key)] {
        path.iter().for_each(|path| caution::warn_if_open(setting, path));
    }
    let roots = settings.tls_ca.as_deref().map(roots).transpose()?;
    let own = match (&settings.tls_cert, &settings.tls_key) {
        (Some(cert), Some(key)) => Some(Own::read(cert, key)?),
        _ => None,
    };
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = own.as_ref().map(|own| {
        let clients = roots.as_ref().filter(|_| settings.tls_mutual);
        own.server(&provider, clients)
    });
    let client = roots.as_ref().map(|roots| client(&provider, roots, own.as_ref()));
    let material = Material {
        secret: read.or_else(|| settings.secret.clone()),
        server: server.transpose()?.map(Arc::new),
        client: client.transpose()?.map(Arc::new),
    };
    let time = own.and_then(|own| Validity::of(&own.chain).map(|validity| (own.path, validity)));
    Ok(Loaded { material, own: time })
}

/// The own certificate and its key.
struct Own {
    path: String,
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Own {
    fn read(cert: &Path, key: &Path) -> Result<Self, SecurityError> {
        let chain = certificates("tls_cert", cert)?;
        let found = PrivateKeyDer::from_pem_file(key).map_err(|error| wrong("tls_key", key, &error))?;
        Ok(Own { path: cert.display().to_string(), chain, key: found })
    }

    fn failed(&self, error: &dyn std::fmt::Display) -> SecurityError {
        SecurityError::Tls { what: "tls_cert", path: self.path.clone(), why: error.to_string() }
    }

    fn server(
        &self,
        provider: &Arc<CryptoProvider>,
        clients: Option<&Arc<RootCertStore>>,
    ) -> Result<ServerConfig, SecurityError> {
        let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(|error| self.failed(&error))?;
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(roots) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::clone(roots), Arc::clone(provider));
                builder.with_client_cert_verifier(verifier.build().map_err(|error| self.failed(&error))?)
            }
        };
        let mut config =
            builder.with_single_cert(self.chain.clone(), self.key.clone_key()).map_err(|error| self.failed(&error))?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        // Connections live long; nobody resumes one.
        config.send_tls13_tickets = 0;
        Ok(config)
    }
}

fn client(
    provider: &Arc<CryptoProvider>,
    roots: &Arc<RootCertStore>,
    own: Option<&Own>,
) -> Result<ClientConfig, SecurityError> {
    let failed = |error: &dyn std::fmt::Display| SecurityError::Tls {
        what: "tls_ca",
        path: String::new(),
        why: error.to_string(),
    };
    let builder = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&rustls::version::TLS13])
        .map_err(|error| failed(&error))?
        .with_root_certificates(Arc::clone(roots));
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            builder.with_client_auth_cert(own.chain.clone(), own.key.clone_key()).map_err(|error| own.failed(&error))?
        }
    };
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

fn roots(path: &Path) -> Result<Arc<RootCertStore>, SecurityError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates("tls_ca", path)? {
        store.add(certificate).map_err(|error| wrong("tls_ca", path, &error))?;
    }
    Ok(Arc::new(store))
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, SecurityError> {
    let found = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| wrong(what, path, &error))?;
    if found.is_empty() {
        return Err(wrong(what, path, &"there is no certificate in it"));
    }
    Ok(found)
}

fn wrong(what: &'static str, path: &Path, why: &dyn std::fmt::Display) -> SecurityError {
    SecurityError::Tls { what, path: path.display().to_string(), why: why.to_string() }
}
