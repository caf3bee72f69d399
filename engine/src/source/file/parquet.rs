//! Reads a Parquet file. The offset of a row is its number, counted from one.

use arrow::datatypes::SchemaRef;

use super::{
    OpenLater,
    ahead::{Block, BlockReader, BlockRows, RowEnds},
};
use crate::{
    error::Result,
    format::parquet::ParquetBatches,
    source::{BadRow, Offset},
};

/// A Parquet file being read. It is opened by the first read, which is on a thread that may block.
pub(super) enum ParquetReader {
    /// Not opened yet.
    Closed { file: Box<OpenLater>, columns: SchemaRef, wanted: Vec<usize>, from: Offset },
    /// At row `position`.
    Open { batches: Box<ParquetBatches>, position: Offset },
}

impl BlockReader for ParquetReader {
    fn next(&mut self) -> Result<Block> {
        self.check()?;
        let ParquetReader::Open { batches, position } = self else { return Ok(Block::End) };
        let Some(rows) = batches.read()? else { return Ok(Block::End) };
        let before = *position;
        *position += rows.read as u64;
        let ends = if rows.refused.is_empty() {
            RowEnds::Counted { before }
        } else {
            RowEnds::Listed { base: before, ends: rows.numbers.iter().map(|number| number + 1).collect() }
        };
        let bad = rows.refused.into_iter().map(|(number, reason)| {
            let offset = before + u64::from(number) + 1;
            BadRow { text: format!("row {offset}"), reason, offset }
        });
        Ok(Block::Rows(BlockRows { batch: rows.batch, ends, bad: bad.collect(), end: *position }))
    }

    fn check(&mut self) -> Result<()> {
        if let ParquetReader::Closed { file, columns, wanted, from } = self {
            let file = file.open()?;
            let name = file.name().to_owned();
            let batches = Box::new(ParquetBatches::open(&name, file, columns, wanted, *from)?);
            *self = ParquetReader::Open { batches, position: *from };
        }
        Ok(())
    }
}
