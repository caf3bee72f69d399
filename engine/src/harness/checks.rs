//! Protocol checkers of the operator test bench.

use std::collections::BTreeMap;

use arrow::{
    array::Array,
    datatypes::{DataType, SchemaRef},
};

use super::Contents;
use crate::{chunk::Chunk, message::Watermark, operator::event_time::micros};

/// What was promised so far.
pub(super) struct Checks {
    times: Vec<usize>,
    /// (subtask, column) -> watermark.
    watermarks: BTreeMap<(usize, usize), i64>,
}

impl Checks {
    pub(super) fn new(schema: &SchemaRef) -> Self {
        let is_time = |data_type: &DataType| matches!(data_type, DataType::Timestamp(_, _) | DataType::Date32);
        let columns = schema.fields().iter().enumerate().filter(|(_, field)| is_time(field.data_type()));
        Self { times: columns.map(|(column, _)| column).collect(), watermarks: BTreeMap::new() }
    }

    /// Watermarks are promises of a subtask; after a restart they are made anew.
    pub(super) fn restarted(&mut self) {
        self.watermarks.clear();
    }

    pub(super) fn on_watermark(&mut self, subtask: usize, watermark: Watermark) {
        let before = self.watermarks.insert((subtask, watermark.column), watermark.micros);
        assert!(before.is_none_or(|before| before <= watermark.micros), "a watermark goes back: {before:?} to {watermark:?}");
    }

    pub(super) fn on_chunk(&self, subtask: usize, chunk: &Chunk) {
        for column in &self.times {
            let Some(watermark) = self.watermarks.get(&(subtask, *column)) else { continue };
            let times = micros(chunk.batch().column(*column)).expect("a time column has microseconds");
            for row in (0..times.len()).filter(|row| times.is_valid(*row)) {
                assert!(times.value(row) >= *watermark, "below the watermark {watermark} of column {column}: {}", chunk.lines()[row]);
            }
        }
    }

    pub(super) fn at_barrier(&self, contents: &Contents) {
        let negative: Vec<_> = contents.iter().filter(|(_, count)| **count < 0).collect();
        assert!(negative.is_empty(), "deleted without having been inserted: {negative:?}");
    }

    pub(super) fn watermark(&self, column: usize, subtasks: usize) -> Option<i64> {
        (0..subtasks).map(|subtask| self.watermarks.get(&(subtask, column)).copied()).min().flatten()
    }
}
