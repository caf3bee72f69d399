//! INSERT: rows from expressions or from a query, ON CONFLICT, RETURNING.

use std::{collections::HashSet, sync::Arc};

use arrow::{
    array::{ArrayRef, AsArray, RecordBatch, RecordBatchOptions, UInt32Array},
    compute::take_record_batch,
    datatypes::{Schema, SchemaRef},
};
use datafusion::{
    common::{
        DFSchema,
        tree_node::{Transformed, TreeNode},
    },
    logical_expr::{Expr, LogicalPlan},
    scalar::ScalarValue,
};
use futures::StreamExt;
use millpond_planner::{
    bind::{BoundInsert, OnConflict, OutputColumn, Returning},
    functions::clock::{self, Clock},
};

use crate::{
    act::{
        copy::{checked, nullable},
        dml::{
            changes::Changes,
            keyed::KeyState,
            table_change::TableChange,
            target::{Target, physical_over},
        },
        select,
    },
    answer::{Answer, RowsTag},
    error::{Result, SqlError},
    query::run,
    session::{Session, cancel::Cancel},
    statement,
};

/// Executes an INSERT.
pub(crate) async fn execute(session: &mut Session, insert: &BoundInsert, values: &[ScalarValue], cancel: &Cancel) -> Result<Answer> {
    session.require_writable("INSERT")?;
    let given = Given { values, times: session.times() };
    let target = session.server.targets.get(&session.server, insert.table.id)?;
    // The rows are made before the table is locked: a query may take long.
    let proposed = match &insert.values {
        Some(rows) => vec![evaluate(rows, given, target.schema())?],
        None => query_rows(session, &insert.plan, values, &target, cancel).await?,
    };
    let text = session.text_settings();
    for rows in &proposed {
        target.check(rows, &text)?;
    }
    let change = TableChange::begin(session, target.clone(), "INSERT", cancel).await?;
    let mut written = Vec::new();
    for rows in proposed {
        cancel.check()?;
        let rows = checked(&rows, target.schema())?;
        match &insert.on_conflict {
            None => {
                change.insert(session.work(), &rows)?;
                written.push(rows);
            }
            Some(action) => written.extend(upsert(session, &change, action, given, &rows)?),
        }
    }
    session.work().account()?;
    answer(&written, insert.returning.as_ref(), given)
}

/// The answer: a count, or what RETURNING says of the rows written.
fn answer(written: &[RecordBatch], returning: Option<&Returning>, given: Given<'_>) -> Result<Answer> {
    let Some(returning) = returning else {
        let count: usize = written.iter().map(RecordBatch::num_rows).sum();
        return Ok(Answer::done(format!("INSERT 0 {count}")));
    };
    let mut rows = Vec::with_capacity(written.len());
    for batch in written {
        rows.push(returned(batch, returning, given)?);
    }
    Ok(returning_answer(rows, &returning.columns, RowsTag::InsertReturning))
}

/// RETURNING's columns of rows of a table.
fn returned(rows: &RecordBatch, returning: &Returning, given: Given<'_>) -> Result<RecordBatch> {
    let columns = DFSchema::try_from_qualified_schema(Returning::ROW, &rows.schema())?;
    project(rows, &columns, &returning.expressions, &returning.columns, given)
}

fn project(rows: &RecordBatch, schema: &DFSchema, expressions: &[Expr], columns: &[OutputColumn], given: Given<'_>) -> Result<RecordBatch> {
    let mut arrays: Vec<ArrayRef> = Vec::with_capacity(expressions.len());
    for expression in expressions {
        let physical = physical_over(&given.fill(expression)?, schema)?;
        arrays.push(physical.evaluate(rows)?.into_array(rows.num_rows())?);
    }
    let fields = columns.iter().map(|column| arrow::datatypes::Field::new(&column.name, column.arrow(), true));
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(Arc::new(Schema::new(fields.collect::<Vec<_>>())), arrays, &options)?)
}

/// Rows that a statement gives back.
pub(crate) fn returning_answer(rows: Vec<RecordBatch>, columns: &[OutputColumn], tag: RowsTag) -> Answer {
    let stream = futures::stream::iter(rows.into_iter().map(Ok)).boxed();
    Answer::Rows { columns: columns.iter().map(statement::column).collect(), stream, tag }
}

/// What stands for the parameters and clocks of a statement's expressions.
#[derive(Clone, Copy)]
pub(crate) struct Given<'a> {
    /// Values of the parameters.
    pub(crate) values: &'a [ScalarValue],
    /// The times the statement sees.
    pub(crate) times: Clock,
}

impl Given<'_> {
    /// The value of an expression without columns. Literals and parameters, which most are, are not evaluated.
    fn value(&self, expression: &Expr) -> Result<ScalarValue> {
        match expression {
            Expr::Literal(value, _) => Ok(value.clone()),
            Expr::Alias(alias) => self.value(&alias.expr),
            Expr::Placeholder(placeholder) => {
                let number = placeholder.id.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
                let value = number.and_then(|number| self.values.get(number.wrapping_sub(1)));
                value.cloned().ok_or_else(|| SqlError::new("42P02", format!("there is no parameter {}", placeholder.id)))
            }
            other => constant(&self.fill(other)?),
        }
    }

    /// An expression with values for its parameters and clocks.
    pub(crate) fn fill(&self, expression: &Expr) -> Result<Expr> {
        let expression = clock::resolve_expression(expression.clone(), self.times)?;
        with_values(expression, self.values)
    }
}

fn with_values(expression: Expr, values: &[ScalarValue]) -> Result<Expr> {
    if values.is_empty() {
        return Ok(expression);
    }
    let replaced = expression.transform_up(|node| {
        let Expr::Placeholder(placeholder) = &node else { return Ok(Transformed::no(node)) };
        let number = placeholder.id.strip_prefix('$').and_then(|number| number.parse::<usize>().ok());
        match number.and_then(|number| values.get(number.wrapping_sub(1))) {
            Some(value) => Ok(Transformed::yes(Expr::Literal(value.clone(), None))),
            None => Ok(Transformed::no(node)),
        }
    })?;
    Ok(replaced.data)
}

/// The value of an expression without columns.
pub(crate) fn constant(expression: &Expr) -> Result<ScalarValue> {
    if let Expr::Literal(value, _) = expression {
        return Ok(value.clone());
    }
    let options = RecordBatchOptions::new().with_row_count(Some(1));
    let one_row = RecordBatch::try_new_with_options(Arc::new(Schema::empty()), Vec::new(), &options)?;
    let array = physical_over(expression, &DFSchema::empty())?.evaluate(&one_row)?.into_array(1)?;
    Ok(ScalarValue::try_from_array(&array, 0)?)
}

/// Rows of VALUES, evaluated without a plan.
fn evaluate(rows: &[Vec<Expr>], given: Given<'_>, schema: &SchemaRef) -> Result<RecordBatch> {
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
    for (number, field) in schema.fields().iter().enumerate() {
        let mut cells = Vec::with_capacity(rows.len());
        for row in rows {
            let expression = row.get(number).ok_or_else(|| SqlError::internal("a row of VALUES is too short"))?;
            let value = given.value(expression)?;
            cells.push(if value.data_type() == *field.data_type() { value } else { value.cast_to(field.data_type())? });
        }
        columns.push(if cells.is_empty() { arrow::array::new_empty_array(field.data_type()) } else { ScalarValue::iter_to_array(cells)? });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.len()));
    Ok(RecordBatch::try_new_with_options(nullable(schema), columns, &options)?)
}

/// Rows of a query, in the table's types.
async fn query_rows(
    session: &mut Session,
    plan: &LogicalPlan,
    values: &[ScalarValue],
    target: &Target,
    cancel: &Cancel,
) -> Result<Vec<RecordBatch>> {
    let run = select::prepare(session, plan.clone(), values, Vec::new(), cancel.clone()).await?;
    let rows = run::collect(&session.server.clone(), run).await?;
    let schema = nullable(target.schema());
    rows.into_iter().map(|rows| conform(&rows, &schema)).collect()
}

/// The same rows with the names and types of a schema.
pub(crate) fn conform(rows: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let mut columns = Vec::with_capacity(schema.fields().len());
    for (column, field) in rows.columns().iter().zip(schema.fields()) {
        columns.push(if column.data_type() == field.data_type() {
            column.clone()
        } else {
            arrow::compute::cast(column, field.data_type())?
        });
    }
    let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
    Ok(RecordBatch::try_new_with_options(schema.clone(), columns, &options)?)
}

/// INSERT .. ON CONFLICT, row by row groups: rows that are new are inserted, the others are left or updated. Answers the rows written.
fn upsert(
    session: &mut Session,
    change: &TableChange,
    action: &OnConflict,
    given: Given<'_>,
    rows: &RecordBatch,
) -> Result<Vec<RecordBatch>> {
    let identity = change.target.identity.clone();
    let keys = identity.encode(rows)?;
    let (committed, places) = change.committed(&keys)?;
    let Changes::Keyed(changes) = change.changes(session.work()) else {
        return Err(SqlError::internal("ON CONFLICT on a table without a key"));
    };
    let (mut fresh, mut taken, mut existing) = (Vec::new(), Vec::new(), Vec::new());
    let mut seen: HashSet<&[u8]> = HashSet::new();
    for (row, key) in keys.iter().enumerate() {
        let there = match changes.state(key) {
            KeyState::Untouched => places[row].map(|place| committed.slice(place as usize, 1)),
            KeyState::Absent => None,
            KeyState::Present(place) => Some(changes.row(place)),
        };
        let repeated = !seen.insert(key);
        match (there, action) {
            (_, OnConflict::Update { .. }) if repeated => {
                return Err(SqlError::new("21000", "ON CONFLICT DO UPDATE command cannot affect row a second time")
                    .with_hint("Ensure that no rows proposed for insertion within the same command have duplicate constrained values."));
            }
            (None, _) if !repeated => fresh.push(row as u32),
            (Some(there), OnConflict::Update { .. }) => {
                taken.push(row as u32);
                existing.push(there);
            }
            _ => {}
        }
    }
    let mut written = Vec::new();
    if !fresh.is_empty() {
        let fresh = take_record_batch(rows, &UInt32Array::from(fresh))?;
        change.insert(session.work(), &fresh)?;
        written.push(fresh);
    }
    if let OnConflict::Update { assignments, condition } = action
        && !taken.is_empty()
    {
        let existing = arrow::compute::concat_batches(change.target.schema(), &existing)?;
        let proposed = take_record_batch(rows, &UInt32Array::from(taken))?;
        let updated = update_existing(change, &existing, &proposed, assignments, condition.as_ref(), given)?;
        if let Some((old, new)) = updated {
            change.delete(session.work(), &old)?;
            change.insert(session.work(), &new)?;
            written.push(new);
        }
    }
    Ok(written)
}

/// The rows that DO UPDATE changes, before and after.
fn update_existing(
    change: &TableChange,
    existing: &RecordBatch,
    proposed: &RecordBatch,
    assignments: &[Expr],
    condition: Option<&Expr>,
    given: Given<'_>,
) -> Result<Option<(RecordBatch, RecordBatch)>> {
    let schema = change.target.schema();
    let mut pairs = DFSchema::try_from_qualified_schema(OnConflict::EXISTING, schema)?;
    pairs = pairs.join(&DFSchema::try_from_qualified_schema(OnConflict::EXCLUDED, schema)?)?;
    let pair_schema: SchemaRef = Arc::new(pairs.as_arrow().clone());
    let columns: Vec<ArrayRef> = existing.columns().iter().chain(proposed.columns()).cloned().collect();
    let (mut old, mut rows) = (existing.clone(), RecordBatch::try_new(nullable(&pair_schema), columns)?);
    if let Some(condition) = condition {
        let keep = physical_over(&given.fill(condition)?, &pairs)?.evaluate(&rows)?.into_array(rows.num_rows())?;
        old = arrow::compute::filter_record_batch(&old, keep.as_boolean())?;
        rows = arrow::compute::filter_record_batch(&rows, keep.as_boolean())?;
    }
    if old.num_rows() == 0 {
        return Ok(None);
    }
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(assignments.len());
    for (assignment, field) in assignments.iter().zip(schema.fields()) {
        let column = physical_over(&given.fill(assignment)?, &pairs)?.evaluate(&rows)?.into_array(rows.num_rows())?;
        columns.push(if column.data_type() == field.data_type() { column } else { arrow::compute::cast(&column, field.data_type())? });
    }
    let new = RecordBatch::try_new(nullable(schema), columns)?;
    change.target.check(&new, &change.text)?;
    Ok(Some((old, checked(&new, schema)?)))
}
