//! From the first bytes of a connection to ReadyForQuery: negotiation, authentication, the session's settings.

use std::net::SocketAddr;

use bytes::{Buf, Bytes};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::startup::{Authentication, BackendKeyData, NegotiateProtocolVersion, SecretKey};

use super::attend::Failure;
use super::connection::Connection;
use super::frame::Inbox;
use super::message::{utf8, violation};
use super::outbox::Outbox;
use super::scram::Verifier;
use crate::error::{Severity, SqlError};
use crate::session::SessionInfo;

const CANCEL_REQUEST: u32 = 80_877_102;
const SSL_REQUEST: u32 = 80_877_103;
const GSS_ENCRYPTION_REQUEST: u32 = 80_877_104;
const PROTOCOL_MAJOR: u32 = 3;
/// SSL and GSS may be asked for once each, before the real startup packet.
const MAX_NEGOTIATIONS: usize = 3;

/// Settings that clients are told at the start and whenever they change.
const REPORTED: [&str; 13] = [
    "application_name",
    "client_encoding",
    "DateStyle",
    "default_transaction_read_only",
    "in_hot_standby",
    "integer_datetimes",
    "IntervalStyle",
    "is_superuser",
    "server_encoding",
    "server_version",
    "session_authorization",
    "standard_conforming_strings",
    "TimeZone",
];

/// What the first packet wants.
pub(super) enum Opening {
    Cancel { process_id: i32, secret: i32 },
    Session(Parameters),
}

/// What a client says about itself.
#[derive(Debug, Default)]
pub(super) struct Parameters {
    pub(super) user: String,
    pub(super) database: String,
    pub(super) application_name: String,
    /// Everything else: settings of the session.
    settings: Vec<(String, String)>,
    /// Names of the protocol's own options, none of which is known.
    protocol_options: Vec<String>,
    minor: u32,
}

fn fatal(sqlstate: &str, message: impl Into<String>) -> Failure {
    Failure::Fatal(SqlError { severity: Severity::Fatal, ..SqlError::new(sqlstate, message) })
}

/// Reads packets until one of them opens something. Encryption is declined.
pub(super) async fn open(inbox: &mut Inbox, outbox: &mut Outbox) -> Result<Opening, Failure> {
    for _ in 0..MAX_NEGOTIATIONS {
        let mut packet = inbox.next_startup().await?;
        let code = packet.get_u32();
        match code {
            SSL_REQUEST | GSS_ENCRYPTION_REQUEST => {
                outbox.push_byte(b'N');
                outbox.flush().await?;
            }
            CANCEL_REQUEST if packet.len() == 8 => {
                return Ok(Opening::Cancel { process_id: packet.get_i32(), secret: packet.get_i32() });
            }
            _ if code >> 16 == PROTOCOL_MAJOR => return Ok(Opening::Session(Parameters::decode(packet, code & 0xffff)?)),
            _ => {
                let (major, minor) = (code >> 16, code & 0xffff);
                return Err(fatal("0A000", format!("unsupported frontend protocol {major}.{minor}: server supports 3.0 to 3.0")));
            }
        }
    }
    Err(Failure::Fatal(violation("too many negotiation requests")))
}

impl Parameters {
    /// Pairs of texts, each ended by a zero byte, and a zero byte at the end.
    fn decode(packet: Bytes, minor: u32) -> Result<Self, Failure> {
        let malformed = || fatal("08P01", "invalid startup packet layout: expected terminator as last byte");
        let packet = packet.strip_suffix(b"\0").ok_or_else(malformed)?;
        let mut parameters = Self { minor, ..Self::default() };
        let mut texts = packet.split(|byte| *byte == 0);
        // The last text's own zero byte leaves one empty piece at the end.
        while let (Some(name), Some(value)) = (texts.next(), texts.next()) {
            let (name, value) = (utf8(name)?.to_string(), utf8(value)?.to_string());
            match name.as_str() {
                "user" => parameters.user = value,
                "database" => parameters.database = value,
                "application_name" => parameters.application_name = value,
                "options" => parameters.settings.extend(command_line_settings(&value)?),
                "replication" if matches!(value.as_str(), "false" | "off" | "no" | "0") => {}
                "replication" => return Err(fatal("0A000", "replication connections are not supported")),
                _ if name.starts_with("_pq_.") => parameters.protocol_options.push(name),
                _ => parameters.settings.push((name, value)),
            }
        }
        if parameters.user.is_empty() {
            return Err(fatal("28000", "no PostgreSQL user name specified in startup packet"));
        }
        if parameters.database.is_empty() {
            parameters.database.clone_from(&parameters.user);
        }
        Ok(parameters)
    }

    /// Who the session belongs to.
    pub(super) fn session_info(&self, process_id: i32, secret_key: i32, peer: Option<SocketAddr>) -> SessionInfo {
        SessionInfo {
            user: self.user.clone(),
            database: self.database.clone(),
            application_name: self.application_name.clone(),
            process_id,
            secret_key,
            peer,
        }
    }
}

/// `-c name=value` and `--name=value`, white space between them, a backslash in front of white space in a value.
fn command_line_settings(text: &str) -> Result<Vec<(String, String)>, Failure> {
    let mut words = vec![String::new()];
    let mut escaped = false;
    for c in text.chars() {
        let word = words.last_mut().expect("never empty");
        match c {
            '\\' if !escaped => {
                escaped = true;
                continue;
            }
            c if c.is_ascii_whitespace() && !escaped => {
                if !word.is_empty() {
                    words.push(String::new());
                }
            }
            c => word.push(c),
        }
        escaped = false;
    }
    let mut settings = Vec::new();
    let mut words = words.into_iter().filter(|word| !word.is_empty());
    while let Some(word) = words.next() {
        let assignment = match word.as_str() {
            "-c" => words.next().unwrap_or_default(),
            word => match word.strip_prefix("--").or_else(|| word.strip_prefix("-c")) {
                Some(assignment) => assignment.to_string(),
                None => return Err(fatal("42601", format!("invalid command-line argument for server process: {word}"))),
            },
        };
        match assignment.split_once('=') {
            Some((name, value)) => settings.push((name.replace('-', "_"), value.to_string())),
            None => return Err(fatal("42601", format!("-c {assignment} requires a value"))),
        }
    }
    Ok(settings)
}

/// Who may come in.
#[derive(Clone)]
pub(super) struct Admission {
    pub(super) user: String,
    pub(super) database: String,
    pub(super) verifier: Option<Verifier>,
}

impl Admission {
    /// Negotiates the version and lets the client in, or says why not. Without a password only this machine is trusted.
    pub(super) async fn admit(&self, client: &Parameters, peer: SocketAddr, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<(), Failure> {
        if client.minor > 0 || !client.protocol_options.is_empty() {
            let supported = NegotiateProtocolVersion::new((PROTOCOL_MAJOR << 16) as i32, client.protocol_options.clone());
            outbox.push(PgWireBackendMessage::NegotiateProtocolVersion(supported));
        }
        match &self.verifier {
            Some(verifier) => verifier.authenticate(&client.user, inbox, outbox).await?,
            None if peer.ip().to_canonical().is_loopback() => {}
            None => {
                let refused = SqlError::new("28000", format!("connection from \"{}\" is refused: no password is configured", peer.ip()))
                    .with_hint(
                        "Configure a password (MILLPOND_PASSWORD, or password in the configuration file), or connect from this machine.",
                    );
                return Err(Failure::Fatal(SqlError { severity: Severity::Fatal, ..refused }));
            }
        }
        if client.user != self.user {
            let unknown = SqlError::new("28000", format!("role \"{}\" does not exist", client.user));
            let unknown = unknown.with_hint(format!("Connect as user \"{}\".", self.user));
            return Err(Failure::Fatal(SqlError { severity: Severity::Fatal, ..unknown }));
        }
        if client.database != self.database {
            return Err(fatal("3D000", format!("database \"{}\" does not exist", client.database)));
        }
        outbox.push(PgWireBackendMessage::Authentication(Authentication::Ok));
        Ok(())
    }
}

impl Connection {
    /// Applies the settings of the startup packet, reports those that clients are told of, and says ReadyForQuery.
    pub(super) async fn begin(&mut self, client: &Parameters, process_id: i32, secret: i32) -> Result<(), Failure> {
        for (name, value) in &client.settings {
            self.session.set_at_start(name, value)?;
        }
        let _ = self.session.changed_parameters();
        for name in REPORTED {
            if let Some(value) = self.session.parameter(name) {
                self.line.outbox.parameter_status(name.to_string(), value);
            }
        }
        let key = BackendKeyData::new(process_id, SecretKey::I32(secret));
        self.line.outbox.push(PgWireBackendMessage::BackendKeyData(key));
        self.ready().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn startup_packets() {
        let packet = Bytes::from_static(b"user\0ann\0DateStyle\0ISO\0options\0-c geqo=off --search_path=a\\ b\0\0");
        let parameters = Parameters::decode(packet, 0).expect("well formed");
        assert_eq!((parameters.user.as_str(), parameters.database.as_str()), ("ann", "ann"));
        let settings: Vec<_> = parameters.settings.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(settings, [("DateStyle", "ISO"), ("geqo", "off"), ("search_path", "a b")]);
        assert!(Parameters::decode(Bytes::from_static(b"user\0ann"), 0).is_err());
        assert!(Parameters::decode(Bytes::from_static(b"\0"), 0).is_err());
        assert!(Parameters::decode(Bytes::from_static(b"user\0\xff\0\0"), 0).is_err());
    }
}
