//! The server: the wire protocol, sessions, statements and the process.
//!
//! Life of a statement: the wire layer hands text to a [`session::Session`]; it is parsed and bound by the planner, then *acted* on, and the
//! [`answer::Answer`] goes back as rows, a tag, or one half of a COPY.

pub mod answer;
pub mod config;
pub mod error;
mod http;
mod metrics;
mod pgwire;
pub mod process;
pub mod server;
pub mod session;
pub mod state;
