//! A small catalog for the tests of the planner's back half: the Nexmark sources and a few tables.

use std::collections::{BTreeMap, BTreeSet};

use datafusion::logical_expr::{LogicalPlan, TableSource};
use millpond_engine::graph::{DataflowGraph, Distribution, NodeInput, Parallelism};

use crate::{
    bind::{BindContext, BoundStatement, NoSystemRelations, bind},
    catalog::{Catalog, Object, ObjectBody, object::LateRows},
    error::Result,
    explain::explain_graph,
    functions::session::session_config,
    interrupt::Interrupt,
    optimize::{
        optimize,
        statistics::{RelationStatistics, Statistics},
    },
    parse::parse,
    pg_text::TextSettings,
    relation_source::{RelationKind, RelationSource},
    stream::{StreamPlan, StreamRelation, StreamRelations, ViewOptions, plan_view},
};

/// Nexmark's `person`, `auction`, `bid`; tables `t`, `u` (with primary keys), `bag` (without) and `event` (with a watermark, late rows kept).
const RELATIONS: &str = "
    CREATE SOURCE person (id bigint, name varchar, email_address varchar, credit_card varchar, city varchar, state varchar,
        date_time timestamp, extra varchar, WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND)
        WITH (connector = 'file', path = 'person', format = 'csv');
    CREATE SOURCE auction (id bigint, item_name varchar, description varchar, initial_bid bigint, reserve bigint, date_time timestamp,
        expires timestamp, seller bigint, category bigint, extra varchar, WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND)
        WITH (connector = 'file', path = 'auction', format = 'csv');
    CREATE SOURCE bid (auction bigint, bidder bigint, price bigint, channel varchar, url varchar, date_time timestamp, extra varchar,
        WATERMARK FOR date_time AS date_time - INTERVAL '4' SECOND) WITH (connector = 'file', path = 'bid', format = 'csv');
    CREATE TABLE t (id int PRIMARY KEY, k int, v bigint, s text);
    CREATE TABLE u (id int PRIMARY KEY, t_id int, w bigint, s text);
    CREATE TABLE bag (k int, v bigint);
    CREATE TABLE event (at timestamp, k int, v bigint, WATERMARK FOR at AS at - INTERVAL '5' SECOND);";

/// Id of the planned view.
pub(crate) const VIEW: u64 = 1_000_000;

/// The relations of the tests.
pub(crate) struct Bench {
    catalog: Catalog,
    statistics: BTreeMap<u64, RelationStatistics>,
    text: TextSettings,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::of(RELATIONS)
    }

    /// With other relations.
    pub(crate) fn of(relations: &str) -> Self {
        let mut bench = Self { catalog: Catalog::default(), statistics: BTreeMap::new(), text: TextSettings::default() };
        for statement in parse(relations).expect("the relations can be parsed") {
            let BoundStatement::Create(Some(change), _) = bench.bind(&statement.text).expect("the relations can be bound") else {
                panic!("a relation is made");
            };
            bench.catalog = bench.catalog.apply(&change).expect("the relations do not clash");
        }
        bench
    }

    /// Makes the rows of a relation known.
    pub(crate) fn know(&mut self, name: &str, statistics: RelationStatistics) {
        self.statistics.insert(self.object(name).id, statistics);
    }

    fn bind(&self, sql: &str) -> Result<BoundStatement> {
        let path = ["public".to_owned()];
        let context = BindContext {
            catalog: &self.catalog,
            search_path: &path,
            text: &self.text,
            user: "millpond",
            database: "millpond",
            server_version: "15.0",
            system: &NoSystemRelations,
            parameter_types: &[],
            is_kept: false,
            interrupt: &Interrupt::never(),
        };
        let parsed = parse(sql)?;
        assert_eq!(parsed.len(), 1, "one statement: {sql}");
        Ok(bind(&parsed[0], &context)?.statement)
    }

    /// The bound plan of a query.
    pub(crate) fn bound(&self, sql: &str) -> Result<LogicalPlan> {
        match self.bind(sql)? {
            BoundStatement::Query(query) => Ok(query.plan),
            _ => panic!("a query: {sql}"),
        }
    }

    /// The relation of a name.
    pub(crate) fn object(&self, name: &str) -> &Object {
        self.catalog.objects().find(|object| object.name == name).unwrap_or_else(|| panic!("there is no {name}"))
    }

    /// The optimized plan, one node a line.
    pub(crate) fn optimized(&self, sql: &str) -> String {
        let plan = self.bound(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let optimized = optimize(plan, session_config().options(), &Interrupt::never())
            .unwrap_or_else(|error| panic!("{sql}: {error} {:?}", error.detail));
        optimized.display_indent().to_string()
    }

    /// Plans a view.
    pub(crate) fn plan_with(&self, sql: &str, options: &ViewOptions) -> Result<StreamPlan> {
        plan_view(&self.bound(sql)?, self, options)
    }

    /// Plans a view with default options.
    pub(crate) fn plan(&self, sql: &str) -> StreamPlan {
        self.plan_with(sql, &ViewOptions::collection(VIEW)).unwrap_or_else(|error| panic!("{sql}: {error} {:?}", error.detail))
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
        let name = |id: u64| self.catalog.get(id).map_or_else(|| "view".to_owned(), |object| object.name.clone());
        let warnings: String = plan.warnings.iter().map(|warning| format!("warning: {warning}\n")).collect();
        format!("{}{warnings}", explain_graph(&plan.graph, &name))
    }
}

impl Statistics for Bench {
    fn of(&self, source: &dyn TableSource) -> Option<RelationStatistics> {
        self.statistics.get(&source.downcast_ref::<RelationSource>()?.id).cloned()
    }
}

impl StreamRelations for Bench {
    fn statistics(&self, id: u64) -> Option<RelationStatistics> {
        self.statistics.get(&id).cloned()
    }

    fn relation(&self, id: u64) -> Option<StreamRelation> {
        let object = self.catalog.get(id)?;
        let (kind, append_only, stream_key, watermark, late_rows) = match &object.body {
            ObjectBody::Table(table) => {
                let key = table.primary_key.as_ref().map(|key| key.columns.clone());
                (RelationKind::Collection, table.append_only, key, table.watermark, table.late_rows)
            }
            ObjectBody::Source(source) => (RelationKind::Source, true, None, source.watermark, source.late_rows),
            _ => return None,
        };
        Some(StreamRelation {
            name: object.name.clone(),
            kind,
            schema: object.arrow_schema(),
            append_only,
            stream_key,
            watermark_column: watermark.map(|watermark| watermark.column),
            late_rows_diverted: watermark.is_some() && late_rows == LateRows::Divert,
        })
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
