//! Which columns names mean: the relations of FROM, what joins make of them, and the queries round about.

use std::{collections::BTreeMap, rc::Rc};

use datafusion::{
    arrow::datatypes::Field,
    common::Column,
    logical_expr::{Expr, LogicalPlan, lit, when},
};
use sqlparser::tokenizer::Span;

use super::{similar::Similar, typed::Typed};
use crate::{
    error::{PlanError, Result, sqlstate},
    types::SqlType,
};

/// A column that can be named.
#[derive(Clone, Debug)]
pub(super) struct ScopeColumn {
    /// The name users give.
    pub(super) name: String,
    /// The column of the plan.
    pub(super) column: Column,
    pub(super) sql_type: SqlType,
    pub(super) modifier: i32,
    pub(super) nullable: bool,
    /// Catalog number and column number (from 1) of what it shows unchanged.
    pub(super) origin: Option<(u64, i16)>,
}

impl ScopeColumn {
    fn typed(&self, span: Span) -> Typed {
        let mut column = self.column.clone();
        if span.start.line > 0 {
            let place =
                |location: sqlparser::tokenizer::Location| datafusion::common::Location { line: location.line, column: location.column };
            column.spans_mut().add_span(datafusion::common::Span { start: place(span.start), end: place(span.end) });
        }
        Typed::new(Expr::Column(column), self.sql_type.clone()).with_modifier(self.modifier)
    }

    fn outer(&self) -> Typed {
        let field = Field::new(&self.column.name, self.sql_type.arrow(), true);
        Typed::new(Expr::OuterReferenceColumn(field.into(), self.column.clone()), self.sql_type.clone()).with_modifier(self.modifier)
    }
}

/// A relation that can be named before a dot.
#[derive(Clone, Debug)]
pub(super) struct ScopeRelation {
    /// Its alias, or else its name.
    pub(super) name: String,
    /// Its schema, if it has no alias.
    pub(super) schema: Option<String>,
    /// Its columns, by number in the scope.
    pub(super) columns: Vec<usize>,
    /// Of a table function with one unnamed column: the relation's name may be used as the column's.
    pub(super) is_scalar: bool,
    /// The OID of a system relation, whose rows have it as `tableoid`.
    pub(super) system_oid: Option<i32>,
}

/// A relation of WITH.
#[derive(Clone, Debug)]
pub(super) struct CommonTable {
    pub(super) plan: LogicalPlan,
    pub(super) columns: Vec<ScopeColumn>,
    /// Queries and relations in its plan.
    pub(super) relations: usize,
}

/// Relations of WITH that are visible, with those of the queries round about.
#[derive(Clone, Debug, Default)]
pub(super) struct CommonTables {
    own: BTreeMap<String, Rc<CommonTable>>,
    parent: Option<Rc<CommonTables>>,
}

impl CommonTables {
    pub(super) fn below(parent: &Rc<Self>) -> Self {
        Self { own: BTreeMap::new(), parent: Some(Rc::clone(parent)) }
    }

    pub(super) fn insert(&mut self, name: String, table: CommonTable) {
        self.own.insert(name, Rc::new(table));
    }

    pub(super) fn defines(&self, name: &str) -> bool {
        self.own.contains_key(name)
    }

    pub(super) fn find(&self, name: &str) -> Option<Rc<CommonTable>> {
        match self.own.get(name) {
            Some(table) => Some(Rc::clone(table)),
            None => self.parent.as_ref()?.find(name),
        }
    }
}

/// What the names in a query's expressions can mean.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope<'p> {
    pub(super) columns: Vec<ScopeColumn>,
    pub(super) relations: Vec<ScopeRelation>,
    /// Columns that `*` gives and that can be named without a relation, in order.
    pub(super) visible: Vec<usize>,
    /// The query round about, whose columns may be named too.
    pub(super) parent: Option<&'p Scope<'p>>,
    /// The relations of WITH.
    pub(super) common: Rc<CommonTables>,
}

/// What a name was found to be.
enum Found<'s> {
    Column(&'s ScopeColumn),
    Nothing,
}

impl<'p> Scope<'p> {
    /// A scope without relations, in a query.
    pub(super) fn below(parent: Option<&'p Scope<'p>>, common: Rc<CommonTables>) -> Self {
        Self { columns: Vec::new(), relations: Vec::new(), visible: Vec::new(), parent, common }
    }

    /// The scope of one relation.
    pub(super) fn of_relation(name: &str, schema: Option<String>, columns: Vec<ScopeColumn>) -> Self {
        let all: Vec<usize> = (0..columns.len()).collect();
        let relation = ScopeRelation { name: name.to_owned(), schema, columns: all.clone(), is_scalar: false, system_oid: None };
        Self { columns, relations: vec![relation], visible: all, parent: None, common: Rc::default() }
    }

    /// Adds the relations of another scope after this one's. All columns of both stay visible.
    ///
    /// # Errors
    /// 42712 if a relation's name is there already.
    pub(super) fn append(&mut self, other: Scope<'_>) -> Result<()> {
        for relation in &other.relations {
            let taken = |own: &&ScopeRelation| own.name == relation.name && own.schema == relation.schema && !relation.name.is_empty();
            if self.relations.iter().any(|own| taken(&own)) {
                let message = format!("table name \"{}\" specified more than once", relation.name);
                return Err(PlanError::new(sqlstate::DUPLICATE_ALIAS, message));
            }
        }
        let offset = self.columns.len();
        self.columns.extend(other.columns);
        self.visible.extend(other.visible.iter().map(|column| column + offset));
        self.relations.extend(other.relations.into_iter().map(|mut relation| {
            relation.columns.iter_mut().for_each(|column| *column += offset);
            relation
        }));
        Ok(())
    }

    /// Columns that `*` gives.
    pub(super) fn visible_columns(&self) -> impl Iterator<Item = &ScopeColumn> {
        self.visible.iter().map(|column| &self.columns[*column])
    }

    /// Columns that `relation.*` gives.
    ///
    /// # Errors
    /// 42P01 if there is no such relation.
    pub(super) fn columns_of(&self, schema: Option<&str>, name: &str, span: Span) -> Result<Vec<Typed>> {
        if let Some(relation) = self.relation(schema, name) {
            return Ok(relation.columns.iter().map(|column| self.columns[*column].typed(span)).collect());
        }
        match self.parent.and_then(|parent| parent.relation(schema, name).map(|relation| (parent, relation))) {
            Some((parent, relation)) => Ok(relation.columns.iter().map(|column| parent.columns[*column].outer()).collect()),
            None => Err(missing_from(name, span)),
        }
    }

    /// The columns of a relation with their names.
    pub(super) fn scope_columns_of(&self, schema: Option<&str>, name: &str) -> Option<Vec<&ScopeColumn>> {
        let relation = self.relation(schema, name)?;
        Some(relation.columns.iter().map(|column| &self.columns[*column]).collect())
    }

    fn relation(&self, schema: Option<&str>, name: &str) -> Option<&ScopeRelation> {
        self.relations.iter().find(|relation| relation.name == name && (schema.is_none() || relation.schema.as_deref() == schema))
    }

    /// The column of an unqualified name, here or in the queries round about; `None` if there is none.
    ///
    /// # Errors
    /// 42702 if several columns have the name.
    pub(super) fn column(&self, name: &str, span: Span) -> Result<Option<Typed>> {
        if let Found::Column(column) = self.own_column(name, span)? {
            return Ok(Some(column.typed(span)));
        }
        let mut parent = self.parent;
        while let Some(scope) = parent {
            if let Found::Column(column) = scope.own_column(name, span)? {
                return Ok(Some(column.outer()));
            }
            parent = scope.parent;
        }
        Ok(None)
    }

    /// The same without the queries round about.
    pub(super) fn own_column_named(&self, name: &str, span: Span) -> Result<Option<&ScopeColumn>> {
        match self.own_column(name, span)? {
            Found::Column(column) => Ok(Some(column)),
            Found::Nothing => Ok(None),
        }
    }

    fn own_column(&self, name: &str, span: Span) -> Result<Found<'_>> {
        let mut found = self.visible_columns().filter(|column| column.name == name);
        match (found.next(), found.next()) {
            (Some(column), None) => Ok(Found::Column(column)),
            (Some(_), Some(_)) => {
                let message = format!("column reference \"{name}\" is ambiguous");
                Err(PlanError::new(sqlstate::AMBIGUOUS_COLUMN, message).at(span))
            }
            (None, _) => match self.relations.iter().find(|relation| relation.is_scalar && relation.name == name) {
                Some(relation) => Ok(Found::Column(&self.columns[relation.columns[0]])),
                None => Ok(Found::Nothing),
            },
        }
    }

    /// The column of a qualified name.
    ///
    /// # Errors
    /// 42P01 if there is no such relation in FROM, 42703 if it has no such column.
    pub(super) fn qualified_column(&self, schema: Option<&str>, relation: &str, name: &str, span: Span) -> Result<Typed> {
        let mut scope = Some(self);
        let mut depth = 0;
        while let Some(current) = scope {
            if let Some(found) = current.relation(schema, relation) {
                let named = |other: &&ScopeRelation| other.name == relation && (schema.is_none() || other.schema.as_deref() == schema);
                if current.relations.iter().filter(named).count() > 1 {
                    return Err(PlanError::new("42P09", format!("table reference \"{relation}\" is ambiguous")).at(span));
                }
                let mut columns = found.columns.iter().map(|column| &current.columns[*column]).filter(|column| column.name == name);
                let Some(column) = columns.next() else {
                    if let Some(oid) = found.system_oid.filter(|_| name == "tableoid") {
                        return current.table_oid(found, oid, depth > 0);
                    }
                    let message = format!("column {relation}.{name} does not exist");
                    return Err(self.missing_column(message, Some(relation), name).at(span));
                };
                if columns.next().is_some() {
                    let message = format!("column reference \"{name}\" is ambiguous");
                    return Err(PlanError::new(sqlstate::AMBIGUOUS_COLUMN, message).at(span));
                }
                return Ok(if depth == 0 { column.typed(span) } else { column.outer() });
            }
            scope = current.parent;
            depth += 1;
        }
        Err(missing_from(relation, span))
    }

    /// `tableoid` without a relation, if there is but one and it is a system relation.
    pub(super) fn own_table_oid(&self, name: &str) -> Result<Option<Typed>> {
        match self.relations.as_slice() {
            [ScopeRelation { system_oid: Some(oid), .. }] if name == "tableoid" => {
                Ok(Some(self.table_oid(&self.relations[0], *oid, false)?))
            }
            _ => Ok(None),
        }
    }

    /// The OID of a relation's rows. An outer join makes rows that are none of the relation's; they have not even its first column.
    fn table_oid(&self, relation: &ScopeRelation, oid: i32, is_outer: bool) -> Result<Typed> {
        let first = relation.columns.first().map(|column| &self.columns[*column]);
        let first = first.ok_or_else(|| PlanError::internal("a system relation without columns"))?;
        let first = if is_outer { first.outer() } else { first.typed(Span::empty()) };
        Ok(Typed::new(when(first.expr.is_not_null(), lit(oid)).end()?, SqlType::Oid))
    }

    /// 42703, with the columns that may have been meant.
    pub(super) fn missing_column(&self, message: String, relation: Option<&str>, name: &str) -> PlanError {
        let mut similar = Similar::to(relation, name);
        let mut scope = Some(self);
        while let Some(current) = scope {
            for found in &current.relations {
                found.columns.iter().for_each(|column| similar.consider(&found.name, &current.columns[*column].name));
            }
            scope = current.parent;
        }
        let error = PlanError::new(sqlstate::UNDEFINED_COLUMN, message);
        match similar.hint() {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }

    /// Whether a relation of the name can be named here.
    pub(super) fn has_relation(&self, name: &str) -> bool {
        self.relation(None, name).is_some() || self.parent.is_some_and(|parent| parent.has_relation(name))
    }
}

fn missing_from(name: &str, span: Span) -> PlanError {
    PlanError::new(sqlstate::UNDEFINED_TABLE, format!("missing FROM-clause entry for table \"{name}\"")).at(span)
}
