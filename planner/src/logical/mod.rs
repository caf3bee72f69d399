//! Nodes of a logical plan that DataFusion does not have.

pub mod bounded;
mod constant_rows;
mod series;
pub mod single_row;
pub(crate) mod subquery;
pub mod top_n;
pub mod window;
pub mod window_exec;
