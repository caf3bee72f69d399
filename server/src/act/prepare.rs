//! PREPARE, EXECUTE and DEALLOCATE.

use std::sync::Arc;

use datafusion::logical_expr::Expr;
use millpond_planner::{
    catalog::fold,
    parse::statement::Prepare,
    types::{SqlType, name::from_ast},
};

use crate::{
    act::dml::insert::constant,
    answer::Answer,
    error::{Result, SqlError},
    session::{Prepared, Session, cancel::Cancel},
    statement::{self, PreparedPlan},
};

/// Most statements a session may prepare.
const PREPARED_LIMIT: usize = 10_000;

/// PREPARE name (types) AS statement.
pub(crate) async fn prepare(session: &mut Session, prepare: &Prepare) -> Result<Answer> {
    let name = fold(&prepare.name);
    if session.prepared.contains_key(&name) {
        return Err(SqlError::new("42P05", format!("prepared statement \"{name}\" already exists")));
    }
    if session.prepared.len() >= PREPARED_LIMIT {
        return Err(SqlError::new("54000", "too many prepared statements in this session"));
    }
    let types = prepare.types.iter().map(|data_type| Ok(Some(from_ast(data_type)?.0))).collect::<Result<Vec<Option<SqlType>>>>()?;
    let prepared = statement::prepare_typed(session, prepare.statement.clone(), types)?;
    session.prepared.insert(name, prepared);
    Ok(Answer::done("PREPARE"))
}

/// The prepared statement of that name.
pub(crate) fn find<'a>(session: &'a Session, name: &str) -> Result<&'a Prepared> {
    session.prepared.get(name).ok_or_else(|| SqlError::new("26000", format!("prepared statement \"{name}\" does not exist")))
}

/// EXECUTE name (arguments), which have been bound to the types of the parameters.
pub(crate) async fn execute(session: &mut Session, plan: &Arc<PreparedPlan>, arguments: &[Expr], cancel: &Cancel) -> Result<Answer> {
    let values = arguments.iter().map(|argument| Ok(Some(constant(argument)?))).collect::<Result<Vec<_>>>()?;
    statement::execute_prepared(session, plan, values, cancel).await
}

/// DEALLOCATE name, DEALLOCATE ALL.
pub(crate) fn deallocate(session: &mut Session, name: Option<&str>) -> Result<Answer> {
    match name {
        None => {
            session.prepared.clear();
            Ok(Answer::done("DEALLOCATE ALL"))
        }
        Some(name) => match session.prepared.remove(name) {
            Some(_) => Ok(Answer::done("DEALLOCATE")),
            None => Err(SqlError::new("26000", format!("prepared statement \"{name}\" does not exist"))),
        },
    }
}
