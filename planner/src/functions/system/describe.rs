//! Descriptions of objects for `\d` and its like.

use arrow::{
    array::ArrayRef,
    datatypes::{DataType, Int32Type},
};
use datafusion::common::ScalarValue;

use super::{
    super::{
        cast::object::{function_named, relation_named, relation_of_text},
        environment::Environment,
        kernel::{Call, Kernel, Traits},
        listing::{self, ListedFunction, ListedKind},
    },
    numbers::{constraint_oid, system_schema, table_of_index, view_of_rule},
};
use crate::{
    bind::{Binder, Typed},
    catalog::{Catalog, Object, ObjectBody, QualifiedName, name::quoted},
    error::{PlanError, Result, sqlstate},
    parse::statement::ObjectKind,
    types::{SqlType, name::parse_type_name},
};

/// `unknown`, the type of a literal that nothing has given one.
const UNKNOWN_OID: i32 = 705;

fn object(environment: &Environment, oid: i32) -> Option<&Object> {
    environment.catalog.get(u64::from(oid as u32)).map(AsRef::as_ref)
}

/// Whether the path leads to the relation. `pg_catalog` is always in it; an index of a primary key is where its table is.
pub(super) fn is_visible(call: &Call<'_>) -> Result<ArrayRef> {
    let (oids, environment) = (call.values::<Int32Type>(0)?, call.environment());
    call.build_booleans(|row| {
        let Some(oid) = oids.get(row) else { return Ok(None) };
        let table = table_of_index(oid).and_then(|table| i32::try_from(table).ok());
        Ok(Some(match object(environment, table.unwrap_or(oid)) {
            None => {
                let schema = system_schema(oid);
                schema == "pg_catalog" || environment.search_path.iter().any(|listed| listed == schema)
            }
            Some(object) => {
                let plain = QualifiedName { schema: None, name: object.name.clone() };
                environment.catalog.find(&plain, &environment.search_path).is_some_and(|found| found.id == object.id)
            }
        }))
    })
}

pub(super) fn format_type(call: &Call<'_>) -> Result<ArrayRef> {
    let (oids, modifiers) = (call.values::<Int32Type>(0)?, call.values::<Int32Type>(1)?);
    call.build_texts(|row| {
        let Some(oid) = oids.get(row) else { return Ok(None) };
        Ok(Some(match SqlType::from_oid(oid) {
            Some(sql_type) => match modifiers.get(row) {
                Some(modifier) => sql_type.name_with(modifier),
                None => sql_type.name(),
            },
            None if oid == 0 => "-".to_owned(),
            None => other_type(oid).to_owned(),
        }))
    })
}

/// The type of the argument. The argument stays in the expression, for it may be an aggregate, which makes one row of many.
pub(super) fn type_of(binder: &Binder<'_>, mut values: Vec<Typed>) -> Result<Typed> {
    let value = values.swap_remove(0);
    let oid = match value.sql_type {
        SqlType::Unknown => UNKNOWN_OID,
        ref known => known.oid(),
    };
    let oid = Typed::literal(ScalarValue::Int32(Some(oid)), SqlType::RegType);
    if value.is_unknown() || value.constant().is_some() {
        return Ok(oid);
    }
    let kernel = Kernel { name: "pg_typeof", operator: None, evaluate: second_argument, traits: Traits::NULLS };
    let types = vec![value.sql_type.arrow(), DataType::Int32];
    Ok(Typed::new(kernel.call(vec![value.expr, oid.expr], types, DataType::Int32, &binder.environment), SqlType::RegType))
}

fn second_argument(call: &Call<'_>) -> Result<ArrayRef> {
    call.array(1)
}

/// Types that are in `pg_type` though no column can have them.
const OTHER_TYPES: &[(i32, &str)] = &[
    (22, "int2vector"),
    (24, "regproc"),
    (27, "tid"),
    (28, "xid"),
    (29, "cid"),
    (30, "oidvector"),
    (32, "pg_ddl_command"),
    (142, "xml"),
    (194, "pg_node_tree"),
    (269, "table_am_handler"),
    (325, "index_am_handler"),
    (600, "point"),
    (601, "lseg"),
    (602, "path"),
    (603, "box"),
    (604, "polygon"),
    (628, "line"),
    (650, "cidr"),
    (705, "unknown"),
    (718, "circle"),
    (774, "macaddr8"),
    (790, "money"),
    (829, "macaddr"),
    (869, "inet"),
    (1033, "aclitem"),
    (1034, "aclitem[]"),
    (1266, "time with time zone"),
    (1560, "bit"),
    (1562, "bit varying"),
    (1790, "refcursor"),
    (2202, "regprocedure"),
    (2203, "regoper"),
    (2204, "regoperator"),
    (2249, "record"),
    (2275, "cstring"),
    (2276, "\"any\""),
    (2277, "anyarray"),
    (2278, "void"),
    (2279, "trigger"),
    (2280, "language_handler"),
    (2281, "internal"),
    (2283, "anyelement"),
    (2776, "anynonarray"),
    (2970, "txid_snapshot"),
    (3115, "fdw_handler"),
    (3220, "pg_lsn"),
    (3310, "tsm_handler"),
    (3361, "pg_ndistinct"),
    (3402, "pg_dependencies"),
    (3500, "anyenum"),
    (3614, "tsvector"),
    (3615, "tsquery"),
    (3642, "gtsvector"),
    (3734, "regconfig"),
    (3769, "regdictionary"),
    (3831, "anyrange"),
    (3838, "event_trigger"),
    (3904, "int4range"),
    (3906, "numrange"),
    (3908, "tsrange"),
    (3910, "tstzrange"),
    (3912, "daterange"),
    (3926, "int8range"),
    (4072, "jsonpath"),
    (4096, "regrole"),
    (4191, "regcollation"),
    (4451, "int4multirange"),
    (4532, "nummultirange"),
    (4533, "tsmultirange"),
    (4534, "tstzmultirange"),
    (4535, "datemultirange"),
    (4536, "int8multirange"),
    (4537, "anymultirange"),
    (4538, "anycompatiblemultirange"),
    (4600, "pg_brin_bloom_summary"),
    (4601, "pg_brin_minmax_multi_summary"),
    (5017, "pg_mcv_list"),
    (5038, "pg_snapshot"),
    (5069, "xid8"),
    (5077, "anycompatible"),
    (5078, "anycompatiblearray"),
    (5079, "anycompatiblenonarray"),
    (5080, "anycompatiblerange"),
];

/// The name of a type that no column can have.
pub(in crate::functions) fn other_type(oid: i32) -> &'static str {
    OTHER_TYPES.iter().find(|(number, _)| *number == oid).map_or("???", |(_, name)| name)
}

/// The type of such a name.
pub(in crate::functions) fn other_type_named(name: &str) -> Option<i32> {
    let name = name.trim().to_lowercase();
    let bare = name.strip_prefix("pg_catalog.").unwrap_or(&name);
    OTHER_TYPES.iter().find(|(_, known)| *known == bare).map(|(oid, _)| *oid)
}

pub(super) fn nothing(call: &Call<'_>) -> Result<ArrayRef> {
    call.build_texts(|_| Ok(None::<&str>))
}

pub(super) fn object_comment(call: &Call<'_>) -> Result<ArrayRef> {
    let (oids, environment) = (call.values::<Int32Type>(0)?, call.environment());
    call.build_texts(|row| {
        let Some(oid) = oids.get(row) else { return Ok(None) };
        Ok(match object(environment, oid) {
            Some(object) => object.comment.clone(),
            None => environment.live.system_comment(oid, None),
        })
    })
}

/// `table t`, `column a of table t`; NULL for what the catalog has not.
pub(super) fn what_it_is(call: &Call<'_>) -> Result<ArrayRef> {
    let (oids, columns, environment) = (call.values::<Int32Type>(1)?, call.values::<Int32Type>(2)?, call.environment());
    call.build_texts(|row| {
        let Some(found) = oids.get(row).and_then(|oid| object(environment, oid)) else { return Ok(None) };
        let whole = format!("{} {}", found.kind().noun(), environment.catalog.shown_name(found, &environment.search_path));
        let number = columns.get(row).and_then(|column| usize::try_from(column).ok()?.checked_sub(1));
        Ok(Some(match number.and_then(|number| found.columns().get(number)) {
            Some(column) => format!("column {} of {whole}", quoted(&column.name)),
            None => whole,
        }))
    })
}

pub(super) fn column_comment(call: &Call<'_>) -> Result<ArrayRef> {
    let (oids, columns, environment) = (call.values::<Int32Type>(0)?, call.values::<Int32Type>(1)?, call.environment());
    call.build_texts(|row| {
        let (Some(oid), Some(column)) = (oids.get(row), columns.get(row)) else { return Ok(None) };
        let Some(number) = usize::try_from(column).ok().filter(|number| *number > 0) else { return Ok(None) };
        Ok(match object(environment, oid) {
            Some(object) => object.columns().get(number - 1).and_then(|column| column.comment.clone()),
            None => environment.live.system_comment(oid, Some(number)),
        })
    })
}

fn definition(object: &Object) -> Option<String> {
    matches!(object.kind(), ObjectKind::View | ObjectKind::MaterializedView)
        .then(|| object.definition().map(|text| format!(" {};", text.trim_end().trim_end_matches(';'))))
        .flatten()
}

pub(super) fn view_definition(call: &Call<'_>) -> Result<ArrayRef> {
    let (oids, environment) = (call.values::<Int32Type>(0)?, call.environment());
    call.build_texts(|row| Ok(oids.get(row).and_then(|oid| definition(object(environment, oid)?))))
}

pub(super) fn view_definition_by_name(call: &Call<'_>) -> Result<ArrayRef> {
    let (names, environment) = (call.texts(0)?, call.environment());
    call.build_texts(|row| {
        let Some(name) = names.get(row) else { return Ok(None) };
        Ok(definition(relation_named(environment, name)?))
    })
}

/// `CREATE RULE "_RETURN" AS ON SELECT TO v DO INSTEAD  SELECT ..`: a view is a rule of its relation, as in Postgres.
pub(super) fn rule_definition(call: &Call<'_>) -> Result<ArrayRef> {
    let (oids, environment) = (call.values::<Int32Type>(0)?, call.environment());
    call.build_texts(|row| {
        Ok(oids.get(row).and_then(view_of_rule).and_then(|view| {
            let view = environment.catalog.get(view)?;
            let name = format!("{}.{}", quoted(environment.catalog.schema_name(view)), quoted(&view.name));
            Some(format!("CREATE RULE \"_RETURN\" AS\n    ON SELECT TO {name} DO INSTEAD {}", definition(view)?))
        }))
    })
}

/// `CREATE INDEX i ON public.t USING btree (a, b DESC)`; with a column's number, that column alone.
pub(super) fn index_definition(call: &Call<'_>) -> Result<ArrayRef> {
    let (oids, environment) = (call.values::<Int32Type>(0)?, call.environment());
    let columns = if call.arguments.len() > 1 { Some(call.values::<Int32Type>(1)?) } else { None };
    call.build_texts(|row| {
        let Some(oid) = oids.get(row) else { return Ok(None) };
        let wanted = columns.as_ref().and_then(|columns| columns.get(row)).unwrap_or(0);
        let found = IndexText::find(&environment.catalog, oid);
        Ok(found
            .and_then(|index| if wanted > 0 { index.column(wanted as usize - 1) } else { Some(index.definition(&environment.catalog)) }))
    })
}

/// What is written of an index: one that was created, or the one behind a primary key.
pub struct IndexText<'a> {
    /// Its name.
    pub name: &'a str,
    /// The relation.
    pub relation: &'a Object,
    /// Columns, and which are descending.
    pub columns: Vec<(usize, bool)>,
    /// UNIQUE.
    pub unique: bool,
}

impl<'a> IndexText<'a> {
    /// That of an object, if it is an index.
    pub fn of_index(catalog: &'a Catalog, object: &'a Object) -> Option<Self> {
        let ObjectBody::Index(index) = &object.body else { return None };
        let relation = catalog.get(index.relation)?;
        Some(Self { name: &object.name, relation, columns: index.columns.clone(), unique: index.unique })
    }

    /// That of an object's primary key, if it has one.
    pub fn of_primary_key(relation: &'a Object) -> Option<Self> {
        let key = relation.table()?.primary_key.as_ref()?;
        Some(Self { name: &key.name, relation, columns: key.columns.iter().map(|column| (*column, false)).collect(), unique: true })
    }

    fn find(catalog: &'a Catalog, oid: i32) -> Option<Self> {
        match table_of_index(oid) {
            Some(table) => Self::of_primary_key(catalog.get(table)?),
            None => Self::of_index(catalog, catalog.get(u64::from(oid as u32))?),
        }
    }

    /// A column's name.
    fn column(&self, place: usize) -> Option<String> {
        let (number, _) = self.columns.get(place)?;
        self.relation.columns().get(*number).map(|column| quoted(&column.name))
    }

    /// `CREATE UNIQUE INDEX i ON public.t USING btree (a, b DESC)`
    pub fn definition(&self, catalog: &Catalog) -> String {
        let column = |(place, (_, descending)): (usize, &(usize, bool))| {
            Some(format!("{}{}", self.column(place)?, if *descending { " DESC" } else { "" }))
        };
        let columns: Vec<String> = self.columns.iter().enumerate().filter_map(column).collect();
        let unique = if self.unique { "UNIQUE " } else { "" };
        let (schema, on) = (quoted(catalog.schema_name(self.relation)), quoted(&self.relation.name));
        format!("CREATE {unique}INDEX {} ON {schema}.{on} USING btree ({})", quoted(self.name), columns.join(", "))
    }
}

pub(super) fn constraint_definition(call: &Call<'_>) -> Result<ArrayRef> {
    let (oids, environment) = (call.values::<Int32Type>(0)?, call.environment());
    call.build_texts(|row| Ok(oids.get(row).and_then(|oid| written_constraint(environment, oid))))
}

fn written_constraint(environment: &Environment, oid: i32) -> Option<String> {
    environment.catalog.objects().find_map(|object| {
        let table = object.table()?;
        if let Some(key) = &table.primary_key
            && constraint_oid(object.id, 0) == oid
        {
            let columns: Vec<String> = key.columns.iter().map(|column| quoted(&table.columns[*column].name)).collect();
            return Some(format!("PRIMARY KEY ({})", columns.join(", ")));
        }
        let place = (0..table.checks.len()).find(|place| constraint_oid(object.id, place + 1) == oid)?;
        Some(format!("CHECK ({})", table.checks[place].expression))
    })
}

pub(super) fn to_regclass(call: &Call<'_>) -> Result<ArrayRef> {
    let (names, environment) = (call.texts(0)?, call.environment());
    call.build::<Int32Type>(|row| names.get(row).map_or(Ok(None), |name| relation_of_text(environment, name)))
}

/// NULL for a name that no function has, or more than one.
pub(super) fn to_regproc(call: &Call<'_>) -> Result<ArrayRef> {
    let (names, environment) = (call.texts(0)?, call.environment());
    call.build::<Int32Type>(|row| Ok(names.get(row).and_then(|name| function_named(environment, name).ok())))
}

pub(super) fn to_regtype(call: &Call<'_>) -> Result<ArrayRef> {
    let names = call.texts(0)?;
    call.build::<Int32Type>(|row| Ok(names.get(row).and_then(|name| parse_type_name(name).ok()).map(|(sql_type, _)| sql_type.oid())))
}

pub(super) fn to_regnamespace(call: &Call<'_>) -> Result<ArrayRef> {
    let (names, environment) = (call.texts(0)?, call.environment());
    call.build::<Int32Type>(|row| Ok(names.get(row).and_then(|name| environment.catalog.schema(name)).map(|schema| schema.id as i32)))
}

fn of_function(call: &Call<'_>, text: fn(&ListedFunction) -> &str) -> Result<ArrayRef> {
    let oids = call.values::<Int32Type>(0)?;
    call.build_texts(|row| Ok(oids.get(row).and_then(listing::function).map(text)))
}

pub(super) fn function_arguments(call: &Call<'_>) -> Result<ArrayRef> {
    of_function(call, |function| &function.arguments)
}

pub(super) fn function_result(call: &Call<'_>) -> Result<ArrayRef> {
    of_function(call, |function| &function.result)
}

/// As the statement that would create it.
pub(super) fn function_definition(call: &Call<'_>) -> Result<ArrayRef> {
    let oids = call.values::<Int32Type>(0)?;
    call.build_texts(|row| {
        let Some(function) = oids.get(row).and_then(listing::function) else { return Ok(None) };
        let ListedFunction { name, kind, arguments, result, .. } = function;
        let window = match kind {
            ListedKind::Aggregate => {
                return Err(PlanError::new(sqlstate::WRONG_OBJECT_TYPE, format!("\"{name}\" is an aggregate function")));
            }
            ListedKind::Function | ListedKind::OfRelation => "",
            ListedKind::Window => " WINDOW",
        };
        let schema = function.schema();
        let changes = if function.volatile { "" } else { " IMMUTABLE" };
        let strict = if function.strict { " STRICT" } else { "" };
        Ok(Some(format!(
            "CREATE OR REPLACE FUNCTION {schema}.{}({arguments})\n RETURNS {result}\n LANGUAGE internal\n{window}{changes} PARALLEL SAFE{strict}\n\
             AS $function${name}$function$\n",
            quoted(name)
        )))
    })
}
