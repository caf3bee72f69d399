//! What the planner asks of a relation before it prices plans. Whoever has the relations answers: with live row counts, the metadata of files, or
//! what ANALYZE has found. Everything but the number of rows may be unknown; the planner has defaults for the rest.

use datafusion::{
    common::{Constraint, ScalarValue, stats::Precision},
    datasource::DefaultTableSource,
    logical_expr::TableSource,
};

/// The relations' statistics.
pub trait Statistics {
    /// What is known of the relation that a scan reads; `None` if nothing is.
    fn of(&self, source: &dyn TableSource) -> Option<RelationStatistics>;
}

/// Nothing is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoStatistics;

impl Statistics for NoStatistics {
    fn of(&self, _: &dyn TableSource) -> Option<RelationStatistics> {
        None
    }
}

/// What is known of a relation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RelationStatistics {
    /// Rows it has.
    pub rows: f64,
    /// Rows that change in some time, the same for all relations; its rows if nothing else is known.
    pub changes: Option<f64>,
    /// Columns, each list of which is unique among its rows, besides those that its source tells of.
    pub keys: Vec<Vec<usize>>,
    /// Of each column, in the order of its schema; columns at the end may be left out.
    pub columns: Vec<ColumnStatistics>,
}

/// What is known of a column.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColumnStatistics {
    /// Distinct values, NULL not counted.
    pub distinct: Option<f64>,
    /// Share of NULLs among the rows, 0 to 1.
    pub null_share: Option<f64>,
    /// The least value.
    pub min: Option<ScalarValue>,
    /// The greatest value.
    pub max: Option<ScalarValue>,
    /// Bytes of a value on average.
    pub width: Option<f64>,
    /// The most common values, and their shares of all rows.
    pub common: Vec<(ScalarValue, f64)>,
    /// Ascending values that cut the rest, those not among the most common, into parts of equally many rows: one value more than there are parts.
    pub histogram: Vec<ScalarValue>,
}

/// Statistics of scans whose rows are there already, as their table providers tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProviderStatistics;

impl Statistics for ProviderStatistics {
    fn of(&self, source: &dyn TableSource) -> Option<RelationStatistics> {
        let provider = &source.downcast_ref::<DefaultTableSource>()?.table_provider;
        let statistics = provider.statistics()?;
        let rows = *statistics.num_rows.get_value()? as f64;
        let columns = statistics.column_statistics.iter().map(|column| ColumnStatistics {
            distinct: column.distinct_count.get_value().map(|count| *count as f64),
            null_share: column.null_count.get_value().filter(|_| rows > 0.0).map(|count| *count as f64 / rows),
            min: known(&column.min_value),
            max: known(&column.max_value),
            width: column.byte_size.get_value().filter(|_| rows > 0.0).map(|bytes| *bytes as f64 / rows),
            ..Default::default()
        });
        Some(RelationStatistics { rows, changes: None, keys: Vec::new(), columns: columns.collect() })
    }
}

fn known(value: &Precision<ScalarValue>) -> Option<ScalarValue> {
    value.get_value().filter(|value| !value.is_null()).cloned()
}

/// The keys that a table source tells of.
pub(crate) fn keys(source: &dyn TableSource) -> Vec<Vec<usize>> {
    let constraints = source.constraints().into_iter().flat_map(|constraints| constraints.iter());
    constraints.map(|(Constraint::PrimaryKey(columns) | Constraint::Unique(columns))| columns.clone()).collect()
}
