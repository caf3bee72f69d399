//! The bytes a client is sent, gathered until they are worth a system call.

use std::{io::ErrorKind, sync::Arc};

use bytes::BytesMut;
use futures::FutureExt;
use pgwire::messages::PgWireBackendMessage;
use pgwire::messages::copy::{CopyDone, CopyInResponse, CopyOutResponse};
use pgwire::messages::data::{FieldDescription, NoData, ParameterDescription, RowDescription};
use pgwire::messages::extendedquery::{BindComplete, CloseComplete, ParseComplete, PortalSuspended};
use pgwire::messages::response::{
    CommandComplete, EmptyQueryResponse, ErrorResponse, NoticeResponse, ReadyForQuery, TransactionStatus as WireStatus,
};
use pgwire::messages::startup::ParameterStatus;
use tokio::io::{Interest, Ready};
use tokio::net::tcp::OwnedWriteHalf;

use super::errors::{error_fields, notice_fields};
use super::types::type_length;
use crate::answer::Column;
use crate::error::{Notice, SqlError};
use crate::session::TransactionStatus;

/// The buffer is sent when it holds this much.
pub(super) const FLUSH_BYTES: usize = 64 << 10;
/// A buffer that grew over this for one large row is given back.
const KEEP_BYTES: usize = 1 << 20;

/// The socket failed; nothing more can be said to this client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Gone;

/// The writing half of a connection.
pub(super) struct Outbox {
    /// Shared with who asks whether the client is still there.
    socket: Arc<OwnedWriteHalf>,
    /// Rows are written here by their encoder.
    pub(super) buffer: Vec<u8>,
    /// How much of the buffer has been sent by a flush that was dropped half way.
    sent: usize,
    scratch: BytesMut,
}

impl Outbox {
    pub(super) fn new(socket: OwnedWriteHalf) -> Self {
        Self { socket: Arc::new(socket), buffer: Vec::with_capacity(8 << 10), sent: 0, scratch: BytesMut::with_capacity(1 << 10) }
    }

    /// Whether it is time to flush.
    pub(super) fn is_full(&self) -> bool {
        self.buffer.len() >= FLUSH_BYTES
    }

    /// Sends everything. Cancel safe: the next flush goes on where this one was dropped.
    pub(super) async fn flush(&mut self) -> Result<(), Gone> {
        while self.sent < self.buffer.len() {
            // A client that reads fast must not keep the thread from others.
            tokio::task::coop::consume_budget().await;
            match self.socket.try_write(&self.buffer[self.sent..]) {
                Ok(count @ 1..) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.socket.writable().await.map_err(|_| Gone)?,
                Ok(0) | Err(_) => return Err(Gone),
            }
        }
        self.sent = 0;
        self.buffer.clear();
        if self.buffer.capacity() > KEEP_BYTES {
            self.buffer.shrink_to(FLUSH_BYTES);
        }
        Ok(())
    }

    /// Sends everything. The stream ends when the outbox is dropped.
    pub(super) async fn close(&mut self) {
        let _ = self.flush().await;
    }

    /// Tells whether the client has closed its side of the connection, to a thread that is busy on its behalf. Does not wait, and reads nothing.
    pub(super) fn hang_up(&self) -> impl Fn() -> bool + Send + Sync + use<> {
        let socket = Arc::downgrade(&self.socket);
        move || {
            let Some(socket) = socket.upgrade() else { return true };
            // Nearly always it can be written to, so that this is answered at once.
            let ready = socket.ready(Interest::READABLE | Interest::WRITABLE).now_or_never();
            ready.is_some_and(|ready| ready.is_ok_and(Ready::is_read_closed))
        }
    }

    /// Any message that `pgwire` can encode.
    pub(super) fn push(&mut self, message: PgWireBackendMessage) {
        self.scratch.clear();
        match message.encode(&mut self.scratch) {
            Ok(()) => self.buffer.extend_from_slice(&self.scratch),
            Err(error) => tracing::error!(%error, "a message could not be encoded"),
        }
        if self.scratch.capacity() > KEEP_BYTES {
            self.scratch = BytesMut::with_capacity(1 << 10);
        }
    }

    /// One byte outside of the protocol: the answer to SSLRequest and GSSENCRequest.
    pub(super) fn push_byte(&mut self, byte: u8) {
        self.buffer.push(byte);
    }

    pub(super) fn ready(&mut self, status: TransactionStatus) {
        let status = match status {
            TransactionStatus::Idle => WireStatus::Idle,
            TransactionStatus::InBlock => WireStatus::Transaction,
            TransactionStatus::Failed => WireStatus::Error,
        };
        self.push(PgWireBackendMessage::ReadyForQuery(ReadyForQuery::new(status)));
    }

    pub(super) fn complete(&mut self, tag: String) {
        self.push(PgWireBackendMessage::CommandComplete(CommandComplete::new(tag)));
    }

    pub(super) fn empty_query(&mut self) {
        self.push(PgWireBackendMessage::EmptyQueryResponse(EmptyQueryResponse::new()));
    }

    pub(super) fn error(&mut self, error: &SqlError) {
        self.push(PgWireBackendMessage::ErrorResponse(ErrorResponse::new(error_fields(error))));
    }

    pub(super) fn notice(&mut self, notice: &Notice) {
        self.push(PgWireBackendMessage::NoticeResponse(NoticeResponse::new(notice_fields(notice))));
    }

    pub(super) fn parameter_status(&mut self, name: String, value: String) {
        self.push(PgWireBackendMessage::ParameterStatus(ParameterStatus::new(name, value)));
    }

    pub(super) fn parse_complete(&mut self) {
        self.push(PgWireBackendMessage::ParseComplete(ParseComplete::new()));
    }

    pub(super) fn bind_complete(&mut self) {
        self.push(PgWireBackendMessage::BindComplete(BindComplete::new()));
    }

    pub(super) fn close_complete(&mut self) {
        self.push(PgWireBackendMessage::CloseComplete(CloseComplete::new()));
    }

    pub(super) fn portal_suspended(&mut self) {
        self.push(PgWireBackendMessage::PortalSuspended(PortalSuspended::new()));
    }

    pub(super) fn parameter_description(&mut self, types: Vec<u32>) {
        self.push(PgWireBackendMessage::ParameterDescription(ParameterDescription::new(types)));
    }

    pub(super) fn no_data(&mut self) {
        self.push(PgWireBackendMessage::NoData(NoData::new()));
    }

    /// `is_binary` gives the format of each column.
    pub(super) fn row_description(&mut self, columns: &[Column], is_binary: impl Fn(usize) -> bool) {
        let field = |(at, column): (usize, &Column)| {
            FieldDescription::new(
                column.name.clone(),
                column.table_oid,
                column.column_number,
                column.type_oid as u32,
                type_length(column.type_oid),
                column.type_modifier,
                i16::from(is_binary(at)),
            )
        };
        let fields = columns.iter().enumerate().map(field).collect();
        self.push(PgWireBackendMessage::RowDescription(RowDescription::new(fields)));
    }

    pub(super) fn copy_in_response(&mut self, is_binary: bool, columns: usize) {
        let format = i16::from(is_binary);
        let message = CopyInResponse::new(i8::from(is_binary), columns as i16, vec![format; columns]);
        self.push(PgWireBackendMessage::CopyInResponse(message));
    }

    pub(super) fn copy_out_response(&mut self, is_binary: bool, columns: usize) {
        let format = i16::from(is_binary);
        let message = CopyOutResponse::new(i8::from(is_binary), columns as i16, vec![format; columns]);
        self.push(PgWireBackendMessage::CopyOutResponse(message));
    }

    pub(super) fn copy_done(&mut self) {
        self.push(PgWireBackendMessage::CopyDone(CopyDone::new()));
    }

    /// Begins a CopyData message; its body is written to `buffer` and ended by [`Outbox::end_message`].
    pub(super) fn begin_copy_data(&mut self) -> usize {
        begin_message(b'd', &mut self.buffer)
    }

    /// Fills in the length of a message that was begun.
    pub(super) fn end_message(&mut self, start: usize) {
        end_message(start, &mut self.buffer);
    }
}

/// Type byte and room for the length; gives where the length stands.
pub(super) fn begin_message(kind: u8, buffer: &mut Vec<u8>) -> usize {
    buffer.push(kind);
    let start = buffer.len();
    buffer.extend_from_slice(&[0; 4]);
    start
}

/// Fills in the length of a message.
pub(super) fn end_message(start: usize, buffer: &mut [u8]) {
    let length = (buffer.len() - start) as u32;
    buffer[start..start + 4].copy_from_slice(&length.to_be_bytes());
}
