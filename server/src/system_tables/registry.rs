//! All system relations: which there are, with which columns, and where their rows come from.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use arrow::{
    array::{Array, ArrayRef, AsArray, RecordBatch, new_null_array},
    compute::{cast, concat_batches},
    datatypes::{DataType, Int32Type, SchemaRef},
};
use datafusion_pg_catalog::pg_catalog::{ArrowTable, PgCatalogStaticTables};
use millpond_planner::{catalog::Catalog, functions::listing};

use crate::{
    error::{Result, SqlError},
    session::view::SessionView,
    state::ServerState,
    system_tables::{
        information_schema, millpond, pg_activity, pg_catalog, pg_constraints, pg_foreign, pg_functions, pg_views,
        rows::{self, Row},
    },
};

/// Name and columns of the relations of `pg_catalog`, as PostgreSQL 15 has them: number, kind, name and columns per line.
const PG_CATALOG: &str = include_str!("pg_catalog.relations");
/// The same for `information_schema`.
const INFORMATION_SCHEMA: &str = include_str!("information_schema.relations");

/// What the rows of a system relation are made from.
pub(crate) struct SystemContext<'a> {
    /// The objects.
    pub(crate) catalog: &'a Catalog,
    /// Everything that runs.
    pub(crate) server: &'a ServerState,
    /// Who asks.
    pub(crate) session: &'a SessionView,
    /// All system relations, which are listed in `pg_class` too.
    pub(crate) relations: &'a SystemRelations,
}

/// Makes the rows of a relation.
pub(crate) type MakeRows = fn(&SystemContext<'_>) -> Result<Vec<Row>>;

enum Rows {
    None,
    Fixed(RecordBatch),
    Made(MakeRows),
}

/// One relation.
pub(crate) struct SystemRelation {
    /// Its OID.
    pub(crate) oid: i32,
    /// `r` or `v`.
    pub(crate) kind: &'static str,
    /// Its schema.
    pub(crate) schema_name: &'static str,
    /// Its name.
    pub(crate) name: String,
    /// Its columns; their SQL types are in the metadata.
    pub(crate) schema: SchemaRef,
    rows: Rows,
}

/// All of them.
pub(crate) struct SystemRelations {
    relations: Vec<SystemRelation>,
    by_name: HashMap<(&'static str, String), usize>,
    /// Names by number, as `pg_proc` has them.
    functions: BTreeMap<i32, String>,
}

impl SystemRelations {
    /// Loads the fixed ones.
    ///
    /// # Errors
    /// A bug, when what is shipped cannot be read.
    pub(crate) fn load() -> Result<Self> {
        let fixed = fixed_tables()?;
        let numbers = FunctionNumbers::of(fixed.get("pg_proc"));
        let mut relations = Vec::new();
        // Which of the shipped functions are listed depends on the types.
        let types = PG_CATALOG.lines().map(|line| parse("pg_catalog", line)).find(|relation| relation.name == "pg_type");
        let types = match (types, fixed.get("pg_type")) {
            (Some(relation), Some(table)) => Some(fit(table, &relation.schema, &numbers)?),
            _ => None,
        };
        for line in PG_CATALOG.lines() {
            let mut relation = parse("pg_catalog", line);
            relation.rows = match (made_pg_catalog(&relation.name), fixed.get(relation.name.as_str())) {
                (Some(make), _) => Rows::Made(make),
                (None, Some(table)) if relation.name == "pg_proc" => {
                    Rows::Fixed(pg_functions::rows(&relation.schema, &fit(table, &relation.schema, &numbers)?, types.as_ref())?)
                }
                (None, Some(table)) => Rows::Fixed(fit(table, &relation.schema, &numbers)?),
                (None, None) => Rows::None,
            };
            relations.push(relation);
        }
        for line in INFORMATION_SCHEMA.lines() {
            let mut relation = parse("information_schema", line);
            relation.rows = information_schema::rows_of(&relation.name).map_or(Rows::None, Rows::Made);
            relations.push(relation);
        }
        for (line, make) in millpond::RELATIONS {
            let mut relation = parse("millpond", line);
            relation.rows = Rows::Made(*make);
            relations.push(relation);
        }
        let by_name =
            relations.iter().enumerate().map(|(number, relation)| ((relation.schema_name, relation.name.clone()), number)).collect();
        let functions = relations.iter().find(|relation| relation.name == "pg_proc").map(SystemRelation::names).unwrap_or_default();
        Ok(Self { relations, by_name, functions })
    }

    /// The functions that `pg_proc` lists: names by number.
    pub(crate) fn functions(&self) -> &BTreeMap<i32, String> {
        &self.functions
    }

    /// The relation of that name.
    pub(crate) fn find(&self, schema: &str, name: &str) -> Option<&SystemRelation> {
        let schema = ["pg_catalog", "information_schema", "millpond"].into_iter().find(|known| *known == schema)?;
        self.by_name.get(&(schema, name.to_owned())).map(|number| &self.relations[*number])
    }

    /// An operator of `pg_operator`: its name and the types of its operands.
    pub(crate) fn operator(&self, oid: i32) -> Option<(String, i32, i32)> {
        let Rows::Fixed(batch) = &self.find("pg_catalog", "pg_operator")?.rows else { return None };
        let numbers = |name: &str| batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<Int32Type>());
        let (oids, left, right) = (numbers("oid")?, numbers("oprleft")?, numbers("oprright")?);
        let row = oids.values().iter().position(|other| *other == oid)?;
        let names = cast(batch.column_by_name("oprname")?, &DataType::Utf8).ok()?;
        Some((names.as_string::<i32>().value(row).to_owned(), left.value(row), right.value(row)))
    }

    /// All relations, in a fixed order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &SystemRelation> {
        self.relations.iter()
    }
}

impl SystemRelation {
    /// The second column by the first, of a relation whose rows are fixed and begin with a number and a name.
    fn names(&self) -> BTreeMap<i32, String> {
        let Rows::Fixed(batch) = &self.rows else { return BTreeMap::new() };
        let (Ok(oids), Ok(names)) = (cast(batch.column(0), &DataType::Int32), cast(batch.column(1), &DataType::Utf8)) else {
            return BTreeMap::new();
        };
        let (oids, names) = (oids.as_primitive::<Int32Type>(), names.as_string::<i32>());
        (0..batch.num_rows()).map(|row| (oids.value(row), names.value(row).to_owned())).collect()
    }

    /// Its rows now.
    pub(crate) fn read(&self, context: &SystemContext<'_>) -> Result<RecordBatch> {
        match &self.rows {
            Rows::None => Ok(RecordBatch::new_empty(self.schema.clone())),
            Rows::Fixed(batch) => Ok(batch.clone()),
            Rows::Made(make) => rows::batch(&self.schema, &make(context)?),
        }
    }
}

fn made_pg_catalog(name: &str) -> Option<MakeRows> {
    pg_catalog::rows_of(name)
        .or_else(|| pg_constraints::rows_of(name))
        .or_else(|| pg_views::rows_of(name))
        .or_else(|| pg_activity::rows_of(name))
        .or_else(|| pg_foreign::rows_of(name))
}

/// A line `oid kind name: column type, ...`.
fn parse(schema_name: &'static str, line: &str) -> SystemRelation {
    let (head, columns) = line.split_once(": ").expect("a relation has a name and columns");
    let mut head = head.splitn(3, ' ');
    let oid = head.next().and_then(|oid| oid.parse().ok()).expect("a relation has a number");
    let kind = if head.next() == Some("r") { "r" } else { "v" };
    let name = head.next().expect("a relation has a name").to_owned();
    SystemRelation { oid, kind, schema_name, name, schema: rows::schema(columns), rows: Rows::None }
}

/// Numbers of functions by name: the shipped tables name functions where Postgres has their numbers.
struct FunctionNumbers(HashMap<String, i32>);

impl FunctionNumbers {
    fn of(functions: Option<&RecordBatch>) -> Self {
        let mut numbers = HashMap::new();
        for function in listing::functions() {
            numbers.entry(function.name.to_owned()).or_insert(function.oid);
        }
        if let Some(functions) = functions
            && let (Some(oids), Some(names)) = (functions.column_by_name("oid"), functions.column_by_name("proname"))
            && let (Ok(oids), Ok(names)) = (cast(oids, &DataType::Int32), cast(names, &DataType::Utf8))
        {
            let (oids, names) = (oids.as_primitive::<Int32Type>(), names.as_string::<i32>());
            for row in 0..functions.num_rows() {
                numbers.entry(names.value(row).to_owned()).or_insert(oids.value(row));
            }
        }
        Self(numbers)
    }

    fn number(&self, name: &str) -> Option<i32> {
        if name == "-" {
            return Some(0);
        }
        name.parse().ok().or_else(|| self.0.get(name.rsplit('.').next().unwrap_or(name)).copied())
    }
}

/// The shipped tables with rows that do not depend on what exists here; those of what there is not, as full text search, are left out.
fn fixed_tables() -> Result<HashMap<&'static str, RecordBatch>> {
    let tables = PgCatalogStaticTables::try_new().map_err(SqlError::from)?;
    let wanted: [(&'static str, &Arc<ArrowTable>); 18] = [
        ("pg_aggregate", &tables.pg_aggregate),
        ("pg_am", &tables.pg_am),
        ("pg_amop", &tables.pg_amop),
        ("pg_amproc", &tables.pg_amproc),
        ("pg_cast", &tables.pg_cast),
        ("pg_collation", &tables.pg_collation),
        ("pg_conversion", &tables.pg_conversion),
        ("pg_language", &tables.pg_language),
        ("pg_opclass", &tables.pg_opclass),
        ("pg_operator", &tables.pg_operator),
        ("pg_opfamily", &tables.pg_opfamily),
        ("pg_proc", &tables.pg_proc),
        ("pg_range", &tables.pg_range),
        ("pg_type", &tables.pg_type),
        ("pg_tablespace", &tables.pg_tablespace),
        ("pg_shdescription", &tables.pg_shdescription),
        ("pg_auth_members", &tables.pg_auth_members),
        ("pg_extension", &tables.pg_extension),
    ];
    let mut batches = HashMap::new();
    for (name, table) in wanted {
        batches.insert(name, concat_batches(&table.schema(), table.data())?);
    }
    Ok(batches)
}

/// A shipped table with our columns.
fn fit(table: &RecordBatch, schema: &SchemaRef, numbers: &FunctionNumbers) -> Result<RecordBatch> {
    let mut columns: Vec<ArrayRef> = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        columns.push(match table.column_by_name(field.name()) {
            None => new_null_array(field.data_type(), table.num_rows()),
            Some(column) => fit_column(column, field.data_type(), numbers),
        });
    }
    Ok(RecordBatch::try_new(schema.clone(), columns)?)
}

fn fit_column(column: &ArrayRef, data_type: &DataType, numbers: &FunctionNumbers) -> ArrayRef {
    let is_text = matches!(column.data_type(), DataType::Utf8 | DataType::Utf8View | DataType::LargeUtf8);
    if is_text
        && *data_type == DataType::Int32
        && let Ok(names) = cast(column, &DataType::Utf8)
    {
        let names = names.as_string::<i32>();
        let found: arrow::array::Int32Array =
            (0..names.len()).map(|row| names.is_valid(row).then(|| numbers.number(names.value(row))).flatten()).collect();
        return Arc::new(found);
    }
    if matches!(data_type, DataType::List(_)) && is_text {
        return lists_of_text(column, data_type);
    }
    cast(column, data_type).unwrap_or_else(|_| new_null_array(data_type, column.len()))
}

/// Lists that are shipped as text, `{1,2}` or `1 2`.
fn lists_of_text(column: &ArrayRef, data_type: &DataType) -> ArrayRef {
    use datafusion::scalar::ScalarValue;
    let null = || new_null_array(data_type, column.len());
    let (DataType::List(item), Ok(texts)) = (data_type, cast(column, &DataType::Utf8)) else { return null() };
    let texts = texts.as_string::<i32>();
    let mut lists = Vec::with_capacity(texts.len());
    for row in 0..texts.len() {
        let elements: Result<Vec<ScalarValue>, _> = texts
            .value(row)
            .trim_matches(['{', '}'])
            .split([',', ' '])
            .filter(|element| !element.is_empty())
            .map(|element| ScalarValue::Utf8(Some(element.trim_matches('"').to_owned())).cast_to(item.data_type()))
            .collect();
        lists.push(match elements {
            Ok(elements) if texts.is_valid(row) => ScalarValue::List(ScalarValue::new_list(&elements, item.data_type(), true)),
            _ => match ScalarValue::try_from(data_type) {
                Ok(null) => null,
                Err(_) => return null(),
            },
        });
    }
    ScalarValue::iter_to_array(lists).unwrap_or_else(|_| null())
}

#[cfg(test)]
mod tests {
    use millpond_planner::functions::system::numbers::system_schema;

    use super::SystemRelations;

    #[test]
    fn the_number_of_a_relation_says_in_which_schema_it_is() {
        let relations = SystemRelations::load().unwrap();
        for relation in relations.iter() {
            assert_eq!(system_schema(relation.oid), relation.schema_name, "{}", relation.name);
        }
    }
}
