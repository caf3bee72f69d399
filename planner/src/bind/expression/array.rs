//! ARRAY[..], subscripts and fields.

use datafusion::logical_expr::Expr;
use sqlparser::ast::{self, AccessExpr, Spanned, Subscript};

use super::{Place, not_supported};
use crate::{
    bind::{binder::Binder, scope::Scope, typed::Typed},
    catalog::fold,
    error::{PlanError, Result, sqlstate},
    functions::{sequence, session::datafusion_function},
    types::{SqlType, coercion::CoercionContext, modifier},
};

impl Binder<'_> {
    pub(super) fn array_constructor(&self, array: &ast::Array, scope: &Scope<'_>, place: &Place<'_>) -> Result<Typed> {
        let span = ast::Expr::Array(array.clone()).span();
        if array.elem.is_empty() {
            return Err(PlanError::new(sqlstate::INDETERMINATE_DATATYPE, "cannot determine type of empty array")
                .with_hint("Explicitly cast to the desired type, for example ARRAY[]::integer[].")
                .at(span));
        }
        let place = place.in_value();
        let elements = array.elem.iter().map(|element| self.expression(element, scope, &place)).collect::<Result<Vec<_>>>()?;
        let (elements, sql_type) = self.unify(elements, "ARRAY", span)?;
        self.make_array(elements, sql_type)
    }

    /// An array of values of one type.
    pub(crate) fn make_array(&self, elements: Vec<Typed>, element: SqlType) -> Result<Typed> {
        let function = datafusion_function("make_array").ok_or_else(|| PlanError::internal("make_array is not registered"))?;
        let arguments = elements.into_iter().map(|element| element.expr).collect();
        let expr = Expr::ScalarFunction(datafusion::logical_expr::expr::ScalarFunction::new_udf(function, arguments));
        Ok(Typed::new(expr, SqlType::array(element)))
    }

    /// `a[1]`, `a[1:2]`, `(record).field`, `(jsonb)['key']`
    pub(super) fn field_access(&self, root: &ast::Expr, chain: &[AccessExpr], scope: &Scope<'_>, place: &Place<'_>) -> Result<Typed> {
        let span = root.span();
        let place = place.in_value();
        let (mut value, rest) = self.access_root(root, chain, scope, &place)?;
        let mut rest = rest.iter().peekable();
        while let Some(access) = rest.next() {
            value = match access {
                AccessExpr::Subscript(Subscript::Index { index }) => {
                    let index = self.expression(index, scope, &place)?;
                    let more = matches!(rest.peek(), Some(AccessExpr::Subscript(_)));
                    self.subscript(value, index, more, span)?
                }
                AccessExpr::Subscript(Subscript::Slice { lower_bound, upper_bound, stride: None }) => {
                    let bound = |bound: &Option<ast::Expr>, default: i32| match bound {
                        Some(bound) => self.implicit(self.expression(bound, scope, &place)?, &SqlType::Integer),
                        None => Ok(Typed::integer(default)),
                    };
                    let (lower, upper) = (bound(lower_bound, 1)?, bound(upper_bound, i32::MAX)?);
                    self.call("array_slice", vec![value, lower, upper], span)?
                }
                AccessExpr::Subscript(Subscript::Slice { .. }) => {
                    return Err(not_supported("a stride in an array slice", "Use unnest.", span));
                }
                AccessExpr::Dot(ast::Expr::Identifier(name)) => self.field(value, &fold(name), span)?,
                AccessExpr::Dot(other) => {
                    let message =
                        format!("column notation .{other} applied to type {}, which is not a composite type", value.sql_type.name());
                    return Err(PlanError::new(sqlstate::WRONG_OBJECT_TYPE, message).at(span));
                }
            };
        }
        Ok(value)
    }

    /// The leading names of a chain are a column: `t.a[1]`.
    fn access_root<'c>(
        &self,
        root: &ast::Expr,
        chain: &'c [AccessExpr],
        scope: &Scope<'_>,
        place: &Place<'_>,
    ) -> Result<(Typed, &'c [AccessExpr])> {
        let ast::Expr::Identifier(first) = root else { return Ok((self.expression(root, scope, place)?, chain)) };
        let mut names = vec![first.clone()];
        for access in chain {
            match access {
                AccessExpr::Dot(ast::Expr::Identifier(name)) => names.push(name.clone()),
                _ => break,
            }
        }
        let taken = names.len() - 1;
        let value = if taken == 0 { self.column(first, scope)? } else { self.compound_column(&names, scope)? };
        Ok((value, &chain[taken..]))
    }

    fn subscript(&self, value: Typed, index: Typed, more: bool, span: sqlparser::tokenizer::Span) -> Result<Typed> {
        match value.sql_type.clone() {
            SqlType::Array(_) => {
                if more || matches!(value.sql_type.element(), Some(SqlType::Array(_))) {
                    return Err(not_supported("a subscript of an array of several dimensions", "Use jsonb.", span));
                }
                let index = self.coerce(index, &SqlType::Integer, CoercionContext::Assignment, span)?;
                let first_is_zero = value.modifier == modifier::VECTOR;
                let index = if first_is_zero { self.call_operator("+", vec![index, Typed::integer(1)], span)? } else { index };
                self.call("array_subscript", vec![value, index], span)
            }
            SqlType::Jsonb if index.sql_type.is_integer() => self.call_operator("->", vec![value, index], span),
            // A text is a key of an object or the number of an element, as in a path.
            SqlType::Jsonb => {
                let index = self.implicit(index, &SqlType::Text)?;
                self.call("jsonb_extract_path", vec![value, index], span)
            }
            other => {
                let message = format!("cannot subscript type {} because it does not support subscripting", other.name());
                Err(PlanError::new(sqlstate::DATATYPE_MISMATCH, message).at(span))
            }
        }
    }

    fn field(&self, value: Typed, name: &str, span: sqlparser::tokenizer::Span) -> Result<Typed> {
        let SqlType::Record(fields) = &value.sql_type else {
            let message = format!("column notation .{name} applied to type {}, which is not a composite type", value.sql_type.name());
            return Err(PlanError::new(sqlstate::WRONG_OBJECT_TYPE, message).at(span));
        };
        let position = match sequence::names_of(value.modifier) {
            Some(names) => names.iter().position(|known| *known == name).map(|place| place + 1),
            None => name.strip_prefix('f').and_then(|number| number.parse().ok()),
        };
        let position = position.filter(|number| (1..=fields.len()).contains(number));
        let Some(position) = position else {
            let message = format!("could not identify column \"{name}\" in record data type");
            return Err(PlanError::new(sqlstate::UNDEFINED_COLUMN, message).at(span));
        };
        let sql_type = fields[position - 1].clone();
        let function = datafusion_function("get_field").ok_or_else(|| PlanError::internal("get_field is not registered"))?;
        let arguments = vec![value.expr, datafusion::logical_expr::lit(format!("f{position}"))];
        let expr = Expr::ScalarFunction(datafusion::logical_expr::expr::ScalarFunction::new_udf(function, arguments));
        Ok(Typed::new(expr, sql_type))
    }
}
