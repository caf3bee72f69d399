//! Functions with a syntax of their own: EXTRACT, SUBSTRING, TRIM, LIKE, COLLATE, ROW.

use datafusion::logical_expr::Expr;
use sqlparser::{
    ast::{self, DateTimeField, Spanned, TrimWhereField, ValueWithSpan},
    tokenizer::Span,
};

use super::{Place, not_supported};
use crate::{
    bind::{binder::Binder, scope::Scope, typed::Typed},
    error::{PlanError, Result, sqlstate},
    functions::session::datafusion_function,
    types::SqlType,
};

impl Binder<'_> {
    pub(super) fn extract(&self, field: &DateTimeField, ast: &ast::Expr, scope: &Scope<'_>, place: &Place<'_>) -> Result<Typed> {
        let name = match field {
            DateTimeField::Custom(name) => name.value.trim_matches('\'').to_lowercase(),
            other => other.to_string().to_lowercase(),
        };
        let value = self.expression(ast, scope, &place.in_value())?;
        self.call("extract", vec![Typed::text(&name), value], ast.span())
    }

    pub(super) fn ceil_or_floor(
        &self,
        name: &str,
        ast: &ast::Expr,
        field: &ast::CeilFloorKind,
        scope: &Scope<'_>,
        place: &Place<'_>,
    ) -> Result<Typed> {
        match field {
            ast::CeilFloorKind::DateTimeField(DateTimeField::NoDateTime) => self.call_on(name, &[ast], scope, place, ast.span()),
            _ => Err(not_supported(&format!("{name} to a field or scale"), "Use round(x, scale) or date_trunc.", ast.span())),
        }
    }

    pub(super) fn substring(
        &self,
        ast: &ast::Expr,
        from: Option<&ast::Expr>,
        length: Option<&ast::Expr>,
        scope: &Scope<'_>,
        place: &Place<'_>,
        span: Span,
    ) -> Result<Typed> {
        match (from, length) {
            (Some(from), Some(length)) => self.call_on("substring", &[ast, from, length], scope, place, span),
            (Some(from), None) => self.call_on("substring", &[ast, from], scope, place, span),
            (None, Some(length)) => {
                let place = place.in_value();
                let (value, length) = (self.expression(ast, scope, &place)?, self.expression(length, scope, &place)?);
                self.call("substring", vec![value, Typed::integer(1), length], span)
            }
            (None, None) => Err(PlanError::new(sqlstate::SYNTAX_ERROR, "substring needs a start or a length").at(span)),
        }
    }

    pub(super) fn trim(
        &self,
        side: Option<&TrimWhereField>,
        what: Option<&ast::Expr>,
        ast: &ast::Expr,
        characters: Option<&[ast::Expr]>,
        scope: &Scope<'_>,
        place: &Place<'_>,
    ) -> Result<Typed> {
        let name = match side {
            None | Some(TrimWhereField::Both) => "btrim",
            Some(TrimWhereField::Leading) => "ltrim",
            Some(TrimWhereField::Trailing) => "rtrim",
        };
        let mut arguments = vec![ast];
        arguments.extend(what);
        arguments.extend(characters.unwrap_or_default());
        self.call_on(name, &arguments, scope, place, ast.span())
    }

    pub(super) fn like(
        &self,
        ast: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&ValueWithSpan>,
        symbol: &str,
        scope: &Scope<'_>,
        place: &Place<'_>,
    ) -> Result<Typed> {
        let place = place.in_value();
        if let Some((elements, all)) = quantified_pattern(pattern) {
            return self.like_any(ast, elements, all, symbol, scope, &place);
        }
        let value = self.expression(ast, scope, &place)?;
        let mut pattern = self.expression(pattern, scope, &place)?;
        if let Some(escape) = escape {
            let escape = self.value(escape)?;
            pattern = self.call("like_escape", vec![pattern, escape], ast.span())?;
        }
        self.call_operator(symbol, vec![value, pattern], ast.span())
    }

    /// `x LIKE ANY (array)`
    pub(super) fn like_any(
        &self,
        ast: &ast::Expr,
        array: &ast::Expr,
        all: bool,
        symbol: &str,
        scope: &Scope<'_>,
        place: &Place<'_>,
    ) -> Result<Typed> {
        if let ast::Expr::Subquery(query) = super::strip(array) {
            return self.quantified_subquery(ast, symbol, query, all, scope, place);
        }
        let place = place.in_value();
        let value = self.expression(ast, scope, &place)?;
        let array = self.expression(array, scope, &place)?;
        self.compare_with_array(value, symbol, array, all, ast.span())
    }

    pub(super) fn similar(
        &self,
        ast: &ast::Expr,
        pattern: &ast::Expr,
        escape: Option<&ValueWithSpan>,
        negated: bool,
        scope: &Scope<'_>,
        place: &Place<'_>,
    ) -> Result<Typed> {
        let place = place.in_value();
        let value = self.expression(ast, scope, &place)?;
        let mut arguments = vec![self.expression(pattern, scope, &place)?];
        if let Some(escape) = escape {
            arguments.push(self.value(escape)?);
        }
        let pattern = self.call("similar_to_escape", arguments, ast.span())?;
        self.call_operator(if negated { "!~" } else { "~" }, vec![value, pattern], ast.span())
    }

    /// All text compares by its bytes; a collation that says so changes nothing.
    pub(super) fn collate(&self, ast: &ast::Expr, collation: &ast::ObjectName, scope: &Scope<'_>, place: &Place<'_>) -> Result<Typed> {
        let name = crate::catalog::QualifiedName::from_ast(collation)?.name;
        match name.as_str() {
            "default" | "C" | "POSIX" | "ucs_basic" | "c" | "posix" => self.expression(ast, scope, place),
            _ => {
                let message = format!("collation \"{name}\" for encoding \"UTF8\" does not exist");
                Err(PlanError::new(sqlstate::UNDEFINED_OBJECT, message)
                    .with_hint("Text is ordered by its bytes, as COLLATE \"C\" has it.")
                    .at(ast.span()))
            }
        }
    }

    /// `ROW(a, b)` and `(a, b)`.
    pub(super) fn row(&self, values: &[ast::Expr], scope: &Scope<'_>, place: &Place<'_>) -> Result<Typed> {
        let place = place.in_value();
        let values = values.iter().map(|value| self.known(self.expression(value, scope, &place)?)).collect::<Result<Vec<_>>>()?;
        self.record(values, None)
    }

    /// A record of values, with names of its fields or `f1`, `f2`.
    pub(in crate::bind) fn record(&self, values: Vec<Typed>, names: Option<Vec<String>>) -> Result<Typed> {
        let types: Vec<SqlType> = values.iter().map(|value| value.sql_type.clone()).collect();
        let names = names.unwrap_or_else(|| (1..=values.len()).map(|number| format!("f{number}")).collect());
        let function = datafusion_function("named_struct").ok_or_else(|| PlanError::internal("named_struct is not registered"))?;
        let arguments = names.into_iter().zip(values).flat_map(|(name, value)| [datafusion::logical_expr::lit(name), value.expr]).collect();
        let expr = Expr::ScalarFunction(datafusion::logical_expr::expr::ScalarFunction::new_udf(function, arguments));
        Ok(Typed::new(expr, SqlType::Record(types)))
    }
}

/// The array of `ANY (array)` and whether it is ALL, where a pattern stands.
fn quantified_pattern(pattern: &ast::Expr) -> Option<(&ast::Expr, bool)> {
    let ast::Expr::Function(function) = pattern else { return None };
    let all = match function.name.to_string().to_lowercase().as_str() {
        "any" | "some" => false,
        "all" => true,
        _ => return None,
    };
    match &function.args {
        ast::FunctionArguments::List(list) => match list.args.as_slice() {
            [ast::FunctionArg::Unnamed(ast::FunctionArgExpr::Expr(array))] => Some((array, all)),
            _ => None,
        },
        _ => None,
    }
}
