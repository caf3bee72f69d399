//! Statements bound against a small catalog, and queries run to their text.

use std::{collections::BTreeMap, sync::Arc};

use arrow::{array::Array, record_batch::RecordBatch};
use datafusion::{
    catalog::TableProvider,
    common::tree_node::Transformed,
    datasource::{MemTable, provider_as_source},
    execution::runtime_env::RuntimeEnv,
    logical_expr::LogicalPlan,
    physical_plan::collect,
};

use super::*;
use crate::{
    catalog::CatalogChange,
    error::{PlanError, Result, sqlstate},
    functions::{
        clock::{Clock, resolve},
        session::{session_config, session_state},
    },
    parse,
    pg_text::{self, Zone},
    relation_source::RelationSource,
};

/// A catalog with contents, to which statements are applied one after the other.
pub(crate) struct Bench {
    pub(crate) catalog: Catalog,
    rows: BTreeMap<u64, Vec<RecordBatch>>,
    pub(crate) text: TextSettings,
    runtime: tokio::runtime::Runtime,
}

/// 2031-06-15 12:00:00 UTC
const NOW_US: i64 = 1_939_291_200_000_000;

impl Bench {
    pub(crate) fn new() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let text = TextSettings { now_us: Some(NOW_US), ..TextSettings::default() };
        Self { catalog: Catalog::default(), rows: BTreeMap::new(), text, runtime }
    }

    pub(crate) fn bind(&self, sql: &str) -> Result<Bound> {
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
        let parsed = parse::parse(sql)?;
        assert_eq!(parsed.len(), 1, "{sql}");
        bind(&parsed[0], &context)
    }

    /// Runs statements that change the catalog or add rows.
    pub(crate) fn run(&mut self, script: &str) -> &mut Self {
        for parsed in parse::parse(script).unwrap() {
            self.run_one(&parsed.text).unwrap_or_else(|error| panic!("{}: {error} {:?}", parsed.text, error.detail));
        }
        self
    }

    pub(crate) fn run_one(&mut self, sql: &str) -> Result<()> {
        match self.bind(sql)?.statement {
            BoundStatement::Create(Some(change), _) | BoundStatement::Alter(Some(change), _) => self.apply(&change),
            BoundStatement::CreateAs(create) => create.change.iter().try_for_each(|change| self.apply(change)),
            BoundStatement::Drop(drop) => drop.change.iter().try_for_each(|change| self.apply(change)),
            BoundStatement::Insert(insert) => {
                let batches = self.execute(insert.plan)?;
                self.rows.entry(insert.table.id).or_default().extend(batches);
                Ok(())
            }
            BoundStatement::Update(update) => {
                let width = update.table.columns().len();
                let changed = self.execute(update.plan)?;
                let schema = update.table.arrow_schema();
                let part = |batch: &RecordBatch, from: usize| batch.columns()[from..from + width].to_vec();
                let old: Vec<_> = changed.iter().map(|batch| RecordBatch::try_new(nullable(&schema), part(batch, 0)).unwrap()).collect();
                let new: Vec<_> =
                    changed.iter().map(|batch| RecordBatch::try_new(nullable(&schema), part(batch, width)).unwrap()).collect();
                self.remove(update.table.id, &old);
                self.rows.entry(update.table.id).or_default().extend(new);
                Ok(())
            }
            BoundStatement::Delete(delete) => {
                let old = self.execute(delete.plan)?;
                self.remove(delete.table.id, &old);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn apply(&mut self, change: &CatalogChange) -> Result<()> {
        let record = change.to_record();
        self.catalog = self.catalog.apply(&CatalogChange::from_record(&record)?)?;
        Ok(())
    }

    /// Removes one copy of each row.
    fn remove(&mut self, table: u64, old: &[RecordBatch]) {
        let text = |batch: &RecordBatch, row: usize| row_text(batch, row, &self.text);
        let mut gone: Vec<Vec<Option<String>>> =
            old.iter().flat_map(|batch| (0..batch.num_rows()).map(|row| text(batch, row)).collect::<Vec<_>>()).collect();
        let mut kept = Vec::new();
        for batch in self.rows.get(&table).into_iter().flatten() {
            for row in 0..batch.num_rows() {
                let shown = text(batch, row);
                match gone.iter().position(|other| *other == shown) {
                    Some(at) => drop(gone.swap_remove(at)),
                    None => kept.push(batch.slice(row, 1)),
                }
            }
        }
        assert!(gone.is_empty(), "rows that are not there: {gone:?}");
        self.rows.insert(table, kept);
    }

    /// The rows of a query, each as its text; NULL as `NULL`.
    pub(crate) fn query(&self, sql: &str) -> Result<Vec<String>> {
        let BoundStatement::Query(query) = self.bind(sql)?.statement else { panic!("no query: {sql}") };
        let widths = query.columns.len();
        let types: Vec<_> = query.columns.iter().map(OutputColumn::arrow).collect();
        let batches = self.execute(query.plan)?;
        let mut rows = Vec::new();
        for batch in &batches {
            assert_eq!(batch.num_columns(), widths, "{sql}");
            for (column, data_type) in batch.columns().iter().zip(&types) {
                assert_eq!(column.data_type(), data_type, "{sql}");
            }
            for row in 0..batch.num_rows() {
                let values = row_text(batch, row, &self.text);
                rows.push(values.into_iter().map(|value| value.unwrap_or_else(|| "NULL".into())).collect::<Vec<_>>().join(" "));
            }
        }
        Ok(rows)
    }

    fn execute(&self, plan: LogicalPlan) -> Result<Vec<RecordBatch>> {
        let plan = resolve(plan, Clock { transaction_us: NOW_US, statement_us: NOW_US })?;
        let plan = self.with_contents(plan)?;
        let state = session_state(session_config().with_target_partitions(2), Arc::new(RuntimeEnv::default()), Vec::new());
        let batches = self.runtime.block_on(async {
            let physical = state.create_physical_plan(&plan).await?;
            collect(physical, state.task_ctx()).await
        });
        batches.map_err(PlanError::from)
    }

    fn with_contents(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let replaced = plan.transform_up_with_subqueries(|plan| {
            let LogicalPlan::TableScan(mut scan) = plan else { return Ok(Transformed::no(plan)) };
            if let Some(source) = scan.source.downcast_ref::<RelationSource>() {
                let batches = self.rows.get(&source.id).cloned().unwrap_or_default();
                let schema = Arc::clone(&source.schema);
                let batches = batches.into_iter().map(|batch| RecordBatch::try_new(Arc::clone(&schema), batch.columns().to_vec()).unwrap());
                let table: Arc<dyn TableProvider> = Arc::new(MemTable::try_new(Arc::clone(&schema), vec![batches.collect()])?);
                scan.source = provider_as_source(table);
            }
            Ok(Transformed::yes(LogicalPlan::TableScan(scan)))
        })?;
        Ok(replaced.data)
    }
}

fn nullable(schema: &arrow::datatypes::Schema) -> Arc<arrow::datatypes::Schema> {
    Arc::new(arrow::datatypes::Schema::new(
        schema.fields().iter().map(|field| field.as_ref().clone().with_nullable(true)).collect::<Vec<_>>(),
    ))
}

fn row_text(batch: &RecordBatch, row: usize, settings: &TextSettings) -> Vec<Option<String>> {
    let value = |column: &Arc<dyn Array>| {
        column.is_valid(row).then(|| {
            let mut out = Vec::new();
            pg_text::write_text(column.as_ref(), row, settings, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        })
    };
    batch.columns().iter().map(value).collect()
}

/// Each query and the rows it gives, in order; an error by its code alone.
pub(crate) fn check(bench: &Bench, cases: &[(&str, &[&str])]) {
    let mut failures = Vec::new();
    for (sql, expected) in cases {
        let expected: Vec<String> = expected.iter().map(|row| (*row).to_owned()).collect();
        let found = match bench.query(sql) {
            Ok(rows) => rows,
            Err(error) => vec![format!("!{}", error.sqlstate)],
        };
        let matches = match expected.as_slice() {
            [only] if only.starts_with('!') => found.first() == Some(only),
            _ => found == expected,
        };
        if !matches {
            let message = bench.query(sql).err().map(|error| error.message).unwrap_or_default();
            failures.push(format!("{sql}\n    want {expected:?}\n    got  {found:?} {message}"));
        }
    }
    assert!(failures.is_empty(), "{} of {} differ:\n{}", failures.len(), cases.len(), failures.join("\n"));
}

mod clauses;
mod errors;
mod expressions;
mod formats;
mod interrupts;
mod parameters;
mod statements;

#[test]
fn time_zones_move_local_times() {
    let mut bench = Bench::new();
    bench.text.time_zone = Zone::parse("America/Chicago").unwrap();
    check(
        &bench,
        &[
            (
                "SELECT extract(epoch FROM date_trunc('hour', '2031-11-02 01:25:00-05'::timestamptz)), \
                 extract(epoch FROM date_trunc('hour', '2031-11-02 01:25:00-06'::timestamptz))",
                &["1951365600.000000 1951369200.000000"],
            ),
            (
                "SELECT extract(epoch FROM '2031-11-02 01:25:00-05'::timestamptz + INTERVAL '5 minutes') \
                 - extract(epoch FROM '2031-11-02 01:25:00-05'::timestamptz), \
                 extract(epoch FROM '2031-11-01 12:00-05'::timestamptz + INTERVAL '1 day') - extract(epoch FROM '2031-11-01 12:00-05'::timestamptz), \
                 extract(epoch FROM '2031-11-01 12:00-05'::timestamptz + INTERVAL '24 hours') \
                 - extract(epoch FROM '2031-11-01 12:00-05'::timestamptz)",
                &["300.000000 90000.000000 86400.000000"],
            ),
            (
                "SELECT '2031-03-09 02:30'::timestamptz, '2031-03-09 01:30-06'::timestamptz + INTERVAL '1 hour'",
                &["2031-03-09 03:30:00-05 2031-03-09 03:30:00-05"],
            ),
            ("SELECT now(), current_date, localtimestamp", &["2031-06-15 07:00:00-05 2031-06-15 2031-06-15 07:00:00"]),
            ("SELECT '2031-01-01 00:00'::timestamp AT TIME ZONE 'Europe/Berlin'", &["2030-12-31 17:00:00-06"]),
        ],
    );
    let _ = sqlstate::SYNTAX_ERROR;
}
