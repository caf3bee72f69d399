//! The dataflow engine. It knows Arrow, not SQL text and not Postgres.

mod accumulator;
pub mod chunk;
pub mod error;
pub mod expression;
pub mod format;
pub mod graph;
#[cfg(test)]
pub(crate) mod harness;
pub mod message;
mod option_list;
pub mod sink;
pub mod source;
pub mod operator;
