//! Names of columns.

use datafusion::logical_expr::Expr;
use sqlparser::{
    ast::{self, Ident},
    tokenizer::Span,
};

use super::Place;
use crate::{
    bind::{binder::Binder, scope::Scope, typed::Typed},
    catalog::fold,
    error::{PlanError, Result, sqlstate},
};

impl Binder<'_> {
    pub(super) fn column(&self, ident: &Ident, scope: &Scope<'_>) -> Result<Typed> {
        let name = fold(ident);
        if let Some(column) = scope.column(&name, ident.span)? {
            return Ok(column);
        }
        if ident.quote_style.is_none()
            && let Some(value) = self.keyword_value(&name, ident.span)?
        {
            return Ok(value);
        }
        if let Some(oid) = scope.own_table_oid(&name)? {
            return Ok(oid);
        }
        if scope.has_relation(&name) {
            return self.whole_row(None, &name, scope, ident.span);
        }
        Err(scope.missing_column(format!("column \"{name}\" does not exist"), None, &name).at(ident.span))
    }

    /// Names that are calls without parentheses.
    fn keyword_value(&self, name: &str, span: Span) -> Result<Option<Typed>> {
        match name {
            "current_catalog" | "current_role" | "current_schema" | "current_user" | "session_user" | "user" | "current_date"
            | "current_time" | "current_timestamp" | "localtime" | "localtimestamp" => Ok(Some(self.call(name, Vec::new(), span)?)),
            _ => Ok(None),
        }
    }

    /// `t` or `t.*` as a value: a record of its columns.
    pub(super) fn whole_row(&self, schema: Option<&str>, name: &str, scope: &Scope<'_>, span: Span) -> Result<Typed> {
        let columns = scope.columns_of(schema, name, span)?;
        let names: Vec<String> = match scope.scope_columns_of(schema, name) {
            Some(columns) => columns.iter().map(|column| column.name.clone()).collect(),
            None => (1..=columns.len()).map(|number| format!("f{number}")).collect(),
        };
        self.record(columns, Some(names))
    }

    pub(super) fn compound_column(&self, parts: &[Ident], scope: &Scope<'_>) -> Result<Typed> {
        let names: Vec<String> = parts.iter().map(fold).collect();
        let span = Span::union_iter(parts.iter().map(|part| part.span));
        match names.as_slice() {
            [relation, column] => scope.qualified_column(None, relation, column, span),
            [schema, relation, column] => scope.qualified_column(Some(schema), relation, column, span),
            [database, schema, relation, column] if database == self.context.database => {
                scope.qualified_column(Some(schema), relation, column, span)
            }
            _ => {
                let message = format!("improper qualified name (too many dotted names): {}", names.join("."));
                Err(PlanError::new(sqlstate::SYNTAX_ERROR, message).at(span))
            }
        }
    }

    pub(super) fn null_test(&self, inner: &ast::Expr, negated: bool, scope: &Scope<'_>, place: &Place<'_>) -> Result<Typed> {
        if let ast::Expr::Tuple(values) = super::strip(inner) {
            let tests = values.iter().map(|value| Ok(self.null_test(value, negated, scope, place)?.expr)).collect::<Result<Vec<_>>>()?;
            return Ok(Typed::boolean(super::operator::balanced(tests, datafusion::logical_expr::Operator::And)));
        }
        let value = Box::new(self.expression(inner, scope, &place.in_value())?.expr);
        Ok(Typed::boolean(if negated { Expr::IsNotNull(value) } else { Expr::IsNull(value) }))
    }
}
