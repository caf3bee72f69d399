//! What a subtask has sent of the step it is in, so that it can be told apart when the step is taken again. Pure.
//!
//! A step is what follows from one message. The output of a step is a multiset of rows that follows from the state before it and the
//! message; their order may also depend on what of the state was in memory. So a step that was through is repeated without sending anything,
//! and of the one that was not, rows that were sent are left out by what they hold, not by their number.

use std::collections::HashMap;

use arrow::{
    array::{Array, BooleanArray},
    compute::filter_record_batch,
    row::{OwnedRow, RowConverter, SortField},
};

use super::determinants::chunk_bytes;
use crate::{chunk::Chunk, error::Result};

/// Bytes of one step's output that are remembered.
const STEP_BYTES: usize = 4 << 20;

/// See the module.
#[derive(Default)]
pub(super) struct SentInStep {
    chunks: Vec<Chunk>,
    bytes: usize,
    /// A chunk is on its way: some of its consumers may have it.
    is_sending: bool,
    is_over: bool,
}

impl SentInStep {
    /// A new step begins: the one before is through.
    pub(super) fn begin(&mut self) {
        self.chunks.clear();
        (self.bytes, self.is_sending, self.is_over) = (0, false, false);
    }

    /// A chunk is about to be sent.
    pub(super) fn sending(&mut self) {
        self.is_sending = true;
    }

    /// It has been sent on every edge.
    pub(super) fn sent(&mut self, chunk: Chunk) {
        self.is_sending = false;
        self.bytes += chunk_bytes(&chunk);
        self.is_over |= self.bytes > STEP_BYTES;
        if self.is_over {
            self.chunks.clear();
        } else {
            self.chunks.push(chunk);
        }
    }

    /// Whether it is known which rows of the step have been sent.
    pub(super) fn is_known(&self) -> bool {
        !self.is_sending && !self.is_over
    }

    /// Tells rows that were sent from others.
    pub(super) fn filter(&self) -> Result<SentFilter> {
        let mut filter = SentFilter::default();
        for chunk in &self.chunks {
            filter.add(chunk)?;
        }
        Ok(filter)
    }
}

/// Leaves out of a step's output what had been sent of it.
#[derive(Default)]
pub(super) struct SentFilter {
    converter: Option<RowConverter>,
    /// How often each row was sent, with its sign, and has not come again.
    rows: HashMap<(i8, OwnedRow), usize>,
    left: usize,
}

impl SentFilter {
    fn add(&mut self, chunk: &Chunk) -> Result<()> {
        for (row, encoded) in self.encode(chunk)?.into_iter().enumerate() {
            *self.rows.entry((chunk.op(row).sign(), encoded)).or_default() += 1;
            self.left += 1;
        }
        Ok(())
    }

    /// Whether all that was sent has come again.
    pub(super) fn is_used_up(&self) -> bool {
        self.left == 0
    }

    /// The rows of a chunk that have not been sent, `None` if all have.
    pub(super) fn only_new(&mut self, chunk: Chunk) -> Result<Option<Chunk>> {
        if self.left == 0 {
            return Ok(Some(chunk));
        }
        let mut keep = Vec::with_capacity(chunk.num_rows());
        for (row, encoded) in self.encode(&chunk)?.into_iter().enumerate() {
            let sent = self.rows.get_mut(&(chunk.op(row).sign(), encoded)).filter(|count| **count > 0);
            keep.push(sent.is_none());
            if let Some(count) = sent {
                *count -= 1;
                self.left -= 1;
            }
        }
        if !keep.contains(&true) {
            return Ok(None);
        }
        let ops = chunk.ops().map(|ops| ops.iter().zip(&keep).filter(|(_, keep)| **keep).map(|(op, _)| *op).collect());
        let batch = filter_record_batch(chunk.batch(), &BooleanArray::from(keep))?;
        Ok(Some(match ops {
            Some(ops) => Chunk::new(batch, ops),
            None => Chunk::inserts(batch),
        }))
    }

    fn encode(&mut self, chunk: &Chunk) -> Result<Vec<OwnedRow>> {
        let columns = chunk.batch().columns();
        let converter = match &mut self.converter {
            Some(converter) => converter,
            none @ None => {
                none.insert(RowConverter::new(columns.iter().map(|column| SortField::new(column.data_type().clone())).collect())?)
            }
        };
        let rows = converter.convert_columns(columns)?;
        Ok(rows.iter().map(|row| row.owned()).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::{
        array::{AsArray, Int64Array},
        datatypes::Int64Type,
        record_batch::RecordBatch,
    };

    use super::*;
    use crate::chunk::Op;

    fn chunk(rows: &[(i64, i8)]) -> Chunk {
        let column: Arc<dyn Array> = Arc::new(Int64Array::from_iter_values(rows.iter().map(|(value, _)| *value)));
        let batch = RecordBatch::try_from_iter([("a", column)]).expect("one column");
        Chunk::new(batch, rows.iter().map(|(_, sign)| Op::from_sign(*sign)).collect())
    }

    fn rows(chunk: Option<Chunk>) -> Vec<(i64, i8)> {
        let Some(chunk) = chunk else { return Vec::new() };
        let values = chunk.batch().column(0).as_primitive::<Int64Type>();
        (0..chunk.num_rows()).map(|row| (values.value(row), chunk.op(row).sign())).collect()
    }

    #[test]
    fn rows_are_told_apart_in_whatever_order_they_come() {
        let mut sent = SentInStep::default();
        sent.sent(chunk(&[(1, 1), (2, -1), (2, 1), (3, 1)]));
        sent.sent(chunk(&[(3, 1), (9, 1)]));
        let mut filter = sent.filter().expect("numbers have an order");
        assert_eq!(rows(filter.only_new(chunk(&[(3, 1), (3, -1), (2, 1), (1, 1)])).expect("numbers")), [(3, -1)]);
        assert_eq!(rows(filter.only_new(chunk(&[(2, 1), (3, 1), (3, 1), (2, -1), (9, 1)])).expect("numbers")), [(2, 1), (3, 1)]);
        assert_eq!(rows(filter.only_new(chunk(&[(1, 1)])).expect("numbers")), [(1, 1)]);
        sent.begin();
        assert_eq!(rows(sent.filter().expect("nothing").only_new(chunk(&[(3, 1)])).expect("numbers")), [(3, 1)]);
    }

    #[test]
    fn what_some_consumers_may_have_cannot_be_told() {
        let mut sent = SentInStep::default();
        sent.sending();
        assert!(!sent.is_known());
        sent.sent(chunk(&[(1, 1)]));
        assert!(sent.is_known());
        let many: Vec<_> = (0..1_000_000).map(|value| (value, 1)).collect();
        sent.sent(chunk(&many));
        assert!(!sent.is_known());
        sent.begin();
        assert!(sent.is_known());
    }
}
