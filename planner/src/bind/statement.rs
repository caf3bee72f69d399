//! The entry points: a parsed statement, or a stored query, to what binding gives.

use std::rc::Rc;

use datafusion::{
    common::tree_node::{Transformed, TreeNode},
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, expr::Placeholder},
};
use sqlparser::ast::{self, ObjectName, Query, Spanned};

use super::{
    BindContext,
    binder::{Binder, placeholder},
    bound::{Bound, BoundInsert, BoundNotice, BoundQuery, BoundStatement, OutputColumn},
    expression::Place,
    query::BoundRows,
    scope::Scope,
    typed::Typed,
};
use crate::{
    catalog::{
        QualifiedName, fold,
        object::{Column, Object, QuerySettings},
    },
    error::{PlanError, Result, sqlstate},
    functions::session,
    optimize::join_order::Hints,
    parse::{
        self, ParsedStatement, Statement,
        statement::{CreateSource, ObjectKind},
    },
    pg_text::{ByteaOutput, DateOrder, DateStyle, IntervalStyle, TextSettings, Zone},
    types::{SqlType, modifier},
};

/// Binds a statement.
///
/// # Errors
/// Everything that can be wrong with it, with a position in its script.
pub fn bind(parsed: &ParsedStatement, context: &BindContext<'_>) -> Result<Bound> {
    let binder = Binder::new(context);
    binder.statement(&parsed.statement, &parsed.text).map_err(|error| error.located_in(&parsed.script))
}

/// Binds a query.
///
/// # Errors
/// As [`bind`], positions left as lines and columns of the query's own text.
pub fn bind_query(query: &Query, context: &BindContext<'_>) -> Result<BoundQuery> {
    Binder::new(context).top_query(query)
}

/// Binds the text of a query.
///
/// # Errors
/// As [`bind`].
pub fn bind_query_text(text: &str, context: &BindContext<'_>) -> Result<BoundQuery> {
    bind_query(&parse::parse_query(text)?, context).map_err(|error| error.located_in(text))
}

/// Binds the stored query of a materialized view or sink under the settings it was created with.
///
/// # Errors
/// As [`bind_query_text`]; none is expected.
pub fn bind_stored_query(text: &str, settings: &QuerySettings, context: &BindContext<'_>) -> Result<BoundQuery> {
    let text_settings = text_settings_of(settings, context.text);
    let context = BindContext { text: &text_settings, parameter_types: &[], is_kept: true, ..*context };
    bind_query(&parse::parse_query(text)?, &context).map_err(PlanError::without_position)
}

/// The source of a CREATE SOURCE without columns, once they have been inferred from its files.
///
/// # Errors
/// 42701 if two columns have one name; what is wrong with the watermark.
pub fn bind_source_columns(create: &CreateSource, object: &Object, columns: Vec<Column>, context: &BindContext<'_>) -> Result<Object> {
    Binder::new(context).source_with_columns(create, object, columns).map_err(PlanError::without_position)
}

/// Values of the arguments of EXECUTE, for parameters of these types.
///
/// # Errors
/// 42601 if their number is wrong, 42804 if a type is.
pub fn bind_expression_values(arguments: &[ast::Expr], types: &[SqlType], context: &BindContext<'_>) -> Result<Vec<Expr>> {
    if arguments.len() != types.len() {
        return Err(PlanError::new(sqlstate::SYNTAX_ERROR, "wrong number of parameters for prepared statement").with_detail(format!(
            "Expected {} parameters but got {}.",
            types.len(),
            arguments.len()
        )));
    }
    let binder = Binder::new(context);
    let scope = Scope::below(None, Rc::default());
    let bind = |(argument, (index, sql_type)): (&ast::Expr, (usize, &SqlType))| {
        let value = binder.expression(argument, &scope, &Place::scalar("EXECUTE parameters"))?;
        let column = Column::new(format!("${}", index + 1), sql_type.clone(), modifier::NONE);
        Ok(binder.assign(value, &column, sqlparser::tokenizer::Span::empty())?.expr)
    };
    arguments.iter().zip(types.iter().enumerate()).map(bind).collect()
}

impl Binder<'_> {
    fn statement(&self, statement: &Statement, sql: &str) -> Result<Bound> {
        let mut bound = self.bound_statement(statement, sql)?;
        if let Some(query) = query_of(&mut bound) {
            query.hints = Hints::in_text(sql);
        }
        let columns = columns_of(&bound);
        let parameter_types = match &bound {
            BoundStatement::Explain(inner) => inner.parameter_types.clone(),
            _ => self.parameter_types()?,
        };
        Ok(Bound { statement: bound, parameter_types, columns })
    }

    fn complete_insert(&self, insert: &ast::Insert) -> Result<BoundInsert> {
        let mut bound = self.insert(insert)?;
        bound.plan = self.complete(bound.plan)?;
        if let Some(rows) = &mut bound.values {
            for value in rows.iter_mut().flatten() {
                *value = self.complete_expression(std::mem::take(value))?;
            }
        }
        Ok(bound)
    }

    fn relation_id(&self, name: &ObjectName) -> Result<u64> {
        let qualified = QualifiedName::from_ast(name)?;
        Ok(self.find_relation(&qualified, name.span())?.id)
    }

    fn bound_statement(&self, statement: &Statement, sql: &str) -> Result<BoundStatement> {
        let create = |(change, notices)| BoundStatement::Create(change, notices);
        Ok(match statement {
            Statement::Query(query) => BoundStatement::Query(self.top_query(query)?),
            Statement::Insert(insert) => BoundStatement::Insert(self.complete_insert(insert)?),
            Statement::Update(update) => {
                let mut bound = self.update(update)?;
                bound.plan = self.complete(bound.plan)?;
                BoundStatement::Update(bound)
            }
            Statement::Delete(delete) => {
                let mut bound = self.delete(delete)?;
                bound.plan = self.complete(bound.plan)?;
                BoundStatement::Delete(bound)
            }
            Statement::Truncate { tables, .. } => {
                let ids = tables.iter().map(|name| Ok(self.target_table(name, "truncate", false)?.id));
                BoundStatement::Truncate(ids.collect::<Result<_>>()?)
            }
            Statement::Copy(copy) if copy.from => BoundStatement::CopyFrom(self.copy_from(copy)?),
            Statement::Copy(copy) => BoundStatement::CopyTo(self.copy_to(copy)?, copy.options.clone()),
            Statement::CreateTable(table) => create(self.create_table(table, sql)?),
            Statement::CreateSource(source) => create(self.create_source(source, sql)?),
            Statement::CreateSchema { name, if_not_exists } => create(self.create_schema(&fold(name), *if_not_exists, sql)?),
            Statement::CreateIndex(index) => create(self.create_index(index, sql)?),
            Statement::CreateTableAs(table) => BoundStatement::CreateAs(Box::new(self.create_table_as(table, sql)?)),
            Statement::CreateSink(sink) => BoundStatement::CreateAs(Box::new(self.create_sink(sink, sql)?)),
            Statement::CreateView(view) => BoundStatement::CreateAs(Box::new(self.create_view(view, sql)?)),
            Statement::Drop(drop) => BoundStatement::Drop(self.drop_objects(drop)?),
            Statement::Alter(alter) if alter.action.is_about_a_job() => match self.alter_job(alter)? {
                Ok(order) => BoundStatement::AlterJob(order),
                Err(notice) => BoundStatement::Alter(None, vec![notice]),
            },
            Statement::Alter(alter) => {
                let (change, notices) = self.alter(alter)?;
                BoundStatement::Alter(change, notices)
            }
            Statement::Comment(comment) => BoundStatement::Alter(Some(self.comment(comment)?), Vec::new()),
            Statement::Refresh(name) => BoundStatement::Alter(None, vec![self.refresh(name)?]),
            Statement::DeclareCursor(cursor) => BoundStatement::DeclareCursor {
                name: fold(&cursor.name),
                query: self.top_query(&cursor.query)?,
                binary: cursor.binary,
                scroll: cursor.scroll != Some(false),
                hold: cursor.hold,
            },
            Statement::Fetch(fetch) => BoundStatement::Fetch { name: fold(&fetch.cursor), direction: fetch.direction, moves: fetch.moves },
            Statement::Explain(explain) => {
                let inner = Binder::new(self.context);
                BoundStatement::Explain(Box::new(inner.statement(&explain.statement.statement, &explain.statement.text)?))
            }
            Statement::Analyze(names) => BoundStatement::Analyze(names.iter().map(|name| self.relation_id(name)).collect::<Result<_>>()?),
            Statement::Transaction(_)
            | Statement::Set(_)
            | Statement::Show(_)
            | Statement::Reset(_)
            | Statement::Discard(_)
            | Statement::Prepare(_)
            | Statement::Execute { .. }
            | Statement::Deallocate(_)
            | Statement::CloseCursor(_)
            | Statement::Vacuum
            | Statement::Flush
            | Statement::Notification(_) => BoundStatement::Utility,
        })
    }

    /// A materialized view is fresh: there is only that to say.
    fn refresh(&self, name: &ObjectName) -> Result<BoundNotice> {
        let qualified = QualifiedName::from_ast(name)?;
        let found = self.context.catalog.expect(ObjectKind::MaterializedView, &qualified, self.context.search_path);
        let object = found.map_err(|error| error.at(name.span()))?;
        Ok(BoundNotice::new(format!("materialized view \"{}\" is kept up to date without REFRESH", object.name)))
    }

    /// A query that is a statement, or a stored one.
    pub(super) fn top_query(&self, query: &Query) -> Result<BoundQuery> {
        let rows = self.query(query, None, &Rc::default())?;
        self.finish_query(rows)
    }

    /// A query whose columns of unknown type take those of the columns they are stored in.
    pub(super) fn query_for_targets(&self, query: &Query, targets: Vec<SqlType>) -> Result<BoundRows> {
        *self.targets.borrow_mut() = Some(targets);
        let rows = self.query(query, None, &Rc::default());
        *self.targets.borrow_mut() = None;
        rows
    }

    /// The rows of a view's text, with the columns that the catalog says it has.
    pub(super) fn stored_query(&self, definition: &str, columns: &[Column]) -> Result<BoundRows> {
        let query = parse::parse_query(definition)?;
        let mut rows = self.query(&query, None, &Rc::default())?;
        if rows.columns.len() != columns.len() {
            return Err(PlanError::internal("a view's query has other columns than the view"));
        }
        for (found, stored) in rows.columns.iter_mut().zip(columns) {
            found.name.clone_from(&stored.name);
            found.modifier = stored.modifier;
        }
        Ok(rows)
    }

    /// The plan of a query's rows as its reader wants it: each column shown as its type shows it, nothing else left in the plan.
    pub(super) fn finish_query(&self, rows: BoundRows) -> Result<BoundQuery> {
        let mut outputs = Vec::with_capacity(rows.columns.len());
        let mut columns = Vec::with_capacity(rows.columns.len());
        let names: Vec<String> = rows.columns.iter().map(|column| column.name.clone()).collect();
        let unique = super::select_list::unique_names(&names);
        let mut changed = rows.plan.schema().fields().len() != rows.columns.len();
        for ((column, plan_column), name) in rows.columns.iter().zip(rows.plan.schema().columns()).zip(&unique) {
            let value = Typed::new(Expr::Column(column.column.clone()), column.sql_type.clone()).with_modifier(column.modifier);
            let shown = self.shown(value)?;
            changed |= plan_column != column.column || plan_column.name != *name || !matches!(shown.expr, Expr::Column(_));
            columns.push(OutputColumn {
                name: column.name.clone(),
                sql_type: shown.sql_type.clone(),
                modifier: shown.modifier,
                origin: column.origin,
                nullable: column.nullable,
            });
            outputs.push(shown.expr.alias(name));
        }
        let plan = if changed { LogicalPlanBuilder::from(rows.plan).project(outputs)?.build()? } else { rows.plan };
        let plan = self.complete(plan)?;
        for (column, field) in columns.iter_mut().zip(plan.schema().fields()) {
            column.nullable = field.is_nullable();
        }
        let dependencies = self.dependencies().into_iter().collect();
        Ok(BoundQuery { plan, columns, parameters: self.parameter_types()?, dependencies, hints: Hints::default() })
    }

    /// A value as a client sees it: object ids of relations and the like by name, records as text.
    pub(super) fn shown(&self, value: Typed) -> Result<Typed> {
        match &value.sql_type {
            SqlType::Array(_) if value.modifier == modifier::VECTOR => {
                self.call("array_to_string", vec![value, Typed::text(" ")], sqlparser::tokenizer::Span::empty())
            }
            SqlType::RegClass | SqlType::RegType | SqlType::RegProc | SqlType::RegOperator | SqlType::RegNamespace | SqlType::Record(_) => {
                let sql_type = value.sql_type.clone();
                let expr = crate::functions::cast::convert(self, value.expr, &sql_type, &SqlType::Text)
                    .ok_or_else(|| PlanError::internal(format!("type {} has no text form", sql_type.name())))?;
                Ok(Typed::new(expr, SqlType::Text))
            }
            SqlType::Void if matches!(value.expr, Expr::Literal(..)) => Ok(Typed::text("")),
            // Functions that return nothing give an empty text, once they have done what they are called for.
            SqlType::Void => Ok(Typed::new(value.expr, SqlType::Text)),
            SqlType::Array(element) if element.is_oid() && **element != SqlType::Oid => {
                let target = SqlType::array(SqlType::Text);
                match crate::functions::cast::convert(self, value.expr.clone(), &value.sql_type, &target) {
                    Some(expr) => Ok(Typed::new(expr, target)),
                    None => Ok(value),
                }
            }
            _ => Ok(value),
        }
    }

    /// Gives all parameters of a plan their types, and runs DataFusion's analysis.
    fn complete(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let plan = if self.parameter_count() > 0 { self.with_parameter_types(plan)? } else { plan };
        session::analyze(plan, self.context.interrupt)
    }

    fn with_parameter_types(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        let types = self.parameter_types()?;
        let transformed = plan.transform_up_with_subqueries(|plan| {
            let plan = plan.map_expressions(|expr| expr.transform_up(|expr| Ok(typed_placeholder(expr, &types))))?;
            plan.map_data(LogicalPlan::recompute_schema)
        })?;
        Ok(transformed.data)
    }

    fn complete_expression(&self, expr: Expr) -> Result<Expr> {
        if self.parameter_count() == 0 {
            return Ok(expr);
        }
        let types = self.parameter_types()?;
        Ok(expr.transform_up(|expr| Ok(typed_placeholder(expr, &types)))?.data)
    }
}

fn typed_placeholder(expr: Expr, types: &[SqlType]) -> Transformed<Expr> {
    match expr {
        Expr::Placeholder(Placeholder { id, field: None }) => {
            let number = id.trim_start_matches('$').parse::<usize>().unwrap_or(0);
            let data_type = number.checked_sub(1).and_then(|index| types.get(index)).map(SqlType::arrow);
            Transformed::yes(placeholder(id, data_type))
        }
        other => Transformed::no(other),
    }
}

fn columns_of(bound: &BoundStatement) -> Option<Vec<OutputColumn>> {
    match bound {
        BoundStatement::Query(query) => Some(query.columns.clone()),
        BoundStatement::Insert(insert) => insert.returning.as_ref().map(|returning| returning.columns.clone()),
        BoundStatement::Update(update) => update.returning.clone(),
        BoundStatement::Delete(delete) => delete.returning.clone(),
        BoundStatement::Explain(_) => Some(vec![OutputColumn {
            name: "QUERY PLAN".to_owned(),
            sql_type: SqlType::Text,
            modifier: modifier::NONE,
            origin: None,
            nullable: false,
        }]),
        _ => None,
    }
}

/// The settings that a stored query keeps, as text.
pub(super) fn settings_of(text: &TextSettings) -> QuerySettings {
    let style = match text.date_style {
        DateStyle::Iso => "ISO",
        DateStyle::Sql => "SQL",
        DateStyle::Postgres => "Postgres",
        DateStyle::German => "German",
    };
    let order = match text.date_order {
        DateOrder::Ymd => "YMD",
        DateOrder::Dmy => "DMY",
        DateOrder::Mdy => "MDY",
    };
    let interval_style = match text.interval_style {
        IntervalStyle::Postgres => "postgres",
        IntervalStyle::PostgresVerbose => "postgres_verbose",
        IntervalStyle::SqlStandard => "sql_standard",
        IntervalStyle::Iso8601 => "iso_8601",
    };
    let bytea_output = match text.bytea_output {
        ByteaOutput::Hex => "hex",
        ByteaOutput::Escape => "escape",
    };
    QuerySettings {
        time_zone: text.time_zone.name(),
        date_style: format!("{style}, {order}"),
        interval_style: interval_style.to_owned(),
        bytea_output: bytea_output.to_owned(),
        extra_float_digits: text.extra_float_digits,
    }
}

/// The settings of a stored query.
fn text_settings_of(settings: &QuerySettings, now: &TextSettings) -> TextSettings {
    let zone = Zone::parse(&settings.time_zone).unwrap_or_else(Zone::utc);
    TextSettings { now_us: now.now_us, ..settings.text_in(zone) }
}

/// The query of a statement that is one.
fn query_of(statement: &mut BoundStatement) -> Option<&mut BoundQuery> {
    match statement {
        BoundStatement::Query(query) | BoundStatement::CopyTo(query, _) | BoundStatement::DeclareCursor { query, .. } => Some(query),
        BoundStatement::CreateAs(create) => Some(&mut create.query),
        _ => None,
    }
}
