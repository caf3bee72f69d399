//! The first rows of a table that was created from a query.

use arrow::array::RecordBatch;

use crate::{
    act::{
        copy::{checked, nullable},
        dml::{insert::conform, table_change::TableChange, work::Work},
    },
    error::Result,
    session::{Session, cancel::Cancel},
};

/// Inserts rows into a new table, in a transaction of their own. Answers how many.
pub(crate) async fn fill(session: &mut Session, table: u64, rows: Vec<RecordBatch>, cancel: &Cancel) -> Result<u64> {
    if rows.is_empty() {
        return Ok(0);
    }
    let server = session.server.clone();
    let target = server.targets.get(&server, table)?;
    let mut work = Work::new(&server.memory);
    let guard = cancel.locked(target.handle.lock()).await?;
    work.keep_guard(table, guard, server.engine.log_failures());
    let change = TableChange::read(target.clone(), session.text_settings(), true);
    let mut count = 0;
    for rows in rows {
        let rows = conform(&rows, &nullable(target.schema()))?;
        target.check(&rows, &change.text)?;
        count += rows.num_rows() as u64;
        change.insert(&mut work, &checked(&rows, target.schema())?)?;
    }
    work.account()?;
    work.commit(&server.engine, cancel).await?;
    Ok(count)
}
