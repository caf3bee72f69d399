//! SHOW of objects, jobs, columns and definitions.

use futures::StreamExt;
use millpond_planner::{
    catalog::{Catalog, Object, QualifiedName, name::fold},
    parse::statement::{ObjectKind, Show},
    types::{SqlType, modifier},
};

use crate::{
    act::settings::{self, text_columns, text_rows},
    answer::{Answer, Column, RowsTag},
    error::{Result, SqlError},
    session::Session,
    system_tables::registry::{SystemContext, SystemRelation},
};

/// Executes a SHOW.
pub(crate) fn execute(session: &Session, show: &Show) -> Result<Answer> {
    match show {
        Show::Setting(name) => settings::show(session, name),
        Show::AllSettings => settings::show_all(session),
        Show::Objects { kind, schema, like } => {
            let catalog = session.catalog();
            let names = object_names(session, &catalog, *kind, schema.as_ref().map(fold).as_deref(), like.as_deref())?;
            text_rows(&["Name"], names.into_iter().map(|name| vec![name]).collect(), RowsTag::Show)
        }
        Show::Databases => text_rows(&["Name"], vec![vec![session.info().database.clone()]], RowsTag::Show),
        Show::Jobs => system_rows(session, jobs_relation(session)?),
        Show::Columns(name) => {
            let catalog = session.catalog();
            let name = QualifiedName::from_ast(name)?;
            let object = find(session, &catalog, &name)?;
            let row = |column: &millpond_planner::catalog::object::Column| {
                vec![
                    column.name.clone(),
                    column.sql_type.name_with(column.modifier),
                    if column.not_null { "NO" } else { "YES" }.to_owned(),
                    column.default.clone().unwrap_or_default(),
                    column.comment.clone().unwrap_or_default(),
                ]
            };
            text_rows(&COLUMNS_OF_COLUMNS, object.columns().iter().map(row).collect(), RowsTag::Show)
        }
        Show::Create { kind, name } => {
            let catalog = session.catalog();
            let object = catalog.expect(*kind, &QualifiedName::from_ast(name)?, &session.search_path())?;
            let name = format!("{}.{}", catalog.schema_name(object), object.name);
            text_rows(&["Name", "Create Sql"], vec![vec![name, object.sql.clone()]], RowsTag::Show)
        }
    }
}

const COLUMNS_OF_COLUMNS: [&str; 5] = ["Name", "Type", "Nullable", "Default", "Description"];

/// The columns that SHOW answers.
pub(crate) fn columns(session: &Session, show: &Show) -> Result<Vec<Column>> {
    Ok(match show {
        Show::Setting(name) => text_columns(&[&session.variables.show(name)?.0]),
        Show::AllSettings => text_columns(&["name", "setting", "description"]),
        Show::Objects { .. } | Show::Databases => text_columns(&["Name"]),
        Show::Jobs => system_columns(jobs_relation(session)?),
        Show::Columns(_) => text_columns(&COLUMNS_OF_COLUMNS),
        Show::Create { .. } => text_columns(&["Name", "Create Sql"]),
    })
}

fn jobs_relation(session: &Session) -> Result<&SystemRelation> {
    session.server.system.find("millpond", "jobs").ok_or_else(|| SqlError::internal("millpond.jobs is missing"))
}

fn find<'a>(session: &Session, catalog: &'a Catalog, name: &QualifiedName) -> Result<&'a Object> {
    let found = catalog.find(name, &session.search_path());
    found.map(AsRef::as_ref).ok_or_else(|| SqlError::new("42P01", format!("relation \"{name}\" does not exist")))
}

fn object_names(session: &Session, catalog: &Catalog, kind: ObjectKind, schema: Option<&str>, like: Option<&str>) -> Result<Vec<String>> {
    let path = session.search_path();
    let wanted: Vec<u64> = match schema {
        Some(schema) => {
            vec![catalog.schema(schema).ok_or_else(|| SqlError::new("3F000", format!("schema \"{schema}\" does not exist")))?.id]
        }
        None => path.iter().filter_map(|schema| catalog.schema(schema)).map(|schema| schema.id).collect(),
    };
    let shown = |object: &&std::sync::Arc<Object>| {
        object.kind() == kind
            && (kind == ObjectKind::Schema || wanted.contains(&object.schema))
            && like.is_none_or(|pattern| is_like(&object.name, pattern))
    };
    let mut names: Vec<String> = catalog.objects().filter(shown).map(|object| object.name.clone()).collect();
    names.sort();
    Ok(names)
}

/// LIKE with `%`, `_` and the backslash.
fn is_like(text: &str, pattern: &str) -> bool {
    let (text, pattern): (Vec<char>, Vec<char>) = (text.chars().collect(), pattern.chars().collect());
    // Where to go on after the last `%` when what follows it does not fit.
    let (mut at, mut place, mut back) = (0, 0, None);
    while at < text.len() {
        match pattern.get(place) {
            Some('%') => {
                back = Some((place + 1, at));
                place += 1;
                continue;
            }
            Some('\\') if pattern.get(place + 1) == Some(&text[at]) => {
                (at, place) = (at + 1, place + 2);
                continue;
            }
            Some(c) if *c != '\\' && (*c == '_' || *c == text[at]) => {
                (at, place) = (at + 1, place + 1);
                continue;
            }
            _ => {}
        }
        let Some((after, from)) = back else { return false };
        back = Some((after, from + 1));
        (at, place) = (from + 1, after);
    }
    pattern[place..].iter().all(|c| *c == '%')
}

/// The columns of a system relation as an answer has them.
pub(crate) fn system_columns(relation: &SystemRelation) -> Vec<Column> {
    let column = |field: &std::sync::Arc<arrow::datatypes::Field>| Column {
        name: field.name().clone(),
        data_type: field.data_type().clone(),
        type_oid: SqlType::from_field(field).unwrap_or(SqlType::Text).oid(),
        type_modifier: modifier::NONE,
        table_oid: 0,
        column_number: 0,
    };
    relation.schema.fields().iter().map(column).collect()
}

fn system_rows(session: &Session, relation: &SystemRelation) -> Result<Answer> {
    let (catalog, view) = (session.catalog(), session.view());
    let context = SystemContext { catalog: &catalog, server: &session.server, session: &view, relations: &session.server.system };
    let rows = relation.read(&context)?;
    let stream = futures::stream::once(async move { Ok(rows) }).boxed();
    Ok(Answer::Rows { columns: system_columns(relation), stream, tag: RowsTag::Show })
}

#[cfg(test)]
mod tests {
    use super::is_like;

    #[test]
    fn patterns() {
        assert!(is_like("orders", "o%s") && is_like("orders", "%rd%") && is_like("orders", "______") && is_like("", "%"));
        assert!(!is_like("orders", "o%x") && !is_like("orders", "_____") && !is_like("order_s", "order\\%s"));
        assert!(is_like("order_s", "order\\_s") && is_like("aab", "%ab"));
    }
}
