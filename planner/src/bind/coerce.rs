//! Bringing a bound expression to a type: literals are read, parameters settled, values converted, declared lengths enforced.

use datafusion::logical_expr::{Expr, expr::Placeholder};
use sqlparser::tokenizer::Span;

use super::{binder::Binder, typed::Typed};
use crate::{
    error::{PlanError, Result, sqlstate},
    functions::cast,
    types::{
        SqlType,
        coercion::{CoercionContext, can_coerce, common_type},
        decimal::Digits,
        modifier,
    },
};

impl Binder<'_> {
    /// The value as a type that its place wants.
    ///
    /// # Errors
    /// 42846 if there is no such conversion in the context; errors of a literal that is no value of the type.
    pub(crate) fn coerce(&self, value: Typed, to: &SqlType, context: CoercionContext, span: Span) -> Result<Typed> {
        if value.is_unknown() {
            return self.settle(value, to, span);
        }
        if value.sql_type == *to {
            return Ok(value);
        }
        if !can_coerce(&value.sql_type, to, context) {
            let message = format!("cannot cast type {} to {}", value.sql_type.name(), to.name());
            return Err(PlanError::new(sqlstate::CANNOT_COERCE, message).at(span));
        }
        let from = value.sql_type.clone();
        match cast::convert(self, value.expr, &from, to) {
            Some(expr) => Ok(Typed::new(expr, to.clone())),
            None => {
                let message = format!("cannot cast type {} to {}", from.name(), to.name());
                Err(PlanError::new(sqlstate::CANNOT_COERCE, message).at(span))
            }
        }
    }

    /// As [`Binder::coerce`], for the place of an argument, without an error position of its own.
    pub(crate) fn implicit(&self, value: Typed, to: &SqlType) -> Result<Typed> {
        self.coerce(value, to, CoercionContext::Implicit, Span::empty())
    }

    /// What an explicit cast without a declared length gives.
    pub(crate) fn cast_explicit(&self, value: Typed, to: &SqlType) -> Result<Typed> {
        self.coerce(value, to, CoercionContext::Explicit, Span::empty())
    }

    /// A literal, NULL or parameter of unknown type.
    fn settle(&self, value: Typed, to: &SqlType, span: Span) -> Result<Typed> {
        match value.expr {
            Expr::Literal(literal, _) if literal.is_null() => Ok(Typed::null(to.clone())),
            Expr::Literal(ref literal, _) => match literal.try_as_str().flatten() {
                Some(text) => {
                    if *to == SqlType::RegClass {
                        self.depend_on_named(text, value.written);
                    }
                    self.read_literal(text, to).map_err(|error| error.at(span))
                }
                None => Err(PlanError::internal(format!("a literal {literal} without a type"))),
            },
            Expr::Placeholder(Placeholder { id, .. }) => {
                // Drivers send names for them, which only the catalog can read.
                let sent = if to.is_oid() && *to != SqlType::Oid { &SqlType::Text } else { to };
                let settled = self.settle_parameter(&id, sent);
                if settled.sql_type == *to { Ok(settled) } else { self.coerce(settled, to, CoercionContext::Explicit, span) }
            }
            other => Err(PlanError::internal(format!("expression {other} without a type"))),
        }
    }

    /// The value of a type that a text means.
    fn read_literal(&self, text: &str, to: &SqlType) -> Result<Typed> {
        match to {
            SqlType::Unknown | SqlType::Text => Ok(Typed::text(text)),
            SqlType::Numeric(..) => {
                let digits = cast::digits_of_text(text).unwrap_or(Digits::FREE);
                let wanted = Digits::of(to);
                let fits = wanted == Digits::FREE && digits.precision - digits.scale as u8 <= 56 && digits.scale <= 20;
                let target = if fits { SqlType::NUMERIC } else { to.clone() };
                Ok(Typed::literal(cast::read(self, text, &target)?, target))
            }
            _ => Ok(Typed::literal(cast::read(self, text, to)?, to.clone())),
        }
    }

    /// What `CAST (value AS type)` gives: explicit conversion, then the declared length.
    pub(super) fn cast_to(&self, value: Typed, to: &SqlType, declared: i32, span: Span) -> Result<Typed> {
        let to = self.cast_target(&value, to, declared);
        let value = self.coerce(value, &to, CoercionContext::Explicit, span)?;
        self.fit_modifier(value, declared, true, span)
    }

    /// `numeric` without digits takes those of the value, so that nothing is lost and nothing is made up.
    fn cast_target(&self, value: &Typed, to: &SqlType, declared: i32) -> SqlType {
        if *to != SqlType::NUMERIC || declared >= 0 {
            return to.clone();
        }
        match &value.sql_type {
            SqlType::Numeric(..) | SqlType::SmallInt | SqlType::Integer | SqlType::BigInt => Digits::of(&value.sql_type).sql_type(),
            SqlType::Unknown => match value.constant_text().and_then(cast::digits_of_text) {
                Some(digits) => digits.sql_type(),
                None => to.clone(),
            },
            _ => to.clone(),
        }
    }

    /// Cuts (explicitly) or checks (on assignment) a value by a declared length. Digits of a numeric are part of its type already.
    pub(super) fn fit_modifier(&self, value: Typed, declared: i32, explicit: bool, span: Span) -> Result<Typed> {
        if declared < 0 || (value.modifier == declared && !matches!(value.sql_type, SqlType::Numeric(..))) {
            return Ok(value.with_modifier(declared));
        }
        let sql_type = value.sql_type.clone();
        let expr = cast::fit(self, value.expr, &sql_type, declared, explicit).map_err(|error| error.at(span))?;
        Ok(Typed::new(expr, sql_type).with_modifier(declared))
    }

    /// The value as a column of a table wants it.
    ///
    /// # Errors
    /// 42804 naming the column if the types do not fit.
    pub(super) fn assign(&self, value: Typed, column: &crate::catalog::object::Column, span: Span) -> Result<Typed> {
        if !can_coerce(&value.sql_type, &column.sql_type, CoercionContext::Assignment) {
            let (wanted, found) = (column.sql_type.name(), value.sql_type.name());
            let message = format!("column \"{}\" is of type {wanted} but expression is of type {found}", column.name);
            return Err(PlanError::new(sqlstate::DATATYPE_MISMATCH, message)
                .with_hint("You will need to rewrite or cast the expression.")
                .at(span));
        }
        let value = self.coerce(value, &column.sql_type, CoercionContext::Assignment, span)?;
        self.fit_modifier(value, column.modifier, false, span)
    }

    /// A condition: boolean, or a literal or parameter that becomes one.
    ///
    /// # Errors
    /// 42804 `argument of WHERE must be type boolean, not type integer`.
    pub(super) fn condition(&self, value: Typed, clause: &str, span: Span) -> Result<Expr> {
        match value.sql_type {
            SqlType::Boolean => Ok(value.expr),
            SqlType::Unknown => Ok(self.coerce(value, &SqlType::Boolean, CoercionContext::Implicit, span)?.expr),
            other => {
                let message = format!("argument of {clause} must be type boolean, not type {}", other.name());
                Err(PlanError::new(sqlstate::DATATYPE_MISMATCH, message).at(span))
            }
        }
    }

    /// Values brought to their common type.
    ///
    /// # Errors
    /// 42804 `CASE types integer and text cannot be matched`.
    pub(super) fn unify(&self, values: Vec<Typed>, construct: &str, span: Span) -> Result<(Vec<Typed>, SqlType)> {
        let types: Vec<SqlType> = values.iter().map(|value| value.sql_type.clone()).collect();
        let common = common_type(&types).ok_or_else(|| unmatched(&types, construct).at(span))?;
        let values = values.into_iter().map(|value| self.coerce(value, &common, CoercionContext::Implicit, span));
        Ok((values.collect::<Result<_>>()?, common))
    }

    /// A value whose type is left open becomes text, at the border of a query.
    pub(super) fn known(&self, value: Typed) -> Result<Typed> {
        if value.is_unknown() { self.implicit(value, &SqlType::Text) } else { Ok(value) }
    }
}

/// The error that types have nothing in common.
pub(super) fn unmatched(types: &[SqlType], construct: &str) -> PlanError {
    let mut known = types.iter().filter(|sql_type| **sql_type != SqlType::Unknown);
    let first = known.next().cloned().unwrap_or(SqlType::Text);
    let other = known.find(|other| common_type(&[first.clone(), (*other).clone()]).is_none()).cloned().unwrap_or(SqlType::Text);
    let message = format!("{construct} types {} and {} cannot be matched", first.name(), other.name());
    PlanError::new(sqlstate::DATATYPE_MISMATCH, message)
}

/// The typmod all values share, or none.
pub(super) fn common_modifier<'v>(values: impl IntoIterator<Item = &'v Typed>) -> i32 {
    let mut modifiers = values.into_iter().map(|value| value.modifier);
    match modifiers.next() {
        Some(first) if modifiers.all(|other| other == first) => first,
        _ => modifier::NONE,
    }
}
