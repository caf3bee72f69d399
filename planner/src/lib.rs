//! planner

pub mod logical;
pub mod pg_text;
pub mod relation_source;
