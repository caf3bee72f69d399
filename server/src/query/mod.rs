//! Bounded queries: from a resolved logical plan to rows, by DataFusion on the threads for queries.

pub(crate) mod engine;
pub(crate) mod run;
