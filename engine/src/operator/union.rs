//! All inputs as one bag.
//!
//! Any changelogs in, their union out. No state. The watermark of a column is the minimum over the ports, once every port has one.
//! Cost: none; chunks pass as they are.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{
    datatypes::SchemaRef,
    record_batch::{RecordBatch, RecordBatchOptions},
};

use crate::{
    chunk::Chunk,
    error::Result,
    message::Watermark,
    operator::{Operator, Output, Progress},
};

/// See the module.
pub(crate) struct Union {
    schema: SchemaRef,
    watermarks: PortWatermarks,
}

impl Union {
    /// A union of `ports` inputs with the types of `schema`.
    pub(crate) fn new(schema: SchemaRef, ports: usize) -> Self {
        Self { schema, watermarks: PortWatermarks::new(ports) }
    }
}

impl Operator for Union {
    fn on_chunk(&mut self, _port: usize, chunk: Chunk, out: &mut Output) -> Result<Progress> {
        if chunk.batch().schema_ref() == &self.schema {
            out.emit(chunk);
            return Ok(Progress::Done);
        }
        let options = RecordBatchOptions::new().with_row_count(Some(chunk.num_rows()));
        let columns = chunk.batch().columns().to_vec();
        let batch = RecordBatch::try_new_with_options(Arc::clone(&self.schema), columns, &options)?;
        out.emit(chunk.with_batch(batch));
        Ok(Progress::Done)
    }

    fn on_watermark(&mut self, port: usize, watermark: Watermark, out: &mut Output) -> Result<Progress> {
        if let Some(micros) = self.watermarks.advance(port, watermark) {
            out.emit_watermark(Watermark { column: watermark.column, micros });
        }
        Ok(Progress::Done)
    }
}

/// The watermark that each port has reached, per column, and the minimum last announced.
#[derive(Debug)]
struct PortWatermarks {
    ports: usize,
    columns: BTreeMap<usize, (Vec<Option<i64>>, Option<i64>)>,
}

impl PortWatermarks {
    fn new(ports: usize) -> Self {
        Self { ports, columns: BTreeMap::new() }
    }

    /// Takes a port's watermark; the new minimum of the column, if it has moved.
    fn advance(&mut self, port: usize, watermark: Watermark) -> Option<i64> {
        let ports = self.ports;
        let (reached, announced) = self.columns.entry(watermark.column).or_insert_with(|| (vec![None; ports], None));
        reached[port] = reached[port].max(Some(watermark.micros));
        let minimum = reached.iter().copied().min().flatten()?;
        if announced.is_some_and(|announced| announced >= minimum) {
            return None;
        }
        *announced = Some(minimum);
        Some(minimum)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_minimum_over_ports_counts_once_all_have_spoken() {
        let mut watermarks = PortWatermarks::new(2);
        assert_eq!(watermarks.advance(0, Watermark { column: 1, micros: 5 }), None);
        assert_eq!(watermarks.advance(1, Watermark { column: 1, micros: 3 }), Some(3));
        assert_eq!(watermarks.advance(0, Watermark { column: 1, micros: 9 }), None);
        assert_eq!(watermarks.advance(1, Watermark { column: 1, micros: 7 }), Some(7));
        assert_eq!(watermarks.advance(1, Watermark { column: 1, micros: 6 }), None);
    }
}
