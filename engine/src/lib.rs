//! The dataflow engine. It knows Arrow, not SQL text and not Postgres.

mod accumulator;
pub mod bounded;
pub mod chunk;
pub mod coordinator;
pub mod engine;
pub mod error;
pub mod exchange;
pub mod expression;
pub mod format;
pub mod graph;
pub mod graph_text;
#[cfg(test)]
pub(crate) mod harness;
pub mod job;
mod maintenance;
pub mod message;
pub mod operator;
mod option_list;
pub mod quotient;
pub mod scan;
pub mod side;
pub mod sink;
pub mod source;
pub mod task;
mod term;
