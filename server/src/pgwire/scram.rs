//! SCRAM-SHA-256 against the one configured password.

use bytes::{Buf, Bytes};
use pgwire::api::auth::Password;
use pgwire::api::auth::sasl::SCRAM_SHA_256_METHOD;
use pgwire::api::auth::sasl::scram::{SCRAM_ITERATIONS, ScramServerAuth, gen_salted_password};
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::startup::Authentication;

use super::attend::Failure;
use super::frame::{Frame, Inbox};
use super::message::violation;
use super::outbox::Outbox;
use crate::error::{Severity, SqlError};

const SALT_BYTES: usize = 16;

/// The password as it is kept: salted and hashed.
#[derive(Clone)]
pub(super) struct Verifier {
    salt: Vec<u8>,
    salted: Vec<u8>,
}

impl Verifier {
    pub(super) fn new(password: &str) -> Self {
        let salt = rand::random::<[u8; SALT_BYTES]>().to_vec();
        Self { salted: gen_salted_password(password, &salt, SCRAM_ITERATIONS), salt }
    }

    /// Asks the client for the proof that it knows the password.
    ///
    /// # Errors
    /// 28P01 when it does not, 08P01 when it does not speak SCRAM.
    pub(super) async fn authenticate(&self, user: &str, inbox: &mut Inbox, outbox: &mut Outbox) -> Result<(), Failure> {
        outbox.push(PgWireBackendMessage::Authentication(Authentication::SASL(vec![SCRAM_SHA_256_METHOD.to_string()])));
        outbox.flush().await?;
        let first = initial_response(&password_message(inbox.next().await?)?)?;
        let password = Password::new(Some(self.salt.clone()), self.salted.clone());
        let (server_first, waiting) =
            ScramServerAuth::new().on_client_first_message(&first, password).map_err(|_| fatal(violation("malformed SCRAM message")))?;
        outbox.push(PgWireBackendMessage::Authentication(Authentication::SASLContinue(server_first.into())));
        outbox.flush().await?;
        let last = password_message(inbox.next().await?)?;
        let refused = || fatal(SqlError::new("28P01", format!("password authentication failed for user \"{user}\"")));
        let server_last = waiting.on_client_final_message(&last).map_err(|_| refused())?;
        outbox.push(PgWireBackendMessage::Authentication(Authentication::SASLFinal(server_last.into())));
        Ok(())
    }
}

fn fatal(error: SqlError) -> Failure {
    Failure::Fatal(SqlError { severity: Severity::Fatal, ..error })
}

fn password_message(frame: Frame) -> Result<Bytes, Failure> {
    match frame.kind {
        b'p' => Ok(frame.body),
        b'X' => Err(Failure::Gone),
        other => Err(fatal(violation(format!("expected SASL response, got message type {other}")))),
    }
}

/// Name of the mechanism, length, data.
fn initial_response(body: &Bytes) -> Result<Bytes, Failure> {
    let malformed = || fatal(violation("malformed SCRAM message"));
    let end = body.iter().position(|byte| *byte == 0).ok_or_else(malformed)?;
    if &body[..end] != SCRAM_SHA_256_METHOD.as_bytes() {
        return Err(fatal(violation("client selected an invalid SASL authentication mechanism")));
    }
    let mut rest = body.slice(end + 1..);
    if rest.len() < 4 {
        return Err(malformed());
    }
    match usize::try_from(rest.get_i32()) {
        Ok(length) if length == rest.len() => Ok(rest),
        _ => Err(malformed()),
    }
}
