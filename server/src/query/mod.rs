//! Bounded queries: from a resolved logical plan to rows, in fragments on the threads for queries.

pub(crate) mod engine;
pub(crate) mod run;
mod statistics;
