//! How many rows a plan has, and what is known of its columns: from the statistics of the relations it reads, upwards through every node.

use std::sync::Arc;

use datafusion::{
    arrow::datatypes::{DataType, Field},
    common::{DFSchema, JoinType, ScalarValue},
    logical_expr::{
        Aggregate, Distinct, Expr, Join, Limit, LogicalPlan, Projection, TableScan,
        expr::Cast,
        utils::{split_conjunction, split_conjunction_owned},
    },
};

use super::{
    join_order::{estimate_region, hints::Hints},
    selectivity::{Columns, DEFAULT_DISTINCT},
    statistics::{ColumnStatistics, Statistics, keys},
};

/// Rows of a relation of which nothing is known: a source, or a table that has still to be filled. What they will hold is rarely small.
const UNKNOWN_ROWS: f64 = 1_000_000.0;

/// Rows of what is made up by the query.
const MADE_UP_ROWS: f64 = 1000.0;

/// Bytes of a text of which nothing is known.
const UNKNOWN_TEXT: f64 = 24.0;

/// What is expected of the rows of a plan.
#[derive(Clone, Debug)]
pub(crate) struct Estimate {
    /// How many there are.
    pub(crate) rows: f64,
    /// How many change in some time.
    pub(crate) changes: f64,
    /// Of each column.
    pub(crate) columns: Vec<ColumnEstimate>,
    /// Any relation under it has statistics.
    pub(crate) known: bool,
}

/// What is expected of a column.
#[derive(Clone, Debug)]
pub(crate) struct ColumnEstimate {
    /// Distinct values, if known.
    pub(crate) distinct: Option<f64>,
    /// Bytes of a value.
    pub(crate) width: f64,
    /// What is known of it in the relation it comes from.
    pub(crate) statistics: Option<Arc<ColumnStatistics>>,
}

impl ColumnEstimate {
    fn unknown(field: &Field) -> Self {
        Self { distinct: None, width: type_width(field.data_type()), statistics: None }
    }

    /// Share of NULLs, as far as known.
    pub(crate) fn null_share(&self) -> f64 {
        self.statistics.as_ref().and_then(|statistics| statistics.null_share).unwrap_or(0.0)
    }
}

impl Estimate {
    /// Bytes of a row.
    pub(crate) fn width(&self) -> f64 {
        self.columns.iter().map(|column| column.width).sum()
    }

    /// The rows that conditions over a schema keep.
    pub(crate) fn filtered<'e>(mut self, conditions: impl IntoIterator<Item = &'e Expr>, schema: &DFSchema) -> Self {
        let conditions: Vec<&Expr> = conditions.into_iter().collect();
        let share = Columns { schema, columns: &self.columns, rows: self.rows }.all(conditions.iter().copied());
        for condition in conditions.into_iter().flat_map(split_conjunction) {
            if let Some((column, values)) = pinned(condition, schema) {
                self.columns[column].distinct = Some(values);
            }
        }
        self.keep(share)
    }

    fn keep(mut self, share: f64) -> Self {
        self.rows *= share;
        self.changes *= share;
        self
    }

    /// The same with so many rows.
    pub(crate) fn with_rows(mut self, rows: f64) -> Self {
        if self.rows > 0.0 {
            self.changes *= rows / self.rows;
        }
        self.rows = rows;
        self
    }
}

/// The column that a condition leaves only a few values, and how many.
fn pinned(condition: &Expr, schema: &DFSchema) -> Option<(usize, f64)> {
    let column = |expr: &Expr| match expr {
        Expr::Column(column) => schema.index_of_column(column).ok(),
        _ => None,
    };
    match condition {
        Expr::BinaryExpr(binary) if binary.op == datafusion::logical_expr::Operator::Eq => {
            let constant = |expr: &Expr| expr.column_refs().is_empty();
            let found = column(&binary.left).filter(|_| constant(&binary.right));
            found.or_else(|| column(&binary.right).filter(|_| constant(&binary.left))).map(|column| (column, 1.0))
        }
        Expr::InList(list) if !list.negated => column(&list.expr).map(|column| (column, list.list.len() as f64)),
        _ => None,
    }
}

/// Estimates plans.
pub(crate) struct Estimator<'a> {
    statistics: &'a dyn Statistics,
    hints: &'a Hints,
    empty_is_unknown: bool,
}

impl<'a> Estimator<'a> {
    /// By these statistics, where `hints` do not say otherwise. `empty_is_unknown`: a relation without rows will have some.
    pub(crate) fn new(statistics: &'a dyn Statistics, hints: &'a Hints, empty_is_unknown: bool) -> Self {
        Self { statistics, hints, empty_is_unknown }
    }

    /// What is expected of the rows of a plan.
    pub(crate) fn plan(&self, plan: &LogicalPlan) -> Estimate {
        match plan {
            LogicalPlan::TableScan(scan) => self.scan(scan),
            LogicalPlan::SubqueryAlias(alias) => self.hinted(alias.alias.table(), self.plan(&alias.input)),
            LogicalPlan::Filter(filter) => self.plan(&filter.input).filtered([&filter.predicate], filter.input.schema()),
            LogicalPlan::Projection(projection) => self.projection(projection),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Distinct(distinct) => self.distinct(distinct),
            LogicalPlan::Join(join) => self.join(plan, join),
            LogicalPlan::Limit(limit) => self.limit(limit),
            LogicalPlan::Sort(sort) => {
                let input = self.plan(&sort.input);
                let rows = sort.fetch.map_or(input.rows, |fetch| input.rows.min(fetch as f64));
                input.with_rows(rows)
            }
            LogicalPlan::EmptyRelation(empty) => fixed(plan, if empty.produce_one_row { 1.0 } else { 0.0 }),
            LogicalPlan::Values(values) => fixed(plan, values.values.len() as f64),
            LogicalPlan::Union(union) => self.sum(plan, union.inputs.iter().map(AsRef::as_ref)),
            _ => self.sum(plan, plan.inputs().into_iter()),
        }
    }

    /// The rows of the relation that a plan scans, before all filters; `None` if it does anything else.
    pub(crate) fn base_rows(&self, plan: &LogicalPlan) -> Option<f64> {
        match plan {
            LogicalPlan::Filter(filter) => self.base_rows(&filter.input),
            LogicalPlan::Projection(projection) => self.base_rows(&projection.input),
            LogicalPlan::SubqueryAlias(alias) => self.base_rows(&alias.input),
            LogicalPlan::TableScan(scan) => Some(self.scan(&TableScan { filters: Vec::new(), ..scan.clone() }).rows),
            _ => None,
        }
    }

    fn hinted(&self, name: &str, estimate: Estimate) -> Estimate {
        match self.hints.rows(name) {
            Some(rows) => Estimate { known: true, ..estimate.with_rows(rows) },
            None => estimate,
        }
    }

    fn scan(&self, scan: &TableScan) -> Estimate {
        let known = self.statistics.of(scan.source.as_ref()).filter(|known| !self.empty_is_unknown || known.rows > 0.0);
        let schema = scan.source.schema();
        let rows = known.as_ref().map_or(UNKNOWN_ROWS, |known| known.rows);
        let mut columns: Vec<ColumnEstimate> = schema.fields().iter().map(|field| ColumnEstimate::unknown(field)).collect();
        for (column, statistics) in columns.iter_mut().zip(known.iter().flat_map(|known| &known.columns)) {
            column.distinct = statistics.distinct.map(|distinct| distinct.min(rows));
            column.width = statistics.width.unwrap_or(column.width);
            column.statistics = Some(Arc::new(statistics.clone()));
        }
        let told = known.as_ref().map(|known| known.keys.clone()).unwrap_or_default();
        for key in told.into_iter().chain(keys(scan.source.as_ref())) {
            if let [column] = key.as_slice()
                && let Some(column) = columns.get_mut(*column)
            {
                column.distinct = Some(rows);
            }
        }
        let changes = known.as_ref().and_then(|known| known.changes).unwrap_or(rows);
        if let Some(projection) = &scan.projection {
            columns = projection.iter().filter_map(|column| columns.get(*column).cloned()).collect();
        }
        let all = Estimate { rows, changes, columns, known: known.is_some() };
        let fetched = match scan.fetch {
            Some(fetch) => all.rows.min(fetch as f64),
            None => all.rows,
        };
        let kept = all.with_rows(fetched).filtered(&scan.filters, &scan.projected_schema);
        self.hinted(scan.table_name.table(), kept)
    }

    fn projection(&self, projection: &Projection) -> Estimate {
        let input = self.plan(&projection.input);
        let fields = projection.schema.fields();
        let columns = projection.expr.iter().zip(fields).map(|(expr, field)| column_of(expr, &input, projection.input.schema(), field));
        Estimate { columns: columns.collect(), ..input }
    }

    fn aggregate(&self, aggregate: &Aggregate) -> Estimate {
        let input = self.plan(&aggregate.input);
        let schema = aggregate.input.schema();
        let fields = aggregate.schema.fields();
        let expressions = aggregate.group_expr.iter().chain(&aggregate.aggr_expr);
        let mut columns: Vec<ColumnEstimate> =
            expressions.zip(fields).map(|(expr, field)| column_of(expr, &input, schema, field)).collect();
        let groups = aggregate.group_expr.iter().map(|expr| distinct_of(expr, &input, schema).unwrap_or(DEFAULT_DISTINCT));
        let rows = groups.product::<f64>().min(input.rows).max(if aggregate.group_expr.is_empty() { 1.0 } else { 0.0 });
        if let ([_], Some(column)) = (aggregate.group_expr.as_slice(), columns.first_mut()) {
            column.distinct = Some(rows);
        }
        columns.extend(fields.iter().skip(columns.len()).map(|field| ColumnEstimate::unknown(field)));
        // Each change of a row is one of its group.
        Estimate { rows, changes: input.changes, columns, known: input.known }
    }

    fn distinct(&self, distinct: &Distinct) -> Estimate {
        let input = match distinct {
            Distinct::All(input) => input,
            Distinct::On(on) => &on.input,
        };
        let estimate = self.plan(input);
        let groups: f64 = estimate.columns.iter().map(|column| column.distinct.unwrap_or(DEFAULT_DISTINCT)).product();
        let rows = groups.min(estimate.rows);
        estimate.with_rows(rows)
    }

    fn join(&self, plan: &LogicalPlan, join: &Join) -> Estimate {
        estimate_region(plan, self, self.hints).unwrap_or_else(|| self.join_as_written(join))
    }

    /// A join whose order is not ours to choose.
    fn join_as_written(&self, join: &Join) -> Estimate {
        let (left, right) = (self.plan(&join.left), self.plan(&join.right));
        let matched = if join.on.is_empty() && join.filter.is_none() { left.rows * right.rows } else { left.rows.max(right.rows) };
        let known = left.known || right.known;
        let changes = left.changes + right.changes;
        let rows = match join.join_type {
            JoinType::Inner => matched,
            JoinType::Left | JoinType::LeftMark => left.rows.max(if join.join_type == JoinType::Left { matched } else { 0.0 }),
            JoinType::Right | JoinType::RightMark => right.rows.max(if join.join_type == JoinType::Right { matched } else { 0.0 }),
            JoinType::Full => left.rows.max(right.rows).max(matched),
            JoinType::LeftSemi | JoinType::LeftAnti => left.rows * 0.5,
            JoinType::RightSemi | JoinType::RightAnti => right.rows * 0.5,
        };
        let mut columns = match join.join_type {
            JoinType::LeftSemi | JoinType::LeftAnti | JoinType::LeftMark => left.columns,
            JoinType::RightSemi | JoinType::RightAnti | JoinType::RightMark => right.columns,
            JoinType::Inner | JoinType::Left | JoinType::Right | JoinType::Full => left.columns.into_iter().chain(right.columns).collect(),
        };
        columns.extend(join.schema.fields().iter().skip(columns.len()).map(|field| ColumnEstimate::unknown(field)));
        Estimate { rows, changes, columns, known }
    }

    fn limit(&self, limit: &Limit) -> Estimate {
        let input = self.plan(&limit.input);
        let fetch = match limit.fetch.as_deref() {
            Some(Expr::Literal(ScalarValue::Int64(Some(fetch)), _)) => *fetch as f64,
            _ => input.rows,
        };
        let rows = input.rows.min(fetch.max(0.0));
        input.with_rows(rows)
    }

    /// The rows of all inputs, whose columns count where they are the plan's own.
    fn sum<'p>(&self, plan: &LogicalPlan, inputs: impl Iterator<Item = &'p LogicalPlan>) -> Estimate {
        let mut inputs = inputs.map(|input| (self.plan(input), input));
        let Some((mut all, first)) = inputs.next() else { return fixed(plan, MADE_UP_ROWS) };
        let fields = plan.schema().fields();
        let same = |at: usize| first.schema().fields().get(at).is_some_and(|field| field.data_type() == fields[at].data_type());
        let mut single = true;
        for (other, _) in inputs {
            single = false;
            all.rows += other.rows;
            all.changes += other.changes;
            all.known |= other.known;
        }
        let column = |(at, field): (usize, &Arc<Field>)| match all.columns.get(at) {
            Some(column) if single && same(at) => column.clone(),
            _ => ColumnEstimate::unknown(field),
        };
        let columns = fields.iter().enumerate().map(column).collect();
        Estimate { columns, ..all }
    }
}

fn fixed(plan: &LogicalPlan, rows: f64) -> Estimate {
    let columns = plan.schema().fields().iter().map(|field| ColumnEstimate::unknown(field)).collect();
    Estimate { rows, changes: rows, columns, known: false }
}

fn column_of(expr: &Expr, input: &Estimate, schema: &DFSchema, field: &Field) -> ColumnEstimate {
    plain(expr, input, schema).cloned().unwrap_or_else(|| ColumnEstimate::unknown(field))
}

/// The column that an expression is but for its name or type.
fn plain<'a>(expr: &Expr, input: &'a Estimate, schema: &DFSchema) -> Option<&'a ColumnEstimate> {
    match expr {
        Expr::Column(column) => input.columns.get(schema.index_of_column(column).ok()?),
        Expr::Alias(alias) => plain(&alias.expr, input, schema),
        Expr::Cast(Cast { expr, .. }) => plain(expr, input, schema),
        _ => None,
    }
}

/// Distinct values of an expression, if known.
pub(crate) fn distinct_of(expr: &Expr, input: &Estimate, schema: &DFSchema) -> Option<f64> {
    plain(expr, input, schema)?.distinct
}

/// Share of rows for which an expression is NULL, as far as known.
pub(crate) fn null_share_of(expr: &Expr, input: &Estimate, schema: &DFSchema) -> f64 {
    plain(expr, input, schema).map_or(0.0, ColumnEstimate::null_share)
}

/// The conjuncts of a plan's filters, if it is nothing but filters over another one.
pub(crate) fn unfiltered(plan: &LogicalPlan) -> (LogicalPlan, Vec<Expr>) {
    let mut filters = Vec::new();
    let mut plan = plan;
    while let LogicalPlan::Filter(filter) = plan {
        if filter.predicate.is_volatile() {
            break;
        }
        let mut conjuncts = split_conjunction_owned(filter.predicate.clone());
        conjuncts.append(&mut filters);
        filters = conjuncts;
        plan = &filter.input;
    }
    (plan.clone(), filters)
}

fn type_width(data_type: &DataType) -> f64 {
    match data_type {
        DataType::Boolean => 1.0,
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View | DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            UNKNOWN_TEXT
        }
        other => other.primitive_width().map_or(2.0 * UNKNOWN_TEXT, |bytes| bytes as f64),
    }
}
