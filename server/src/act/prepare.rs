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
    error::Result,
    session::{Session, cancel::Cancel},
    statement::{self, PreparedPlan},
};

/// PREPARE name (types) AS statement.
pub(crate) async fn prepare(session: &mut Session, prepare: &Prepare, cancel: &Cancel) -> Result<Answer> {
    let name = fold(&prepare.name);
    session.prepared.check_free(&name)?;
    let types = prepare.types.iter().map(|data_type| Ok(Some(from_ast(data_type)?.0))).collect::<Result<Vec<Option<SqlType>>>>()?;
    let prepared = statement::prepare_typed(session, prepare.statement.clone(), types, cancel)?;
    session.prepared.insert(name, Arc::new(prepared), true)?;
    Ok(Answer::done("PREPARE"))
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
        Some(name) => {
            session.prepared.remove(name)?;
            Ok(Answer::done("DEALLOCATE"))
        }
    }
}
