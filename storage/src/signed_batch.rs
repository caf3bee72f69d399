//! Rows with a sign each: the form in which changes of a relation are logged, kept and handed on.

use arrow::record_batch::RecordBatch;

use crate::{
    encoding::{
        batch::{read_batch, write_batch},
        cursor::Cursor,
    },
    error::{Result, StorageError},
};

/// Rows that appear (+1) or disappear (-1). A deleted row is given in full.
#[derive(Clone, Debug, PartialEq)]
pub struct SignedBatch {
    /// The rows.
    pub batch: RecordBatch,
    /// +1 or -1 per row; `None` when all are +1.
    pub signs: Option<Vec<i8>>,
}

impl SignedBatch {
    /// Rows that all appear.
    pub fn inserts(batch: RecordBatch) -> Self {
        Self { batch, signs: None }
    }

    /// Rows with their signs; signs that are all +1 are dropped.
    pub fn new(batch: RecordBatch, signs: Vec<i8>) -> Self {
        assert_eq!(batch.num_rows(), signs.len(), "a signed batch has one sign per row");
        let signs = signs.iter().any(|sign| *sign != 1).then_some(signs);
        Self { batch, signs }
    }

    /// The number of rows.
    pub fn num_rows(&self) -> usize {
        self.batch.num_rows()
    }

    /// The sign of a row.
    pub fn sign(&self, row: usize) -> i8 {
        self.signs.as_ref().map_or(1, |signs| signs[row])
    }

    /// Appends the batch to `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) -> Result<()> {
        match &self.signs {
            None => out.push(0),
            Some(signs) if signs.len() == self.batch.num_rows() => {
                out.push(1);
                out.extend_from_slice(&(signs.len() as u32).to_le_bytes());
                out.extend(signs.iter().map(|sign| *sign as u8));
            }
            Some(signs) => return Err(StorageError::Internal(format!("{} signs for {} rows", signs.len(), self.batch.num_rows()))),
        }
        write_batch(&self.batch, out)
    }

    /// Reads what [`Self::write`] wrote.
    pub(crate) fn read(from: &mut Cursor<'_>) -> Result<Self> {
        let signs = match from.u8()? {
            0 => None,
            _ => Some(from.sized_bytes()?.iter().map(|byte| *byte as i8).collect::<Vec<i8>>()),
        };
        let batch = read_batch(from)?;
        if signs.as_ref().is_some_and(|signs| signs.len() != batch.num_rows()) {
            return Err(from.corrupt("a batch has another number of signs than rows"));
        }
        Ok(Self { batch, signs })
    }
}
