//! What binding gives.

use std::sync::Arc;

use arrow::datatypes::{DataType, Schema, SchemaRef};
use datafusion::{
    common::{ParamValues, ScalarValue},
    logical_expr::{Expr, LogicalPlan},
};

use crate::{
    catalog::{CatalogChange, Object},
    error::Result,
    optimize::join_order::Hints,
    parse::statement::{CopyOptions, FetchDirection},
    types::SqlType,
};

/// A bound statement, the types of its parameters and the columns of its answer.
#[derive(Clone, Debug)]
pub struct Bound {
    /// What it does.
    pub statement: BoundStatement,
    /// Types of `$1`, `$2` ..
    pub parameter_types: Vec<SqlType>,
    /// Columns of its rows, if it gives any.
    pub columns: Option<Vec<OutputColumn>>,
}

/// A column of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputColumn {
    /// As the user named it, or Postgres would have.
    pub name: String,
    /// Its type.
    pub sql_type: SqlType,
    /// Its typmod.
    pub modifier: i32,
    /// Catalog number and column number (from 1) of the column it shows unchanged.
    pub origin: Option<(u64, i16)>,
    /// Whether it may be NULL.
    pub nullable: bool,
}

impl OutputColumn {
    /// Its Arrow type.
    pub fn arrow(&self) -> DataType {
        self.sql_type.arrow()
    }
}

/// A query.
#[derive(Clone, Debug)]
pub struct BoundQuery {
    /// Analysed, not optimized. Its columns are those of `columns` in order, in their Arrow types; names are made unique.
    pub plan: LogicalPlan,
    /// The columns.
    pub columns: Vec<OutputColumn>,
    /// Types of parameters.
    pub parameters: Vec<SqlType>,
    /// Numbers of the objects it names.
    pub dependencies: Vec<u64>,
    /// What its text says of its plan.
    pub hints: Hints,
}

impl BoundQuery {
    /// The Arrow schema of its rows, with the user's names.
    pub fn schema(&self) -> SchemaRef {
        let fields = self.columns.iter().map(|column| arrow::datatypes::Field::new(&column.name, column.arrow(), column.nullable));
        Arc::new(Schema::new(fields.collect::<Vec<_>>()))
    }
}

/// What a statement does.
#[derive(Clone, Debug)]
pub enum BoundStatement {
    /// Rows of a query.
    Query(BoundQuery),
    /// INSERT.
    Insert(BoundInsert),
    /// UPDATE.
    Update(BoundUpdate),
    /// DELETE.
    Delete(BoundDelete),
    /// TRUNCATE of these tables.
    Truncate(Vec<u64>),
    /// COPY .. FROM STDIN.
    CopyFrom(BoundCopyFrom),
    /// COPY .. TO STDOUT.
    CopyTo(BoundQuery, CopyOptions),
    /// CREATE TABLE, SOURCE, SCHEMA, INDEX: an object that needs no plan. `None` if it is there and IF NOT EXISTS was said.
    Create(Option<CatalogChange>, Vec<BoundNotice>),
    /// CREATE [MATERIALIZED] VIEW, SINK, TABLE AS: an object and the query it shows.
    CreateAs(Box<BoundCreateAs>),
    /// DROP.
    Drop(BoundDrop),
    /// ALTER, COMMENT ON: changed objects. `None` if nothing changes.
    Alter(Option<CatalogChange>, Vec<BoundNotice>),
    /// ALTER of what runs behind a materialized view or sink.
    AlterJob(BoundAlterJob),
    /// DECLARE .. CURSOR.
    DeclareCursor {
        /// The cursor's name.
        name: String,
        /// What it shows.
        query: BoundQuery,
        /// BINARY.
        binary: bool,
        /// It may go back.
        scroll: bool,
        /// It outlives the transaction.
        hold: bool,
    },
    /// FETCH, MOVE.
    Fetch {
        /// The cursor's name.
        name: String,
        /// How far.
        direction: FetchDirection,
        /// MOVE.
        moves: bool,
    },
    /// EXPLAIN of a statement.
    Explain(Box<Bound>),
    /// ANALYZE of these relations; none means all.
    Analyze(Vec<u64>),
    /// A statement that binding changes nothing about: transactions, settings, SHOW and the like.
    Utility,
}

/// An order to the job of a materialized view or sink.
#[derive(Clone, Debug)]
pub struct BoundAlterJob {
    /// The object.
    pub id: u64,
    /// What is to be done.
    pub action: JobAction,
}

/// What is done to a job.
#[derive(Clone, Debug)]
pub enum JobAction {
    /// SET, RESET: the object with its new options, and the names of those that were set or reset.
    SetOptions(CatalogChange, Vec<String>),
    /// RESUME.
    Resume {
        /// SKIP.
        skip: bool,
    },
    /// FAIL SUBTASK: a drill.
    FailSubtask {
        /// The fragment.
        fragment: i64,
        /// Index in it.
        subtask: i64,
    },
}

/// A NOTICE or WARNING.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BoundNotice {
    /// `00000` and the like.
    pub sqlstate: &'static str,
    /// The text.
    pub message: String,
    /// More of it.
    pub detail: Option<String>,
}

impl BoundNotice {
    /// A NOTICE.
    pub fn new(message: impl Into<String>) -> Self {
        Self { sqlstate: "00000", message: message.into(), detail: None }
    }
}

/// INSERT.
#[derive(Clone, Debug)]
pub struct BoundInsert {
    /// The table.
    pub table: Arc<Object>,
    /// New rows: all columns of the table in order, defaults filled in, converted and cut to declared lengths. NOT NULL and CHECK are not
    /// checked in it.
    pub plan: LogicalPlan,
    /// The same rows as expressions, when they are VALUES: what has to be run is only an evaluation.
    pub values: Option<Vec<Vec<Expr>>>,
    /// ON CONFLICT.
    pub on_conflict: Option<OnConflict>,
    /// RETURNING, over the columns of the table.
    pub returning: Option<Returning>,
}

/// ON CONFLICT on the primary key.
#[derive(Clone, Debug)]
pub enum OnConflict {
    /// DO NOTHING.
    Nothing,
    /// DO UPDATE.
    Update {
        /// All columns of the new row, over existing columns (qualified with [`OnConflict::EXISTING`]) and proposed ones
        /// (qualified with [`OnConflict::EXCLUDED`]).
        assignments: Vec<Expr>,
        /// WHERE, over the same columns.
        condition: Option<Expr>,
    },
}

impl OnConflict {
    /// Qualifier of the columns of the row that is there.
    pub const EXISTING: &'static str = "existing";
    /// Qualifier of the columns of the row that was to be inserted.
    pub const EXCLUDED: &'static str = "excluded";
}

/// RETURNING.
#[derive(Clone, Debug)]
pub struct Returning {
    /// One per column of the answer, over columns qualified with [`Returning::ROW`] (UPDATE .. FROM and DELETE .. USING: over the columns of
    /// the statement's plan).
    pub expressions: Vec<Expr>,
    /// The columns of the answer.
    pub columns: Vec<OutputColumn>,
}

impl Returning {
    /// Qualifier of the columns of the row that was written or removed.
    pub const ROW: &'static str = "row";
}

/// UPDATE.
#[derive(Clone, Debug)]
pub struct BoundUpdate {
    /// The table.
    pub table: Arc<Object>,
    /// Rows to change: all columns as they are, then all columns as they will be, then RETURNING's. The same old row may come more than once
    /// when FROM joins it with several rows; the first counts.
    pub plan: LogicalPlan,
    /// Columns of RETURNING, the last ones of the plan.
    pub returning: Option<Vec<OutputColumn>>,
    /// Which columns are assigned.
    pub assigned: Vec<usize>,
}

/// DELETE.
#[derive(Clone, Debug)]
pub struct BoundDelete {
    /// The table.
    pub table: Arc<Object>,
    /// Rows to remove: all columns, then RETURNING's. As in UPDATE, a row may come more than once.
    pub plan: LogicalPlan,
    /// Columns of RETURNING, the last ones of the plan.
    pub returning: Option<Vec<OutputColumn>>,
}

/// COPY .. FROM STDIN.
#[derive(Clone, Debug)]
pub struct BoundCopyFrom {
    /// The table.
    pub table: Arc<Object>,
    /// Columns in the order of the data, by number.
    pub columns: Vec<usize>,
    /// Values of the columns that are not in the data, by number.
    pub defaults: Vec<(usize, Expr)>,
    /// How the data is written.
    pub options: CopyOptions,
}

/// A new object with a query.
#[derive(Clone, Debug)]
pub struct BoundCreateAs {
    /// The new object; `None` if it is there and IF NOT EXISTS was said.
    pub change: Option<CatalogChange>,
    /// Its query: what the view or sink shows, or the first rows of the table.
    pub query: BoundQuery,
    /// CREATE TABLE AS: whether the rows are to be inserted.
    pub fill: bool,
    /// What to tell.
    pub notices: Vec<BoundNotice>,
}

/// DROP.
#[derive(Clone, Debug)]
pub struct BoundDrop {
    /// Numbers of what goes, dependants first.
    pub ids: Vec<u64>,
    /// The change of the catalog; `None` if nothing goes.
    pub change: Option<CatalogChange>,
    /// What to tell.
    pub notices: Vec<BoundNotice>,
}

/// The plan with values for its parameters.
///
/// # Errors
/// If a value is missing.
pub fn with_parameters(plan: LogicalPlan, values: &[ScalarValue]) -> Result<LogicalPlan> {
    if values.is_empty() {
        return Ok(plan);
    }
    let values = ParamValues::from(values.to_vec());
    Ok(plan.replace_params_with_values(&values)?)
}
