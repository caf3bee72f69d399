//! The bytes a client sends, cut into messages.

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;

/// Longest message of any kind; a statement, its parameters, or one piece of COPY data.
pub(super) const MAX_MESSAGE_BYTES: usize = 128 << 20;
/// Longest message of the kinds that carry only a name or nothing.
const MAX_SMALL_MESSAGE_BYTES: usize = 10_000;
/// Longest startup packet, as in Postgres.
const MAX_STARTUP_BYTES: usize = 10_000;
/// Bytes read ahead while a statement runs.
const READ_AHEAD_BYTES: usize = 256 << 10;

/// One message: its type and its body, without the length.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) body: Bytes,
}

/// Why no message can be read.
#[derive(Debug)]
pub(super) enum FrameError {
    /// The client has gone, or the socket failed.
    Closed,
    /// What came is not a message; the connection cannot go on.
    Broken(String),
}

/// The reading half of a connection.
pub(super) struct Inbox {
    socket: OwnedReadHalf,
    buffer: BytesMut,
}

impl Inbox {
    pub(super) fn new(socket: OwnedReadHalf) -> Self {
        Self { socket, buffer: BytesMut::with_capacity(8 << 10) }
    }

    /// Reads what there is, at least one byte. Cancel safe: nothing is lost when the future is dropped.
    async fn fill(&mut self) -> Result<(), FrameError> {
        self.buffer.reserve(4 << 10);
        match self.socket.read_buf(&mut self.buffer).await {
            Ok(0) | Err(_) => Err(FrameError::Closed),
            Ok(_) => Ok(()),
        }
    }

    /// Reads ahead while a statement runs; ends only when the client has gone. Cancel safe.
    pub(super) async fn read_ahead(&mut self) -> FrameError {
        loop {
            if self.buffer.len() >= READ_AHEAD_BYTES {
                // The client sends faster than it is served: leave the rest in the socket.
                std::future::pending::<()>().await;
            }
            if let Err(error) = self.fill().await {
                return error;
            }
        }
    }

    /// Whether a whole message is there already.
    pub(super) fn has_frame(&self) -> bool {
        self.buffer.len() >= 5 && self.buffer.len() > self.declared_length(1)
    }

    /// The length field at an offset.
    fn declared_length(&self, at: usize) -> usize {
        u32::from_be_bytes([self.buffer[at], self.buffer[at + 1], self.buffer[at + 2], self.buffer[at + 3]]) as usize
    }

    /// The next message. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Frame, FrameError> {
        loop {
            if self.buffer.len() >= 5 {
                let kind = self.buffer[0];
                let length = self.declared_length(1);
                check_length(kind, length)?;
                if self.buffer.len() > length {
                    self.buffer.advance(5);
                    let body = self.buffer.split_to(length - 4).freeze();
                    return Ok(Frame { kind, body });
                }
                let missing = length + 1 - self.buffer.len();
                // Grow as the bytes come: a length alone is no reason to take memory.
                self.buffer.reserve(missing.min(1 << 20));
            }
            self.fill().await?;
        }
    }

    /// The next packet of the startup phase, which has no type byte. Cancel safe.
    pub(super) async fn next_startup(&mut self) -> Result<Bytes, FrameError> {
        loop {
            if self.buffer.len() >= 4 {
                let length = self.declared_length(0);
                if !(8..=MAX_STARTUP_BYTES).contains(&length) {
                    return Err(FrameError::Broken("invalid length of startup packet".to_string()));
                }
                if self.buffer.len() >= length {
                    self.buffer.advance(4);
                    return Ok(self.buffer.split_to(length - 4).freeze());
                }
            }
            self.fill().await?;
        }
    }
}

fn check_length(kind: u8, length: usize) -> Result<(), FrameError> {
    let bound = match kind {
        b'Q' | b'P' | b'B' | b'd' | b'F' => MAX_MESSAGE_BYTES,
        b'p' | b'D' | b'E' | b'C' | b'H' | b'S' | b'X' | b'c' | b'f' => MAX_SMALL_MESSAGE_BYTES,
        _ => return Err(FrameError::Broken(format!("invalid frontend message type {kind}"))),
    };
    if (4..=bound).contains(&length) { Ok(()) } else { Err(FrameError::Broken("invalid message length".to_string())) }
}
