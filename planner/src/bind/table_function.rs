//! Functions that return rows, in FROM. Such a function is a scalar one that returns a list; the list is expanded into rows.

use std::rc::Rc;

use datafusion::{
    common::{Column, NullHandling, UnnestOptions},
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder},
};
use sqlparser::{
    ast::{self, FunctionArg, FunctionArgExpr, ObjectName, Spanned, TableAlias},
    tokenizer::Span,
};

use super::{
    binder::Binder,
    expression::Place,
    from::{FromItem, PendingLists, plain_name},
    query::BoundRows,
    scope::{CommonTables, Scope, ScopeColumn},
    typed::Typed,
    window_table::is_window_table,
};
use crate::{
    catalog::fold,
    error::{PlanError, Result, sqlstate},
    functions::{kernel::Kernel, sequence},
    parse::spelling::ROWS_FROM,
    types::{SqlType, modifier},
};

/// Lists that are NULL or empty give no row.
pub(super) fn drop_empty() -> UnnestOptions {
    UnnestOptions::new().with_null_handling(NullHandling::Drop)
}

/// Columns of a table function: lists that are expanded side by side, and their names.
struct Expansion {
    lists: Vec<(String, Typed)>,
    /// Whether the relation's alias is also the name of its only column.
    named_by_alias: bool,
    /// Whether the relation's name stands for the value of its only column.
    scalar: bool,
}

impl Binder<'_> {
    /// The columns of a plan as they go into an expansion, which repeats its rows. DataFusion takes the keys of its input for keys of its
    /// output too, and leaves out what else it should sort or group by; behind a function they are keys no more.
    pub(super) fn repeated_columns(&self, plan: &LogicalPlan) -> Vec<Expr> {
        let schema = plan.schema();
        let is_key = |index: &usize| schema.functional_dependencies().iter().any(|dependency| dependency.source_indices.contains(index));
        let column = |(index, column): (usize, Column)| {
            let data_type = schema.field(index).data_type().clone();
            if !is_key(&index) {
                return Expr::Column(column);
            }
            let kernel = Kernel::strict("repeated", |call| call.array(0));
            let value = kernel.call(vec![Expr::Column(column.clone())], vec![data_type.clone()], data_type, &self.environment);
            value.alias_qualified(column.relation, column.name)
        };
        schema.columns().into_iter().enumerate().map(column).collect()
    }

    #[allow(clippy::too_many_arguments)]
    pub(super) fn table_function<'p>(
        &self,
        name: &ObjectName,
        arguments: &[FunctionArg],
        with_ordinality: bool,
        alias: Option<&TableAlias>,
        left: Option<&Scope<'_>>,
        outer: Option<&'p Scope<'p>>,
        common: &Rc<CommonTables>,
    ) -> Result<FromItem<'p>> {
        let span = name.span();
        let function = plain_name(name)?;
        if is_window_table(&function) {
            return self.window_table(&function, arguments, alias, outer, common, span);
        }
        let mut asts = Vec::with_capacity(arguments.len());
        for argument in arguments {
            match argument {
                FunctionArg::Unnamed(FunctionArgExpr::Expr(ast)) => asts.push(ast.clone()),
                other => return Err(PlanError::new(sqlstate::SYNTAX_ERROR, format!("argument {other} is not supported")).at(span)),
            }
        }
        if function == "unnest" {
            return self.unnest(&asts, with_ordinality, alias, left, outer, common);
        }
        if function == ROWS_FROM {
            let expansion = self.lateral(left, outer, common, |binder, scope| binder.side_by_side(&asts, scope))?;
            return self.expand(expansion, function, with_ordinality, alias, outer, common);
        }
        self.lateral(left, outer, common, |binder, scope| {
            let place = Place { sets: true, ..Place::scalar("FROM") };
            let values = asts.iter().map(|ast| binder.expression(ast, scope, &place)).collect::<Result<Vec<_>>>()?;
            binder.function_rows(&function, values, span)
        })
        .and_then(|expansion| self.expand(expansion, function.clone(), with_ordinality, alias, outer, common))
    }

    /// `ROWS FROM (f(..), g(..))`: the rows of several functions side by side.
    fn side_by_side(&self, calls: &[ast::Expr], scope: &Scope<'_>) -> Result<Expansion> {
        let place = Place { sets: true, ..Place::scalar("FROM") };
        let mut lists = Vec::new();
        for call in calls {
            let ast::Expr::Function(ast::Function { name, args: ast::FunctionArguments::List(arguments), .. }) = call else {
                return Err(PlanError::new(sqlstate::SYNTAX_ERROR, format!("{call} is no function that returns rows")).at(call.span()));
            };
            let mut values = Vec::with_capacity(arguments.args.len());
            for argument in &arguments.args {
                let FunctionArg::Unnamed(FunctionArgExpr::Expr(ast)) = argument else {
                    let message = format!("argument {argument} is not supported");
                    return Err(PlanError::new(sqlstate::SYNTAX_ERROR, message).at(call.span()));
                };
                values.push(self.expression(ast, scope, &place)?);
            }
            lists.extend(self.function_rows(&plain_name(name)?, values, call.span())?.lists);
        }
        Ok(Expansion { lists, named_by_alias: calls.len() == 1, scalar: calls.len() == 1 })
    }

    /// What a call in FROM gives.
    fn function_rows(&self, function: &str, values: Vec<Typed>, span: Span) -> Result<Expansion> {
        if let Some(columns) = sequence::columns_of(function) {
            let record = self.call(function, values, span)?;
            return self.record_lists(record, columns, span);
        }
        let value = self.call(function, values, span)?;
        if sequence::is_set_returning(function) {
            let Expr::Unnest(unnest) = value.expr else { return Err(PlanError::internal("a set-returning function without a list")) };
            let list = Typed::new(*unnest.expr, SqlType::array(value.sql_type));
            // These name their column, whatever the relation is called.
            let own_name = function.ends_with("_array_elements") || function.ends_with("_array_elements_text");
            let name = if own_name { "value" } else { function };
            return Ok(Expansion { lists: vec![(name.to_owned(), list)], named_by_alias: !own_name, scalar: true });
        }
        // A plain function gives one row.
        let element = value.sql_type.clone();
        let list = self.make_array(vec![value], element)?;
        Ok(Expansion { lists: vec![(function.to_owned(), list)], named_by_alias: true, scalar: true })
    }

    /// Functions of several columns return lists side by side, in a record.
    fn record_lists(&self, value: Typed, columns: &[&str], span: Span) -> Result<Expansion> {
        let SqlType::Record(types) = value.sql_type.clone() else {
            return Err(PlanError::internal("a function of several columns without a record").at(span));
        };
        let mut lists = Vec::with_capacity(columns.len());
        for (index, (name, sql_type)) in columns.iter().zip(types).enumerate() {
            let field = sequence::record_field(value.expr.clone(), index);
            lists.push(((*name).to_owned(), Typed::new(field, sql_type)));
        }
        Ok(Expansion { lists, named_by_alias: false, scalar: false })
    }

    /// `unnest(a, b)`: several arrays side by side.
    pub(super) fn unnest<'p>(
        &self,
        arrays: &[ast::Expr],
        with_ordinality: bool,
        alias: Option<&TableAlias>,
        left: Option<&Scope<'_>>,
        outer: Option<&'p Scope<'p>>,
        common: &Rc<CommonTables>,
    ) -> Result<FromItem<'p>> {
        let expansion = self.lateral(left, outer, common, |binder, scope| {
            let place = Place { sets: true, ..Place::scalar("FROM") };
            let mut lists = Vec::with_capacity(arrays.len());
            for ast in arrays {
                let value = binder.expression(ast, scope, &place)?;
                if !matches!(value.sql_type, SqlType::Array(_)) {
                    return Err(super::expression::undefined("unnest", &[value.sql_type], ast.span()));
                }
                lists.push(("unnest".to_owned(), sequence::one_dimension(binder, value)?));
            }
            Ok(Expansion { named_by_alias: lists.len() == 1, scalar: lists.len() == 1, lists })
        })?;
        self.expand(expansion, "unnest".to_owned(), with_ordinality, alias, outer, common)
    }

    /// Binds in sight of the relations before, as if LATERAL stood there.
    fn lateral<T>(
        &self,
        left: Option<&Scope<'_>>,
        outer: Option<&Scope<'_>>,
        common: &Rc<CommonTables>,
        bind: impl Fn(&Self, &Scope<'_>) -> Result<T>,
    ) -> Result<T> {
        // The relations before are round about: their columns are outer references, as in a lateral subquery.
        let empty = Scope::default();
        let mut visible = left.unwrap_or(&empty).clone();
        visible.parent = outer;
        let scope = Scope::below(Some(&visible), Rc::clone(common));
        bind(self, &scope)
    }

    fn expand<'p>(
        &self,
        expansion: Expansion,
        function: String,
        with_ordinality: bool,
        alias: Option<&TableAlias>,
        outer: Option<&'p Scope<'p>>,
        common: &Rc<CommonTables>,
    ) -> Result<FromItem<'p>> {
        let Expansion { mut lists, named_by_alias, scalar } = expansion;
        if with_ordinality {
            let first =
                lists.first().map(|(_, list)| list.clone()).ok_or_else(|| PlanError::internal("a table function without columns"))?;
            lists.push(("ordinality".to_owned(), self.call("array_positions_of", vec![first], Span::empty())?));
        }
        let correlated = lists.iter().any(|(_, list)| list.expr.contains_outer());
        let names: Vec<String> = lists.iter().map(|(name, _)| name.clone()).collect();
        let plan_names: Vec<String> = if correlated {
            names.iter().map(|name| self.unique_qualifier(&format!("{function}.{name}"))).collect()
        } else {
            super::select_list::unique_names(&names)
        };
        let pending = correlated
            .then(|| PendingLists { lists: plan_names.iter().cloned().zip(lists.iter().map(|(_, list)| list.expr.clone())).collect() });
        let plan = if correlated {
            LogicalPlanBuilder::empty(true).build()?
        } else {
            let outputs: Vec<Expr> = lists.iter().zip(&plan_names).map(|((_, list), name)| list.expr.clone().alias(name)).collect();
            let columns: Vec<Column> = plan_names.iter().map(Column::new_unqualified).collect();
            LogicalPlanBuilder::empty(true).project(outputs)?.unnest_columns_with_options(columns, drop_empty())?.build()?
        };
        let alias_name = alias.map(|alias| fold(&alias.name));
        let columns = lists.into_iter().zip(plan_names).map(|((name, list), plan_name)| ScopeColumn {
            // The only column of a function takes the alias of the relation, unless columns are named too.
            name: if named_by_alias && name != "ordinality" { alias_name.clone().unwrap_or(name) } else { name },
            column: Column::new_unqualified(plan_name),
            sql_type: list.sql_type.element().cloned().unwrap_or(SqlType::Text),
            modifier: modifier::NONE,
            nullable: true,
            origin: None,
        });
        let given: Vec<(String, Span)> =
            alias.map(|alias| alias.columns.iter().map(|column| (fold(&column.name), column.name.span)).collect()).unwrap_or_default();
        let name = alias_name.clone().unwrap_or(function);
        let mut item = if pending.is_some() {
            let mut columns: Vec<ScopeColumn> = columns.collect();
            if given.len() > columns.len() {
                let message = format!("table \"{name}\" has {} columns available but {} columns specified", columns.len(), given.len());
                return Err(PlanError::new(sqlstate::INVALID_COLUMN_REFERENCE, message));
            }
            columns.iter_mut().zip(&given).for_each(|(column, (alias, _))| column.name.clone_from(alias));
            FromItem { plan, scope: Scope::of_relation(&name, None, columns), pending }
        } else {
            self.qualified(BoundRows { columns: columns.collect(), plan }, name, None, &given)?
        };
        item.scope.parent = outer;
        item.scope.common = Rc::clone(common);
        if scalar && let Some(relation) = item.scope.relations.first_mut() {
            relation.is_scalar = true;
        }
        Ok(item)
    }
}
