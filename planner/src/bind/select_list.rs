//! The columns a SELECT shows.

use std::collections::BTreeMap;

use sqlparser::{
    ast::{self, SelectItem, SelectItemQualifiedWildcardKind, Spanned, WildcardAdditionalOptions},
    tokenizer::Span,
};

use super::{binder::Binder, expression::Place, output_name, scope::Scope, typed::Typed};
use crate::{
    catalog::{QualifiedName, fold},
    error::{PlanError, Result, sqlstate},
};

/// Most columns of a result, Postgres' number.
const MAX_COLUMNS: usize = 1_664;

/// A column of a SELECT.
#[derive(Clone, Debug)]
pub(super) struct Output {
    pub(super) name: String,
    pub(super) value: Typed,
    /// Catalog number and column number of what it shows unchanged.
    pub(super) origin: Option<(u64, i16)>,
    pub(super) span: Span,
}

/// The names, made unique: what a plan's columns are called.
pub(super) fn unique_names(names: &[String]) -> Vec<String> {
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    let mut unique = Vec::with_capacity(names.len());
    for name in names {
        let mut candidate = name.clone();
        while let Some(count) = used.get_mut(&candidate) {
            *count += 1;
            candidate = format!("{name}:{count}");
        }
        used.insert(candidate.clone(), 0);
        unique.push(candidate);
    }
    unique
}

impl Binder<'_> {
    /// Binds the items, with `*` written out.
    pub(super) fn select_list(&self, items: &[SelectItem], scope: &Scope<'_>, place: &Place<'_>) -> Result<Vec<Output>> {
        let mut outputs = Vec::with_capacity(items.len());
        for item in items {
            match item {
                SelectItem::UnnamedExpr(ast::Expr::QualifiedWildcard(name, _)) => self.qualified_star(name, scope, &mut outputs)?,
                SelectItem::UnnamedExpr(ast) => outputs.push(self.output(ast, None, scope, place)?),
                SelectItem::ExprWithAlias { expr, alias } => outputs.push(self.output(expr, Some(fold(alias)), scope, place)?),
                SelectItem::Wildcard(options) => {
                    check_wildcard(options)?;
                    let span = item.span();
                    if scope.relations.is_empty() {
                        let message = "SELECT * with no tables specified is not valid";
                        return Err(PlanError::new(sqlstate::SYNTAX_ERROR, message).at(span));
                    }
                    outputs.extend(scope.visible_columns().map(|column| {
                        Output {
                            name: column.name.clone(),
                            value: Typed::new(datafusion::logical_expr::Expr::Column(column.column.clone()), column.sql_type.clone())
                                .with_modifier(column.modifier),
                            origin: column.origin,
                            span,
                        }
                    }));
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::ObjectName(name), options) => {
                    check_wildcard(options)?;
                    self.qualified_star(name, scope, &mut outputs)?;
                }
                SelectItem::QualifiedWildcard(SelectItemQualifiedWildcardKind::Expr(_), _) => {
                    return Err(PlanError::unsupported("expansion of a composite value is not supported").at(item.span()));
                }
                SelectItem::ExprWithAliases { .. } => {
                    return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "an item has one alias").at(item.span()));
                }
            }
            if outputs.len() > MAX_COLUMNS {
                let message = format!("target lists can have at most {MAX_COLUMNS} entries");
                return Err(PlanError::new(sqlstate::TOO_MANY_COLUMNS, message).at(item.span()));
            }
        }
        Ok(outputs)
    }

    fn output(&self, ast: &ast::Expr, alias: Option<String>, scope: &Scope<'_>, place: &Place<'_>) -> Result<Output> {
        let value = self.expression(ast, scope, place)?;
        let origin = origin_of(&value, scope);
        Ok(Output { name: alias.unwrap_or_else(|| output_name::of_expression(ast)), value, origin, span: ast.span() })
    }

    fn qualified_star(&self, name: &ast::ObjectName, scope: &Scope<'_>, outputs: &mut Vec<Output>) -> Result<()> {
        let span = name.span();
        let name = QualifiedName::from_ast(name)?;
        let values = scope.columns_of(name.schema.as_deref(), &name.name, span)?;
        let names: Vec<String> = match scope.scope_columns_of(name.schema.as_deref(), &name.name) {
            Some(columns) => columns.iter().map(|column| column.name.clone()).collect(),
            None => values.iter().map(|value| value.expr.schema_name().to_string()).collect(),
        };
        for (value, name) in values.into_iter().zip(names) {
            let origin = origin_of(&value, scope);
            outputs.push(Output { name, value, origin, span });
        }
        Ok(())
    }
}

/// The catalog column that a value shows unchanged.
fn origin_of(value: &Typed, scope: &Scope<'_>) -> Option<(u64, i16)> {
    match &value.expr {
        datafusion::logical_expr::Expr::Column(column) => scope.columns.iter().find(|candidate| candidate.column == *column)?.origin,
        _ => None,
    }
}

fn check_wildcard(options: &WildcardAdditionalOptions) -> Result<()> {
    let plain = options.opt_ilike.is_none()
        && options.opt_exclude.is_none()
        && options.opt_except.is_none()
        && options.opt_replace.is_none()
        && options.opt_rename.is_none()
        && options.opt_alias.is_none();
    if plain { Ok(()) } else { Err(PlanError::unsupported("options of * are not supported").with_hint("Name the columns.")) }
}
