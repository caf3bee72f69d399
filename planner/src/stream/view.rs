//! The entry point: the plan of a view or of a sink's query.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::{common::config::ConfigOptions, logical_expr::LogicalPlan};
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
    optimize::optimize,
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
    /// Asked whether the plan is still wanted.
    pub interrupt: Interrupt,
}

impl ViewOptions {
    /// A view maintained in the collection `id`, under default options.
    pub fn collection(id: u64) -> Self {
        Self { emit_on_window_close: false, root: Root::Collection { id }, config: Arc::default(), interrupt: Interrupt::never() }
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
}

/// Plans a view over an analyzed query.
///
/// # Errors
/// 0A000 for what views do not support, 21000-style errors of constants, 42P01 for an unknown relation; what the interrupt
/// says.
pub fn plan_view(plan: &LogicalPlan, relations: &dyn StreamRelations, options: &ViewOptions) -> Result<StreamPlan> {
    supported::check(plan)?;
    let optimized = optimize(plan.clone(), &options.config, &options.interrupt)?;
    let mut lowering = Lowering::new(relations, &options.config);
    let lowered = lowering.lower(&optimized)?;
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
    })
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
