//! Descriptions of objects for `\d` and its like.

use arrow::{
    array::ArrayRef,
    datatypes::{DataType, Int32Type},
};
use datafusion::common::ScalarValue;

use super::super::{
    environment::Environment,
    kernel::{Call, Kernel, Traits},
};
use crate::{
    bind::{Binder, Typed},
    catalog::{Object, ObjectBody, QualifiedName, name::quoted},
    error::Result,
    parse::statement::ObjectKind,
    types::{SqlType, name::parse_type_name},
};

/// OIDs of constraints are those of their tables with a bit that no object's number reaches, and their place in the table.
const CONSTRAINT_BIT: u32 = 1 << 30;
/// Constraints of a table that can be told apart.
const CONSTRAINTS_PER_TABLE: u32 = 64;

/// `unknown`, the type of a literal that nothing has given one.
const UNKNOWN_OID: i32 = 705;

/// The OID of a table's constraint: 0 is the primary key, CHECKs follow.
pub fn constraint_oid(table: u64, place: usize) -> i32 {
    ((table as u32).wrapping_mul(CONSTRAINTS_PER_TABLE).wrapping_add(place as u32) & (CONSTRAINT_BIT - 1) | CONSTRAINT_BIT) as i32
}

fn object(environment: &Environment, oid: i32) -> Option<&Object> {
    environment.catalog.get(u64::from(oid as u32)).map(AsRef::as_ref)
}

/// Whether the path leads to the relation; those that are not ours are of `pg_catalog`, which is always in it.
pub(super) fn is_visible(call: &Call<'_>) -> Result<ArrayRef> {
    let (oids, environment) = (call.values::<Int32Type>(0)?, call.environment());
    call.build_booleans(|row| {
        Ok(oids.get(row).map(|oid| match object(environment, oid) {
            None => true,
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
pub(in crate::functions) fn other_type(oid: i32) -> &'static str {
    match oid {
        22 => "int2vector",
        27 => "tid",
        28 => "xid",
        29 => "cid",
        30 => "oidvector",
        194 => "pg_node_tree",
        869 => "inet",
        650 => "cidr",
        705 => "unknown",
        790 => "money",
        1034 => "aclitem[]",
        1033 => "aclitem",
        1560 => "bit",
        1562 => "bit varying",
        2202 => "regprocedure",
        2249 => "record",
        2275 => "cstring",
        2276 => "\"any\"",
        2277 => "anyarray",
        2278 => "void",
        2279 => "trigger",
        2281 => "internal",
        2283 => "anyelement",
        _ => "???",
    }
}

pub(super) fn nothing(call: &Call<'_>) -> Result<ArrayRef> {
    call.build_texts(|_| Ok(None::<&str>))
}

pub(super) fn object_comment(call: &Call<'_>) -> Result<ArrayRef> {
    let (oids, environment) = (call.values::<Int32Type>(0)?, call.environment());
    call.build_texts(|row| Ok(oids.get(row).and_then(|oid| object(environment, oid)?.comment.clone())))
}

pub(super) fn column_comment(call: &Call<'_>) -> Result<ArrayRef> {
    let (oids, columns, environment) = (call.values::<Int32Type>(0)?, call.values::<Int32Type>(1)?, call.environment());
    call.build_texts(|row| {
        let (Some(oid), Some(column)) = (oids.get(row), columns.get(row)) else { return Ok(None) };
        let number = usize::try_from(column).ok().and_then(|number| number.checked_sub(1));
        let found = object(environment, oid).and_then(|object| object.columns().get(number?)?.comment.clone());
        Ok(found)
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
        let (schema, name) = match name.split_once('.') {
            Some((schema, name)) => (Some(schema.to_owned()), name.to_owned()),
            None => (None, name.to_owned()),
        };
        Ok(environment.catalog.find(&QualifiedName { schema, name }, &environment.search_path).and_then(|object| definition(object)))
    })
}

/// `CREATE INDEX i ON public.t USING btree (a, b DESC)`; with a column's number, that column alone.
pub(super) fn index_definition(call: &Call<'_>) -> Result<ArrayRef> {
    let (oids, environment) = (call.values::<Int32Type>(0)?, call.environment());
    let columns = if call.arguments.len() > 1 { Some(call.values::<Int32Type>(1)?) } else { None };
    call.build_texts(|row| {
        let Some(oid) = oids.get(row) else { return Ok(None) };
        let wanted = columns.as_ref().and_then(|columns| columns.get(row)).unwrap_or(0);
        Ok(object(environment, oid).and_then(|index| written_index(environment, index, wanted)))
    })
}

fn written_index(environment: &Environment, object: &Object, wanted: i32) -> Option<String> {
    let ObjectBody::Index(index) = &object.body else { return None };
    let relation = environment.catalog.get(index.relation)?;
    let column = |(number, _): &(usize, bool)| relation.columns().get(*number).map(|column| quoted(&column.name));
    if wanted > 0 {
        return index.columns.get(wanted as usize - 1).and_then(column);
    }
    let columns: Vec<String> =
        index.columns.iter().filter_map(|item| Some(format!("{}{}", column(item)?, if item.1 { " DESC" } else { "" }))).collect();
    let (unique, schema) = (if index.unique { "UNIQUE " } else { "" }, quoted(environment.catalog.schema_name(relation)));
    let (name, on) = (quoted(&object.name), quoted(&relation.name));
    Some(format!("CREATE {unique}INDEX {name} ON {schema}.{on} USING btree ({})", columns.join(", ")))
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

fn name_of(text: &str) -> QualifiedName {
    match text.split_once('.') {
        Some((schema, name)) => QualifiedName { schema: Some(schema.to_owned()), name: name.to_owned() },
        None => QualifiedName { schema: None, name: text.to_owned() },
    }
}

pub(super) fn to_regclass(call: &Call<'_>) -> Result<ArrayRef> {
    let (names, environment) = (call.texts(0)?, call.environment());
    call.build::<Int32Type>(|row| {
        let found = names.get(row).and_then(|name| environment.catalog.find(&name_of(name), &environment.search_path));
        Ok(found.map(|object| object.id as i32))
    })
}

pub(super) fn to_regtype(call: &Call<'_>) -> Result<ArrayRef> {
    let names = call.texts(0)?;
    call.build::<Int32Type>(|row| Ok(names.get(row).and_then(|name| parse_type_name(name).ok()).map(|(sql_type, _)| sql_type.oid())))
}

pub(super) fn to_regnamespace(call: &Call<'_>) -> Result<ArrayRef> {
    let (names, environment) = (call.texts(0)?, call.environment());
    call.build::<Int32Type>(|row| Ok(names.get(row).and_then(|name| environment.catalog.schema(name)).map(|schema| schema.id as i32)))
}
