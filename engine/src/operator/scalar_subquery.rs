//! The value of a subquery used as an expression: passes its input, which must not have more than one row at the end of an epoch, and stands
//! for it with a row of NULLs while it is empty.
//!
//! Any changelog in. Out: per epoch the row that goes and the one that comes, if they differ; always exactly one row, from the first barrier on.
//! More than one row fails the job with SQLSTATE 21000.
//!
//! State:
//! - table 0: all columns -> multiplicity and the row. A row dies when it is deleted.
//! - table 1: one entry, the row that was last emitted; empty for the row of NULLs.
//!
//! Watermarks end here: the row of NULLs may come at any time. A change costs the same whatever the state; the input is expected to be small.

use std::{ops::ControlFlow, sync::Arc};

use arrow::{
    array::new_null_array,
    compute::concat_batches,
    datatypes::{DataType, SchemaRef},
    record_batch::RecordBatch,
};
use millpond_storage::{
    encoding::{key::KeyCodec, row::RowCodec},
    state_table::{PointTable, StateTable},
};

use super::{multiplicity, state::TableIds};
use crate::{
    chunk::{Chunk, Op},
    error::{EngineError, Result},
    message::Barrier,
    operator::{Operator, OperatorContext, Output, Progress},
};

/// Key of the entry of table 1.
const EMITTED: &[u8] = b"emitted";

/// See the module.
pub(crate) struct ScalarSubquery {
    schema: SchemaRef,
    key: KeyCodec,
    row: RowCodec,
    rows: PointTable,
    emitted: PointTable,
    /// What table 1 has: `None` before the first barrier, an empty row for NULLs.
    last: Option<Vec<u8>>,
    changed: bool,
}

impl ScalarSubquery {
    /// An operator over rows of `input` columns.
    pub(crate) fn new(input: &SchemaRef, ids: TableIds, context: &mut OperatorContext) -> Result<Self> {
        let types: Vec<DataType> = input.fields().iter().map(|field| field.data_type().clone()).collect();
        let mut operator = Self {
            schema: Arc::clone(input),
            key: KeyCodec::ascending(&types)?,
            row: RowCodec::new(&types)?,
            rows: context.state.point_table(ids.table(0))?,
            emitted: context.state.point_table(ids.table(1))?,
            last: None,
            changed: true,
        };
        let last = &mut operator.last;
        operator.emitted.scan_all(&mut |_, row| {
            *last = Some(row.to_vec());
            Ok(ControlFlow::Break(()))
        })?;
        Ok(operator)
    }

    /// The one row of the input; empty if there is none.
    fn current(&mut self) -> Result<Vec<u8>> {
        let mut found: Option<Vec<u8>> = None;
        let mut several = false;
        self.rows.scan_all(&mut |_, value| {
            let (copies, row) = multiplicity::read(value);
            several |= copies > 1 || copies > 0 && found.is_some();
            if copies > 0 {
                found = Some(row.to_vec());
            }
            Ok(if several { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        })?;
        if several {
            return Err(EngineError::user("21000", "more than one row returned by a subquery used as an expression"));
        }
        Ok(found.unwrap_or_default())
    }

    fn decode(&self, row: &[u8]) -> Result<RecordBatch> {
        let columns = if row.is_empty() {
            self.schema.fields().iter().map(|field| new_null_array(field.data_type(), 1)).collect()
        } else {
            let wanted: Vec<usize> = (0..self.schema.fields().len()).collect();
            self.row.decode(std::iter::once(row), &wanted)?
        };
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

impl Operator for ScalarSubquery {
    fn on_chunk(&mut self, _port: usize, chunk: Chunk, _out: &mut Output) -> Result<Progress> {
        let keys = self.key.encode(chunk.batch().columns())?;
        let rows = self.row.encode(chunk.batch().columns())?;
        self.rows.load(&keys)?;
        let mut value = Vec::new();
        for row in 0..chunk.num_rows() {
            let key = keys.row(row);
            let before = self.rows.get(key).map_or(0, |value| multiplicity::read(value).0);
            let after = before + i64::from(chunk.op(row).sign());
            if after == 0 {
                self.rows.delete(key);
            } else {
                multiplicity::write(after, rows.row(row), &mut value);
                self.rows.put(key, &value);
            }
        }
        self.changed |= chunk.num_rows() > 0;
        Ok(Progress::Done)
    }

    fn on_barrier(&mut self, _barrier: &Barrier, out: &mut Output) -> Result<Progress> {
        if !std::mem::take(&mut self.changed) {
            return Ok(Progress::Done);
        }
        let current = self.current()?;
        if self.last.as_ref() == Some(&current) {
            return Ok(Progress::Done);
        }
        let new = self.decode(&current)?;
        match &self.last {
            None => out.emit(Chunk::inserts(new)),
            Some(last) => {
                let pair = concat_batches(&self.schema, &[self.decode(last)?, new])?;
                out.emit(Chunk::new(pair, vec![Op::UpdateBefore, Op::UpdateAfter]));
            }
        }
        self.emitted.put(EMITTED, &current);
        self.last = Some(current);
        Ok(Progress::Done)
    }

    fn tables(&mut self) -> Vec<&mut dyn StateTable> {
        vec![&mut self.rows, &mut self.emitted]
    }
}

#[cfg(test)]
mod tests;
