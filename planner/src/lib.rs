//! planner

pub mod logical;
pub mod relation_source;
