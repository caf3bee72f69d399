//! Drops its rows: the root of a blackhole sink's graph. The task loop counts them, as it does for every operator.
//!
//! Any changelog in, nothing out. No state, no watermarks.

use crate::{
    chunk::Chunk,
    error::Result,
    operator::{Operator, Output, Progress},
};

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Discard;

impl Operator for Discard {
    fn on_chunk(&mut self, _port: usize, _chunk: Chunk, _out: &mut Output) -> Result<Progress> {
        Ok(Progress::Done)
    }
}
