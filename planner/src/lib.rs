//! planner

pub mod error;
pub mod explain;
pub mod logical;
mod lower;
pub mod optimize;
#[cfg(test)]
mod oracle;
pub mod pg_text;
pub mod relation_source;
pub mod stream;
#[cfg(test)]
mod test_bench;
