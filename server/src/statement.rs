//! THE function: what is done with a statement. Text has been parsed; here it is bound against the catalog and acted upon.

use std::sync::Arc;

use datafusion::scalar::ScalarValue;
use millpond_planner::{
    bind::{self, BindContext, Bound, BoundStatement, OutputColumn},
    catalog::fold,
    parse::{ParsedStatement, Statement},
    types::SqlType,
};
use parking_lot::Mutex;

use crate::{
    act::{copy, cursor, ddl, dml, explain, maintenance, prepare as act_prepare, select, settings, show, transaction},
    answer::{Answer, Column},
    binding::{self, SessionNames},
    error::{Result, SqlError},
    session::{ParameterType, Prepared, Session, cancel::Cancel},
    system_tables::numbers,
};

/// Values of a statement's parameters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parameters {
    /// Their types, as far as they are declared.
    pub(crate) types: Vec<Option<SqlType>>,
    /// In their types; NULL is a NULL of the type.
    pub(crate) values: Vec<ScalarValue>,
}

impl Parameters {
    /// None.
    pub(crate) fn none() -> Self {
        Self::default()
    }
}

/// A prepared statement inside of the server.
pub(crate) struct PreparedPlan {
    /// As it was parsed.
    pub(crate) parsed: Arc<ParsedStatement>,
    /// Its text.
    pub(crate) text: Arc<str>,
    /// Types of its parameters, all known.
    pub(crate) types: Vec<SqlType>,
    cached: Mutex<Option<Arc<CachedPlan>>>,
}

/// A bound statement that holds as long as catalog and settings stay as they are.
pub(crate) struct CachedPlan {
    catalog_version: u64,
    settings_generation: u64,
    /// What binding gave.
    pub(crate) bound: Bound,
    /// A way to run it without planning, if there is one.
    pub(crate) shortcut: Option<Shortcut>,
}

/// Statements simple enough to be run without DataFusion.
pub(crate) enum Shortcut {
    /// One row by primary key.
    Lookup(select::Lookup),
}

/// Executes a statement.
pub(crate) async fn execute(session: &mut Session, parsed: &ParsedStatement, parameters: Parameters, cancel: &Cancel) -> Result<Answer> {
    match &parsed.statement {
        Statement::Transaction(control) => transaction::execute(session, control, cancel).await,
        Statement::Set(set) => settings::set(session, set),
        Statement::Show(wanted) => show::execute(session, wanted),
        Statement::Reset(target) => settings::reset(session, target),
        Statement::Discard(target) => settings::discard(session, *target),
        Statement::Prepare(prepare) => act_prepare::prepare(session, prepare, cancel).await,
        Statement::Execute { name, arguments } => {
            let plan = session.prepared.get(&fold(name))?.plan.clone().ok_or_else(|| SqlError::internal("nothing was prepared"))?;
            let catalog = session.catalog();
            let bind = |context: &BindContext<'_>| bind::bind_expression_values(arguments, &plan.types, context);
            let arguments = SessionNames::of(session, cancel).with(&catalog, &[], bind)?;
            Box::pin(act_prepare::execute(session, &plan, &arguments, cancel)).await
        }
        Statement::Deallocate(name) => act_prepare::deallocate(session, name.as_ref().map(fold).as_deref()),
        Statement::Fetch(fetch) => cursor::fetch(session, fetch, cancel).await,
        Statement::CloseCursor(name) => cursor::close(session, name.as_ref().map(fold).as_deref()),
        Statement::Vacuum => Ok(Answer::done("VACUUM")),
        Statement::Flush => maintenance::flush(session, cancel).await,
        Statement::Notification(tag) => Ok(Answer::done(*tag)),
        Statement::Explain(wanted) => explain::execute(session, wanted, parameters, cancel).await,
        statement if ddl::is_definition(statement) => ddl::execute(session, parsed, cancel).await,
        _ => {
            let catalog = session.catalog();
            let bound = binding::bind(session, &catalog, parsed, &parameters.types, cancel)?;
            act(session, &bound, parsed, &parameters.values, cancel).await
        }
    }
}

/// Acts on a bound statement.
pub(crate) async fn act(
    session: &mut Session,
    bound: &Bound,
    parsed: &ParsedStatement,
    values: &[ScalarValue],
    cancel: &Cancel,
) -> Result<Answer> {
    match &bound.statement {
        BoundStatement::Query(query) => select::execute(session, query, values, cancel).await,
        BoundStatement::Insert(insert) => dml::insert::execute(session, insert, values, cancel).await,
        BoundStatement::Update(update) => dml::update::update(session, update, values, cancel).await,
        BoundStatement::Delete(delete) => dml::update::delete(session, delete, values, cancel).await,
        BoundStatement::Truncate(tables) => dml::truncate::execute(session, tables, cancel).await,
        BoundStatement::CopyFrom(from) => copy::from_stdin(session, from, cancel).await,
        BoundStatement::CopyTo(query, options) => copy::to_stdout(session, query, options, cancel).await,
        BoundStatement::DeclareCursor { name, query, hold, .. } => {
            let Statement::DeclareCursor(declared) = &parsed.statement else { return Err(SqlError::internal("a cursor is not declared")) };
            let (scroll, may_scroll) = (declared.scroll == Some(true), declared.scroll.is_none());
            let declaration = cursor::Declaration { name, query, scroll, may_scroll, hold: *hold, text: &parsed.text };
            cursor::declare(session, declaration, values, cancel).await
        }
        BoundStatement::Analyze(_) => Ok(Answer::done("ANALYZE")),
        BoundStatement::Create(..)
        | BoundStatement::CreateAs(_)
        | BoundStatement::Drop(_)
        | BoundStatement::Alter(..)
        | BoundStatement::AlterJob(_)
        | BoundStatement::Fetch { .. }
        | BoundStatement::Explain(_)
        | BoundStatement::Utility => Err(SqlError::internal("a statement was bound that is acted upon without binding")),
    }
}

/// Prepares a statement: binds it to tell its parameters and columns, and keeps what binding gave.
pub(crate) async fn prepare(session: &mut Session, parsed: ParsedStatement, declared: &[Option<i32>], cancel: &Cancel) -> Result<Prepared> {
    let declared = declared.iter().map(|oid| oid.map(type_of_oid).transpose()).collect::<Result<Vec<_>>>()?;
    let types: Vec<Option<SqlType>> = declared.into_iter().map(Option::flatten).collect();
    prepare_typed(session, parsed, types, cancel)
}

/// The same with declared SQL types.
pub(crate) fn prepare_typed(
    session: &Session,
    parsed: ParsedStatement,
    declared: Vec<Option<SqlType>>,
    cancel: &Cancel,
) -> Result<Prepared> {
    let text: Arc<str> = Arc::from(parsed.text.as_str());
    let mut plan = PreparedPlan { parsed: Arc::new(parsed), text, types: Vec::new(), cached: Mutex::new(None) };
    let columns = if is_planned(&plan.parsed.statement) {
        let cached = plan.bind(session, &declared, cancel)?;
        plan.types = cached.bound.parameter_types.clone();
        cached.bound.columns.as_ref().map(|columns| columns.iter().map(column).collect())
    } else {
        utility_columns(session, &plan.parsed.statement)?
    };
    let parameter_types = plan.types.iter().map(|sql_type| ParameterType { data_type: sql_type.arrow(), oid: sql_type.oid() }).collect();
    Ok(Prepared { parameter_types, columns, plan: Some(Arc::new(plan)) })
}

/// Statements with a plan and parameters.
fn is_planned(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::Query(_) | Statement::Insert(_) | Statement::Update(_) | Statement::Delete(_) | Statement::DeclareCursor(_)
    )
}

/// The columns that other statements answer.
fn utility_columns(session: &Session, statement: &Statement) -> Result<Option<Vec<Column>>> {
    Ok(match statement {
        Statement::Show(wanted) => Some(show::columns(session, wanted)?),
        Statement::Explain(_) => Some(settings::text_columns(&["QUERY PLAN"])),
        Statement::Fetch(fetch) if !fetch.moves => Some(cursor::columns(session, &fold(&fetch.cursor))?),
        Statement::Execute { name, .. } => session.prepared.get(&fold(name))?.columns.clone(),
        _ => None,
    })
}

impl PreparedPlan {
    fn bind(&self, session: &Session, declared: &[Option<SqlType>], cancel: &Cancel) -> Result<Arc<CachedPlan>> {
        let (catalog, catalog_version) = session.server.catalog.versioned();
        // A catalog that only this transaction sees is nothing to remember plans by.
        if session.transaction.definitions.hides() {
            let bound = binding::bind(session, &session.catalog(), &self.parsed, declared, cancel)?;
            return Ok(Arc::new(CachedPlan { catalog_version, settings_generation: 0, bound, shortcut: None }));
        }
        let settings_generation = session.variables.generation();
        if let Some(cached) = &*self.cached.lock()
            && cached.catalog_version == catalog_version
            && cached.settings_generation == settings_generation
        {
            return Ok(cached.clone());
        }
        let bound = binding::bind(session, &catalog, &self.parsed, declared, cancel)?;
        let shortcut = match &bound.statement {
            BoundStatement::Query(query) => select::lookup(session, &catalog, query, &cancel.interrupt()).map(Shortcut::Lookup),
            _ => None,
        };
        let cached = Arc::new(CachedPlan { catalog_version, settings_generation, bound, shortcut });
        *self.cached.lock() = Some(cached.clone());
        Ok(cached)
    }
}

/// Executes a prepared statement.
pub(crate) async fn execute_prepared(
    session: &mut Session,
    plan: &Arc<PreparedPlan>,
    parameters: Vec<Option<ScalarValue>>,
    cancel: &Cancel,
) -> Result<Answer> {
    let mut values = Vec::with_capacity(parameters.len());
    for (value, sql_type) in parameters.into_iter().zip(&plan.types) {
        values.push(match value {
            Some(value) => value,
            None => ScalarValue::try_new_null(&sql_type.arrow())?,
        });
    }
    if !is_planned(&plan.parsed.statement) {
        return execute(session, &plan.parsed, Parameters::none(), cancel).await;
    }
    let types: Vec<Option<SqlType>> = plan.types.iter().cloned().map(Some).collect();
    let cached = plan.bind(session, &types, cancel)?;
    if let Some(Shortcut::Lookup(lookup)) = &cached.shortcut
        && let Some(answer) = select::look_up(session, lookup, &values, cancel).await?
    {
        return Ok(answer);
    }
    act(session, &cached.bound, &plan.parsed, &values, cancel).await
}

/// The type of an oid that a client declares; 0 and `unknown` leave it open.
fn type_of_oid(oid: i32) -> Result<Option<SqlType>> {
    const UNKNOWN: i32 = 705;
    if oid == 0 || oid == UNKNOWN {
        return Ok(None);
    }
    SqlType::from_oid(oid).map(Some).ok_or_else(|| SqlError::new("42704", format!("type with OID {oid} does not exist")))
}

/// A column of an answer, as the wire describes it.
pub(crate) fn column(column: &OutputColumn) -> Column {
    Column {
        name: column.name.clone(),
        data_type: column.arrow(),
        type_oid: column.sql_type.oid(),
        type_modifier: column.modifier,
        table_oid: column.origin.map_or(0, |(table, _)| numbers::oid(table)),
        column_number: column.origin.map_or(0, |(_, number)| number),
    }
}
