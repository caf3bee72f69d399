//! Keeps the rows for which a predicate is true; NULL and rows whose evaluation fails are not kept.
//!
//! Any changelog in, the same kind out. No state. Watermarks pass unchanged. Cost: one evaluation per chunk; a chunk of which every row is
//! kept passes without a copy.

use arrow::compute::filter_record_batch;

use crate::{
    chunk::Chunk,
    error::Result,
    expression::{Evaluator, keep_rows},
    message::Watermark,
    operator::{Operator, Output, Progress},
};

/// See the module.
pub(crate) struct Filter {
    predicate: Evaluator,
}

impl Filter {
    /// A filter by a boolean expression over the input.
    pub(crate) fn new(predicate: Evaluator) -> Self {
        Self { predicate }
    }
}

impl Operator for Filter {
    fn on_chunk(&mut self, _port: usize, chunk: Chunk, out: &mut Output) -> Result<Progress> {
        let kept = self.predicate.matches(chunk.batch())?;
        match kept.true_count() {
            0 => {}
            count if count == chunk.num_rows() => out.emit(chunk),
            _ => out.emit(keep_rows(&chunk, filter_record_batch(chunk.batch(), &kept)?, &kept)),
        }
        Ok(Progress::Done)
    }

    fn on_watermark(&mut self, _port: usize, watermark: Watermark, out: &mut Output) -> Result<Progress> {
        out.emit_watermark(watermark);
        Ok(Progress::Done)
    }
}
