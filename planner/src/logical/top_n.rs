//! The first rows of each partition in some order: what `ORDER BY .. LIMIT`, `DISTINCT ON` and a filter on `row_number()`, `rank()` or
//! `dense_rank()` become in a view.
//!
//! Output: all columns of the input, then the rank, if one is wanted.

use std::{cmp::Ordering, collections::HashSet, fmt, hash::Hash, sync::Arc};

use arrow::datatypes::FieldRef;
use datafusion::{
    common::{DFSchema, DFSchemaRef, Result, plan_err},
    logical_expr::{Expr, Extension, LogicalPlan, SortExpr, UserDefinedLogicalNodeCore},
};
use millpond_engine::graph::RankKind;

/// Keeps the first rows of each partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopNNode {
    /// The relation whose rows are ranked.
    pub input: LogicalPlan,
    /// Expressions with equal values in the rows of a partition.
    pub partition_by: Vec<Expr>,
    /// The order within a partition.
    pub order_by: Vec<SortExpr>,
    /// Rows kept after the offset (for `Rank` and `DenseRank`: the highest rank kept); `None` keeps all.
    pub limit: Option<u64>,
    /// Rows skipped; 0 for `Rank` and `DenseRank`.
    pub offset: u64,
    /// How ranks are counted.
    pub rank: RankKind,
    /// The column with the rank, if it is wanted.
    pub rank_field: Option<FieldRef>,
    schema: DFSchemaRef,
}

/// What a [`TopNNode`] keeps of each partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopNBounds {
    /// See [`TopNNode::limit`].
    pub limit: Option<u64>,
    /// See [`TopNNode::offset`].
    pub offset: u64,
    /// See [`TopNNode::rank`].
    pub rank: RankKind,
    /// See [`TopNNode::rank_field`].
    pub rank_field: Option<FieldRef>,
}

impl TopNNode {
    /// The first rows of each partition of `input`.
    ///
    /// # Errors
    /// If the rank's column has the name of another column.
    pub fn try_new(input: LogicalPlan, partition_by: Vec<Expr>, order_by: Vec<SortExpr>, bounds: TopNBounds) -> Result<Self> {
        let TopNBounds { limit, offset, rank, rank_field } = bounds;
        let schema = match &rank_field {
            None => Arc::clone(input.schema()),
            Some(field) => {
                let mut fields: Vec<_> = input.schema().iter().map(|(qualifier, field)| (qualifier.cloned(), Arc::clone(field))).collect();
                fields.push((None, Arc::clone(field)));
                Arc::new(DFSchema::new_with_metadata(fields, input.schema().metadata().clone())?)
            }
        };
        Ok(Self { input, partition_by, order_by, limit, offset, rank, rank_field, schema })
    }

    /// As a plan.
    pub fn into_plan(self) -> LogicalPlan {
        LogicalPlan::Extension(Extension { node: Arc::new(self) })
    }

    fn bounds(&self) -> TopNBounds {
        TopNBounds { limit: self.limit, offset: self.offset, rank: self.rank, rank_field: self.rank_field.clone() }
    }
}

/// A number for hashing and ordering.
fn rank_code(rank: RankKind) -> u8 {
    match rank {
        RankKind::RowNumber => 0,
        RankKind::Rank => 1,
        RankKind::DenseRank => 2,
    }
}

impl Hash for TopNNode {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.input.hash(state);
        self.partition_by.hash(state);
        self.order_by.hash(state);
        (self.limit, self.offset, rank_code(self.rank), &self.rank_field).hash(state);
    }
}

impl PartialOrd for TopNNode {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let bounds = (self.limit, self.offset, rank_code(self.rank)).partial_cmp(&(other.limit, other.offset, rank_code(other.rank)));
        let expressions = || (&self.partition_by, &self.order_by).partial_cmp(&(&other.partition_by, &other.order_by));
        bounds
            .and_then(|ordering| if ordering == Ordering::Equal { expressions() } else { Some(ordering) })
            .and_then(|ordering| if ordering == Ordering::Equal { self.input.partial_cmp(&other.input) } else { Some(ordering) })
            .filter(|ordering| *ordering != Ordering::Equal || self == other)
    }
}

impl UserDefinedLogicalNodeCore for TopNNode {
    fn name(&self) -> &str {
        "TopN"
    }

    fn inputs(&self) -> Vec<&LogicalPlan> {
        vec![&self.input]
    }

    fn schema(&self) -> &DFSchemaRef {
        &self.schema
    }

    fn expressions(&self) -> Vec<Expr> {
        self.partition_by.iter().cloned().chain(self.order_by.iter().map(|sort| sort.expr.clone())).collect()
    }

    /// A filter on partition columns keeps or drops whole partitions, so it may go below; every other one has to see the ranked rows.
    fn prevent_predicate_push_down_columns(&self) -> HashSet<String> {
        let mut columns: HashSet<String> = self.schema.fields().iter().map(|field| field.name().clone()).collect();
        for expression in &self.partition_by {
            // The optimizer asks by bare name: a name that stands for two columns stays prevented.
            if let Expr::Column(column) = expression
                && self.schema.fields().iter().filter(|field| field.name() == &column.name).count() == 1
            {
                columns.remove(&column.name);
            }
        }
        columns
    }

    fn fmt_for_explain(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |items: Vec<String>| items.join(", ");
        write!(
            f,
            "TopN: {:?} partition by [{}] order by [{}] limit={:?} offset={} emit={}",
            self.rank,
            list(self.partition_by.iter().map(ToString::to_string).collect()),
            list(self.order_by.iter().map(ToString::to_string).collect()),
            self.limit,
            self.offset,
            self.rank_field.is_some(),
        )
    }

    fn with_exprs_and_inputs(&self, exprs: Vec<Expr>, inputs: Vec<LogicalPlan>) -> Result<Self> {
        let Ok([input]) = <[LogicalPlan; 1]>::try_from(inputs) else {
            return plan_err!("a top-N takes one input");
        };
        if exprs.len() != self.partition_by.len() + self.order_by.len() {
            return plan_err!("a top-N takes its partition and order expressions");
        }
        let mut exprs = exprs.into_iter();
        let partition_by = exprs.by_ref().take(self.partition_by.len()).collect();
        let order_by = exprs.zip(&self.order_by).map(|(expr, old)| SortExpr { expr, ..old.clone() }).collect();
        Self::try_new(input, partition_by, order_by, self.bounds())
    }

    fn necessary_children_exprs(&self, output_columns: &[usize]) -> Option<Vec<Vec<usize>>> {
        let width = self.input.schema().fields().len();
        Some(vec![output_columns.iter().copied().filter(|column| *column < width).collect()])
    }
}
