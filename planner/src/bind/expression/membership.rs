//! IN over a list, and ANY and ALL over an array or subquery.

use datafusion::logical_expr::{Expr, Operator, expr::InList};
use sqlparser::{
    ast::{self, BinaryOperator, Spanned},
    tokenizer::Span,
};

use super::{
    Place,
    operator::{balanced, symbol_of},
    strip,
};
use crate::{
    bind::{binder::Binder, coerce::unmatched, scope::Scope, typed::Typed},
    error::{PlanError, Result, sqlstate},
    functions::{comparison, quantified},
    types::{SqlType, coercion::common_type},
};

impl Binder<'_> {
    pub(super) fn in_list(
        &self,
        ast: &ast::Expr,
        list: &[ast::Expr],
        negated: bool,
        scope: &Scope<'_>,
        place: &Place<'_>,
    ) -> Result<Typed> {
        let place = place.in_value();
        if let ast::Expr::Tuple(values) = strip(ast) {
            return self.row_in_list(values, list, negated, scope, &place);
        }
        let value = self.expression(ast, scope, &place)?;
        let items = list.iter().map(|item| self.expression(item, scope, &place)).collect::<Result<Vec<_>>>()?;
        let types: Vec<SqlType> = std::iter::once(&value).chain(&items).map(|item| item.sql_type.clone()).collect();
        let plain = common_type(&types).filter(comparison::compares_as_it_is);
        if let Some(common) = plain {
            let value = self.implicit(value, &common)?;
            let items = items.into_iter().zip(list).map(|(item, ast)| {
                let item = self.coerce(item, &common, crate::types::coercion::CoercionContext::Implicit, ast.span())?;
                Ok(item.expr)
            });
            let items = items.collect::<Result<Vec<_>>>()?;
            return Ok(Typed::boolean(Expr::InList(InList::new(Box::new(value.expr), items, negated))));
        }
        let symbol = if negated { "<>" } else { "=" };
        let compared = items.into_iter().zip(list).map(|(item, ast)| {
            let compared = self.call_operator(symbol, vec![self.repeat(&value)?, item], ast.span())?;
            Ok(compared.expr)
        });
        let operator = if negated { Operator::And } else { Operator::Or };
        Ok(Typed::boolean(balanced(compared.collect::<Result<_>>()?, operator)))
    }

    fn row_in_list(&self, values: &[ast::Expr], list: &[ast::Expr], negated: bool, scope: &Scope<'_>, place: &Place<'_>) -> Result<Typed> {
        let values = values.iter().map(|value| self.expression(value, scope, place)).collect::<Result<Vec<_>>>()?;
        let mut compared = Vec::with_capacity(list.len());
        for item in list {
            let ast::Expr::Tuple(items) = strip(item) else {
                return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "a row can be compared with rows only").at(item.span()));
            };
            if items.len() != values.len() {
                return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "unequal number of entries in row expressions").at(item.span()));
            }
            let items = items.iter().map(|item| self.expression(item, scope, place)).collect::<Result<Vec<_>>>()?;
            let values = values.iter().map(|value| self.repeat(value)).collect::<Result<_>>()?;
            compared.push(self.compare_typed_rows(values, "=", items, item.span())?.expr);
        }
        let any = balanced(compared, Operator::Or);
        Ok(Typed::boolean(if negated { Expr::Not(Box::new(any)) } else { any }))
    }

    /// `value op ANY (array or subquery)`, `value op ALL (..)`
    pub(super) fn quantified(
        &self,
        left: &ast::Expr,
        op: &BinaryOperator,
        right: &ast::Expr,
        all: bool,
        scope: &Scope<'_>,
        place: &Place<'_>,
    ) -> Result<Typed> {
        let span = left.span();
        let symbol = symbol_of(op, span)?;
        if let ast::Expr::Subquery(query) = strip(right) {
            return self.quantified_subquery(left, &symbol, query, all, scope, place);
        }
        let inner = place.in_value();
        let value = self.expression(left, scope, &inner)?;
        let array = self.expression(right, scope, &inner)?;
        self.compare_with_array(value, &symbol, array, all, span)
    }

    /// A value compared with the elements of an array.
    pub(in crate::bind) fn compare_with_array(&self, value: Typed, symbol: &str, array: Typed, all: bool, span: Span) -> Result<Typed> {
        let (value, array) = self.match_element(value, array, span)?;
        quantified::quantified(self, value, symbol, array, all).map_err(|error| error.at(span))
    }

    /// Brings the value and the elements to one type.
    fn match_element(&self, value: Typed, array: Typed, span: Span) -> Result<(Typed, Typed)> {
        let element = match &array.sql_type {
            SqlType::Array(element) => (**element).clone(),
            SqlType::Unknown => SqlType::Unknown,
            other => {
                let message = format!("op ANY/ALL (array) requires array on right side, not {}", other.name());
                return Err(PlanError::new(sqlstate::WRONG_OBJECT_TYPE, message).at(span));
            }
        };
        let types = [value.sql_type.clone(), element];
        let common = common_type(&types).ok_or_else(|| unmatched(&types, "ANY").at(span))?;
        let context = crate::types::coercion::CoercionContext::Implicit;
        let value = self.coerce(value, &common, context, span)?;
        let array = self.coerce(array, &SqlType::array(common), context, span)?;
        Ok((value, array))
    }
}
