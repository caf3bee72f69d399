//! From an optimized logical plan to operators over column numbers: one exhaustive match, one file per kind of operator. Every lowered node
//! has exactly the columns of its logical plan, in their order (and if that has none, something to count rows by).

mod aggregate;
mod compose;
mod expression;
mod expression_text;
pub(crate) mod fragments;
mod grouping_sets;
mod input_columns;
mod join;
mod project;
mod scan;
mod shared_scan;
mod single_value;
mod top_n;
mod union;
mod values;
mod window;

pub(crate) use shared_scan::share_scans;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::{
    common::{DFSchema, config::ConfigOptions},
    logical_expr::{Distinct, Extension, LogicalPlan, execution_props::ExecutionProps},
};
use millpond_engine::graph::OperatorSpec;

use crate::{
    error::{PlanError, Result},
    logical::{single_row::SingleRowNode, top_n::TopNNode, window::WindowNode},
    optimize::unsupported,
    stream::{
        StreamRelations,
        node::{Arena, NodeIndex},
    },
};

/// One run of lowering.
pub(crate) struct Lowering<'a> {
    /// The operators so far.
    pub(crate) arena: Arena,
    /// What the user should know about the plan.
    pub(crate) warnings: Vec<String>,
    relations: &'a dyn StreamRelations,
    execution: ExecutionProps,
}

impl<'a> Lowering<'a> {
    /// A lowering over the relations of a catalog; functions are evaluated under `options`.
    pub(crate) fn new(relations: &'a dyn StreamRelations, options: &ConfigOptions) -> Self {
        let mut execution = ExecutionProps::new();
        execution.config_options = Some(std::sync::Arc::new(options.clone()));
        Self { arena: Arena::default(), warnings: Vec::new(), relations, execution }
    }

    /// Lowers a plan.
    ///
    /// # Errors
    /// 0A000 for what views do not support.
    pub(crate) fn lower(&mut self, plan: &LogicalPlan) -> Result<NodeIndex> {
        match plan {
            LogicalPlan::Projection(projection) => self.projection(projection),
            LogicalPlan::Filter(filter) => self.filter(filter),
            LogicalPlan::Aggregate(aggregate) => self.aggregate(aggregate),
            LogicalPlan::Join(join) => self.join(join),
            LogicalPlan::Union(union) => self.union(union),
            LogicalPlan::TableScan(scan) => self.scan(plan, scan),
            LogicalPlan::EmptyRelation(empty) => self.empty(empty),
            LogicalPlan::Values(values) => self.values(values),
            LogicalPlan::SubqueryAlias(alias) => self.lower(&alias.input),
            LogicalPlan::Subquery(subquery) => self.lower(&subquery.subquery),
            // How rows are spread is decided here, and a view has no order.
            LogicalPlan::Repartition(repartition) => self.lower(&repartition.input),
            LogicalPlan::Sort(sort) => self.lower(&sort.input),
            LogicalPlan::Distinct(Distinct::All(input)) => self.distinct(input),
            LogicalPlan::Extension(extension) => self.extension(extension),
            LogicalPlan::Distinct(Distinct::On(_)) | LogicalPlan::Limit(_) | LogicalPlan::Window(_) => {
                Err(internal(format!("{} is left after optimization", plan.display())))
            }
            LogicalPlan::Unnest(_) | LogicalPlan::RecursiveQuery(_) => {
                Err(unsupported(format!("{} is not supported in a materialized view", plan.display()), "Use it in a SELECT over the view."))
            }
            LogicalPlan::Statement(_)
            | LogicalPlan::Explain(_)
            | LogicalPlan::Analyze(_)
            | LogicalPlan::Dml(_)
            | LogicalPlan::Ddl(_)
            | LogicalPlan::Copy(_)
            | LogicalPlan::DescribeTable(_) => Err(internal(format!("{} is no query", plan.display()))),
        }
    }

    fn extension(&mut self, extension: &Extension) -> Result<NodeIndex> {
        let node = extension.node.as_any();
        if let Some(window) = node.downcast_ref::<WindowNode>() {
            return self.window(window);
        }
        if let Some(top_n) = node.downcast_ref::<TopNNode>() {
            return self.top_n(top_n);
        }
        if let Some(guard) = node.downcast_ref::<SingleRowNode>() {
            let input = self.lower(guard.input())?;
            let schema = self.schema_of(input);
            return Ok(self.arena.add(OperatorSpec::ScalarSubquery, vec![input], schema));
        }
        Err(internal(format!("unknown plan node {}", extension.node.name())))
    }

    /// The columns of a node.
    pub(crate) fn schema_of(&self, node: NodeIndex) -> SchemaRef {
        SchemaRef::clone(&self.arena.node(node).schema)
    }
}

/// Columns as operators have them: all nullable (outer joins and empty groups need it, and nothing gains from the contrary), no metadata.
pub(crate) fn nullable_schema(schema: &DFSchema) -> SchemaRef {
    let fields: Vec<Field> =
        schema.fields().iter().map(|field| Field::new(field.name().clone(), field.data_type().clone(), true)).collect();
    SchemaRef::new(Schema::new(fields))
}

/// A bug of the planner.
pub(crate) fn internal(message: String) -> PlanError {
    PlanError::internal(message)
}
