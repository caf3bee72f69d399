//! FROM: relations, subqueries and table functions.

use std::rc::Rc;

use datafusion::{
    common::{Column, Spans, TableReference},
    logical_expr::{Expr, LogicalPlan, LogicalPlanBuilder, logical_plan::Subquery},
};
use sqlparser::{
    ast::{self, ObjectName, Spanned, TableAlias, TableFactor, TableWithJoins},
    tokenizer::Span,
};

use super::{
    binder::Binder,
    query::BoundRows,
    reference::{Form, Reference},
    scope::{CommonTables, Scope, ScopeColumn},
    select_list::unique_names,
};
use crate::{
    catalog::{Object, ObjectBody, QualifiedName, fold},
    error::{PlanError, Result, sqlstate},
    relation_source::{RelationKind, RelationSource},
    types::{SqlType, modifier},
};

/// A relation of FROM, or several joined.
pub(super) struct FromItem<'p> {
    pub(super) plan: LogicalPlan,
    pub(super) scope: Scope<'p>,
    /// Lists over columns of the relations before it, still to be expanded; the plan is none yet.
    pub(super) pending: Option<PendingLists>,
}

/// Lists that a table function makes of columns of other relations.
#[derive(Clone, Debug)]
pub(super) struct PendingLists {
    /// The lists, named by the plan columns their elements become.
    pub(super) lists: Vec<(String, Expr)>,
}

impl<'p> FromItem<'p> {
    /// A relation that stands alone.
    pub(super) fn new(plan: LogicalPlan, scope: Scope<'p>) -> Self {
        Self { plan, scope, pending: None }
    }
}

/// The name under which a relation without alias is known.
struct Named {
    name: String,
    schema: Option<String>,
}

impl Binder<'_> {
    /// The relations of FROM, joined; one row without columns if there are none.
    pub(super) fn from<'p>(
        &self,
        tables: &[TableWithJoins],
        outer: Option<&'p Scope<'p>>,
        common: &Rc<CommonTables>,
    ) -> Result<FromItem<'p>> {
        let mut joined: Option<FromItem<'p>> = None;
        for table in tables {
            let item = match &joined {
                Some(left) => self.table_with_joins(table, Some(&left.scope), outer, common)?,
                None => self.table_with_joins(table, None, outer, common)?,
            };
            joined = Some(match joined {
                Some(left) => self.cross(left, item)?,
                None if item.pending.is_some() => {
                    self.cross(FromItem::new(LogicalPlanBuilder::empty(true).build()?, Scope::default()), item)?
                }
                None => item,
            });
        }
        match joined {
            Some(mut item) => {
                item.scope.parent = outer;
                item.scope.common = Rc::clone(common);
                Ok(item)
            }
            None => Ok(FromItem::new(LogicalPlanBuilder::empty(true).build()?, Scope::below(outer, Rc::clone(common)))),
        }
    }

    /// A factor of FROM. `left` are the relations before it, which LATERAL may name.
    pub(super) fn factor<'p>(
        &self,
        factor: &TableFactor,
        left: Option<&Scope<'_>>,
        outer: Option<&'p Scope<'p>>,
        common: &Rc<CommonTables>,
    ) -> Result<FromItem<'p>> {
        match factor {
            TableFactor::Table { name, alias, args: None, version, with_hints, sample, with_ordinality: false, .. } => {
                if version.is_some() || !with_hints.is_empty() || sample.is_some() {
                    return Err(PlanError::unsupported("FOR SYSTEM_TIME, TABLESAMPLE and table hints are not supported").at(name.span()));
                }
                let qualified = QualifiedName::from_ast(name)?;
                self.relation(&qualified, alias.as_ref(), name.span(), common)
            }
            TableFactor::Table { name, alias, args: Some(args), with_ordinality, .. } => {
                self.table_function(name, &args.args, *with_ordinality, alias.as_ref(), left, outer, common)
            }
            TableFactor::Function { name, args, with_ordinality, alias, .. } => {
                self.table_function(name, args, *with_ordinality, alias.as_ref(), left, outer, common)
            }
            TableFactor::TableFunction { expr: ast::Expr::Function(function), alias } => match &function.args {
                ast::FunctionArguments::List(list) => {
                    self.table_function(&function.name, &list.args, false, alias.as_ref(), left, outer, common)
                }
                _ => self.table_function(&function.name, &[], false, alias.as_ref(), left, outer, common),
            },
            TableFactor::UNNEST { alias, array_exprs, with_ordinality, with_offset: false, .. } => {
                self.unnest(array_exprs, *with_ordinality, alias.as_ref(), left, outer, common)
            }
            TableFactor::Derived { lateral, subquery, alias, sample: None } => {
                self.derived(*lateral, subquery, alias.as_ref(), left, outer, common)
            }
            TableFactor::NestedJoin { table_with_joins, alias } => {
                let item = self.table_with_joins(table_with_joins, left, outer, common)?;
                match alias {
                    None => Ok(item),
                    Some(alias) => self.alias_join(item, alias),
                }
            }
            other => Err(PlanError::unsupported(format!("{other} is not supported in FROM"))),
        }
    }

    /// A relation of WITH, of the catalog or of the system.
    pub(super) fn relation<'p>(
        &self,
        name: &QualifiedName,
        alias: Option<&TableAlias>,
        span: Span,
        common: &Rc<CommonTables>,
    ) -> Result<FromItem<'p>> {
        if name.schema.is_none()
            && let Some(table) = common.find(&name.name)
        {
            self.add_relations(table.relations, span)?;
            let rows = BoundRows { plan: table.plan.clone(), columns: table.columns.clone() };
            return self.under_alias(rows, alias, Named { name: name.name.clone(), schema: None });
        }
        self.add_relations(1, span)?;
        if let Some(item) = self.system_relation(name, alias)? {
            return Ok(item);
        }
        let object = self.find_relation(name, span)?;
        if !object.is_readable() {
            return Err(wrong_kind(&object, span));
        }
        let implied_alias = alias.is_none().then(|| object.name.clone());
        self.depend_on(Reference { id: object.id, span, form: Form::Name { implied_alias } });
        let rows = match &object.body {
            ObjectBody::View(view) => self.inside_view(|| self.stored_query(&view.definition, object.columns()))?,
            _ => self.scan(&object)?,
        };
        let schema = alias.is_none().then(|| self.context.catalog.schema_name(&object).to_owned());
        self.under_alias(rows, alias, Named { name: object.name.clone(), schema })
    }

    /// The relation of the catalog that a name means.
    ///
    /// # Errors
    /// 42P01.
    pub(super) fn find_relation(&self, name: &QualifiedName, span: Span) -> Result<std::sync::Arc<Object>> {
        match self.context.catalog.find(name, self.context.search_path) {
            Some(object) => Ok(std::sync::Arc::clone(object)),
            None => Err(PlanError::new(sqlstate::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist")).at(span)),
        }
    }

    /// Names without a schema mean a relation of `pg_catalog` first, unless the path puts that schema elsewhere.
    fn system_relation<'p>(&self, name: &QualifiedName, alias: Option<&TableAlias>) -> Result<Option<FromItem<'p>>> {
        let schemas: Vec<&str> = match &name.schema {
            Some(schema) => vec![schema.as_str()],
            None if self.context.search_path.iter().any(|schema| schema == "pg_catalog") => {
                let user = |schema: &&str| {
                    self.context.catalog.schema(schema).is_some_and(|found| self.context.catalog.in_schema(found.id, &name.name).is_some())
                };
                let path = self.context.search_path.iter().map(String::as_str);
                path.take_while(|schema| !user(schema)).collect()
            }
            None => std::iter::once("pg_catalog").chain(self.context.search_path.iter().map(String::as_str)).collect(),
        };
        for schema in schemas {
            let Some(source) = self.context.system.relation(schema, &name.name) else { continue };
            let arrow = source.schema();
            let mut columns = Vec::with_capacity(arrow.fields().len());
            for field in arrow.fields() {
                let sql_type = SqlType::from_field(field).unwrap_or(SqlType::Text);
                columns.push((field.name().clone(), sql_type, field.data_type().clone(), field.is_nullable()));
            }
            let plan = LogicalPlanBuilder::scan(TableReference::partial(schema, name.name.as_str()), source, None)?.build()?;
            let (plan, mut columns) = self.canonical(plan, columns)?;
            for (column, field) in columns.iter_mut().zip(arrow.fields()) {
                column.modifier = SqlType::modifier_of_field(field);
            }
            let mut item =
                self.under_alias(BoundRows { plan, columns }, alias, Named { name: name.name.clone(), schema: Some(schema.to_owned()) })?;
            let oid = self.context.system.oid(schema, &name.name);
            item.scope.relations.iter_mut().for_each(|relation| relation.system_oid = oid);
            return Ok(Some(item));
        }
        Ok(None)
    }

    /// The plan with each column in the Arrow type of its SQL type.
    fn canonical(
        &self,
        plan: LogicalPlan,
        columns: Vec<(String, SqlType, arrow::datatypes::DataType, bool)>,
    ) -> Result<(LogicalPlan, Vec<ScopeColumn>)> {
        let found = plan.schema().columns();
        let scope_column = |column: Column, name: &str, sql_type: &SqlType, nullable: bool| ScopeColumn {
            name: name.to_owned(),
            column,
            sql_type: sql_type.clone(),
            modifier: modifier::NONE,
            nullable,
            origin: None,
        };
        if columns.iter().all(|(_, sql_type, arrow, _)| sql_type.arrow() == *arrow) {
            let scope = found
                .into_iter()
                .zip(&columns)
                .map(|(column, (name, sql_type, _, nullable))| scope_column(column, name, sql_type, *nullable));
            return Ok((plan, scope.collect()));
        }
        let outputs = found.into_iter().zip(&columns).map(|(column, (name, sql_type, arrow, _))| {
            crate::functions::cast::native(Expr::Column(column), arrow, &sql_type.arrow()).alias(name)
        });
        let outputs: Vec<Expr> = outputs.collect();
        let plan = LogicalPlanBuilder::from(plan).project(outputs)?.build()?;
        let scope =
            columns.iter().map(|(name, sql_type, _, nullable)| scope_column(Column::new_unqualified(name), name, sql_type, *nullable));
        Ok((plan, scope.collect()))
    }

    /// A scan of a table, source or materialized view.
    pub(super) fn scan(&self, object: &Object) -> Result<BoundRows> {
        let kind = match object.body {
            ObjectBody::Source(_) => RelationKind::Source,
            _ => RelationKind::Collection,
        };
        let key = match &object.body {
            ObjectBody::Table(table) => table.primary_key.as_ref().map(|key| key.columns.clone()),
            ObjectBody::MaterializedView(view) => {
                view.unique_key.clone().filter(|key| key.iter().all(|column| view.columns[*column].not_null))
            }
            _ => None,
        };
        let constraints: Vec<_> = key.filter(|key| !key.is_empty()).map(datafusion::common::Constraint::PrimaryKey).into_iter().collect();
        let source = RelationSource::new(object.id, kind, object.arrow_schema())
            .with_constraints(datafusion::common::Constraints::new_unverified(constraints));
        let plan = LogicalPlanBuilder::scan(TableReference::bare(object.name.clone()), source.into_source(), None)?.build()?;
        let columns = object.columns().iter().enumerate().map(|(index, column)| ScopeColumn {
            name: column.name.clone(),
            column: Column::new(Some(TableReference::bare(object.name.clone())), &column.name),
            sql_type: column.sql_type.clone(),
            modifier: column.modifier,
            nullable: !column.not_null,
            origin: i16::try_from(index + 1).ok().map(|number| (object.id, number)),
        });
        Ok(BoundRows { columns: columns.collect(), plan })
    }

    fn derived<'p>(
        &self,
        lateral: bool,
        subquery: &ast::Query,
        alias: Option<&TableAlias>,
        left: Option<&Scope<'_>>,
        outer: Option<&'p Scope<'p>>,
        common: &Rc<CommonTables>,
    ) -> Result<FromItem<'p>> {
        let named = Named { name: String::new(), schema: None };
        if !lateral {
            let rows = self.query(subquery, outer, common)?;
            return self.under_alias(rows, alias, named);
        }
        let empty = Scope::default();
        let mut visible = left.unwrap_or(&empty).clone();
        visible.parent = outer;
        let mut rows = self.query(subquery, Some(&visible), common)?;
        let outer_ref_columns = rows.plan.all_out_ref_exprs();
        if outer_ref_columns.is_empty() {
            return self.under_alias(rows, alias, named);
        }
        rows.plan = LogicalPlan::Subquery(Subquery { subquery: std::sync::Arc::new(rows.plan), outer_ref_columns, spans: Spans::new() });
        self.under_alias(rows, alias, named)
    }

    /// Gives rows a qualifier that is theirs alone, and the names that an alias gives.
    fn under_alias<'p>(&self, rows: BoundRows, alias: Option<&TableAlias>, named: Named) -> Result<FromItem<'p>> {
        let (name, schema) = match alias {
            Some(alias) => (fold(&alias.name), None),
            None => (named.name, named.schema),
        };
        let given: Vec<(String, Span)> =
            alias.map(|alias| alias.columns.iter().map(|column| (fold(&column.name), column.name.span)).collect()).unwrap_or_default();
        self.qualified(rows, name, schema, &given)
    }

    /// The same with the names spelt out.
    pub(super) fn qualified<'p>(
        &self,
        mut rows: BoundRows,
        name: String,
        schema: Option<String>,
        given: &[(String, Span)],
    ) -> Result<FromItem<'p>> {
        if given.len() > rows.columns.len() {
            let message = format!("table \"{name}\" has {} columns available but {} columns specified", rows.columns.len(), given.len());
            return Err(PlanError::new(sqlstate::INVALID_COLUMN_REFERENCE, message).at(given[rows.columns.len()].1));
        }
        for (column, (alias, _)) in rows.columns.iter_mut().zip(given) {
            column.name.clone_from(alias);
        }
        let qualifier = self.unique_qualifier(if name.is_empty() { "subquery" } else { &name });
        let reference = TableReference::bare(qualifier);
        let unchanged = rows.columns.iter().all(|column| column.column.relation.as_ref() == Some(&reference));
        if !unchanged {
            rows.plan = LogicalPlanBuilder::from(self.with_unique_names(&rows)?).alias(reference.clone())?.build()?;
            let found = rows.plan.schema().columns();
            for (column, plan_column) in rows.columns.iter_mut().zip(found) {
                column.column = plan_column;
            }
        }
        let scope = Scope::of_relation(&name, schema, rows.columns);
        Ok(FromItem::new(rows.plan, scope))
    }

    /// Below an alias, names without their qualifiers have to be unique.
    fn with_unique_names(&self, rows: &BoundRows) -> Result<LogicalPlan> {
        let names: Vec<String> = rows.columns.iter().map(|column| column.column.name.clone()).collect();
        let unique = unique_names(&names);
        let complete = rows.plan.schema().fields().len() == rows.columns.len();
        if unique == names && complete {
            return Ok(rows.plan.clone());
        }
        let outputs: Vec<Expr> =
            rows.columns.iter().zip(unique).map(|(column, name)| Expr::Column(column.column.clone()).alias(name)).collect();
        Ok(LogicalPlanBuilder::from(rows.plan.clone()).project(outputs)?.build()?)
    }

    /// `(a JOIN b ON ..) AS c (x, y)`
    fn alias_join<'p>(&self, item: FromItem<'p>, alias: &TableAlias) -> Result<FromItem<'p>> {
        let columns: Vec<ScopeColumn> = item.scope.visible_columns().cloned().collect();
        let outputs: Vec<String> = columns.iter().map(|column| column.name.clone()).collect();
        let unique = unique_names(&outputs);
        let expressions: Vec<Expr> =
            columns.iter().zip(&unique).map(|(column, name)| Expr::Column(column.column.clone()).alias(name)).collect();
        let plan = LogicalPlanBuilder::from(item.plan).project(expressions)?.build()?;
        let columns = columns.into_iter().zip(unique).map(|(column, name)| ScopeColumn { column: Column::new_unqualified(name), ..column });
        let rows = BoundRows { columns: columns.collect(), plan };
        self.under_alias(rows, Some(alias), Named { name: String::new(), schema: None })
    }
}

/// 42809: not a relation that can be read.
fn wrong_kind(object: &Object, span: Span) -> PlanError {
    let noun = object.kind().noun();
    let article = if noun.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    PlanError::new(sqlstate::WRONG_OBJECT_TYPE, format!("cannot open relation \"{}\"", object.name))
        .with_detail(format!("This is {article} {noun}."))
        .at(span)
}

/// Whether a function may be called so: all of them stand in both schemas.
pub(super) fn has_functions(schema: Option<&str>) -> bool {
    matches!(schema, None | Some("pg_catalog" | "information_schema"))
}

/// The name of a table function or relation in messages.
pub(super) fn plain_name(name: &ObjectName) -> Result<String> {
    let qualified = QualifiedName::from_ast(name)?;
    if has_functions(qualified.schema.as_deref()) {
        return Ok(qualified.name);
    }
    let message = format!("function {qualified} does not exist");
    Err(PlanError::new(sqlstate::UNDEFINED_FUNCTION, message).at(name.span()))
}
