//! Evaluates SQL expressions over chunks, with a written policy for rows that fail.
//!
//! The whole batch is evaluated at once. If that fails with an error that a single row can cause (division by zero, overflow, a bad cast),
//! the batch is halved until the failing rows stand alone; these go to the side output with the reason and leave the changelog. An
//! expression is a function of its row, so the deletion of a refused row is refused as well, and what is kept stays consistent. Halving
//! also means that one bad row costs a dozen evaluations and not four thousand.

use std::sync::Arc;

use arrow::{
    array::{Array, ArrayRef, AsArray, BooleanArray, BooleanBufferBuilder},
    buffer::BooleanBuffer,
    compute::{cast, concat, prep_null_mask_filter},
    datatypes::DataType,
    error::ArrowError,
    record_batch::RecordBatch,
};
use datafusion::error::DataFusionError;

use crate::{
    chunk::{Chunk, Op, row_text},
    error::{EngineError, Result},
    graph::Expression,
    operator::SideOutput,
};

/// Expressions of one operator, evaluated together: a row that fails in one of them is refused by all.
pub struct Evaluator {
    expressions: Vec<Expression>,
    types: Vec<DataType>,
    operator: String,
    side: Arc<dyn SideOutput>,
}

/// What an evaluation gave.
pub struct Evaluated {
    /// One array per expression, over the kept rows.
    pub columns: Vec<ArrayRef>,
    /// Which input rows were kept, or `None` for all.
    pub kept: Option<BooleanArray>,
}

/// Arrays over the good rows found so far, and the good rows.
struct Pieces {
    columns: Vec<Vec<ArrayRef>>,
    kept: BooleanBufferBuilder,
    refused: usize,
}

impl Evaluator {
    /// An evaluator of `expressions` whose results have exactly the given types. `operator` names the operator in the side output.
    pub fn new(expressions: Vec<Expression>, types: Vec<DataType>, operator: impl Into<String>, side: Arc<dyn SideOutput>) -> Self {
        assert_eq!(expressions.len(), types.len(), "an expression has one type");
        Self { expressions, types, operator: operator.into(), side }
    }

    /// An evaluator of one predicate.
    pub fn predicate(predicate: Expression, operator: impl Into<String>, side: Arc<dyn SideOutput>) -> Self {
        Self::new(vec![predicate], vec![DataType::Boolean], operator, side)
    }

    /// The expressions.
    pub fn expressions(&self) -> &[Expression] {
        &self.expressions
    }

    /// Evaluates all expressions. Errors only when the expression itself is at fault, never because of a row.
    pub fn evaluate(&self, batch: &RecordBatch) -> Result<Evaluated> {
        match self.evaluate_whole(batch) {
            Ok(columns) => Ok(Evaluated { columns, kept: None }),
            Err(error) => {
                row_error(error)?;
                self.evaluate_by_halves(batch)
            }
        }
    }

    /// The rows for which the only expression, a predicate, is true. NULL counts as false, and so does a refused row.
    pub fn matches(&self, batch: &RecordBatch) -> Result<BooleanArray> {
        let Evaluated { columns, kept } = self.evaluate(batch)?;
        let values = without_nulls(columns[0].as_boolean());
        Ok(match kept {
            None => values,
            Some(kept) => spread(&values, kept.values()),
        })
    }

    fn evaluate_whole(&self, batch: &RecordBatch) -> Result<Vec<ArrayRef>, DataFusionError> {
        let evaluate = |(expression, wanted): (&Expression, &DataType)| {
            let array = expression.physical.evaluate(batch)?.into_array(batch.num_rows())?;
            if array.data_type() == wanted { Ok(array) } else { Ok(cast(&array, wanted)?) }
        };
        self.expressions.iter().zip(&self.types).map(evaluate).collect()
    }

    fn evaluate_by_halves(&self, batch: &RecordBatch) -> Result<Evaluated> {
        let rows = batch.num_rows();
        let mut pieces = Pieces { columns: vec![Vec::new(); self.types.len()], kept: BooleanBufferBuilder::new(rows), refused: 0 };
        if rows > 1 {
            let half = rows / 2;
            self.halve(&batch.slice(0, half), &mut pieces)?;
            self.halve(&batch.slice(half, rows - half), &mut pieces)?;
        } else {
            self.halve(batch, &mut pieces)?;
        }
        let join = |(parts, data_type): (&Vec<ArrayRef>, &DataType)| -> Result<ArrayRef> {
            if parts.is_empty() {
                return Ok(arrow::array::new_empty_array(data_type));
            }
            Ok(concat(&parts.iter().map(AsRef::as_ref).collect::<Vec<_>>())?)
        };
        let columns = pieces.columns.iter().zip(&self.types).map(join).collect::<Result<_>>()?;
        let kept = (pieces.refused > 0).then(|| BooleanArray::new(pieces.kept.finish(), None));
        Ok(Evaluated { columns, kept })
    }

    /// Evaluates `part`, halving it as long as it fails. The depth is the logarithm of the chunk size.
    fn halve(&self, part: &RecordBatch, pieces: &mut Pieces) -> Result<()> {
        let rows = part.num_rows();
        match self.evaluate_whole(part) {
            Ok(columns) => {
                pieces.kept.append_n(rows, true);
                pieces.columns.iter_mut().zip(columns).for_each(|(parts, column)| parts.push(column));
                Ok(())
            }
            Err(error) => {
                let reason = row_error(error)?;
                if rows <= 1 {
                    pieces.kept.append_n(rows, false);
                    pieces.refused += rows;
                    self.side.bad_row(&self.operator, row_text(part, 0), reason, None);
                    return Ok(());
                }
                self.halve(&part.slice(0, rows / 2), pieces)?;
                self.halve(&part.slice(rows / 2, rows - rows / 2), pieces)
            }
        }
    }
}

/// The kept rows of a chunk over other columns. Where one half of an update is dropped, the other becomes a plain insert or delete.
pub(crate) fn keep_rows(chunk: &Chunk, batch: RecordBatch, kept: &BooleanArray) -> Chunk {
    match chunk.ops() {
        None => Chunk::inserts(batch),
        Some(ops) => Chunk::new(batch, keep_ops(ops, kept.values())),
    }
}

fn keep_ops(ops: &[Op], kept: &BooleanBuffer) -> Vec<Op> {
    let mut result = Vec::with_capacity(kept.count_set_bits());
    for row in kept.set_indices() {
        let pair_is_whole = match ops[row] {
            Op::Insert | Op::Delete => true,
            Op::UpdateBefore => row + 1 < ops.len() && kept.value(row + 1),
            Op::UpdateAfter => row > 0 && kept.value(row - 1),
        };
        result.push(if pair_is_whole { ops[row] } else { Op::from_sign(ops[row].sign()) });
    }
    result
}

/// NULL read as false.
pub(crate) fn without_nulls(values: &BooleanArray) -> BooleanArray {
    if values.null_count() == 0 { values.clone() } else { prep_null_mask_filter(values) }
}

/// `values` put at the set positions of `kept`, false elsewhere.
fn spread(values: &BooleanArray, kept: &BooleanBuffer) -> BooleanArray {
    let mut bits = BooleanBufferBuilder::new(kept.len());
    bits.append_n(kept.len(), false);
    for (index, row) in kept.set_indices().enumerate() {
        bits.set_bit(row, values.value(index));
    }
    BooleanArray::new(bits.finish(), None)
}

/// The reason, if a row can be at fault; otherwise the error itself.
fn row_error(error: DataFusionError) -> Result<String> {
    match error {
        DataFusionError::Context(_, inner) | DataFusionError::Diagnostic(_, inner) => row_error(*inner),
        DataFusionError::Execution(reason) => Ok(reason),
        DataFusionError::ArrowError(arrow, context) => match *arrow {
            ArrowError::DivideByZero => Ok("division by zero".into()),
            ArrowError::CastError(reason)
            | ArrowError::ParseError(reason)
            | ArrowError::ComputeError(reason)
            | ArrowError::ArithmeticOverflow(reason)
            | ArrowError::InvalidArgumentError(reason) => Ok(reason),
            other => Err(DataFusionError::ArrowError(Box::new(other), context).into()),
        },
        other => match EngineError::from(other) {
            EngineError::User { sqlstate, message, hint } if !sqlstate.starts_with("22") => {
                Err(EngineError::User { sqlstate, message, hint })
            }
            EngineError::User { message, .. } => Ok(message),
            error => Err(error),
        },
    }
}

#[cfg(test)]
mod tests;
