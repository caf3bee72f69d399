//! The server: the wire protocol, sessions, statements and the process.
//!
//! Life of a statement: the wire layer hands text to a [`session::Session`]; it is parsed and bound by the planner, then *acted* on
//! (`statement`, `act/*`), and the [`answer::Answer`] goes back as rows, a tag, or one half of a COPY.

mod act;
pub mod answer;
mod batch;
mod binding;
mod catalog_store;
pub mod config;
pub mod error;
mod http;
mod jobs;
mod metrics;
mod pgwire;
pub mod process;
mod query;
mod relation;
pub mod server;
pub mod session;
pub mod state;
mod statement;
mod system_tables;
