//! The dataflow engine. It knows Arrow, not SQL text and not Postgres.

pub mod chunk;
pub mod coordinator;
pub mod engine;
pub mod error;
pub mod exchange;
pub mod format;
pub mod graph;
pub mod graph_text;
pub mod job;
mod maintenance;
pub mod message;
pub mod operator;
mod option_list;
pub mod scan;
pub mod side;
pub mod sink;
pub mod source;
pub mod task;
