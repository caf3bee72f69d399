//! The entry point: the plan of a view or of a sink's query.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::{
    common::{config::ConfigOptions, tree_node::TreeNodeRecursion},
    logical_expr::{LogicalPlan, TableSource},
};
use millpond_engine::graph::{CollectionKeySpec, DataflowGraph, OperatorSpec};

use super::{
    distribution::aligned,
    node::{NodeIndex, StreamNode},
    relations::StreamRelations,
    supported, window_close,
};
use crate::{
    error::Result,
    interrupt::Interrupt,
    lower::{Lowering, fragments, share_scans},
    optimize::{
        join_order::{Hints, JoinOrder, Ordered, Ordering, ViewCost},
        optimize, order_view,
        statistics::{RelationStatistics, Statistics},
    },
    relation_source::RelationSource,
};

/// What becomes of the rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Root {
    /// They are the contents of this collection.
    Collection {
        /// Catalog id.
        id: u64,
    },
    /// They are counted and dropped (blackhole sinks).
    Discard,
}

/// How a view is planned.
#[derive(Clone, Debug)]
pub struct ViewOptions {
    /// EMIT ON WINDOW CLOSE.
    pub emit_on_window_close: bool,
    /// What becomes of the rows.
    pub root: Root,
    /// The creating session's options: functions are evaluated under them, for ever (time zone).
    pub config: Arc<ConfigOptions>,
    /// Where the order of its joins comes from.
    pub joins: Joins,
    /// Asked whether the plan is still wanted.
    pub interrupt: Interrupt,
}

/// Where the order of a view's joins comes from. State is kept by the operators of one plan, so a view keeps the order that it was created with, whatever
/// its relations have become.
#[derive(Clone, Debug)]
pub enum Joins {
    /// It is created now: the order is chosen, by what is known and what the statement says.
    Chosen(Hints),
    /// It was created before, with this order.
    Kept(JoinOrder),
}

impl ViewOptions {
    /// A view maintained in the collection `id`, under default options.
    pub fn collection(id: u64) -> Self {
        Self {
            emit_on_window_close: false,
            root: Root::Collection { id },
            config: Arc::default(),
            joins: Joins::Chosen(Hints::default()),
            interrupt: Interrupt::never(),
        }
    }
}

/// A planned view.
#[derive(Clone, Debug)]
pub struct StreamPlan {
    /// What the engine runs.
    pub graph: DataflowGraph,
    /// Columns of the view.
    pub schema: SchemaRef,
    /// How its collection identifies rows.
    pub key: CollectionKeySpec,
    /// Whether rows are never deleted or updated.
    pub append_only: bool,
    /// Columns whose watermark closes windows; the one that does it best comes first.
    pub watermark_columns: Vec<usize>,
    /// No row below the watermark ever comes out: what a view on this view may rely on.
    pub late_rows_diverted: bool,
    /// What the user should know: shown as NOTICEs.
    pub warnings: Vec<String>,
    /// The order of its joins, to be kept.
    pub join_order: JoinOrder,
    /// How that was chosen, for EXPLAIN.
    pub join_report: String,
}

/// Plans a view over an analyzed query.
///
/// # Errors
/// 0A000 for what views do not support, 21000-style errors of constants, 42P01 for an unknown relation; what the interrupt
/// says.
pub fn plan_view(plan: &LogicalPlan, relations: &dyn StreamRelations, options: &ViewOptions) -> Result<StreamPlan> {
    supported::check(plan)?;
    let ordered = ordered(optimize(plan.clone(), &options.config, &options.interrupt)?, relations, options)?;
    let mut lowering = Lowering::new(relations, &options.config);
    let lowered = lowering.lower(&ordered.plan)?;
    let lowered = if options.emit_on_window_close { window_close::emit_on_close(&mut lowering, lowered)? } else { lowered };
    let schema = stored_schema(plan);
    let types: Vec<DataType> = schema.fields().iter().map(|field| field.data_type().clone()).collect();
    let query = lowering.cast(lowered, &types)?;
    let query = share_scans(&mut lowering, query)?;

    let node = lowering.arena.node(query);
    let key = collection_key(node);
    let known = node.properties.for_graph();
    let watermark_columns = node.properties.closing_columns();
    let closing = watermark_columns.first().and_then(|column| node.properties.watermark(*column));
    let late_rows_diverted = closing.is_some_and(|watermark| watermark.strict);
    let root = add_root(&mut lowering, query, options.root, &key, &schema);
    let graph = fragments::cut(&lowering.arena, root)?;
    Ok(StreamPlan {
        graph,
        schema,
        key,
        append_only: known.append_only,
        watermark_columns,
        late_rows_diverted,
        warnings: lowering.warnings,
        join_order: ordered.order,
        join_report: ordered.report,
    })
}

/// The plan with its joins in order. Where any relation has a watermark they stay as they are written: which join a bound on time stands at decides what
/// state is ever freed and which windows close.
fn ordered(plan: LogicalPlan, relations: &dyn StreamRelations, options: &ViewOptions) -> Result<Ordered> {
    let statistics = OfRelations(relations);
    let as_written = Ordering::Kept(JoinOrder::as_written());
    let ordering = match &options.joins {
        Joins::Kept(order) => Ordering::Kept(order.clone()),
        Joins::Chosen(_) if has_watermark(&plan, relations)? => as_written,
        Joins::Chosen(hints) => Ordering::Chosen { statistics: &statistics, model: &ViewCost, hints },
    };
    order_view(plan, &ordering, &options.config, &options.interrupt)
}

fn has_watermark(plan: &LogicalPlan, relations: &dyn StreamRelations) -> Result<bool> {
    let mut found = false;
    plan.apply_with_subqueries(|node| {
        let relation = RelationSource::of(node).and_then(|source| relations.relation(source.id));
        found |= relation.is_some_and(|relation| relation.watermark_column.is_some());
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// What is known of the relations that a view may read.
struct OfRelations<'a>(&'a dyn StreamRelations);

impl Statistics for OfRelations<'_> {
    fn of(&self, source: &dyn TableSource) -> Option<RelationStatistics> {
        self.0.statistics(source.downcast_ref::<RelationSource>()?.id)
    }
}

fn add_root(lowering: &mut Lowering<'_>, query: NodeIndex, root: Root, key: &CollectionKeySpec, schema: &SchemaRef) -> NodeIndex {
    let spec = match root {
        Root::Collection { id } => OperatorSpec::Materialize { collection: id, key: key.clone() },
        Root::Discard => OperatorSpec::Discard,
    };
    lowering.arena.add(spec, vec![query], Arc::clone(schema))
}

/// The key of the view's collection, in the order in which its rows are distributed already, if they are.
fn collection_key(node: &StreamNode) -> CollectionKeySpec {
    if node.properties.append_only {
        return CollectionKeySpec::AppendOnly;
    }
    match &node.properties.stream_key {
        // A key of no columns would be right for a view of one row, but a key has to have columns to be encoded.
        Some(key) if !key.is_empty() => {
            CollectionKeySpec::Columns(aligned(key, &node.properties.partitioning).unwrap_or_else(|| key.clone()))
        }
        _ => CollectionKeySpec::WholeRow,
    }
}

/// The query's columns, under the query's names, in types that collections store.
fn stored_schema(plan: &LogicalPlan) -> SchemaRef {
    let field = |field: &Arc<Field>| Field::new(field.name().clone(), stored_type(field.data_type()), true);
    Arc::new(Schema::new(plan.schema().fields().iter().map(field).collect::<Vec<_>>()))
}

fn stored_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Null | DataType::Utf8 => DataType::Utf8View,
        DataType::Int8 | DataType::UInt8 => DataType::Int16,
        DataType::UInt16 => DataType::Int32,
        // Ranks and lengths: DataFusion counts in u64, Postgres in bigint.
        DataType::UInt32 | DataType::UInt64 => DataType::Int64,
        DataType::Float16 => DataType::Float32,
        DataType::Date64 => DataType::Date32,
        DataType::Timestamp(_, zone) => DataType::Timestamp(TimeUnit::Microsecond, zone.clone()),
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time64(TimeUnit::Microsecond),
        other => other.clone(),
    }
}
