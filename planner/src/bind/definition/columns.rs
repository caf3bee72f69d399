//! Columns, defaults, checks and watermarks of tables and sources.

use std::rc::Rc;

use datafusion::{
    common::{Column as PlanColumn, ScalarValue},
    logical_expr::Expr,
};
use sqlparser::ast::{self, BinaryOperator, Spanned};

use crate::{
    bind::{
        BindContext,
        binder::Binder,
        expression::{Place, strip},
        scope::{Scope, ScopeColumn},
    },
    catalog::{
        Object, fold,
        object::{Check, Column, PrimaryKey, Table, Watermark},
    },
    error::{PlanError, Result, sqlstate},
    parse::{
        self,
        statement::{CheckDefinition, TableElements, WatermarkDefinition},
    },
    pg_text::MICROS_PER_DAY,
    types::{
        SqlType,
        coercion::{CoercionContext, can_coerce},
        name::from_ast,
    },
};

/// Most columns of a relation, Postgres' number.
const MAX_COLUMNS: usize = 1_600;
/// Names that every relation of Postgres has.
const SYSTEM_COLUMNS: [&str; 6] = ["tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"];

/// The parts of a table's parentheses, bound.
pub(super) struct BoundElements {
    pub(super) columns: Vec<Column>,
    pub(super) primary_key: Option<PrimaryKey>,
    pub(super) checks: Vec<Check>,
    pub(super) watermark: Option<Watermark>,
}

impl Binder<'_> {
    pub(super) fn table_elements(&self, elements: &TableElements, name: &str) -> Result<BoundElements> {
        if elements.columns.len() > MAX_COLUMNS {
            return Err(PlanError::new(sqlstate::TOO_MANY_COLUMNS, format!("tables can have at most {MAX_COLUMNS} columns")));
        }
        let mut columns: Vec<Column> = Vec::with_capacity(elements.columns.len());
        for definition in &elements.columns {
            let span = definition.name.span;
            let (sql_type, modifier) = from_ast(&definition.data_type).map_err(|error| error.at(span))?;
            let mut column = Column::new(fold(&definition.name), sql_type, modifier);
            check_column(&column, &columns).map_err(|error| error.at(span))?;
            column.not_null = definition.not_null || definition.primary_key;
            if let Some((expression, text)) = &definition.default {
                self.check_default(expression, &column)?;
                column.default = Some(text.clone());
            }
            columns.push(column);
        }
        let primary_key = self.primary_key(elements, &mut columns, name)?;
        let scope = scope_of(&columns, name);
        let mut checks: Vec<Check> = Vec::new();
        for (definition, column) in elements
            .columns
            .iter()
            .flat_map(|column| column.checks.iter().map(move |check| (check, Some(fold(&column.name)))))
            .chain(elements.checks.iter().map(|check| (check, None)))
        {
            let check = self.check(definition, column.as_deref(), &scope, name, &checks)?;
            checks.push(check);
        }
        let watermark = elements.watermark.as_ref().map(|definition| self.watermark(definition, &columns)).transpose()?;
        Ok(BoundElements { columns, primary_key, checks, watermark })
    }

    fn check_default(&self, expression: &ast::Expr, column: &Column) -> Result<()> {
        let scope = Scope::below(None, Rc::default());
        let value = match self.expression(expression, &scope, &Place::scalar("DEFAULT expressions")) {
            Err(error) if error.sqlstate == sqlstate::UNDEFINED_COLUMN => {
                let message = "cannot use column reference in DEFAULT expression";
                return Err(PlanError::new(sqlstate::FEATURE_NOT_SUPPORTED, message).at(expression.span()));
            }
            value => value?,
        };
        if value.expr.contains_scalar_subquery() {
            return Err(PlanError::new(sqlstate::FEATURE_NOT_SUPPORTED, "cannot use subquery in DEFAULT expression").at(expression.span()));
        }
        if !can_coerce(&value.sql_type, &column.sql_type, CoercionContext::Assignment) {
            let (wanted, found) = (column.sql_type.name(), value.sql_type.name());
            let message = format!("column \"{}\" is of type {wanted} but default expression is of type {found}", column.name);
            return Err(PlanError::new(sqlstate::DATATYPE_MISMATCH, message)
                .with_hint("You will need to rewrite or cast the expression.")
                .at(expression.span()));
        }
        self.assign(value, column, expression.span()).map(drop)
    }

    fn primary_key(&self, elements: &TableElements, columns: &mut [Column], name: &str) -> Result<Option<PrimaryKey>> {
        let of_columns: Vec<usize> =
            elements.columns.iter().enumerate().filter(|(_, column)| column.primary_key).map(|(number, _)| number).collect();
        let (constraint, numbers) = match (&elements.primary_key, of_columns.as_slice()) {
            (Some(_), [_, ..]) | (None, [_, _, ..]) => {
                let message = format!("multiple primary keys for table \"{name}\" are not allowed");
                return Err(PlanError::new(sqlstate::INVALID_TABLE_DEFINITION, message));
            }
            (None, []) => return Ok(None),
            (None, _) => (None, of_columns),
            (Some((constraint, names)), []) => {
                let mut numbers = Vec::with_capacity(names.len());
                for ident in names {
                    let column = fold(ident);
                    let number = columns.iter().position(|other| other.name == column).ok_or_else(|| {
                        let message = format!("column \"{column}\" named in key does not exist");
                        PlanError::new(sqlstate::UNDEFINED_COLUMN, message).at(ident.span)
                    })?;
                    if numbers.contains(&number) {
                        let message = format!("column \"{column}\" appears twice in primary key constraint");
                        return Err(PlanError::new(sqlstate::DUPLICATE_COLUMN, message).at(ident.span));
                    }
                    numbers.push(number);
                }
                (constraint.as_ref().map(fold), numbers)
            }
        };
        for number in &numbers {
            let column = &mut columns[*number];
            if !is_key_type(&column.sql_type) {
                let message = format!("data type {} has no default operator class for access method \"btree\"", column.sql_type.name());
                return Err(PlanError::new(sqlstate::UNDEFINED_OBJECT, message));
            }
            column.not_null = true;
        }
        Ok(Some(PrimaryKey { name: constraint.unwrap_or_else(|| format!("{name}_pkey")), columns: numbers }))
    }

    fn check(&self, definition: &CheckDefinition, column: Option<&str>, scope: &Scope<'_>, table: &str, others: &[Check]) -> Result<Check> {
        let condition = self.condition_of(&definition.expression, scope, &Place::scalar("CHECK constraints"))?;
        if condition.contains_scalar_subquery() {
            let message = "cannot use subquery in check constraint";
            return Err(PlanError::new(sqlstate::FEATURE_NOT_SUPPORTED, message).at(definition.expression.span()));
        }
        let name = match &definition.name {
            Some(name) => fold(name),
            None => {
                let named: Vec<&str> = condition.column_refs().into_iter().map(|column| column.name.as_str()).collect();
                // A condition on one column is called after it, wherever it is written.
                let base = match column.or(if let [only] = named.as_slice() { Some(only) } else { None }) {
                    Some(column) => format!("{table}_{column}_check"),
                    None => format!("{table}_check"),
                };
                let taken = |name: &String| others.iter().any(|check| check.name == *name);
                std::iter::once(base.clone()).chain((1..).map(|number| format!("{base}{number}"))).find(|name| !taken(name)).unwrap_or(base)
            }
        };
        if others.iter().any(|check| check.name == name) {
            let message = format!("check constraint \"{name}\" already exists");
            return Err(PlanError::new(sqlstate::DUPLICATE_OBJECT, message));
        }
        Ok(Check { name, expression: definition.text.clone() })
    }

    /// `column` or `column - interval`.
    pub(super) fn watermark(&self, definition: &WatermarkDefinition, columns: &[Column]) -> Result<Watermark> {
        let name = fold(&definition.column);
        let span = definition.column.span;
        let number = columns
            .iter()
            .position(|column| column.name == name)
            .ok_or_else(|| PlanError::new(sqlstate::UNDEFINED_COLUMN, format!("column \"{name}\" does not exist")).at(span))?;
        if !matches!(columns[number].sql_type, SqlType::Timestamp | SqlType::TimestampTz) {
            let found = columns[number].sql_type.name();
            let message = format!("a watermark must be on a timestamp column, \"{name}\" is of type {found}");
            return Err(PlanError::new(sqlstate::DATATYPE_MISMATCH, message).at(span));
        }
        let unsupported = || {
            PlanError::unsupported("this watermark expression is not supported")
                .with_hint(format!("Write WATERMARK FOR {name} AS {name} - INTERVAL '5 seconds'."))
                .at(definition.expression.span())
        };
        let is_column = |ast: &ast::Expr| matches!(strip(ast), ast::Expr::Identifier(ident) if fold(ident) == name);
        let delay_us = match strip(&definition.expression) {
            plain if is_column(plain) => 0,
            ast::Expr::BinaryOp { left, op: BinaryOperator::Minus, right } if is_column(left) => {
                let value = self.expression(right, &Scope::below(None, Rc::default()), &Place::scalar("WATERMARK"))?;
                let value = self.coerce(value, &SqlType::Interval, CoercionContext::Explicit, right.span())?;
                match self.constant_of(value)? {
                    Some(ScalarValue::IntervalMonthDayNano(Some(interval))) if interval.months == 0 => {
                        i64::from(interval.days) * MICROS_PER_DAY + interval.nanoseconds / 1_000
                    }
                    _ => return Err(unsupported()),
                }
            }
            _ => return Err(unsupported()),
        };
        if delay_us < 0 {
            return Err(PlanError::new(sqlstate::INVALID_PARAMETER_VALUE, "the delay of a watermark must not be negative").at(span));
        }
        Ok(Watermark { column: number, delay_us })
    }
}

fn is_key_type(sql_type: &SqlType) -> bool {
    !matches!(sql_type, SqlType::Json | SqlType::Record(_) | SqlType::Void | SqlType::Unknown)
}

fn check_column(column: &Column, others: &[Column]) -> Result<()> {
    if others.iter().any(|other| other.name == column.name) {
        let message = format!("column \"{}\" specified more than once", column.name);
        return Err(PlanError::new(sqlstate::DUPLICATE_COLUMN, message));
    }
    if SYSTEM_COLUMNS.contains(&column.name.as_str()) {
        let message = format!("column name \"{}\" conflicts with a system column name", column.name);
        return Err(PlanError::new(sqlstate::DUPLICATE_COLUMN, message));
    }
    let storable = |sql_type: &SqlType| !matches!(sql_type, SqlType::Record(_) | SqlType::Void | SqlType::Unknown | SqlType::Array(_));
    if !storable(column.sql_type.element().unwrap_or(&column.sql_type)) {
        let message = format!("column \"{}\" has pseudo-type {}", column.name, column.sql_type.name());
        return Err(PlanError::new(sqlstate::INVALID_TABLE_DEFINITION, message));
    }
    Ok(())
}

/// The columns of a table as a scope, by their names alone.
pub(super) fn scope_of<'p>(columns: &[Column], table: &str) -> Scope<'p> {
    let columns = columns.iter().map(|column| ScopeColumn {
        name: column.name.clone(),
        column: PlanColumn::new_unqualified(&column.name),
        sql_type: column.sql_type.clone(),
        modifier: column.modifier,
        nullable: !column.not_null,
        origin: None,
    });
    Scope::of_relation(table, None, columns.collect())
}

/// The CHECK constraints of a table: names, and conditions over its columns by their names without qualifier. A row is refused when a
/// condition is false (not when it is NULL).
///
/// # Errors
/// If a stored condition cannot be bound any more.
pub fn checks_of(object: &Object, context: &BindContext<'_>) -> Result<Vec<(String, Expr)>> {
    let Some(Table { columns, checks, .. }) = object.table() else { return Ok(Vec::new()) };
    let binder = Binder::new(context);
    let scope = scope_of(columns, &object.name);
    let bind = |check: &Check| {
        let ast = parse::parse_expression(&check.expression)?;
        let condition = binder.condition_of(&ast, &scope, &Place::scalar("CHECK constraints"))?;
        Ok((check.name.clone(), condition))
    };
    checks.iter().map(bind).collect::<Result<_>>().map_err(PlanError::without_position)
}

/// The default of a column as an expression without columns; NULL if it has none.
///
/// # Errors
/// If a stored default cannot be bound any more.
pub fn default_of(column: &Column, context: &BindContext<'_>) -> Result<Expr> {
    Binder::new(context).default_value(column).map(|value| value.expr)
}
