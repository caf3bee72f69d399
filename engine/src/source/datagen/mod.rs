//! Made-up rows. Each column is a sequence or random; row i is a function of i and the options. Split k of n gives rows k, k + n, ...; the
//! offset counts the split's rows.
//!
//! | option | meaning |
//! |---|---|
//! | `rows_per_second` (`datagen.rows.per.second`) | rate over all splits; 0: as fast as they are read (default 10) |
//! | `rows` | rows over all splits (default: never ends, unless a sequence does) |
//! | `splits` (`datagen.split.num`) | splits (default 1) |
//! | `start_time` | instant at which row 0 is due (default: when the source is created) |
//! | `fields.<column>.kind` | `sequence` or `random` (default random; sequence for times) |
//! | `fields.<column>.start`, `.end`, `.step` | sequence: first value (default 1, for times `start_time`), last (then the source ends), distance (default 1; for times the interval between rows in seconds) |
//! | `fields.<column>.min`, `.max` | random numbers and times: both included (numbers: 0 to 1,000; times: a day from `start_time` on) |
//! | `fields.<column>.length` | random text: characters (default 10) |
//! | `fields.<column>.seed` | random: other values (default 0) |
//! | `fields.<column>.null_rate` | share of NULLs, 0 to 1 (default 0) |

mod column;
mod random;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use arrow::{
    datatypes::SchemaRef,
    record_batch::{RecordBatch, RecordBatchOptions},
};
use async_trait::async_trait;
use millpond_storage::env::Clock;

pub use self::column::ColumnSpec;
use super::{Discovery, Offset, ReadOutcome, Source, Split, SplitReader, options::instant_option, pacing::Pacing};
use crate::{
    chunk::CHUNK_ROWS,
    error::{EngineError, Result},
    option_list::{OptionList, invalid_value},
};

/// Splits a source may have.
const MAX_SPLITS: u64 = 1024;

/// A source of made-up rows, checked.
#[derive(Clone, Debug, PartialEq)]
pub struct DatagenSpec {
    /// Rows a second, zero for no limit.
    pub rate: u64,
    /// The number of rows, if it ends.
    pub rows: Option<u64>,
    /// Splits.
    pub splits: u64,
    /// When row 0 is due, microseconds since 1970 UTC.
    pub start_us: i64,
    /// One per column of the source.
    pub columns: Vec<ColumnSpec>,
}

impl DatagenSpec {
    pub(super) fn from_options(list: &mut OptionList, schema: &SchemaRef) -> Result<Self> {
        let rate = list.number_any(&["rows_per_second", "datagen.rows.per.second"])?.unwrap_or(10);
        let declared_rows: Option<u64> = list.number("rows")?;
        let splits = list.number_any(&["splits", "datagen.split.num"])?.unwrap_or(1);
        if !(1..=MAX_SPLITS).contains(&splits) {
            return Err(invalid_value("splits", &splits.to_string(), Some(format!("It must be between 1 and {MAX_SPLITS}."))));
        }
        let start_us = instant_option(list, "start_time")?.unwrap_or(0);
        // Another system's statements say here how generated rows are encoded; ours never are.
        let _ = list.take("format");
        let mut settings = list.take_prefixed("fields.", "fields.<column>.<setting>");
        let columns: Vec<ColumnSpec> = schema
            .fields()
            .iter()
            .map(|field| {
                let prefix = format!("{}.", field.name().to_ascii_lowercase());
                let own = settings.extract_if(.., |(name, _)| name.starts_with(&prefix));
                let own: Vec<(String, String)> = own.map(|(name, value)| (name[prefix.len()..].to_owned(), value)).collect();
                ColumnSpec::from_settings(field, &own, start_us, rate)
            })
            .collect::<Result<_>>()?;
        if let Some((name, _)) = settings.first() {
            let column = name.rsplit_once('.').map_or(name.as_str(), |(column, _)| column);
            return Err(EngineError::user("42703", format!("option \"fields.{name}\" names column \"{column}\", which does not exist")));
        }
        let rows = columns.iter().filter_map(ColumnSpec::length).chain(declared_rows).min();
        Ok(Self { rate, rows, splits, start_us, columns })
    }
}

/// A source of made-up rows.
#[derive(Debug)]
pub struct DatagenSource {
    spec: DatagenSpec,
    schema: SchemaRef,
    clock: Clock,
}

impl DatagenSource {
    /// A source with the columns of `schema`, for which `spec` was made.
    pub fn new(spec: DatagenSpec, schema: SchemaRef, clock: Clock) -> Self {
        Self { spec, schema, clock }
    }

    fn length_of(&self, split: u64) -> Option<u64> {
        Some(self.spec.rows?.saturating_sub(split).div_ceil(self.spec.splits))
    }
}

#[async_trait]
impl Source for DatagenSource {
    fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    fn paced(&self) -> bool {
        self.spec.rate > 0
    }

    async fn discover(&self) -> Result<Discovery> {
        let splits = (0..self.spec.splits)
            .map(|split| Split { id: format!("split-{split}"), end: self.length_of(split), bounded: self.spec.rows.is_some() })
            .collect();
        Ok(Discovery { splits, complete: true })
    }

    async fn open(&self, split: &Split, from: Offset, projection: &[usize]) -> Result<Box<dyn SplitReader>> {
        let number =
            split.id.strip_prefix("split-").and_then(|number| number.parse::<u64>().ok()).filter(|number| *number < self.spec.splits);
        let number = number.ok_or_else(|| EngineError::Internal(format!("split \"{}\" does not exist", split.id)))?;
        Ok(Box::new(DatagenReader {
            schema: Arc::new(self.schema.project(projection)?),
            columns: projection.iter().map(|column| self.spec.columns[*column].clone()).collect(),
            position: from,
            split: number,
            splits: self.spec.splits,
            length: self.length_of(number),
            pacing: Pacing { rate: self.spec.rate, start_us: self.spec.start_us, clock: self.clock.clone() },
        }))
    }
}

/// Reads one split.
struct DatagenReader {
    schema: SchemaRef,
    columns: Vec<ColumnSpec>,
    position: Offset,
    split: u64,
    splits: u64,
    length: Option<u64>,
    pacing: Pacing,
}

impl DatagenReader {
    /// The number among all rows of the split's row `position`.
    fn row_number(&self, position: Offset) -> u64 {
        position.saturating_mul(self.splits).saturating_add(self.split)
    }
}

#[async_trait]
impl SplitReader for DatagenReader {
    async fn read(&mut self, max_rows: usize, limit: Option<Offset>) -> Result<ReadOutcome> {
        if limit.is_some_and(|limit| self.position >= limit) {
            return Ok(ReadOutcome::AtLimit);
        }
        if self.length.is_some_and(|length| self.position >= length) {
            return Ok(ReadOutcome::Finished);
        }
        let left = limit.unwrap_or(u64::MAX).min(self.length.unwrap_or(u64::MAX)) - self.position;
        let mut rows = left.min(max_rows.clamp(1, CHUNK_ROWS) as u64);
        if limit.is_none() {
            let due_of_split = self.pacing.due().saturating_sub(self.split).div_ceil(self.splits);
            rows = rows.min(due_of_split.saturating_sub(self.position));
        }
        if rows == 0 {
            let retry_after_us = self.pacing.wait_us(self.row_number(self.position));
            return Ok(ReadOutcome::Pending { retry_after_us, idle: false });
        }
        let numbers: Vec<u64> = (0..rows).map(|row| self.row_number(self.position + row)).collect();
        let columns = self.columns.iter().map(|column| column.values(&numbers)).collect::<Result<Vec<_>>>()?;
        let options = RecordBatchOptions::new().with_row_count(Some(numbers.len()));
        self.position += rows;
        let batch = RecordBatch::try_new_with_options(self.schema.clone(), columns, &options)?;
        Ok(ReadOutcome::Rows { batch, end: self.position, bad: Vec::new() })
    }
}
