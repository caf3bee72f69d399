//! UPDATE and DELETE: the rows to change are read by a plan over the table as the statement sees it.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use arrow::{
    array::{BooleanArray, RecordBatch},
    compute::filter_record_batch,
};
use datafusion::{
    common::tree_node::{TreeNode, TreeNodeRecursion},
    logical_expr::LogicalPlan,
    scalar::ScalarValue,
};
use millpond_planner::bind::{BoundDelete, BoundUpdate, OutputColumn};

use crate::{
    act::{
        copy::{checked, nullable},
        dml::{
            insert::{conform, returning_answer},
            table_change::TableChange,
        },
        select,
    },
    answer::{Answer, RowsTag},
    error::Result,
    query::run,
    relation::{contents::Contents, key_filter::KeyPart},
    session::{Session, cancel::Cancel},
};

/// Executes an UPDATE. Keys are checked for the whole statement: `SET k = k + 1` may pass through values that are taken.
pub(crate) async fn update(session: &mut Session, update: &BoundUpdate, values: &[ScalarValue], cancel: &Cancel) -> Result<Answer> {
    let target = session.server.targets.get(&session.server, update.table.id)?;
    target.require_changeable("update")?;
    let change = TableChange::begin(session, target.clone(), "UPDATE", cancel).await?;
    let rows = affected(session, &change, &update.plan, values, cancel).await?;
    let width = target.schema().fields().len();
    let (mut old, mut new, mut returned) = (Vec::new(), Vec::new(), Vec::new());
    for rows in &rows {
        old.push(part(rows, 0, width)?);
        let after = conform(&part(rows, width, width)?, &nullable(target.schema()))?;
        target.check(&after, &change.text)?;
        new.push(checked(&after, target.schema())?);
        returned.push(part(rows, 2 * width, rows.num_columns() - 2 * width)?);
    }
    for rows in &old {
        change.delete(session.work(), &conform(rows, target.schema())?)?;
    }
    for rows in &new {
        change.insert(session.work(), rows)?;
    }
    session.work().account()?;
    Ok(answer("UPDATE", &rows, returned, update.returning.as_deref(), RowsTag::UpdateReturning))
}

/// Executes a DELETE.
pub(crate) async fn delete(session: &mut Session, delete: &BoundDelete, values: &[ScalarValue], cancel: &Cancel) -> Result<Answer> {
    let target = session.server.targets.get(&session.server, delete.table.id)?;
    target.require_changeable("delete from")?;
    let change = TableChange::begin(session, target.clone(), "DELETE", cancel).await?;
    let rows = affected(session, &change, &delete.plan, values, cancel).await?;
    let width = target.schema().fields().len();
    let mut returned = Vec::new();
    for rows in &rows {
        change.delete(session.work(), &conform(&part(rows, 0, width)?, target.schema())?)?;
        returned.push(part(rows, width, rows.num_columns() - width)?);
    }
    session.work().account()?;
    Ok(answer("DELETE", &rows, returned, delete.returning.as_deref(), RowsTag::DeleteReturning))
}

fn answer(verb: &str, rows: &[RecordBatch], returned: Vec<RecordBatch>, returning: Option<&[OutputColumn]>, tag: RowsTag) -> Answer {
    match returning {
        Some(columns) => returning_answer(returned, columns, tag),
        None => Answer::done(format!("{verb} {}", rows.iter().map(RecordBatch::num_rows).sum::<usize>())),
    }
}

fn part(rows: &RecordBatch, from: usize, count: usize) -> Result<RecordBatch> {
    let columns: Vec<usize> = (from..from + count).collect();
    Ok(rows.project(&columns)?)
}

/// The rows of the statement's plan, each row of the table once.
async fn affected(
    session: &mut Session,
    change: &TableChange,
    plan: &LogicalPlan,
    values: &[ScalarValue],
    cancel: &Cancel,
) -> Result<Vec<RecordBatch>> {
    let contents = change.contents(session, cancel).await?;
    let given = vec![(change.target.object.id, contents.clone())];
    let run = select::prepare(session, plan.clone(), values, given, cancel.clone()).await?;
    let mut rows = run::collect(&session.server.clone(), run).await?;
    if !joins(plan)? {
        return Ok(rows);
    }
    let width = change.target.schema().fields().len();
    let identity = &change.target.identity;
    let mut left = Allowed::of(change, &contents)?;
    for batch in &mut rows {
        let keys = identity.encode(&conform(&part(batch, 0, width)?, &nullable(change.target.schema()))?)?;
        let keep: BooleanArray = keys.iter().map(|key| Some(left.take(key))).collect();
        *batch = filter_record_batch(batch, &keep)?;
    }
    rows.retain(|rows| rows.num_rows() > 0);
    Ok(rows)
}

/// Whether the plan reads anything beside the table, so that a row may come more than once.
fn joins(plan: &LogicalPlan) -> Result<bool> {
    let mut found = false;
    plan.apply(|node| {
        found |= matches!(node, LogicalPlan::Join(_));
        Ok(if found { TreeNodeRecursion::Stop } else { TreeNodeRecursion::Continue })
    })?;
    Ok(found)
}

/// How often a row may still be changed: once per key, or as often as the table has it.
enum Allowed {
    Once(HashSet<Box<[u8]>>),
    Times(HashMap<Box<[u8]>, u64>),
}

impl Allowed {
    fn of(change: &TableChange, contents: &Arc<dyn Contents>) -> Result<Self> {
        if !change.target.identity.key.is_empty() {
            return Ok(Self::Once(HashSet::new()));
        }
        let mut times = HashMap::new();
        for rows in contents.open(KeyPart::Everything, None, None)? {
            for row in change.target.identity.encode(&rows?)?.iter() {
                *times.entry(row.into()).or_default() += 1;
            }
        }
        Ok(Self::Times(times))
    }

    fn take(&mut self, key: &[u8]) -> bool {
        match self {
            Self::Once(seen) => seen.insert(key.into()),
            Self::Times(times) => match times.get_mut(key) {
                Some(count) if *count > 0 => {
                    *count -= 1;
                    true
                }
                _ => false,
            },
        }
    }
}
