//! PREPARE, EXECUTE and DEALLOCATE.

use datafusion::scalar::ScalarValue;
use millpond_planner::{
    bind,
    catalog::name::{Identifier, fold},
    parse::statement::Prepare,
    types::{SqlType, name::from_ast},
};

use crate::{
    answer::Answer,
    binding::SessionNames,
    error::{Result, SqlError},
    session::{Prepared, Session, cancel::Cancel},
    statement,
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
pub(crate) fn find<'a>(session: &'a Session, name: &Identifier) -> Result<&'a Prepared> {
    let name = fold(name);
    session.prepared.get(&name).ok_or_else(|| SqlError::new("26000", format!("prepared statement \"{name}\" does not exist")))
}

/// EXECUTE name (arguments).
pub(crate) async fn execute(
    session: &mut Session,
    name: &Identifier,
    arguments: &[bind::Expression],
    cancel: &Cancel,
) -> Result<Answer> {
    let plan = find(session, name)?.plan.clone().ok_or_else(|| SqlError::internal("an empty statement was prepared"))?;
    if arguments.len() != plan.types.len() {
        let shown = fold(name);
        return Err(SqlError::new("42601", format!("wrong number of parameters for prepared statement \"{shown}\""))
            .with_detail(format!("Expected {} parameters but got {}.", plan.types.len(), arguments.len())));
    }
    let catalog = session.server.catalog.snapshot();
    let values: Vec<ScalarValue> =
        SessionNames::of(session).with(&catalog, &[], |context| bind::bind_expression_values(arguments, &plan.types, context))?;
    statement::execute_prepared(session, &plan, values.into_iter().map(Some).collect(), cancel).await
}

/// DEALLOCATE name, DEALLOCATE ALL.
pub(crate) fn deallocate(session: &mut Session, name: Option<&Identifier>) -> Result<Answer> {
    match name {
        None => {
            session.prepared.clear();
            Ok(Answer::done("DEALLOCATE ALL"))
        }
        Some(name) => {
            let name = fold(name);
            match session.prepared.remove(&name) {
                Some(_) => Ok(Answer::done("DEALLOCATE")),
                None => Err(SqlError::new("26000", format!("prepared statement \"{name}\" does not exist"))),
            }
        }
    }
}
