//! The dataflow engine. It knows Arrow, not SQL text and not Postgres.

pub mod chunk;
pub mod error;
pub mod format;
pub mod graph;
pub mod message;
mod option_list;
pub mod sink;
pub mod source;
pub mod operator;
