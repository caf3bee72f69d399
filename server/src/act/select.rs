//! SELECT: choose the epoch, give every scan its rows, run the plan. One row by primary key is looked up without any plan.

use std::{any::Any, sync::Arc};

use arrow::{array::RecordBatch, datatypes::DataType};
use datafusion::{
    common::tree_node::{TreeNode, TreeNodeRecursion},
    logical_expr::{BinaryExpr, Expr, LogicalPlan, Operator, expr::Cast},
    scalar::ScalarValue,
};
use futures::StreamExt;
use millpond_planner::{
    bind::{BoundQuery, with_parameters},
    catalog::Catalog,
    functions::clock,
    interrupt::Interrupt,
    optimize::join_order::Hints,
    relation_source::{RelationKind, RelationSource},
};
use millpond_storage::{
    collection::CollectionKey,
    encoding::{EncodedRows, key::KeyCodec},
};

use crate::{
    act::read,
    answer::{Answer, BatchStream, Column, RowsTag},
    binding::planning,
    error::{Result, SqlError},
    query::run::{self, Run, Unplanned},
    relation::{
        contents::found_rows,
        left_out::LeftOutOfAll,
        resolve::{relations, resolve},
        system::{self, SystemSource},
    },
    session::{Session, cancel::Cancel, transaction::Phase},
    statement,
    system_tables::registry::SystemContext,
};

/// Executes a query.
pub(crate) async fn execute(session: &mut Session, query: &BoundQuery, values: &[ScalarValue], cancel: &Cancel) -> Result<Answer> {
    let (columns, stream) = open(session, query, values, cancel.clone()).await?;
    Ok(Answer::Rows { columns, stream, tag: RowsTag::Select })
}

/// Starts a query; its rows come as they are asked for, until the last holder of `cancel` fires it.
pub(crate) async fn open(
    session: &mut Session,
    query: &BoundQuery,
    values: &[ScalarValue],
    cancel: Cancel,
) -> Result<(Vec<Column>, BatchStream)> {
    let run = prepare(session, query.plan.clone(), values, Vec::new(), cancel).await?.with_hints(&query.hints);
    let stream = run::stream(&session.server, run).await?;
    Ok((query.columns.iter().map(statement::column).collect(), stream))
}

/// Makes a bound plan ready to be run. `given` are relations that are read otherwise than at the statement's epoch.
pub(crate) async fn prepare(
    session: &mut Session,
    plan: LogicalPlan,
    values: &[ScalarValue],
    given: Vec<(u64, Arc<dyn crate::relation::contents::Contents>)>,
    cancel: Cancel,
) -> Result<Run> {
    let plan = planning(|| Ok::<_, SqlError>(clock::resolve(with_parameters(plan, values)?, session.times())?))?;
    cancel.check()?;
    let catalog = session.catalog();
    let mut read = relations(&plan)?;
    read.collections.retain(|id| given.iter().all(|(known, _)| known != id));
    let mut opened = read::open(session, &catalog, &read, &cancel).await?;
    for (id, contents) in given {
        opened.rows = opened.rows.saturating_add(contents.row_estimate());
        let name = catalog.get(id).map(|object| object.name.clone()).unwrap_or_default();
        opened.tables.insert(id, Arc::new(crate::relation::provider::RelationTable::new(name, contents)));
    }
    let view = if read.system { session.view() } else { Default::default() };
    let server = &session.server;
    let system_table = |source: &SystemSource| {
        let relation = server.system.find(source.schema_name, &source.name);
        let relation = relation.ok_or_else(|| crate::error::SqlError::internal("a system relation has gone"))?;
        system::table(relation.read(&SystemContext { catalog: &catalog, server, session: &view, relations: &server.system })?)
    };
    let plan = planning(|| resolve(plan, &opened.tables, &system_table))?;
    cancel.check()?;
    let left_out = LeftOutOfAll::new(opened.left_out, session.notices());
    let keep = Vec::<Arc<dyn Any + Send + Sync>>::new();
    let (hints, interrupt) = (Hints::default(), cancel.interrupt());
    let query = Unplanned { plan, hints, rows: opened.rows, now_us: session.now_us(), interrupt };
    Ok(Run { query, cancel, left_out, keep })
}

/// Where a key value of a lookup comes from.
#[derive(Clone, Debug)]
enum KeyValue {
    Parameter(usize),
    Constant(ScalarValue),
}

/// `SELECT columns FROM relation WHERE key = values`.
pub(crate) struct Lookup {
    relation: u64,
    key: Vec<(KeyValue, DataType)>,
    codec: KeyCodec,
    projection: Vec<usize>,
    columns: Vec<Column>,
}

/// The lookup that a query is, if it is one.
pub(crate) fn lookup(session: &Session, catalog: &Catalog, query: &BoundQuery, interrupt: &Interrupt) -> Option<Lookup> {
    if !may_be_lookup(&query.plan) {
        return None;
    }
    let plan = session.server.queries.optimize(&query.plan, &query.hints, interrupt).ok()?;
    let shape = Shape::of(&plan)?;
    let collection = session.server.engine.collection(shape.relation.id)?;
    let CollectionKey::Columns(key) = collection.key() else { return None };
    catalog.get(shape.relation.id).filter(|object| object.is_readable())?;
    let mut values: Vec<Option<KeyValue>> = vec![None; key.len()];
    for condition in &shape.conditions {
        let (column, value) = equality(condition)?;
        let number = shape.relation.schema.index_of(column).ok()?;
        let place = key.iter().position(|key| *key == number)?;
        // A second condition on the same column would have to be checked.
        if values[place].replace(value).is_some() {
            return None;
        }
    }
    let types: Vec<DataType> = key.iter().map(|column| shape.relation.schema.field(*column).data_type().clone()).collect();
    let key = values.into_iter().zip(&types).map(|(value, data_type)| Some((value?, data_type.clone()))).collect::<Option<Vec<_>>>()?;
    Some(Lookup {
        relation: shape.relation.id,
        key,
        codec: KeyCodec::ascending(&types).ok()?,
        projection: shape.projection,
        columns: query.columns.iter().map(statement::column).collect(),
    })
}

/// Expressions of a plan that is optimized only to see whether it is a lookup.
const MAX_LOOKUP_EXPRESSIONS: usize = 256;

/// Adds the expressions of one node, and stops where there are more than `most`.
fn count_expressions(node: &LogicalPlan, counted: &mut usize, most: usize) -> datafusion::common::Result<TreeNodeRecursion> {
    node.apply_expressions(|expression| {
        expression.apply(|_| {
            *counted += 1;
            Ok(if *counted > most { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
        })
    })
}

/// Whether an analyzed plan could become a lookup: one relation, and little to it.
fn may_be_lookup(plan: &LogicalPlan) -> bool {
    let mut expressions = 0;
    let mut node = plan;
    loop {
        let counted = count_expressions(node, &mut expressions, MAX_LOOKUP_EXPRESSIONS);
        if counted.is_err() || expressions > MAX_LOOKUP_EXPRESSIONS {
            return false;
        }
        node = match node {
            LogicalPlan::SubqueryAlias(alias) => &alias.input,
            LogicalPlan::Projection(projection) => &projection.input,
            LogicalPlan::Filter(filter) => &filter.input,
            LogicalPlan::TableScan(_) => return true,
            _ => return false,
        };
    }
}

/// A plan of nothing but a projection of columns, conditions and a scan.
struct Shape<'a> {
    relation: &'a RelationSource,
    conditions: Vec<&'a Expr>,
    /// Columns of the relation.
    projection: Vec<usize>,
}

impl<'a> Shape<'a> {
    fn of(plan: &'a LogicalPlan) -> Option<Self> {
        match plan {
            LogicalPlan::SubqueryAlias(alias) => Self::of(&alias.input),
            LogicalPlan::Projection(projection) => {
                let below = Self::of(&projection.input)?;
                let input = projection.input.schema();
                let columns = projection.expr.iter().map(|expression| {
                    let Expr::Column(column) = unaliased(expression) else { return None };
                    Some(below.projection[input.index_of_column(column).ok()?])
                });
                Some(Self { projection: columns.collect::<Option<_>>()?, ..below })
            }
            LogicalPlan::Filter(filter) => {
                let mut below = Self::of(&filter.input)?;
                conjuncts(&filter.predicate, &mut below.conditions);
                Some(below)
            }
            LogicalPlan::TableScan(scan) if scan.fetch.is_none() => {
                let relation = RelationSource::of(plan)?;
                let mut conditions = Vec::new();
                scan.filters.iter().for_each(|filter| conjuncts(filter, &mut conditions));
                let all = || (0..relation.schema.fields().len()).collect();
                let projection = scan.projection.clone().unwrap_or_else(all);
                (relation.kind == RelationKind::Collection).then_some(Self { relation, conditions, projection })
            }
            _ => None,
        }
    }
}

fn unaliased(expression: &Expr) -> &Expr {
    match expression {
        Expr::Alias(alias) => unaliased(&alias.expr),
        other => other,
    }
}

fn conjuncts<'a>(predicate: &'a Expr, into: &mut Vec<&'a Expr>) {
    match predicate {
        Expr::BinaryExpr(BinaryExpr { left, op: Operator::And, right }) => {
            conjuncts(left, into);
            conjuncts(right, into);
        }
        other => into.push(other),
    }
}

/// `column = value`, either way round; a column may be widened to a greater integer first.
fn equality(condition: &Expr) -> Option<(&str, KeyValue)> {
    let Expr::BinaryExpr(BinaryExpr { left, op: Operator::Eq, right }) = condition else { return None };
    column_name(left).zip(key_value(right)).or_else(|| column_name(right).zip(key_value(left)))
}

fn column_name(expression: &Expr) -> Option<&str> {
    match expression {
        Expr::Column(column) => Some(&column.name),
        Expr::Cast(Cast { expr, field }) if field.data_type() == &DataType::Int64 => column_name(expr),
        _ => None,
    }
}

fn key_value(expression: &Expr) -> Option<KeyValue> {
    match expression {
        Expr::Placeholder(placeholder) => placeholder.id.strip_prefix('$')?.parse::<usize>().ok()?.checked_sub(1).map(KeyValue::Parameter),
        Expr::Literal(value, _) => Some(KeyValue::Constant(value.clone())),
        _ => None,
    }
}

/// Looks the row up. `None` when that cannot be done in this transaction or with these values: then the plan is run.
pub(crate) async fn look_up(session: &mut Session, lookup: &Lookup, values: &[ScalarValue], cancel: &Cancel) -> Result<Option<Answer>> {
    if session.transaction.phase() != Phase::Idle {
        return Ok(None);
    }
    let mut key = Vec::with_capacity(lookup.key.len());
    for (value, data_type) in &lookup.key {
        let value = match value {
            KeyValue::Parameter(number) => match values.get(*number) {
                Some(value) => value,
                None => return Ok(None),
            },
            KeyValue::Constant(value) => value,
        };
        if value.is_null() {
            return Ok(Some(rows(lookup, None)));
        }
        // A value that the column cannot have equals none of its values.
        let Ok(value) = value.cast_to(data_type) else { return Ok(None) };
        key.push(value.to_array()?);
    }
    let (freshness, timeout) = read::freshness(session);
    let server = session.server.clone();
    let Some(collection) = server.engine.collection(lookup.relation) else { return Ok(None) };
    let point = cancel.race(server.engine.read_epoch(&[lookup.relation], freshness, timeout)).await?;
    read::warn_of_failure(session, &[lookup.relation]);
    let keys: EncodedRows = lookup.codec.encode(&key)?;
    let (found, places) = collection.get(point.epoch, &keys)?;
    let row = found_rows(&found, &places, None, Some(&lookup.projection))?;
    Ok(Some(rows(lookup, Some(row))))
}

fn rows(lookup: &Lookup, row: Option<RecordBatch>) -> Answer {
    let stream = futures::stream::iter(row.map(Ok)).boxed();
    Answer::Rows { columns: lookup.columns.clone(), stream, tag: RowsTag::Select }
}
