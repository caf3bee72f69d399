//! Counts rows and drops them: the root of a blackhole sink's graph.
//!
//! Any changelog in, nothing out. No state, no watermarks.

use crate::{
    chunk::Chunk,
    error::Result,
    operator::{Operator, Output, Progress},
};

/// See the module.
#[derive(Debug, Default)]
pub struct Discard {
    rows: u64,
}

impl Discard {
    /// Row changes dropped so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }
}

impl Operator for Discard {
    fn on_chunk(&mut self, _port: usize, chunk: Chunk, _out: &mut Output) -> Result<Progress> {
        self.rows += chunk.num_rows() as u64;
        Ok(Progress::Done)
    }
}
