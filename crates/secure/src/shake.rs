//! How a connection is secured: the steps of both sides, driven by a socket that does not block.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};

use crate::hello::{HELLO_LEN, Mode, Opening, Refusal};
use crate::line::Line;
use crate::material::Material;
use crate::networks::Networks;
use crate::secret::{Exchange, PART, Secret};
use crate::settings::POOL_NAME;

/// Label of what binds a proof to its TLS connection.
const BINDING: &[u8] = b"EXPORTER-yuebing-1";

/// Why a connection is not secured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecureError {
    /// The server said no.
    #[error("{0}")]
    Refused(#[from] Refusal),
    /// TLS failed: the certificate, its name, the version.
    #[error("TLS: {0}")]
    Tls(String),
    /// The server does not know the secret.
    #[error("the server does not know the secret")]
    Unproven,
    /// The connection broke. A server that speaks the plain wire only closes it.
    #[error("the connection broke while it was secured ({0}); does the server speak the plain wire only?")]
    Broken(String),
    /// It took too long.
    #[error("the connection was not secured in time")]
    TimedOut,
}

impl SecureError {
    /// Whether another try would end the same way until somebody changes a setting: another secret, certificate or mode.
    pub fn is_refusal(&self) -> bool {
        match self {
            SecureError::Refused(Refusal::Crowded) | SecureError::Broken(_) | SecureError::TimedOut => false,
            SecureError::Refused(_) | SecureError::Tls(_) | SecureError::Unproven => true,
        }
    }
}

impl From<io::Error> for SecureError {
    fn from(error: io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(tls) => SecureError::Tls(in_words(tls)),
            None => SecureError::Broken(error.to_string()),
        }
    }
}

/// What an operator can mend, in the words of the settings.
fn in_words(error: &rustls::Error) -> String {
    use rustls::{AlertDescription as Alert, CertificateError as Bad, Error};
    let text = match error {
        Error::NoCertificatesPresented => "the other side showed no certificate, and tls_mutual wants one",
        Error::InvalidCertificate(Bad::UnknownIssuer | Bad::BadSignature) => {
            "the certificate of the other side is not of this pool's authority (tls_ca)"
        }
        Error::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => {
            "the certificate of the other side has expired"
        }
        Error::InvalidCertificate(Bad::NotValidYet | Bad::NotValidYetContext { .. }) => {
            "the certificate of the other side does not hold yet; or a clock is wrong"
        }
        Error::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
            "the certificate of the other side carries another name than tls_name wants"
        }
        Error::AlertReceived(Alert::CertificateRequired) => {
            "the other side wants a certificate (tls_cert and tls_key): its tls_mutual is on"
        }
        Error::AlertReceived(Alert::CertificateExpired) => "the other side says that our certificate has expired",
        Error::AlertReceived(
            Alert::UnknownCA | Alert::BadCertificate | Alert::DecryptError | Alert::CertificateUnknown,
        ) => "the other side does not take our certificate: it is not of its authority (tls_ca)",
        _ => return error.to_string(),
    };
    text.to_owned()
}

/// What came of a step.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Wait for the socket.
    Wait,
    /// Both sides agree.
    Secured,
    /// A plain protocol, allowed; nothing was taken from the socket.
    Plain,
    /// A plain protocol from an address whose plain wire is closed; the refusal is on its way.
    PlainRefused,
    /// Any other refusal; it is on its way.
    Refused(Refusal),
}

/// What a server goes by.
#[derive(Debug)]
pub(crate) struct ServerRules {
    pub(crate) mode: Mode,
    pub(crate) material: Material,
    pub(crate) plain_from: Arc<Networks>,
    pub(crate) peer: IpAddr,
}

/// What a client goes by.
#[derive(Debug)]
pub(crate) struct ClientRules {
    pub(crate) mode: Mode,
    pub(crate) material: Material,
    pub(crate) tls_name: Option<String>,
    pub(crate) server: IpAddr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Begin,
    /// The client waits for the echo of its hello.
    Echo,
    /// The server waits for TLS.
    Tls,
    /// Waits for the other side's nonce.
    Nonce,
    /// Waits for the other side's proof.
    Proof,
    /// The client waits for the server's word.
    Verdict,
    /// The last bytes are on their way.
    Last,
}

/// The side that was connected to.
#[derive(Debug)]
pub(crate) struct ServerShake {
    rules: ServerRules,
    stage: Stage,
    input: Vec<u8>,
    exchange: Option<Exchange>,
}

impl ServerShake {
    pub(crate) fn new(rules: ServerRules) -> Self {
        ServerShake { rules, stage: Stage::Begin, input: Vec::new(), exchange: None }
    }

    /// Whether the first bytes have not come yet.
    pub(crate) fn is_opening(&self) -> bool {
        self.stage == Stage::Begin
    }

    /// Goes on as far as the socket lets it.
    pub(crate) fn advance(&mut self, line: &mut Line) -> Result<Step, SecureError> {
        loop {
            let before = self.stage;
            let step = self.step(line).map_err(|error| last_words(line, error))?;
            let sent = line.flush()?;
            match step {
                Step::Wait if self.stage == Stage::Last => {
                    return Ok(if sent { Step::Secured } else { Step::Wait });
                }
                Step::Wait if self.stage != before => {}
                other => return Ok(other),
            }
        }
    }

    fn step(&mut self, line: &mut Line) -> Result<Step, SecureError> {
        match self.stage {
            Stage::Begin => self.open(line),
            Stage::Tls => {
                // Nothing is expected yet but what TLS says by itself.
                match line.take(1, &mut self.input)? {
                    _ if line.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) => Ok(Step::Wait),
                    _ => {
                        self.stage = if self.rules.mode.secret { Stage::Nonce } else { Stage::Last };
                        if self.stage == Stage::Last {
                            line.send(&[0])?;
                        }
                        Ok(Step::Wait)
                    }
                }
            }
            Stage::Nonce => {
                if line.take(PART, &mut self.input)? {
                    let exchange =
                        Exchange { client_nonce: part(&self.input), server_nonce: nonce()?, binding: binding(line)? };
                    self.input.clear();
                    line.send(&exchange.server_nonce)?;
                    self.exchange = Some(exchange);
                    self.stage = Stage::Proof;
                }
                Ok(Step::Wait)
            }
            Stage::Proof => {
                if !line.take(PART, &mut self.input)? {
                    return Ok(Step::Wait);
                }
                let (exchange, secret) = (self.exchange.as_ref(), self.rules.material.secret.as_ref());
                let answer = exchange.zip(secret).map_or(Err(Refusal::WrongSecret), |(exchange, secret)| {
                    exchange.server_answer(secret, &self.input)
                });
                match answer {
                    Ok(answer) => {
                        line.send(&answer)?;
                        self.stage = Stage::Last;
                        Ok(Step::Wait)
                    }
                    Err(refusal) => {
                        line.send(&[refusal as u8])?;
                        Ok(Step::Refused(refusal))
                    }
                }
            }
            Stage::Echo | Stage::Verdict | Stage::Last => Ok(Step::Wait),
        }
    }

    fn open(&mut self, line: &mut Line) -> Result<Step, SecureError> {
        let mut first = [0; HELLO_LEN];
        let seen = match line.peek(&mut first) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Step::Wait),
            other => other?,
        };
        let mode = self.rules.mode;
        let refusal = match Opening::parse(seen) {
            Opening::NeedMore => return Ok(Step::Wait),
            Opening::Plain if self.rules.plain_from.contains(self.rules.peer) => return Ok(Step::Plain),
            Opening::Plain => {
                line.send_raw(&Refusal::PlainClosed.encode());
                return Ok(Step::PlainRefused);
            }
            Opening::Unknown => Refusal::Version,
            Opening::Secured(asked) if asked != mode => Refusal::of_mode(mode),
            Opening::Secured(_) => {
                // They are there: they were seen.
                line.take_raw(HELLO_LEN, &mut self.input)?;
                self.input.clear();
                line.send_raw(&mode.hello());
                self.stage = if mode.tls { Stage::Tls } else { Stage::Nonce };
                if mode.tls {
                    let config = self.rules.material.server.clone();
                    let config = config.ok_or_else(|| SecureError::Tls("there is no certificate".to_owned()))?;
                    let tls = ServerConnection::new(config).map_err(|error| SecureError::Tls(error.to_string()))?;
                    line.tls = Some(tls.into());
                }
                return Ok(Step::Wait);
            }
        };
        line.send_raw(&refusal.encode());
        Ok(Step::Refused(refusal))
    }
}

/// The side that connected.
#[derive(Debug)]
pub(crate) struct ClientShake {
    rules: ClientRules,
    stage: Stage,
    input: Vec<u8>,
    client_nonce: [u8; PART],
    exchange: Option<Exchange>,
}

impl ClientShake {
    pub(crate) fn new(rules: ClientRules) -> Self {
        ClientShake { rules, stage: Stage::Begin, input: Vec::new(), client_nonce: [0; PART], exchange: None }
    }

    /// Goes on as far as the socket lets it.
    pub(crate) fn advance(&mut self, line: &mut Line) -> Result<Step, SecureError> {
        loop {
            let before = self.stage;
            let step = self.step(line).map_err(|error| last_words(line, error))?;
            line.flush()?;
            if step != Step::Wait || self.stage == before {
                return Ok(step);
            }
        }
    }

    fn step(&mut self, line: &mut Line) -> Result<Step, SecureError> {
        let Mode { secret, tls } = self.rules.mode;
        match self.stage {
            Stage::Begin => {
                line.send_raw(&self.rules.mode.hello());
                self.client_nonce = nonce()?;
                if secret && !tls {
                    line.send_raw(&self.client_nonce);
                }
                self.stage = Stage::Echo;
                Ok(Step::Wait)
            }
            Stage::Echo => {
                if !line.take_raw(HELLO_LEN, &mut self.input)? {
                    return Ok(Step::Wait);
                }
                if let Some(refusal) = Refusal::found_in(&self.input) {
                    return Err(refusal.into());
                }
                if self.input != self.rules.mode.hello() {
                    return Err(SecureError::Broken("the answer is none of the secured wire".to_owned()));
                }
                self.input.clear();
                if tls {
                    line.tls = Some(self.rules.tls()?.into());
                    if secret {
                        line.send(&self.client_nonce)?;
                    }
                }
                self.stage = if secret { Stage::Nonce } else { Stage::Verdict };
                Ok(Step::Wait)
            }
            Stage::Nonce => {
                if line.take(PART, &mut self.input)? {
                    let exchange = Exchange {
                        client_nonce: self.client_nonce,
                        server_nonce: part(&self.input),
                        binding: binding(line)?,
                    };
                    self.input.clear();
                    line.send(&exchange.client_proof(self.rules.secret()?))?;
                    self.exchange = Some(exchange);
                    self.stage = Stage::Verdict;
                }
                Ok(Step::Wait)
            }
            Stage::Verdict => {
                if !line.take(1, &mut self.input)? {
                    return Ok(Step::Wait);
                }
                match self.input.first() {
                    Some(0) if !secret => Ok(Step::Secured),
                    Some(0) => {
                        self.stage = Stage::Proof;
                        Ok(Step::Wait)
                    }
                    Some(code) => Err(Refusal::from_code(*code).into()),
                    None => Ok(Step::Wait),
                }
            }
            Stage::Proof => {
                if !line.take(1 + PART, &mut self.input)? {
                    return Ok(Step::Wait);
                }
                let proof = self.input.get(1..).unwrap_or_default();
                let secret = self.rules.secret()?;
                if self.exchange.as_ref().is_some_and(|exchange| exchange.is_proven_by(secret, proof)) {
                    Ok(Step::Secured)
                } else {
                    Err(SecureError::Unproven)
                }
            }
            Stage::Tls | Stage::Last => Ok(Step::Wait),
        }
    }
}

impl ClientRules {
    fn secret(&self) -> Result<&Secret, SecureError> {
        self.material.secret.as_ref().ok_or_else(|| SecureError::Broken("there is no secret".to_owned()))
    }

    fn tls(&self) -> Result<ClientConnection, SecureError> {
        let failed = |error: &dyn std::fmt::Display| SecureError::Tls(error.to_string());
        let config = self.material.client.clone().ok_or_else(|| failed(&"there is no authority"))?;
        let name = match self.tls_name.as_deref().unwrap_or(POOL_NAME) {
            "address" => ServerName::IpAddress(self.server.to_canonical().into()),
            name => ServerName::try_from(name.to_owned()).map_err(|error| failed(&error))?,
        };
        ClientConnection::new(config, name).map_err(|error| failed(&error))
    }
}

/// Lets TLS tell the other side why it ends.
fn last_words(line: &mut Line, error: SecureError) -> SecureError {
    // The connection has failed already.
    let _ = line.flush();
    error
}

fn part(bytes: &[u8]) -> [u8; PART] {
    bytes.first_chunk().copied().unwrap_or_default()
}

fn nonce() -> Result<[u8; PART], SecureError> {
    let mut bytes = [0; PART];
    let filled = SystemRandom::new().fill(&mut bytes);
    filled.map_err(|_| SecureError::Broken("the system has no randomness".to_owned()))?;
    Ok(bytes)
}

/// What only the two ends of the TLS connection know; nothing without TLS.
fn binding(line: &Line) -> Result<Vec<u8>, SecureError> {
    let failed = |error: rustls::Error| SecureError::Tls(in_words(&error));
    match &line.tls {
        None => Ok(Vec::new()),
        Some(Connection::Client(tls)) => tls.export_keying_material(vec![0; PART], BINDING, None).map_err(failed),
        Some(Connection::Server(tls)) => tls.export_keying_material(vec![0; PART], BINDING, None).map_err(failed),
    }
}
