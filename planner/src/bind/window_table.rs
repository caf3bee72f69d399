//! `TUMBLE(relation, time, size [, offset])` and `HOP(relation, time, slide, size [, offset])` in FROM.

use std::rc::Rc;

use arrow::datatypes::IntervalMonthDayNano;
use datafusion::common::{Column, ScalarValue};
use millpond_engine::graph::WindowStep;
use sqlparser::{
    ast::{self, FunctionArg, FunctionArgExpr, FunctionArguments, ObjectName, Spanned, TableAlias},
    tokenizer::Span,
};

use super::{
    binder::Binder,
    expression::Place,
    from::FromItem,
    query::BoundRows,
    scope::{CommonTables, Scope, ScopeColumn},
};
use crate::{
    catalog::{QualifiedName, fold},
    error::{PlanError, Result, sqlstate},
    logical::window::{WINDOW_END, WINDOW_START, WindowNode},
    pg_text::MICROS_PER_DAY,
    types::{SqlType, coercion::CoercionContext, modifier},
};

/// Most windows that a row may be in.
const MAX_WINDOWS_PER_ROW: i64 = 10_000;

/// Whether a name in FROM is a window function over a relation.
pub(super) fn is_window_table(name: &str) -> bool {
    matches!(name, "tumble" | "hop" | "session" | "cumulate")
}

impl Binder<'_> {
    pub(super) fn window_table<'p>(
        &self,
        function: &str,
        arguments: &[FunctionArg],
        alias: Option<&TableAlias>,
        outer: Option<&'p Scope<'p>>,
        common: &Rc<CommonTables>,
        span: Span,
    ) -> Result<FromItem<'p>> {
        if !matches!(function, "tumble" | "hop") {
            let message = format!("{} windows are not supported yet", function.to_uppercase());
            return Err(PlanError::unsupported(message).with_hint("TUMBLE and HOP are.").at(span));
        }
        let steps = if function == "tumble" { 1 } else { 2 };
        let arguments = arguments.iter().map(plain_argument).collect::<Result<Vec<_>>>()?;
        if !(2 + steps..=3 + steps).contains(&arguments.len()) {
            let form = if function == "tumble" { "TUMBLE(relation, time, size)" } else { "HOP(relation, time, slide, size)" };
            let message = format!("wrong number of arguments of {}", function.to_uppercase());
            return Err(PlanError::new(sqlstate::UNDEFINED_FUNCTION, message).with_hint(format!("The form is {form}.")).at(span));
        }
        let input = self.window_input(arguments[0], outer, common)?;
        let time = window_time(arguments[1], &input.scope)?;
        if !matches!(time.sql_type, SqlType::Timestamp | SqlType::TimestampTz) {
            let message = format!("the time column of a window must be a timestamp, not {}", time.sql_type.name());
            return Err(PlanError::new(sqlstate::DATATYPE_MISMATCH, message).at(arguments[1].span()));
        }
        let scope = Scope::below(outer, Rc::clone(common));
        let step = |index: usize| self.window_step(arguments[index], &time.sql_type, &scope);
        let (slide, size) = if steps == 1 { (step(2)?, step(2)?) } else { (step(2)?, step(3)?) };
        check_steps(slide, size, arguments[2].span())?;
        let offset_us = match arguments.get(2 + steps) {
            Some(argument) => match self.window_step(argument, &time.sql_type, &scope)? {
                WindowStep::Micros(micros) => micros,
                WindowStep::Months(_) => {
                    return Err(PlanError::unsupported("a window offset of months is not supported").at(argument.span()));
                }
            },
            None => 0,
        };
        self.window_rows(input, &time, (slide, size, offset_us), alias)
    }

    fn window_rows<'p>(
        &self,
        input: FromItem<'p>,
        time: &ScopeColumn,
        (slide, size, offset_us): (WindowStep, WindowStep, i64),
        alias: Option<&TableAlias>,
    ) -> Result<FromItem<'p>> {
        let (name, schema) = match input.scope.relations.as_slice() {
            [relation] => (relation.name.clone(), relation.schema.clone()),
            _ => (String::new(), None),
        };
        let mut columns: Vec<ScopeColumn> = input.scope.visible_columns().cloned().collect();
        let plan = WindowNode::try_new(input.plan, time.column.clone(), slide, size, offset_us)?.into_plan();
        for name in [WINDOW_START, WINDOW_END] {
            columns.push(ScopeColumn {
                name: name.to_owned(),
                column: Column::new(time.column.relation.clone(), name),
                sql_type: time.sql_type.clone(),
                modifier: modifier::NONE,
                nullable: false,
                origin: None,
            });
        }
        match alias {
            None => Ok(FromItem::new(plan, Scope::of_relation(&name, schema, columns))),
            Some(alias) => {
                let given: Vec<(String, Span)> = alias.columns.iter().map(|column| (fold(&column.name), column.name.span)).collect();
                self.qualified(BoundRows { plan, columns }, fold(&alias.name), None, &given)
            }
        }
    }

    /// The relation: a name, or a query in parentheses.
    fn window_input<'p>(&self, ast: &ast::Expr, outer: Option<&'p Scope<'p>>, common: &Rc<CommonTables>) -> Result<FromItem<'p>> {
        let span = ast.span();
        let name = match ast {
            ast::Expr::Identifier(ident) => ObjectName::from(vec![ident.clone()]),
            ast::Expr::CompoundIdentifier(parts) => ObjectName::from(parts.clone()),
            ast::Expr::Subquery(query) => {
                let rows = self.query(query, outer, common)?;
                return self.qualified(rows, String::new(), None, &[]);
            }
            _ => {
                let message = "the first argument of a window function in FROM must be a relation";
                return Err(PlanError::new(sqlstate::SYNTAX_ERROR, message).at(span));
            }
        };
        // An alias cannot follow the name there.
        let item = self.relation(&QualifiedName::from_ast(&name)?, None, span, common)?;
        self.forbid_implied_alias(span);
        Ok(item)
    }

    /// A constant interval.
    fn window_step(&self, ast: &ast::Expr, time: &SqlType, scope: &Scope<'_>) -> Result<WindowStep> {
        let span = ast.span();
        let value = self.expression(ast, scope, &Place::scalar("a window"))?;
        let value = self.coerce(value, &SqlType::Interval, CoercionContext::Explicit, span)?;
        let Some(ScalarValue::IntervalMonthDayNano(Some(interval))) = self.constant_of(value)? else {
            return Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, "the size of a window must be a constant interval").at(span));
        };
        step_of(interval, time).map_err(|error| error.at(span))
    }
}

/// Days are days of 24 hours; months stay months.
fn step_of(interval: IntervalMonthDayNano, _time: &SqlType) -> Result<WindowStep> {
    let IntervalMonthDayNano { months, days, nanoseconds } = interval;
    if months != 0 && (days != 0 || nanoseconds != 0) {
        return Err(PlanError::unsupported("a window of months and days together is not supported").with_hint("Use one of them."));
    }
    if months != 0 {
        return if months > 0 { Ok(WindowStep::Months(months)) } else { Err(not_positive()) };
    }
    let micros = i64::from(days).checked_mul(MICROS_PER_DAY).and_then(|micros| micros.checked_add(nanoseconds / 1_000));
    micros.map(WindowStep::Micros).ok_or_else(|| PlanError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "interval out of range"))
}

fn not_positive() -> PlanError {
    PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, "the size and slide of a window must be greater than zero")
}

fn check_steps(slide: WindowStep, size: WindowStep, span: Span) -> Result<()> {
    match (slide, size) {
        (WindowStep::Months(slide), WindowStep::Months(size)) if slide == size => Ok(()),
        (WindowStep::Months(_), _) | (_, WindowStep::Months(_)) => {
            Err(PlanError::unsupported("HOP by months is not supported").with_hint("TUMBLE by months is.").at(span))
        }
        (WindowStep::Micros(slide), WindowStep::Micros(size)) => {
            if slide <= 0 || size <= 0 {
                return Err(not_positive().at(span));
            }
            if size / slide > MAX_WINDOWS_PER_ROW {
                let message = format!("a row would be in more than {MAX_WINDOWS_PER_ROW} windows");
                return Err(PlanError::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, message).with_hint("Use a longer slide.").at(span));
            }
            Ok(())
        }
    }
}

fn plain_argument(argument: &FunctionArg) -> Result<&ast::Expr> {
    match argument {
        FunctionArg::Unnamed(FunctionArgExpr::Expr(ast)) => Ok(ast),
        other => Err(PlanError::new(sqlstate::SYNTAX_ERROR, format!("argument {other} is not an expression"))),
    }
}

/// The time column: its name, or `DESCRIPTOR(name)`.
fn window_time(ast: &ast::Expr, scope: &Scope<'_>) -> Result<ScopeColumn> {
    let (ident, span) = match ast {
        ast::Expr::Identifier(ident) => (ident.clone(), ident.span),
        ast::Expr::CompoundIdentifier(parts) if !parts.is_empty() => (parts[parts.len() - 1].clone(), ast.span()),
        ast::Expr::Function(function) if function.name.to_string().eq_ignore_ascii_case("descriptor") => match &function.args {
            FunctionArguments::List(list) => match list.args.as_slice() {
                [argument] => return window_time(plain_argument(argument)?, scope),
                _ => return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "DESCRIPTOR takes one column").at(ast.span())),
            },
            _ => return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "DESCRIPTOR takes one column").at(ast.span())),
        },
        other => {
            let message = "the second argument of a window function in FROM must be a column";
            return Err(PlanError::new(sqlstate::SYNTAX_ERROR, message).at(other.span()));
        }
    };
    let name = fold(&ident);
    match scope.own_column_named(&name, span)? {
        Some(column) => Ok(column.clone()),
        None => Err(PlanError::new(sqlstate::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist")).at(span)),
    }
}
