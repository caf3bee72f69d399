//! A client that sends and receives single messages.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use thiserror::Error;

use crate::message::{Message, frame, query, startup};

/// A server that says nothing for so long hangs.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Why a request did not succeed.
#[derive(Debug, Error)]
pub enum ClientError {
    /// The server refused the statement.
    #[error("{severity}: {message} ({sqlstate})")]
    Server {
        /// ERROR or FATAL.
        severity: String,
        /// Five characters.
        sqlstate: String,
        /// The text.
        message: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// The connection failed or the server hangs.
    #[error("connection: {0}")]
    Io(#[from] std::io::Error),
}

impl ClientError {
    /// The SQLSTATE, empty when the connection failed.
    pub fn sqlstate(&self) -> &str {
        match self {
            Self::Server { sqlstate, .. } => sqlstate,
            Self::Io(_) => "",
        }
    }

    fn of(message: &Message) -> Self {
        let fields = message.fields();
        let field = |code: char| fields.iter().find(|(candidate, _)| *candidate == code).map(|(_, value)| value.clone());
        Self::Server {
            severity: field('S').unwrap_or_default(),
            sqlstate: field('C').unwrap_or_default(),
            message: field('M').unwrap_or_default(),
            hint: field('H'),
        }
    }
}

/// A value in text form, NULL as None.
pub type Field = Option<String>;

/// What a simple query with one statement answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Rows in text form.
    pub rows: Vec<Vec<Field>>,
    /// Command tags, one for each statement.
    pub tags: Vec<String>,
}

/// A connection.
pub struct WireClient {
    socket: TcpStream,
    buffer: Vec<u8>,
    /// What the server has reported: settings by name.
    pub parameters: Vec<(String, String)>,
    /// Notices that have come so far.
    pub notices: Vec<Message>,
    /// Names the session in a cancel request.
    pub process_id: i32,
    /// Proves that the canceller knows it.
    pub secret: i32,
    address: SocketAddr,
}

impl WireClient {
    /// A socket on which nothing has been said yet.
    pub fn open(address: SocketAddr) -> std::io::Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self { socket, buffer: Vec::new(), parameters: Vec::new(), notices: Vec::new(), process_id: 0, secret: 0, address })
    }

    /// A session of the default user.
    pub fn connect(address: SocketAddr) -> Result<Self, ClientError> {
        Self::connect_with(address, &[("user", "millpond"), ("database", "millpond")])
    }

    /// A session with other startup parameters.
    pub fn connect_with(address: SocketAddr, parameters: &[(&str, &str)]) -> Result<Self, ClientError> {
        let mut client = Self::open(address)?;
        client.send(&startup(0x0003_0000, parameters))?;
        client.until_ready()?;
        Ok(client)
    }

    /// Sends bytes as they are.
    pub fn send(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.socket.write_all(bytes)
    }

    /// The next message, whatever it is.
    pub fn receive_any(&mut self) -> std::io::Result<Message> {
        self.fill(5)?;
        let length = u32::from_be_bytes(self.buffer[1..5].try_into().expect("four bytes")) as usize;
        self.fill(length + 1)?;
        let bytes: Vec<u8> = self.buffer.drain(..=length).collect();
        Ok(Message { kind: bytes[0], body: bytes[5..].to_vec() })
    }

    /// The next message of an answer; notices and parameter reports, which may come at any time, are set aside.
    pub fn receive(&mut self) -> std::io::Result<Message> {
        loop {
            let message = self.receive_any()?;
            match message.kind {
                b'N' => self.notices.push(message),
                b'S' => {
                    let (name, value) = message.parameter();
                    self.parameters.retain(|(known, _)| *known != name);
                    self.parameters.push((name, value));
                }
                b'K' => {
                    self.process_id = i32::from_be_bytes(message.body[..4].try_into().expect("four bytes"));
                    self.secret = i32::from_be_bytes(message.body[4..8].try_into().expect("four bytes"));
                }
                _ => return Ok(message),
            }
        }
    }

    /// One byte that is no message.
    pub fn receive_byte(&mut self) -> std::io::Result<u8> {
        self.fill(1)?;
        Ok(self.buffer.remove(0))
    }

    /// Messages up to the first of a kind.
    pub fn until(&mut self, kind: u8) -> std::io::Result<Vec<Message>> {
        let mut messages = Vec::new();
        loop {
            let message = self.receive()?;
            let last = message.kind == kind;
            messages.push(message);
            if last {
                return Ok(messages);
            }
        }
    }

    /// Sends, and gives everything up to ReadyForQuery.
    pub fn exchange(&mut self, bytes: &[u8]) -> std::io::Result<Vec<Message>> {
        self.send(bytes)?;
        self.until(b'Z')
    }

    /// Runs a simple query.
    pub fn query(&mut self, sql: &str) -> Result<Answer, ClientError> {
        self.send(&query(sql))?;
        self.until_ready()
    }

    /// The rows of a simple query, values joined with spaces and NULL as the word.
    pub fn rows(&mut self, sql: &str) -> Result<Vec<String>, ClientError> {
        let show = |value: &Field| value.clone().unwrap_or_else(|| "NULL".to_string());
        Ok(self.query(sql)?.rows.iter().map(|row| row.iter().map(show).collect::<Vec<_>>().join(" ")).collect())
    }

    /// Runs a query until its rows are as wanted.
    ///
    /// # Panics
    /// When that takes longer than `patience`, or the query fails.
    pub fn await_rows(&mut self, patience: Duration, sql: &str, wanted: &[&str]) {
        let started = Instant::now();
        loop {
            let rows = self.rows(sql).expect("rows");
            if rows == wanted {
                return;
            }
            assert!(started.elapsed() < patience, "{sql}: {rows:?}, not {wanted:?}");
            std::thread::yield_now();
        }
    }

    /// Reads up to ReadyForQuery; the first error is the result.
    pub fn until_ready(&mut self) -> Result<Answer, ClientError> {
        let mut answer = Answer::default();
        let mut error = None;
        loop {
            let message = self.receive()?;
            match message.kind {
                b'D' => {
                    let text = |value: Option<Vec<u8>>| value.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
                    answer.rows.push(message.row().into_iter().map(text).collect());
                }
                b'C' => answer.tags.push(message.tag()),
                b'E' => {
                    let this = ClientError::of(&message);
                    // After a FATAL there is no ReadyForQuery.
                    if matches!(&this, ClientError::Server { severity, .. } if severity == "FATAL") {
                        return Err(this);
                    }
                    error.get_or_insert(this);
                }
                b'Z' => return error.map_or(Ok(answer), Err),
                _ => {}
            }
        }
    }

    /// Cancels what this session runs, over a connection of its own.
    pub fn cancel(&self) -> std::io::Result<()> {
        cancel(self.address, self.process_id, self.secret)
    }

    /// Cancels what was sent, again and again until it has ended: the request may come before the statement has begun. Answers how it ended.
    pub fn cancel_until_ready(&mut self) -> Result<Answer, ClientError> {
        let (address, process_id, secret) = (self.address, self.process_id, self.secret);
        let done = AtomicBool::new(false);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    cancel(address, process_id, secret).expect("a cancel request is sent");
                    std::thread::yield_now();
                }
            });
            let ended = self.until_ready();
            done.store(true, Ordering::Relaxed);
            ended
        })
    }

    /// Says good-bye.
    pub fn terminate(mut self) {
        let _ = self.send(&frame(b'X', &[]));
    }

    /// Nothing more will be sent; the server sees the end of the stream.
    pub fn finish_sending(&self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Whether the server has closed the connection, once everything it sent has been read.
    pub fn is_closed(&mut self) -> bool {
        let mut rest = [0; 4096];
        loop {
            match self.socket.read(&mut rest) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
            }
        }
    }

    fn fill(&mut self, wanted: usize) -> std::io::Result<()> {
        let mut chunk = [0; 16 << 10];
        while self.buffer.len() < wanted {
            match self.socket.read(&mut chunk)? {
                0 => return Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, "the server has closed the connection")),
                count => self.buffer.extend_from_slice(&chunk[..count]),
            }
        }
        Ok(())
    }
}

/// Asks a server to cancel what one of its sessions runs.
fn cancel(address: SocketAddr, process_id: i32, secret: i32) -> std::io::Result<()> {
    let mut socket = TcpStream::connect(address)?;
    let mut packet = 16_u32.to_be_bytes().to_vec();
    packet.extend_from_slice(&80_877_102_u32.to_be_bytes());
    packet.extend_from_slice(&process_id.to_be_bytes());
    packet.extend_from_slice(&secret.to_be_bytes());
    socket.write_all(&packet)?;
    // The server closes when it has done it.
    let _ = socket.read(&mut [0]);
    Ok(())
}
