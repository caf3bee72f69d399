//! From SQL text to plans. Pure: text, a catalog and settings go in, plans come out; there is no IO and no clock in this crate.
//!
//! ```text
//! text -- parse --> Statement -- bind (catalog, types, functions) --> BoundStatement with a LogicalPlan
//!      -- optimize --> -- stream (properties) --> -- lower --> engine::graph::DataflowGraph
//! ```
//!
//! Invariants: the same text, catalog and settings give the same plan, byte for byte; nothing panics on any text; every error a user can
//! meet has Postgres' wording and an SQLSTATE.

pub mod bind;
pub mod catalog;
pub mod error;
pub mod explain;
pub mod functions;
pub mod interrupt;
pub mod logical;
mod lower;
pub mod optimize;
#[cfg(test)]
mod oracle;
pub mod parse;
pub mod pg_text;
pub mod relation_source;
pub mod stream;
#[cfg(test)]
mod test_bench;
pub mod types;
mod unnest;

pub use error::{PlanError, Result};
