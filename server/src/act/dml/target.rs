//! A table as DML sees it: its identity, its handle in the engine, and the rules its rows must keep.

use std::{collections::HashMap, sync::Arc};

use arrow::{
    array::{Array, AsArray, RecordBatch},
    datatypes::SchemaRef,
};
use datafusion::logical_expr::physical_planning_context::PhysicalPlanningContext;
use datafusion::{common::DFSchema, execution::context::ExecutionProps, logical_expr::Expr, physical_expr::PhysicalExpr};
use millpond_engine::coordinator::table::TableHandle;
use millpond_planner::{
    bind,
    catalog::{Catalog, Object, object::Table},
    interrupt::Interrupt,
    pg_text::{TextSettings, write_text},
};
use parking_lot::RwLock;

use crate::{
    act::dml::changes::Identity,
    binding,
    error::{Result, SqlError},
    state::ServerState,
};

/// Longest text of a value in the detail of an error.
const SHOWN_VALUE_BYTES: usize = 64;

/// A table to change.
pub(crate) struct Target {
    /// Its object.
    pub(crate) object: Arc<Object>,
    /// How its rows are told apart.
    pub(crate) identity: Arc<Identity>,
    /// Its handle.
    pub(crate) handle: Arc<TableHandle>,
    checks: Vec<(String, Arc<dyn PhysicalExpr>)>,
}

/// Targets of the newest catalog.
#[derive(Default)]
pub(crate) struct Targets(RwLock<(u64, HashMap<u64, Arc<Target>>)>);

impl Targets {
    /// The table of that number in the newest catalog.
    ///
    /// # Errors
    /// 42P01 if it is gone.
    pub(crate) fn get(&self, state: &ServerState, id: u64) -> Result<Arc<Target>> {
        let version = state.catalog.version();
        {
            let known = self.0.read();
            if known.0 == version
                && let Some(target) = known.1.get(&id)
            {
                return Ok(target.clone());
            }
        }
        let (catalog, version) = state.catalog.versioned();
        let target = Arc::new(Target::open(state, &catalog, id)?);
        let mut known = self.0.write();
        if known.0 != version {
            *known = (version, HashMap::new());
        }
        known.1.insert(id, target.clone());
        Ok(target)
    }
}

impl Target {
    fn open(state: &ServerState, catalog: &Catalog, id: u64) -> Result<Self> {
        let gone = || SqlError::new("42P01", format!("relation with OID {id} does not exist"));
        let object = catalog.get(id).cloned().ok_or_else(gone)?;
        let table = object.table().ok_or_else(|| SqlError::new("42809", format!("\"{}\" is not a table", object.name)))?;
        let schema = object.arrow_schema();
        let key = table.primary_key.as_ref().map(|key| key.columns.clone()).unwrap_or_default();
        let identity = Arc::new(Identity::new(schema.clone(), key)?);
        let handle = state.engine.table(id).ok_or_else(gone)?;
        let mut checks = Vec::new();
        let bound = binding::with_stored(&state.system, catalog, TextSettings::default(), Interrupt::never(), |context| {
            bind::checks_of(&object, context)
        })?;
        for (name, condition) in bound {
            checks.push((name, physical(&condition, &schema)?));
        }
        Ok(Self { identity, handle, checks, object })
    }

    /// All columns.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.identity.schema
    }

    /// Its definition.
    pub(crate) fn table(&self) -> &Table {
        self.object.table().expect("a target is a table")
    }

    /// UPDATE, DELETE and TRUNCATE are only for tables whose rows may change.
    pub(crate) fn require_changeable(&self, what: &str) -> Result<()> {
        if self.table().append_only {
            return Err(SqlError::new("55000", format!("cannot {what} append-only table \"{}\"", self.object.name))
                .with_hint("Only INSERT and COPY add rows to it."));
        }
        Ok(())
    }

    /// Checks NOT NULL and CHECK of new rows.
    ///
    /// # Errors
    /// 23502 and 23514 with the first row that breaks the rule.
    pub(crate) fn check(&self, rows: &RecordBatch, text: &TextSettings) -> Result<()> {
        for (number, column) in self.object.columns().iter().enumerate() {
            let values = rows.column(number);
            if column.not_null && values.null_count() > 0 {
                let row = (0..rows.num_rows()).find(|row| values.is_null(*row)).unwrap_or_default();
                return Err(SqlError::new(
                    "23502",
                    format!("null value in column \"{}\" of relation \"{}\" violates not-null constraint", column.name, self.object.name),
                )
                .with_detail(format!("Failing row contains ({}).", row_text(rows, row, text))));
            }
        }
        for (name, condition) in &self.checks {
            let result = condition.evaluate(rows)?.into_array(rows.num_rows())?;
            let holds = result.as_boolean();
            if let Some(row) = (0..rows.num_rows()).find(|row| holds.is_valid(*row) && !holds.value(*row)) {
                return Err(SqlError::new(
                    "23514",
                    format!("new row for relation \"{}\" violates check constraint \"{name}\"", self.object.name),
                )
                .with_detail(format!("Failing row contains ({}).", row_text(rows, row, text))));
            }
        }
        Ok(())
    }

    /// The error of a row whose key is taken.
    pub(crate) fn duplicate(&self, rows: &RecordBatch, row: usize, text: &TextSettings) -> SqlError {
        let name = self.table().primary_key.as_ref().map_or("", |key| key.name.as_str());
        let columns: Vec<&str> = self.identity.key.iter().map(|column| rows.schema_ref().field(*column).name().as_str()).collect();
        let values: Vec<String> = self.identity.key.iter().map(|column| value_text(rows.column(*column), row, text)).collect();
        SqlError::new("23505", format!("duplicate key value violates unique constraint \"{name}\"")).with_detail(format!(
            "Key ({})=({}) already exists.",
            columns_text(&columns),
            values.join(", ")
        ))
    }
}

fn columns_text(names: &[&str]) -> String {
    names.iter().map(|name| millpond_planner::catalog::name::quoted(name)).collect::<Vec<_>>().join(", ")
}

fn row_text(rows: &RecordBatch, row: usize, text: &TextSettings) -> String {
    let values = rows.columns().iter().map(|column| {
        let mut value = value_text(column, row, text);
        if value.len() > SHOWN_VALUE_BYTES {
            let end = (0..=SHOWN_VALUE_BYTES).rev().find(|end| value.is_char_boundary(*end)).unwrap_or(0);
            value.truncate(end);
            value.push_str("...");
        }
        value
    });
    values.collect::<Vec<_>>().join(", ")
}

fn value_text(column: &dyn Array, row: usize, text: &TextSettings) -> String {
    if column.is_null(row) {
        return "null".to_owned();
    }
    let mut value = Vec::new();
    match write_text(column, row, text, &mut value) {
        Ok(()) => String::from_utf8_lossy(&value).into_owned(),
        Err(_) => "?".to_owned(),
    }
}

/// An expression over the columns of a schema, ready to be evaluated.
pub(crate) fn physical(expression: &Expr, schema: &SchemaRef) -> Result<Arc<dyn PhysicalExpr>> {
    let columns = DFSchema::try_from(schema.as_ref().clone())?;
    physical_over(expression, &columns)
}

/// The same over qualified columns.
pub(crate) fn physical_over(expression: &Expr, columns: &DFSchema) -> Result<Arc<dyn PhysicalExpr>> {
    let (props, context) = (ExecutionProps::new(), PhysicalPlanningContext::default());
    Ok(datafusion::physical_expr::create_physical_expr(expression, columns, &props, &context)?)
}
