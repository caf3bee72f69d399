//! Nodes of a logical plan that DataFusion does not have.

pub mod window;
