//! A small catalog for the planner's own tests: the Nexmark sources and a few tables, planned by DataFusion's SQL planner.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::{
    common::{
        Column, Constraint, Constraints, DFSchema, DataFusionError, Result, ScalarValue, TableReference, config::ConfigOptions, plan_err,
    },
    functions::{core::planner::CoreFunctionPlanner, datetime::planner::DatetimeFunctionPlanner, unicode::planner::UnicodeFunctionPlanner},
    functions_aggregate::planner::AggregateFunctionPlanner,
    functions_nested::planner::{FieldAccessPlanner, NestedFunctionPlanner},
    functions_window::planner::WindowFunctionPlanner,
    logical_expr::{
        AggregateUDF, Expr, HigherOrderUDF, LogicalPlan, ScalarUDF, TableSource, Volatility, WindowUDF, create_udaf,
        function::AccumulatorArgs,
        planner::{ContextProvider, ExprPlanner, PlannedRelation, RelationPlanner, RelationPlannerContext, RelationPlanning},
    },
    optimizer::Analyzer,
    sql::planner::{ParserOptions, SqlToRel},
};
use millpond_engine::graph::{DataflowGraph, Distribution, NodeInput, Parallelism, WindowStep};
use sqlparser::{
    ast::{FunctionArg, FunctionArgExpr, Statement, TableFactor},
    dialect::PostgreSqlDialect,
    parser::Parser,
};

use crate::{
    error::PlanError,
    explain::explain_graph,
    logical::window::WindowNode,
    optimize::optimize,
    relation_source::{RelationKind, RelationSource},
    stream::{StreamPlan, StreamRelation, StreamRelations, ViewOptions, plan_view},
};

/// The relations of the tests.
pub(crate) struct Bench {
    config: ConfigOptions,
    relations: BTreeMap<String, (u64, StreamRelation)>,
    relation_planners: Vec<Arc<dyn RelationPlanner>>,
    expression_planners: Vec<Arc<dyn ExprPlanner>>,
}

/// Id of the planned view.
pub(crate) const VIEW: u64 = 100;

impl Bench {
    /// Nexmark's `person`, `auction`, `bid`; tables `t`, `u` (with primary keys), `bag` (without), `event` (with a watermark, late rows kept)
    /// and `log` (an append-only collection).
    pub(crate) fn new() -> Self {
        let expression_planners: Vec<Arc<dyn ExprPlanner>> = vec![
            Arc::new(CoreFunctionPlanner::default()),
            Arc::new(NestedFunctionPlanner),
            Arc::new(FieldAccessPlanner),
            Arc::new(DatetimeFunctionPlanner),
            Arc::new(UnicodeFunctionPlanner),
            Arc::new(AggregateFunctionPlanner),
            Arc::new(WindowFunctionPlanner),
        ];
        let config = ConfigOptions::default();
        let relation_planners: Vec<Arc<dyn RelationPlanner>> = vec![Arc::new(WindowPlanner)];
        let mut bench = Self { config, relations: BTreeMap::new(), relation_planners, expression_planners };
        bench.source(1, "person", "id:big name:text email_address:text credit_card:text city:text state:text date_time:ts extra:text", 6);
        let auction =
            "id:big item_name:text description:text initial_bid:big reserve:big date_time:ts expires:ts seller:big category:big extra:text";
        bench.source(2, "auction", auction, 5);
        bench.source(3, "bid", "auction:big bidder:big price:big channel:text url:text date_time:ts extra:text", 5);
        bench.table(10, "t", "id:int k:int v:big s:text", Some(vec![0]), None);
        bench.table(11, "u", "id:int t_id:int w:big s:text", Some(vec![0]), None);
        bench.table(12, "bag", "k:int v:big", None, None);
        bench.table(13, "event", "at:ts k:int v:big", None, Some(0));
        bench.table(14, "log", "at:ts k:int v:big", None, None);
        if let Some((_, log)) = bench.relations.get_mut("log") {
            log.append_only = true;
        }
        bench
    }

    fn source(&mut self, id: u64, name: &str, columns: &str, time: usize) {
        let relation = StreamRelation {
            name: name.to_owned(),
            kind: RelationKind::Source,
            schema: schema(columns),
            append_only: true,
            stream_key: None,
            watermark_column: Some(time),
            late_rows_diverted: true,
        };
        self.relations.insert(name.to_owned(), (id, relation));
    }

    fn table(&mut self, id: u64, name: &str, columns: &str, key: Option<Vec<usize>>, time: Option<usize>) {
        let relation = StreamRelation {
            name: name.to_owned(),
            kind: RelationKind::Collection,
            schema: schema(columns),
            append_only: false,
            stream_key: key,
            watermark_column: time,
            late_rows_diverted: false,
        };
        self.relations.insert(name.to_owned(), (id, relation));
    }

    /// The analyzed plan of a query. Flink's spelling of windows is accepted.
    pub(crate) fn analyzed(&self, sql: &str) -> Result<LogicalPlan> {
        let windows =
            regex::Regex::new(r"(?s)TABLE\((HOP|TUMBLE)\(TABLE (\w+), DESCRIPTOR\((\w+)\), ([^()]*)\)\)").expect("a valid pattern");
        let sql = windows.replace_all(sql, "$1($2, $3, $4)").replace("MOD(auction, 123)", "auction % 123");
        let mut statements = Parser::parse_sql(&PostgreSqlDialect {}, &sql).map_err(|error| DataFusionError::Plan(error.to_string()))?;
        let Some(Statement::Query(query)) = statements.pop() else { return plan_err!("not a query") };
        let options = ParserOptions { map_string_types_to_utf8view: true, ..ParserOptions::default() };
        let plan = SqlToRel::new_with_options(self, options).sql_statement_to_plan(Statement::Query(query))?;
        Analyzer::new().execute_and_check(plan, &self.config, |_, _| {})
    }

    /// The optimized plan, one node a line.
    pub(crate) fn optimized(&self, sql: &str) -> String {
        let plan = self.analyzed(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        optimize(plan, &self.config).unwrap_or_else(|error| panic!("{sql}: {error}")).display_indent().to_string()
    }

    /// Plans a view.
    pub(crate) fn plan_with(&self, sql: &str, options: &ViewOptions) -> Result<StreamPlan, PlanError> {
        let plan = self.analyzed(sql)?;
        plan_view(&plan, self, options)
    }

    /// Plans a view with default options.
    pub(crate) fn plan(&self, sql: &str) -> StreamPlan {
        self.plan_with(sql, &ViewOptions::collection(VIEW)).unwrap_or_else(|error| panic!("{sql}: {error}"))
    }

    /// EXPLAIN of a view.
    pub(crate) fn explain(&self, sql: &str) -> String {
        self.explain_plan(&self.plan(sql))
    }

    /// EXPLAIN of a view that emits on window close.
    pub(crate) fn explain_on_close(&self, sql: &str) -> String {
        let options = ViewOptions { emit_on_window_close: true, ..ViewOptions::collection(VIEW) };
        self.explain_plan(&self.plan_with(sql, &options).unwrap_or_else(|error| panic!("{sql}: {error}")))
    }

    fn explain_plan(&self, plan: &StreamPlan) -> String {
        check_graph(&plan.graph);
        let name = |id: u64| match self.relations.values().find(|(known, _)| *known == id) {
            Some((_, relation)) => relation.name.clone(),
            None => "view".to_owned(),
        };
        let warnings: String = plan.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
        format!("{}{warnings}", explain_graph(&plan.graph, &name))
    }
}

/// What the engine relies on in every graph.
fn check_graph(graph: &DataflowGraph) {
    let mut ids = BTreeSet::new();
    for (at, fragment) in graph.fragments.iter().enumerate() {
        assert_eq!(fragment.id, at);
        let mut readers = vec![0; fragment.nodes.len()];
        for (place, node) in fragment.nodes.iter().enumerate() {
            assert!(ids.insert(node.id), "operator {} twice", node.id);
            for input in &node.inputs {
                match input {
                    NodeInput::Node(below) => {
                        assert!(*below < place);
                        readers[*below] += 1;
                    }
                    NodeInput::Exchange(exchange) => assert_eq!(graph.exchanges[*exchange].to, at),
                }
            }
        }
        let (root, inner) = readers.split_last().expect("a fragment has operators");
        assert!(*root == 0 && inner.iter().all(|readers| *readers == 1), "a fragment is a tree");
    }
    for (at, exchange) in graph.exchanges.iter().enumerate() {
        assert_eq!(exchange.id, at);
        assert!(exchange.from < exchange.to && exchange.to < graph.fragments.len());
        let (from, to) = (&graph.fragments[exchange.from], &graph.fragments[exchange.to]);
        assert_eq!(exchange.schema, from.nodes.last().expect("a fragment has operators").schema);
        match &exchange.distribution {
            Distribution::Single => assert_eq!(to.parallelism, Parallelism::Single),
            Distribution::Forward => assert_eq!(from.parallelism, to.parallelism),
            Distribution::Hash(columns) => {
                assert_eq!(to.parallelism, Parallelism::Job);
                assert!(columns.iter().all(|column| *column < exchange.schema.fields().len()));
            }
            Distribution::Broadcast | Distribution::RoundRobin => assert_eq!(to.parallelism, Parallelism::Job),
        }
    }
}

fn schema(columns: &str) -> SchemaRef {
    let field = |column: &str| {
        let (name, data_type) = column.split_once(':').expect("name:type");
        let data_type = match data_type {
            "int" => DataType::Int32,
            "big" => DataType::Int64,
            "text" => DataType::Utf8View,
            _ => DataType::Timestamp(TimeUnit::Microsecond, None),
        };
        Field::new(name, data_type, true)
    };
    Arc::new(Schema::new(columns.split(' ').map(field).collect::<Vec<_>>()))
}

fn named<F>(all: &[Arc<F>], name: &str, own: fn(&F) -> &str, aliases: fn(&F) -> &[String]) -> Option<Arc<F>> {
    all.iter().find(|function| own(function) == name || aliases(function).iter().any(|alias| alias == name)).cloned()
}

impl StreamRelations for Bench {
    fn relation(&self, id: u64) -> Option<StreamRelation> {
        self.relations.values().find(|(known, _)| *known == id).map(|(_, relation)| relation.clone())
    }
}

impl ContextProvider for Bench {
    fn get_table_source(&self, name: TableReference) -> Result<Arc<dyn TableSource>> {
        let Some((id, relation)) = self.relations.get(name.table()) else { return plan_err!("relation {name} does not exist") };
        let key = relation.stream_key.iter().map(|key| Constraint::PrimaryKey(key.clone())).collect();
        let source = RelationSource::new(*id, relation.kind, Arc::clone(&relation.schema));
        Ok(source.with_constraints(Constraints::new_unverified(key)).into_source())
    }

    fn get_expr_planners(&self) -> &[Arc<dyn ExprPlanner>] {
        &self.expression_planners
    }

    fn get_relation_planners(&self) -> &[Arc<dyn RelationPlanner>] {
        &self.relation_planners
    }

    fn get_function_meta(&self, name: &str) -> Option<Arc<ScalarUDF>> {
        let all = [datafusion::functions::all_default_functions(), datafusion::functions_nested::all_default_nested_functions()].concat();
        named(&all, name, |function| function.name(), |function| function.aliases())
    }

    fn get_higher_order_meta(&self, _name: &str) -> Option<Arc<HigherOrderUDF>> {
        None
    }

    fn get_aggregate_meta(&self, name: &str) -> Option<Arc<AggregateUDF>> {
        let mut all = datafusion::functions_aggregate::all_default_aggregate_functions();
        let unused = Arc::new(|_: AccumulatorArgs<'_>| plan_err!("never run"));
        let types = (vec![DataType::Int64], Arc::new(DataType::Int64));
        all.push(Arc::new(create_udaf("single_value", types.0, types.1, Volatility::Immutable, unused, Arc::new(vec![]))));
        named(&all, name, |function| function.name(), |function| function.aliases())
    }

    fn get_window_meta(&self, name: &str) -> Option<Arc<WindowUDF>> {
        let all = datafusion::functions_window::all_default_window_functions();
        named(&all, name, |function| function.name(), |function| function.aliases())
    }

    fn get_variable_type(&self, _variable_names: &[String]) -> Option<DataType> {
        None
    }

    fn options(&self) -> &ConfigOptions {
        &self.config
    }

    fn udf_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn higher_order_function_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udaf_names(&self) -> Vec<String> {
        Vec::new()
    }

    fn udwf_names(&self) -> Vec<String> {
        Vec::new()
    }
}

/// `TUMBLE(relation, time, size)` and `HOP(relation, time, slide, size)`.
#[derive(Debug)]
struct WindowPlanner;

impl RelationPlanner for WindowPlanner {
    fn plan_relation(&self, relation: TableFactor, context: &mut dyn RelationPlannerContext) -> Result<RelationPlanning> {
        let TableFactor::Table { name, alias, args: Some(args), .. } = &relation else {
            return Ok(RelationPlanning::Original(Box::new(relation)));
        };
        let expressions: Vec<_> = args
            .args
            .iter()
            .filter_map(|argument| match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(expression)) => Some(expression.clone()),
                _ => None,
            })
            .collect();
        let [table, time, steps @ ..] = expressions.as_slice() else { return plan_err!("{name} takes a relation and a time column") };
        let inner = Parser::new(&PostgreSqlDialect {}).try_with_sql(&table.to_string()).and_then(|mut parser| parser.parse_table_factor());
        let input = context.plan(inner.map_err(|error| DataFusionError::Plan(error.to_string()))?)?;
        let steps = steps
            .iter()
            .map(|step| {
                let literal = context.sql_to_expr(step.clone(), &DFSchema::empty())?;
                let Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _) = literal else { return plan_err!("no interval") };
                Ok(WindowStep::Micros(interval.nanoseconds / 1_000))
            })
            .collect::<Result<Vec<_>>>()?;
        let column = Column::from_name(time.to_string());
        let column = Column::from(input.schema().qualified_field_from_column(&column)?);
        let (Some(slide), Some(size)) = (steps.first(), steps.last()) else { return plan_err!("no window size") };
        let plan = WindowNode::try_new(input, column, *slide, *size, 0)?.into_plan();
        Ok(RelationPlanning::Planned(Box::new(PlannedRelation::new(plan, alias.clone()))))
    }
}
