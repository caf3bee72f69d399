//! Calls with OVER.

use datafusion::{
    common::ScalarValue,
    logical_expr::{
        Case, Expr, WindowFrame, WindowFrameBound, WindowFrameUnits, WindowFunctionDefinition,
        expr::{Sort, WindowFunction, WindowFunctionParams},
        lit,
    },
};
use sqlparser::{
    ast::{self, NullTreatment, Spanned, WindowSpec, WindowType},
    tokenizer::Span,
};

use super::{Place, aggregate_call::AggregateArguments, not_supported};
use crate::{
    bind::{binder::Binder, scope::Scope, typed::Typed},
    catalog::fold,
    error::{PlanError, Result, sqlstate},
    functions::{
        aggregate::{self, collected},
        comparison, window,
    },
    types::SqlType,
};

/// The parts of OVER, bound.
struct Over {
    partition_by: Vec<Expr>,
    order_by: Vec<Sort>,
    /// Types of the ORDER BY values.
    order_types: Vec<SqlType>,
    frame: WindowFrame,
}

/// What is called over a window.
struct Called {
    definition: WindowFunctionDefinition,
    values: Vec<Expr>,
    result: SqlType,
    /// What is left to do with values that were collected.
    collected: Option<collected::Collected>,
}

impl Binder<'_> {
    pub(super) fn window_call(&self, name: &str, function: &ast::Function, scope: &Scope<'_>, place: &Place<'_>) -> Result<Typed> {
        let span = function.name.span();
        if !place.windows {
            let message = match place.clause {
                "a window function" => "window function calls cannot be nested".to_owned(),
                clause => format!("window functions are not allowed in {clause}"),
            };
            return Err(PlanError::new(sqlstate::WINDOWING_ERROR, message).at(span));
        }
        // Aggregates may stand inside: sum(count(*)) OVER ().
        let inner = Place { windows: false, clause: "a window function", sets: false, filter: false, ..*place };
        let over = match &function.over {
            Some(WindowType::WindowSpec(spec)) => self.over(spec, scope, &inner)?,
            Some(WindowType::NamedWindow(name)) => self.over(named(&fold(name), place, name.span)?, scope, &inner)?,
            None => return Err(PlanError::internal("a window call without OVER")),
        };
        let arguments = self.aggregate_arguments(function, scope, &inner)?;
        if arguments.distinct {
            return Err(PlanError::unsupported("DISTINCT is not implemented for window functions").at(span));
        }
        if !arguments.order_by.is_empty() || !function.within_group.is_empty() {
            return Err(PlanError::unsupported("aggregate ORDER BY is not implemented for window functions").at(span));
        }
        let filter = match &function.filter {
            Some(filter) => Some(Box::new(self.condition_of(filter, scope, &Place::scalar("FILTER"))?)),
            None => None,
        };
        let Called { definition, mut values, result, collected } = self.called(name, arguments, filter.is_some(), span)?;
        let null_treatment = match function.null_treatment {
            Some(NullTreatment::IgnoreNulls) => {
                return Err(not_supported("IGNORE NULLS", "Filter the NULLs out in a subquery.", span));
            }
            _ => None,
        };
        let default = computed_default(name, &mut values);
        let offset = values.get(1).cloned();
        let params = WindowFunctionParams {
            args: values,
            partition_by: over.partition_by,
            order_by: over.order_by,
            window_frame: over.frame,
            filter,
            null_treatment,
            distinct: false,
        };
        let value = with_default(definition, params, default.zip(offset));
        let value = Typed::new(value, result);
        match collected {
            Some(collected) => collected.finish(self, value),
            None => Ok(value),
        }
    }

    /// The function that a name with OVER stands for, window function or aggregate.
    fn called(&self, name: &str, arguments: AggregateArguments, filtered: bool, span: Span) -> Result<Called> {
        if window::is_window_function(name) {
            if filtered {
                return Err(PlanError::unsupported("FILTER is not implemented for non-aggregate window functions").at(span));
            }
            let types: Vec<SqlType> = arguments.values.iter().map(|value| value.sql_type.clone()).collect();
            let chosen = window::choose(name, &types).ok_or_else(|| super::call::undefined(name, &types, span))?;
            let values = self.aggregate_values(arguments.values, &chosen.arguments, false)?;
            return Ok(Called { definition: chosen.function.into(), values, result: chosen.result, collected: None });
        }
        if !aggregate::is_aggregate(name) {
            let message = format!("OVER specified, but {name} is not a window function nor an aggregate function");
            return Err(PlanError::new(sqlstate::WRONG_OBJECT_TYPE, message).at(span));
        }
        if collected::is_ordered_set(name) {
            let message = format!("OVER is not supported for ordered-set aggregate {name}");
            return Err(PlanError::unsupported(message).at(span));
        }
        let lowered = self.lower_aggregate(name, &arguments, span)?;
        let values = if lowered.values.is_empty() { vec![lit(1_i64)] } else { lowered.values };
        let (definition, result) = (lowered.chosen.function.into(), lowered.chosen.result);
        Ok(Called { definition, values, result, collected: lowered.collected })
    }

    fn over(&self, spec: &WindowSpec, scope: &Scope<'_>, place: &Place<'_>) -> Result<Over> {
        let base = match &spec.window_name {
            Some(name) => Some((named(&fold(name), place, name.span)?.clone(), name)),
            None => None,
        };
        let mut merged = spec.clone();
        if let Some((base, name)) = base {
            let refuse = |what: &str| {
                Err(PlanError::new(sqlstate::WINDOWING_ERROR, format!("cannot override {what} clause of window \"{}\"", fold(name)))
                    .at(name.span))
            };
            if !spec.partition_by.is_empty() {
                return refuse("PARTITION BY");
            }
            if !base.order_by.is_empty() && !spec.order_by.is_empty() {
                return refuse("ORDER BY");
            }
            if base.window_frame.is_some() {
                let message = format!("cannot copy window \"{}\" because it has a frame clause", fold(name));
                return Err(PlanError::new(sqlstate::WINDOWING_ERROR, message).at(name.span));
            }
            merged.partition_by = base.partition_by;
            if merged.order_by.is_empty() {
                merged.order_by = base.order_by;
            }
        }
        let mut partition_by = Vec::with_capacity(merged.partition_by.len());
        for ast in &merged.partition_by {
            let value = self.known(self.expression(ast, scope, place)?)?;
            partition_by.push(comparison::distinct_form(self, value).expr);
        }
        let (mut order_by, mut order_types) = (Vec::new(), Vec::new());
        for item in &merged.order_by {
            let value = self.known(self.expression(&item.expr, scope, place)?)?;
            order_types.push(value.sql_type.clone());
            order_by.push(self.sort(comparison::sort_key(self, value), &item.options));
        }
        let mut over = Over { partition_by, order_by, order_types, frame: WindowFrame::new(None) };
        over.frame = match &merged.window_frame {
            Some(frame) => self.frame(frame, &over, scope)?,
            None => WindowFrame::new((!over.order_by.is_empty()).then_some(false)),
        };
        Ok(over)
    }

    fn frame(&self, frame: &ast::WindowFrame, over: &Over, scope: &Scope<'_>) -> Result<WindowFrame> {
        let units = match frame.units {
            ast::WindowFrameUnits::Rows => WindowFrameUnits::Rows,
            ast::WindowFrameUnits::Range => WindowFrameUnits::Range,
            ast::WindowFrameUnits::Groups => WindowFrameUnits::Groups,
        };
        let start = self.frame_bound(&frame.start_bound, units, over, scope)?;
        let end = match &frame.end_bound {
            Some(bound) => self.frame_bound(bound, units, over, scope)?,
            None => WindowFrameBound::CurrentRow,
        };
        let refuse = |message: &str| Err(PlanError::new(sqlstate::WINDOWING_ERROR, message));
        match (&start, &end) {
            (WindowFrameBound::Following(value), _) if value.is_null() => return refuse("frame start cannot be UNBOUNDED FOLLOWING"),
            (_, WindowFrameBound::Preceding(value)) if value.is_null() => return refuse("frame end cannot be UNBOUNDED PRECEDING"),
            (WindowFrameBound::CurrentRow, WindowFrameBound::Preceding(_)) => {
                return refuse("frame starting from current row cannot have preceding rows");
            }
            (WindowFrameBound::Following(_), WindowFrameBound::Preceding(_) | WindowFrameBound::CurrentRow) => {
                return refuse("frame starting from following row cannot have preceding rows");
            }
            _ => {}
        }
        let offset = |bound: &WindowFrameBound| matches!(bound, WindowFrameBound::Preceding(value) | WindowFrameBound::Following(value) if !value.is_null());
        if units == WindowFrameUnits::Range && (offset(&start) || offset(&end)) && over.order_by.len() != 1 {
            return refuse("RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column");
        }
        if units == WindowFrameUnits::Groups && over.order_by.is_empty() {
            return refuse("GROUPS mode requires an ORDER BY clause");
        }
        Ok(WindowFrame::new_bounds(units, start, end))
    }

    fn frame_bound(
        &self,
        bound: &ast::WindowFrameBound,
        units: WindowFrameUnits,
        over: &Over,
        scope: &Scope<'_>,
    ) -> Result<WindowFrameBound> {
        let offset = |ast: &Option<Box<ast::Expr>>| match ast {
            None => Ok(ScalarValue::UInt64(None)),
            Some(ast) => self.frame_offset(ast, units, over, scope),
        };
        Ok(match bound {
            ast::WindowFrameBound::CurrentRow => WindowFrameBound::CurrentRow,
            ast::WindowFrameBound::Preceding(ast) => WindowFrameBound::Preceding(offset(ast)?),
            ast::WindowFrameBound::Following(ast) => WindowFrameBound::Following(offset(ast)?),
        })
    }

    /// A constant number of rows or groups, or a distance between values of the ORDER BY column.
    fn frame_offset(&self, ast: &ast::Expr, units: WindowFrameUnits, over: &Over, scope: &Scope<'_>) -> Result<ScalarValue> {
        let span = ast.span();
        let value = self.expression(ast, scope, &Place::scalar("a window frame"))?;
        let negative = || PlanError::new("22013", "frame starting or ending offset must not be negative").at(span);
        if units != WindowFrameUnits::Range {
            let value = self.implicit(value, &SqlType::BigInt)?;
            let number = match self.constant_of(value)? {
                Some(ScalarValue::Int64(Some(number))) => number,
                Some(_) => return Err(PlanError::new("22004", "frame offset must not be null").at(span)),
                None => return Err(not_supported("a window frame offset that is no constant", "Write the number.", span)),
            };
            return u64::try_from(number).map(|number| ScalarValue::UInt64(Some(number))).map_err(|_| negative());
        }
        let ordered = over.order_types.first().cloned().unwrap_or(SqlType::BigInt);
        let wanted = match &ordered {
            SqlType::Date | SqlType::Timestamp | SqlType::TimestampTz | SqlType::Time => SqlType::Interval,
            other => other.clone(),
        };
        let value = self.implicit(value, &wanted)?;
        match self.constant_of(value)? {
            Some(value) if value.is_null() => Err(PlanError::new("22004", "frame offset must not be null").at(span)),
            Some(value) => {
                let zero = ScalarValue::new_zero(&value.data_type())?;
                if value < zero { Err(negative()) } else { Ok(value) }
            }
            None => Err(not_supported("a window frame offset that is no constant", "Write the number.", span)),
        }
    }
}

/// The window that WINDOW gives this name.
fn named<'p>(name: &str, place: &Place<'p>, span: Span) -> Result<&'p WindowSpec> {
    let found = place.named_windows.iter().find(|(window, _)| window == name);
    found
        .map(|(_, spec)| spec)
        .ok_or_else(|| PlanError::new(sqlstate::UNDEFINED_OBJECT, format!("window \"{name}\" does not exist")).at(span))
}

/// Takes the third argument of `lag` and `lead` out if it is no constant.
fn computed_default(name: &str, values: &mut Vec<Expr>) -> Option<Expr> {
    let computed = matches!(name, "lag" | "lead") && values.get(2).is_some_and(|value| !matches!(value, Expr::Literal(..)));
    if computed { values.pop() } else { None }
}

/// The call; a default that is no constant, with the offset, is put in where there is no such row.
fn with_default(definition: WindowFunctionDefinition, params: WindowFunctionParams, default: Option<(Expr, Expr)>) -> Expr {
    let Some((default, offset)) = default else {
        return Expr::WindowFunction(Box::new(WindowFunction { fun: definition, params }));
    };
    let args = vec![lit(true), offset];
    let row = WindowFunction { fun: definition.clone(), params: WindowFunctionParams { args, ..params.clone() } };
    let missing = Expr::WindowFunction(Box::new(row)).is_null();
    let found = Expr::WindowFunction(Box::new(WindowFunction { fun: definition, params }));
    Expr::Case(Case::new(None, vec![(Box::new(missing), Box::new(default))], Some(Box::new(found))))
}
