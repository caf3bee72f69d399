//! The table a statement changes, and values for its columns.

use std::{rc::Rc, sync::Arc};

use sqlparser::{
    ast::{self, Ident, ObjectName, Spanned},
    tokenizer::Span,
};

use crate::{
    bind::{
        binder::Binder,
        expression::Place,
        reference::{Form, Reference},
        scope::Scope,
        typed::Typed,
    },
    catalog::{
        Object, ObjectBody, QualifiedName, fold,
        object::{Column, Table},
    },
    error::{PlanError, Result, sqlstate},
    parse::{self, statement::ObjectKind},
};

impl Binder<'_> {
    /// The table of a name.
    ///
    /// # Errors
    /// 42P01 if it is not there, 42809 if it is no table, 42501 if only rows may be added to it and `adds` is not said.
    pub(in crate::bind) fn target_table(&self, name: &ObjectName, verb: &str, adds: bool) -> Result<Arc<Object>> {
        let span = name.span();
        let qualified = QualifiedName::from_ast(name)?;
        let object = match self.context.catalog.find(&qualified, self.context.search_path) {
            Some(object) => Arc::clone(object),
            None if self.is_system(&qualified) => {
                let message = format!("permission denied: \"{}\" is a system catalog", qualified.name);
                return Err(PlanError::new(sqlstate::INSUFFICIENT_PRIVILEGE, message).at(span));
            }
            None => return Err(PlanError::new(sqlstate::UNDEFINED_TABLE, format!("relation \"{qualified}\" does not exist")).at(span)),
        };
        match &object.body {
            ObjectBody::Table(table) if table.append_only && !adds => {
                let message = format!("cannot {verb} append-only table \"{}\"", object.name);
                Err(PlanError::new(sqlstate::WRONG_OBJECT_TYPE, message).with_hint("Only INSERT and COPY are allowed.").at(span))
            }
            ObjectBody::Table(_) => {
                self.depend_on(Reference { id: object.id, span, form: Form::Name { implied_alias: None } });
                Ok(object)
            }
            _ => {
                let message = format!("cannot change {} \"{}\"", object.kind().noun(), object.name);
                let error = PlanError::new(sqlstate::WRONG_OBJECT_TYPE, message).at(span);
                Err(match rows_of(object.kind()) {
                    Some(hint) => error.with_hint(hint),
                    None => error,
                })
            }
        }
    }

    fn is_system(&self, name: &QualifiedName) -> bool {
        let schema = name.schema.as_deref().unwrap_or("pg_catalog");
        self.context.system.relation(schema, &name.name).is_some()
    }

    /// The value a column has when none is given.
    pub(in crate::bind) fn default_value(&self, column: &Column) -> Result<Typed> {
        let Some(text) = &column.default else { return Ok(Typed::null(column.sql_type.clone())) };
        self.inside_view(|| {
            let ast = parse::parse_expression(text)?;
            let scope = Scope::below(None, Rc::default());
            let value = self.expression(&ast, &scope, &Place::scalar("DEFAULT expressions"))?;
            self.assign(value, column, Span::empty())
        })
    }

    /// A value for a column: an expression, or DEFAULT.
    pub(super) fn value_for(&self, ast: &ast::Expr, column: &Column, scope: &Scope<'_>, place: &Place<'_>) -> Result<Typed> {
        if is_default(ast) {
            return self.default_value(column);
        }
        let value = self.expression(ast, scope, place)?;
        self.assign(value, column, ast.span())
    }
}

/// What makes the rows of a relation that is no table.
fn rows_of(kind: ObjectKind) -> Option<&'static str> {
    match kind {
        ObjectKind::MaterializedView => Some("It is kept equal to its query. Change the tables that the query reads."),
        ObjectKind::View => Some("It shows what its query gives. Change the tables that the query reads."),
        ObjectKind::Source => Some("Its rows come from outside. Create a table for rows that are inserted."),
        ObjectKind::Sink => Some("It is written by its job. Change the tables that are under it."),
        ObjectKind::Table | ObjectKind::Index | ObjectKind::Schema => None,
    }
}

/// The word DEFAULT where a value stands.
pub(super) fn is_default(ast: &ast::Expr) -> bool {
    matches!(ast, ast::Expr::Identifier(ident) if ident.quote_style.is_none() && ident.value.eq_ignore_ascii_case("default"))
}

/// The table's part of an object that is known to be one.
pub(super) fn table_of(object: &Object) -> Result<&Table> {
    object.table().ok_or_else(|| PlanError::internal("the target is no table"))
}

/// The column of a name.
///
/// # Errors
/// 42703 `column "x" of relation "t" does not exist`.
pub(super) fn column_number(object: &Object, ident: &Ident) -> Result<usize> {
    let name = fold(ident);
    object.columns().iter().position(|column| column.name == name).ok_or_else(|| {
        let message = format!("column \"{name}\" of relation \"{}\" does not exist", object.name);
        PlanError::new(sqlstate::UNDEFINED_COLUMN, message).at(ident.span)
    })
}

/// The columns of names, each once.
pub(super) fn column_numbers<'i>(object: &Object, names: impl IntoIterator<Item = &'i Ident>) -> Result<Vec<usize>> {
    let mut numbers = Vec::new();
    for ident in names {
        let number = column_number(object, ident)?;
        if numbers.contains(&number) {
            let message = format!("column \"{}\" specified more than once", fold(ident));
            return Err(PlanError::new(sqlstate::DUPLICATE_COLUMN, message).at(ident.span));
        }
        numbers.push(number);
    }
    Ok(numbers)
}

/// The last part of a column's name in an assignment: `t.a` and `a` are the same there.
pub(super) fn last_ident(name: &ObjectName) -> Result<&Ident> {
    name.0
        .last()
        .and_then(|part| part.as_ident())
        .ok_or_else(|| PlanError::new(sqlstate::SYNTAX_ERROR, format!("syntax error at or near \"{name}\"")).at(name.span()))
}
