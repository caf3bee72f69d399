//! TRUNCATE: every row of a table goes, as one change.

use crate::{
    act::dml::table_change::TableChange,
    answer::Answer,
    error::Result,
    relation::key_filter::KeyPart,
    session::{Session, cancel::Cancel},
};

/// Executes a TRUNCATE.
pub(crate) async fn execute(session: &mut Session, tables: &[u64], cancel: &Cancel) -> Result<Answer> {
    for table in tables {
        let target = session.server.targets.get(&session.server, *table)?;
        target.require_changeable("truncate")?;
        let change = TableChange::begin(session, target, "TRUNCATE TABLE", cancel).await?;
        let contents = change.contents(session, cancel).await?;
        for rows in contents.open(KeyPart::Everything, None, None)? {
            cancel.check()?;
            change.delete(session.work(), &rows?)?;
        }
        session.work().account()?;
        // The next table is not locked with this one: two statements could wait for each other.
        session.work().release_guards();
    }
    Ok(Answer::done("TRUNCATE TABLE"))
}
