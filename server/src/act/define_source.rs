//! CREATE SOURCE: options are checked by the connector, columns are taken from its files when none are declared.

use millpond_engine::source;
use millpond_planner::{
    bind,
    catalog::{CatalogChange, Object, ObjectBody, object::Column},
    parse::statement::CreateSource,
    types::{SqlType, modifier},
};

use crate::{
    act::ddl::put_object,
    binding::SessionNames,
    catalog_store::DdlGuard,
    error::{Result, SqlError},
    jobs,
    session::{Session, cancel::Cancel},
};

/// Creates a source. It is opened before it is recorded: one that cannot be opened never exists.
pub(crate) async fn create(
    session: &mut Session,
    statement: &CreateSource,
    change: &CatalogChange,
    guard: &DdlGuard<'_>,
    cancel: &Cancel,
) -> Result<()> {
    let server = session.server.clone();
    let mut object = Object::clone(&*put_object(change)?);
    let ObjectBody::Source(source) = &mut object.body else { return Err(SqlError::internal("a source is expected")) };
    // What must not differ after a restart is fixed now.
    let options = jobs::source_options(source).resolved(session.statement_us());
    source.options = options.with.iter().cloned().collect();
    if source.columns.is_empty() {
        let schema = cancel.race(source::infer_schema(&options)).await?;
        let column = |field: &std::sync::Arc<arrow::datatypes::Field>| {
            let sql_type = SqlType::from_arrow(field.data_type()).ok_or_else(|| {
                SqlError::unsupported(format!("column \"{}\" has a type that SQL has not: {}", field.name(), field.data_type()))
                    .with_hint("Declare the columns that you want.")
            })?;
            Ok(Column::new(field.name(), sql_type, modifier::NONE))
        };
        let columns = schema.fields().iter().map(column).collect::<Result<Vec<_>>>()?;
        let catalog = server.catalog.snapshot();
        let bound = object.clone();
        object = SessionNames::of(session, cancel)
            .with(&catalog, &[], |context| bind::bind_source_columns(statement, &bound, columns, context))?;
    }
    cancel.race(jobs::create_source(&server, &object)).await?;
    let id = object.id;
    if let Err(error) = server.catalog.commit(guard, &CatalogChange::put(object)) {
        server.engine.drop_object(id).await?;
        return Err(error);
    }
    Ok(())
}
