//! Who may connect, in front of any stream protocol. See `docs/security.md`.
//!
//! The protocols of the pool are the peer's and know no secrets. So a connection is judged before any of them sees it: by
//! its first bytes it is plain, and then its address must be allowed, or secured, and then both sides prove a shared
//! secret, or speak TLS, or both. What comes out is a socket on which the plain protocol goes on: the same socket, or
//! with TLS one end of a socket pair whose other end a thread here encrypts.
//!
//! Invariants: a process that asks for nothing has nothing of this on any path; nothing falls back to the plain wire; no
//! secret and no key is logged, shown or sent; a connection that is being secured has a deadline.
#![forbid(unsafe_code)]

mod caution;
#[cfg(feature = "certificates")]
mod certificates;
mod crossing;
mod hello;
mod line;
mod material;
mod networks;
mod news;
mod porter;
mod relay;
mod secret;
mod security;
mod settings;
mod shake;
mod validity;
mod watch;

pub use caution::{open_to_others, warn_if_open};
#[cfg(feature = "certificates")]
pub use certificates::{CertificateError, Lifetime, write_certificates, write_certificates_for, write_secret};
pub use hello::{HELLO_LEN, Mode, Opening, Refusal};
pub use networks::{BadNetworks, NetworkList, Networks};
pub use news::News;
pub use porter::Admitted;
pub use relay::Passage;
pub use secret::{LEAST_SECRET, Secret};
pub use security::{Dialled, Pending, Security};
pub use settings::{POOL_NAME, SecurityError, SecuritySettings};
pub use shake::SecureError;
pub use validity::{Standing, Validity};
pub use watch::SecurityStats;
