//! The dataflow graph: the engine's instruction set. The planner emits it, the engine runs it.
//!
//! A graph is a set of *fragments* joined by *exchanges*. A fragment is a tree of operators that is called in one stack; each of
//! its parallel instances is a subtask. Leaves of the tree read exchanges or are scans themselves.

use std::{fmt, sync::Arc};

use arrow::{datatypes::SchemaRef, record_batch::RecordBatch};
use datafusion::physical_plan::PhysicalExpr;

/// Fragments in topological order (producers first), the last one being the root.
#[derive(Clone, Debug, Default)]
pub struct DataflowGraph {
    /// The fragments; `fragments[i].id == i`.
    pub fragments: Vec<Fragment>,
    /// The edges; `exchanges[i].id == i`.
    pub exchanges: Vec<Exchange>,
}

impl DataflowGraph {
    /// Fragments whose subtasks take their state at a checkpoint's barrier only, however long it takes: those at either end of an edge that a
    /// barrier never overtakes, and all above them.
    pub fn aligned_fragments(&self) -> Vec<bool> {
        let mut aligned = vec![false; self.fragments.len()];
        for exchange in self.exchanges.iter().filter(|exchange| !exchange.distribution.can_be_overtaken()) {
            aligned[exchange.from] = true;
            aligned[exchange.to] = true;
        }
        // Producers come before their consumers.
        for fragment in (0..aligned.len()).rev() {
            let feeds = self.exchanges.iter().any(|exchange| exchange.from == fragment && aligned[exchange.to]);
            aligned[fragment] |= feeds;
        }
        aligned
    }
}

/// A chain (in general a tree) of operators: the output of each node but the last is read by exactly one other.
#[derive(Clone, Debug)]
pub struct Fragment {
    /// Index in the graph.
    pub id: usize,
    /// Operators, inputs before their consumers; the last one is the root, whose output feeds every exchange that starts here.
    pub nodes: Vec<OperatorNode>,
    /// How many subtasks run it.
    pub parallelism: Parallelism,
}

/// How many subtasks a fragment has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Parallelism {
    /// One.
    Single,
    /// The job's parallelism.
    Job,
}

/// One operator of a fragment.
#[derive(Clone, Debug)]
pub struct OperatorNode {
    /// Unique in the graph. State tables are numbered `id * TABLES_PER_OPERATOR + k`.
    pub id: usize,
    /// What it computes.
    pub spec: OperatorSpec,
    /// Where its ports read, in port order.
    pub inputs: Vec<NodeInput>,
    /// Columns of its output.
    pub schema: SchemaRef,
    /// What the planner knows about its output.
    pub properties: StreamProperties,
}

/// State tables an operator may have.
pub const TABLES_PER_OPERATOR: usize = 64;

/// The source of one input port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NodeInput {
    /// The output of `nodes[i]` of the same fragment.
    Node(usize),
    /// The messages of exchange `i`.
    Exchange(usize),
}

/// Properties of a changelog, derived by the planner.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamProperties {
    /// No row is ever deleted or updated.
    pub append_only: bool,
    /// Columns whose values are unique among the rows present at any epoch, if known.
    pub stream_key: Option<Vec<usize>>,
    /// Columns that carry a watermark.
    pub watermark_columns: Vec<usize>,
}

/// An edge from one fragment's root to an input port of another.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Index in the graph.
    pub id: usize,
    /// Producing fragment.
    pub from: usize,
    /// Consuming fragment.
    pub to: usize,
    /// Which consumer gets a row.
    pub distribution: Distribution,
    /// Columns of its rows.
    pub schema: SchemaRef,
    /// Whether the consumer may start before the producer has ended.
    pub mode: ExchangeMode,
}

/// Which subtask of the consumer gets a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Subtask i feeds subtask i.
    Forward,
    /// By key group of these columns (`storage::key_group` over the key codec).
    Hash(Vec<usize>),
    /// Every subtask gets every row.
    Broadcast,
    /// Chunks in turn.
    RoundRobin,
    /// Subtask 0 gets every row.
    Single,
}

impl Distribution {
    /// Its name.
    pub fn as_str(&self) -> &'static str {
        match self {
            Distribution::Forward => "forward",
            Distribution::Hash(_) => "hash",
            Distribution::Broadcast => "broadcast",
            Distribution::RoundRobin => "round robin",
            Distribution::Single => "single",
        }
    }

    /// Whether a checkpoint's barrier may pass the rows on the way: only where these can be told apart by key group after a restart.
    pub fn can_be_overtaken(&self) -> bool {
        match self {
            Distribution::Hash(_) => true,
            Distribution::Forward | Distribution::Broadcast | Distribution::RoundRobin | Distribution::Single => false,
        }
    }
}

/// Whether an edge is pipelined.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ExchangeMode {
    /// Rows flow as they come.
    Pipelined,
    /// The consumer starts when the producer has ended.
    Blocking,
}

/// An expression over the columns of an operator's input, with the text EXPLAIN shows.
#[derive(Clone)]
pub struct Expression {
    /// What is evaluated. Column indexes refer to the input schema.
    pub physical: Arc<dyn PhysicalExpr>,
    /// SQL-like text.
    pub text: String,
}

/// Without the text, which says the names that tables had when it was written: equal expressions over a renamed table are equal.
impl std::fmt::Debug for Expression {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Expression").field("physical", &self.physical).finish_non_exhaustive()
    }
}

/// What an operator computes. Column numbers refer to the operator's input, or, for a join, to left columns followed by right columns.
///
/// *Who gets which row.* State is keyed by exactly the columns by which the planner distributes the input, in the same order, so that key
/// groups of state and of exchanges agree: [`Aggregate`](Self::Aggregate) by `group_by`, [`Join`](Self::Join) by the columns of `on`,
/// [`TopN`](Self::TopN) by `partition_by`, [`EmitOnWindowClose`](Self::EmitOnWindowClose) by `column`, [`Materialize`](Self::Materialize)
/// by its key columns or by all columns (`WholeRow`); with no such columns, one subtask gets every row. `ScalarSubquery` and `Values` run
/// on one subtask. The others take rows wherever they are.
///
/// *Watermarks.* A watermark `t` on a column promises that no later change has a value below `t` there; so a value `v` is final once `v < t`.
/// `properties.watermark_columns` says on which output columns an operator emits one: the same value on columns that pass through, on group
/// and partition columns; on a join's bounded columns the minimum of the column's own watermark and of what its bounds make of the other
/// side's; the minimum over all inputs in a union; and for `HopWindow` the start and the end of the earliest window that contains `t`.
#[derive(Clone, Debug)]
pub enum OperatorSpec {
    /// Rows of an external source, projected: output column i is source column `projection[i]`.
    SourceScan {
        /// Id of the source.
        source: u64,
        /// Source columns to read.
        projection: Vec<usize>,
    },
    /// Contents of a collection, then its changes; projected likewise.
    CollectionScan {
        /// Id of the collection.
        collection: u64,
        /// Its columns to read.
        projection: Vec<usize>,
    },
    /// Constant rows, emitted once.
    Values {
        /// The rows.
        batch: RecordBatch,
    },
    /// Rows for which the predicate is true.
    Filter {
        /// A boolean; neither false nor NULL passes.
        predicate: Expression,
    },
    /// One output column per expression.
    Project {
        /// Over the columns of the input.
        expressions: Vec<Expression>,
    },
    /// All inputs, as a bag.
    Union,
    /// Appends `window_start` and `window_end` (timestamps of the type of `time_column`), one row per window that contains it.
    /// A row with a NULL time is in no window. Tumbling windows have `slide == size`.
    HopWindow {
        /// Input column of the event time.
        time_column: usize,
        /// From the start of one window to that of the next.
        slide: WindowStep,
        /// From the start of a window to its end.
        size: WindowStep,
        /// Start of one of the windows, in microseconds since 1970.
        offset_us: i64,
    },
    /// Groups and aggregates. Output: group columns, then one column per call. With no group columns there is always exactly one row.
    Aggregate(AggregateSpec),
    /// Equality join.
    Join(JoinSpec),
    /// First rows of each partition.
    TopN(TopNSpec),
    /// Withholds rows until the watermark passes the value of `column` (a window end); then a row is final.
    EmitOnWindowClose {
        /// Input column of the window's end.
        column: usize,
    },
    /// Passes its input, which must not have more than one row at the end of an epoch (21000 otherwise). Emits one row of NULLs while it is empty.
    ScalarSubquery,
    /// Maintains a collection. Root of a view's graph.
    Materialize {
        /// Id of the collection.
        collection: u64,
        /// How its rows are told apart.
        key: CollectionKeySpec,
    },
    /// Counts rows and drops them. Root of a blackhole sink's graph.
    Discard,
}

/// A window length or slide.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WindowStep {
    /// Microseconds.
    Micros(i64),
    /// Calendar months (tumbling windows only).
    Months(i32),
}

/// How the rows of a collection are identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CollectionKeySpec {
    /// By these columns, which are unique.
    Columns(Vec<usize>),
    /// By the whole row, with a multiplicity.
    WholeRow,
    /// Rows are never deleted.
    AppendOnly,
}

/// Grouping and aggregate calls. Arguments are columns: the planner projects expressions below.
#[derive(Clone, Debug)]
pub struct AggregateSpec {
    /// Group columns.
    pub group_by: Vec<usize>,
    /// Aggregate calls.
    pub calls: Vec<AggregateCall>,
    /// No deletes arrive.
    pub append_only_input: bool,
    /// Position in `group_by` of a column with a watermark: a group whose value is below it gets no more rows, and its state is dropped.
    pub expiry: Option<usize>,
    /// Groups are emitted once, when the watermark passes the value of this group position.
    pub emit_on_close: Option<usize>,
}

/// One aggregate call.
#[derive(Clone, Debug)]
pub struct AggregateCall {
    /// The function.
    pub function: AggregateFunction,
    /// Argument columns; empty for `count(*)`.
    pub arguments: Vec<usize>,
    /// Only distinct argument values count.
    pub distinct: bool,
    /// Boolean column: only rows where it is true count.
    pub filter: Option<usize>,
    /// Order of the argument values (`array_agg`, `string_agg`, `first_value`, `last_value`); ties break by value.
    pub order_by: Vec<OrderColumn>,
    /// Result type, as the planner announced it.
    pub output: arrow::datatypes::DataType,
}

/// Aggregate functions a view can maintain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AggregateFunction {
    /// `count(*)` and `count(x)`.
    Count,
    /// `sum(x)`.
    Sum,
    /// `avg(x)`.
    Avg,
    /// `min(x)`.
    Min,
    /// `max(x)`.
    Max,
    /// `bool_and(x)`, `every(x)`.
    BoolAnd,
    /// `bool_or(x)`.
    BoolOr,
    /// `string_agg(x, separator)`.
    StringAgg,
    /// `array_agg(x)`.
    ArrayAgg,
    /// `first_value(x ORDER BY ..)`.
    FirstValue,
    /// `last_value(x ORDER BY ..)`.
    LastValue,
    /// `var_pop`, `var_samp`, `stddev_pop`, `stddev_samp`.
    Variance {
        /// Divides by n - 1 rather than n.
        sample: bool,
        /// The square root of it: a standard deviation.
        root: bool,
    },
    /// `bit_xor(x)`.
    BitXor,
}

/// An order by one column.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrderColumn {
    /// The column.
    pub column: usize,
    /// Largest first.
    pub descending: bool,
    /// NULLs before all values.
    pub nulls_first: bool,
}

/// An equality join with an extra condition.
#[derive(Clone, Debug)]
pub struct JoinSpec {
    /// Inner, outer, semi, anti or mark.
    pub kind: JoinKind,
    /// Pairs (left column, right column) that must be equal; empty for a join that keeps all rows on one subtask.
    pub on: Vec<(usize, usize)>,
    /// Whether NULL keys match each other (`IS NOT DISTINCT FROM`, one flag per pair).
    pub null_equal: Vec<bool>,
    /// Extra condition over left columns followed by right columns.
    pub condition: Option<Expression>,
    /// Output columns out of left columns followed by right columns; for semi and anti joins out of the kept side; for mark joins the
    /// number after the last left column is the boolean mark.
    pub output: Vec<usize>,
    /// What is known of each input.
    pub left: StreamProperties,
    /// What is known of each input.
    pub right: StreamProperties,
    /// What equalities and the condition say about left time columns, where both columns carry a watermark.
    pub left_bounds: Box<[TimeBound]>,
    /// The same for right ones.
    pub right_bounds: Box<[TimeBound]>,
    /// A left column with bounds: a row dies when the watermark that the join emits for the column is above its value. Only where no row
    /// ever comes below the watermarks that this one is made of.
    pub left_expiry: Option<usize>,
    /// The same for right rows; the column is one of the right input.
    pub right_expiry: Option<usize>,
}

/// A time column of one side of a join that is not below one of the other side plus a constant, in every pair of rows that match. So a row
/// whose value is below the other side's watermark plus the constant gets no more matches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeBound {
    /// Column of the side's input.
    pub column: usize,
    /// Column of the other side's input.
    pub partner: usize,
    /// Microseconds, of either sign: `column >= partner + shift_us`.
    pub shift_us: i64,
}

/// The kind of a join.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum JoinKind {
    /// Pairs.
    Inner,
    /// Pairs, and left rows without one.
    Left,
    /// Pairs, and right rows without one.
    Right,
    /// Pairs, and rows of either side without one.
    Full,
    /// Left rows with a match.
    LeftSemi,
    /// Left rows without a match.
    LeftAnti,
    /// Right rows with a match.
    RightSemi,
    /// Right rows without a match.
    RightAnti,
    /// Left rows with a boolean that says whether there is a match.
    LeftMark,
}

/// The first rows of each partition.
#[derive(Clone, Debug)]
pub struct TopNSpec {
    /// Partition columns; empty for a global ORDER BY .. LIMIT.
    pub partition_by: Vec<usize>,
    /// Order; ties break by the remaining columns in column order.
    pub order_by: Vec<OrderColumn>,
    /// Rows kept after the offset, or the highest rank kept for `Rank` and `DenseRank` (whose offset is 0); `None` keeps all (then only
    /// `rank` is of interest).
    pub limit: Option<u64>,
    /// Rows skipped.
    pub offset: u64,
    /// How ranks are counted.
    pub rank: RankKind,
    /// Appends the rank as a bigint column.
    pub emit_rank: bool,
    /// No deletes arrive.
    pub append_only_input: bool,
    /// Partition position with a watermark: a partition below it is dropped.
    pub expiry: Option<usize>,
}

/// How ranks are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RankKind {
    /// `row_number()`.
    RowNumber,
    /// `rank()`.
    Rank,
    /// `dense_rank()`.
    DenseRank,
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
