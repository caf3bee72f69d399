//! Millpond as its users see it: servers to test against, and a client that speaks the protocol message by message.
//!
//! [`TestServer`] runs a server inside of the test's process, on a directory of its own and free ports. [`ServerProcess`] runs it as a
//! child, to be killed. [`Postgres`] is a real PostgreSQL to compare with, [`ObjectServer`] a real S3 server. [`WireClient`] is a plain Postgres client without conveniences:
//! what it sends and what it receives are the protocol's messages, so that a test can say exactly what it means.

mod gate;
mod message;
mod object_server;
mod postgres;
mod process;
mod server;
mod slt;
mod wire_client;

pub use gate::Trouble;
pub use message::{Message, RowColumn, bind, close, describe, execute, frame, parse, query, startup};
pub use object_server::ObjectServer;
pub use postgres::Postgres;
pub use process::ServerProcess;
pub use server::TestServer;
pub use slt::{Protocol, SltDatabase};
pub use wire_client::{Answer, ClientError, Field, WireClient};
