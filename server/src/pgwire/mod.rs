//! The Postgres wire protocol, version 3: sockets, messages and the forms of values. Everything a statement does is behind
//! [`crate::session::Session`]; nothing outside this folder knows a message.
//!
//! - **One task per connection** owns the socket, the session and the protocol's state. While a statement runs, the same task goes on
//!   reading into a bounded buffer, so that a vanished client ends its work, and sends notices as they come ([`attend`]).
//! - **Frames and backend messages** are [`frame`] and [`outbox`]; the messages of a client are decoded by [`message`], which refuses what is
//!   not UTF-8 or not well formed. Backend messages other than rows are encoded by the crate `pgwire`, as is SCRAM.
//! - **Rows** go from Arrow arrays into one output buffer without a value in between ([`encode`]), which is flushed when it is full, when the
//!   statement has nothing more for now, and at its end.
//! - **Bounds**: connections, bytes of a message, statements and portals of a session, bytes read ahead, seconds for the startup.

mod attend;
mod binary_read;
mod binary_write;
mod bind;
mod cancel;
mod connection;
mod copy_in;
mod copy_out;
mod encode;
mod errors;
mod extended;
mod frame;
mod listener;
mod message;
mod numeric_binary;
mod outbox;
mod rows;
mod scram;
mod simple;
mod startup;
mod types;

pub(crate) use binary_read::read_binary;
pub(crate) use listener::{Listener, ListenerConfig, WireCounters};
