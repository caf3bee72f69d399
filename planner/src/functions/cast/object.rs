//! Object ids and the names they are shown as.

use arrow::{
    array::ArrayRef,
    datatypes::{Int32Type, Int64Type},
};
use datafusion::common::ScalarValue;

use super::{
    super::{
        environment::Environment,
        kernel::{Call, Evaluate, Traits},
        listing::{self, ListedFunction},
    },
    Conversion,
};
use crate::{
    bind::Binder,
    catalog::{Catalog, Object, QualifiedName, name::quoted},
    error::{PlanError, Result, sqlstate},
    types::{SqlType, name::parse_type_name},
};

pub(super) fn find(from: &SqlType, to: &SqlType) -> Option<Conversion> {
    use SqlType as T;
    let code = |name, traits, evaluate: Evaluate| Some(Conversion::Code(name, traits, evaluate));
    match (from, to) {
        (from, to) if from.is_oid() && to.is_oid() => Some(Conversion::Same),
        (T::SmallInt, _) => Some(Conversion::Native),
        (T::Integer, _) | (_, T::Integer) => Some(Conversion::Same),
        (T::BigInt, _) => code("oid", Traits::STRICT, bigint_to_oid),
        (_, T::BigInt) => code("int8", Traits::STRICT, oid_to_bigint),
        (T::Oid, to) if to.is_text() => code("text", Traits::STRICT, oid_to_text),
        (T::RegClass, to) if to.is_text() => code("regclassout", Traits::CATALOG, regclass_to_text),
        (T::RegType, to) if to.is_text() => code("regtypeout", Traits::STRICT, regtype_to_text),
        (T::RegProc, to) if to.is_text() => code("regprocout", Traits::CATALOG, regproc_to_text),
        (T::RegOperator, to) if to.is_text() => code("regoperatorout", Traits::CATALOG, regoperator_to_text),
        (T::RegNamespace, to) if to.is_text() => code("regnamespaceout", Traits::CATALOG, regnamespace_to_text),
        (from, T::Oid) if from.is_text() => code("oid", Traits::STRICT, text_to_oid),
        (from, T::RegClass) if from.is_text() => code("regclass", Traits::CATALOG, text_to_regclass),
        (from, T::RegType) if from.is_text() => code("regtype", Traits::STRICT, text_to_regtype),
        (from, T::RegNamespace) if from.is_text() => code("regnamespace", Traits::CATALOG, text_to_regnamespace),
        (from, T::RegProc) if from.is_text() => code("regproc", Traits::CATALOG, text_to_regproc),
        _ => None,
    }
}

/// Oids are unsigned in Postgres; their bits are kept.
fn bigint_to_oid(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.values::<Int64Type>(0)?;
    call.build::<Int32Type>(|row| {
        values
            .get(row)
            .map(u32::try_from)
            .transpose()
            .map(|oid| oid.map(|oid| oid as i32))
            .map_err(|_| PlanError::new(sqlstate::NUMERIC_VALUE_OUT_OF_RANGE, "OID out of range"))
    })
}

fn oid_to_bigint(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.values::<Int32Type>(0)?;
    call.build::<Int64Type>(|row| Ok(values.get(row).map(|oid| i64::from(oid as u32))))
}

fn oid_to_text(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.values::<Int32Type>(0)?;
    call.build_texts(|row| Ok(values.get(row).map(|oid| (oid as u32).to_string())))
}

fn read_oid(text: &str) -> Result<i32> {
    let invalid = || PlanError::new(sqlstate::INVALID_TEXT_REPRESENTATION, format!("invalid input syntax for type oid: \"{text}\""));
    text.trim().parse::<i64>().ok().and_then(|oid| u32::try_from(oid).ok()).map(|oid| oid as i32).ok_or_else(invalid)
}

fn text_to_oid(call: &Call<'_>) -> Result<ArrayRef> {
    let texts = call.texts(0)?;
    call.build::<Int32Type>(|row| texts.get(row).map(read_oid).transpose())
}

/// A number, or `-` for none.
fn number(text: &str) -> Option<i32> {
    if text == "-" { Some(0) } else { text.parse::<u32>().ok().map(|oid| oid as i32) }
}

fn parse_name(text: &str) -> Result<QualifiedName> {
    let dialect = sqlparser::dialect::PostgreSqlDialect {};
    let invalid = || PlanError::new(sqlstate::SYNTAX_ERROR, format!("invalid name syntax: \"{text}\""));
    let mut parser = sqlparser::parser::Parser::new(&dialect).try_with_sql(text).map_err(|_| invalid())?;
    let name = parser.parse_object_name(false).map_err(|_| invalid())?;
    QualifiedName::from_ast(&name)
}

/// The number of a relation. Without a schema `pg_catalog` comes before the path, unless it is in it, as in FROM.
fn relation_oid(environment: &Environment, name: &QualifiedName) -> Option<i32> {
    let in_schema = |schema: &str| {
        let name = QualifiedName { schema: Some(schema.to_owned()), name: name.name.clone() };
        let own = environment.catalog.find(&name, &[]).and_then(|object| i32::try_from(object.id).ok());
        own.or_else(|| environment.live.system_relation(schema, &name.name))
    };
    if let Some(schema) = &name.schema {
        return in_schema(schema);
    }
    let path = environment.search_path.iter().map(String::as_str);
    let first = (!environment.search_path.iter().any(|schema| schema == "pg_catalog")).then_some("pg_catalog");
    first.into_iter().chain(path).find_map(in_schema)
}

/// The relation that a text names, if there is one.
///
/// # Errors
/// 42601 if the text is no name.
pub(in crate::functions) fn relation_of_text(environment: &Environment, text: &str) -> Result<Option<i32>> {
    Ok(relation_oid(environment, &parse_name(text)?))
}

/// The function that a text names.
///
/// # Errors
/// 42883 if there is none, 42725 if there are several.
pub(in crate::functions) fn function_named(environment: &Environment, text: &str) -> Result<i32> {
    let missing = || PlanError::new(sqlstate::UNDEFINED_FUNCTION, format!("function \"{text}\" does not exist"));
    let name = parse_name(text).map_err(|_| missing())?;
    let in_schema = |function: &&ListedFunction| name.schema.as_deref().is_none_or(|schema| schema == function.schema());
    let mut found = listing::functions().iter().filter(|function| function.name == name.name).filter(in_schema);
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only.oid),
        (Some(_), Some(_)) => Err(PlanError::new("42725", format!("more than one function named \"{text}\""))),
        _ if name.schema.as_deref().is_none_or(|schema| schema == "pg_catalog") => {
            environment.live.type_function(&name.name).ok_or_else(missing)
        }
        _ => Err(missing()),
    }
}

fn text_to_regproc(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, environment) = (call.texts(0)?, call.environment());
    let named = |text: &str| number(text).map_or_else(|| function_named(environment, text), Ok);
    call.build::<Int32Type>(|row| texts.get(row).map(named).transpose())
}

fn regproc_to_text(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, environment) = (call.values::<Int32Type>(0)?, call.environment());
    call.build_texts(|row| {
        Ok(values.get(row).map(|oid| match listing::function(oid) {
            _ if oid == 0 => "-".to_owned(),
            Some(function) if function.schema() == "pg_catalog" => quoted(function.name),
            Some(function) => format!("{}.{}", function.schema(), quoted(function.name)),
            None => environment.live.type_function_name(oid).unwrap_or_else(|| (oid as u32).to_string()),
        }))
    })
}

/// With the types of its operands, by which operators of a name differ.
fn regoperator_to_text(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, environment) = (call.values::<Int32Type>(0)?, call.environment());
    let operand = |oid: i32| if oid == 0 { "NONE".to_owned() } else { type_name(oid) };
    call.build_texts(|row| {
        Ok(values.get(row).map(|oid| match environment.live.operator(oid) {
            _ if oid == 0 => "0".to_owned(),
            Some((name, left, right)) => format!("{name}({},{})", operand(left), operand(right)),
            None => (oid as u32).to_string(),
        }))
    })
}

fn no_relation(name: &QualifiedName) -> PlanError {
    PlanError::new(sqlstate::UNDEFINED_TABLE, format!("relation \"{name}\" does not exist"))
}

/// The relation of a name as text.
///
/// # Errors
/// 42P01 if there is none, 42601 if the text is no name.
pub(crate) fn relation_named<'a>(environment: &'a Environment, text: &str) -> Result<&'a Object> {
    let name = parse_name(text)?;
    environment.catalog.find(&name, &environment.search_path).map(AsRef::as_ref).ok_or_else(|| no_relation(&name))
}

fn text_to_regclass(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, environment) = (call.texts(0)?, call.environment());
    call.build::<Int32Type>(|row| {
        let Some(text) = texts.get(row) else { return Ok(None) };
        if let Some(oid) = number(text) {
            return Ok(Some(oid));
        }
        let name = parse_name(text)?;
        relation_oid(environment, &name).map(Some).ok_or_else(|| no_relation(&name))
    })
}

/// How an oid is shown as a relation: with its schema if the path does not lead to it; a number that is no relation's as itself.
pub(crate) fn name_of_relation(environment: &Environment, oid: i32) -> Option<String> {
    let object = environment.catalog.get(oid as u32 as u64)?;
    Some(environment.catalog.shown_name(object, &environment.search_path))
}

fn regclass_to_text(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, environment) = (call.values::<Int32Type>(0)?, call.environment());
    call.build_texts(|row| {
        Ok(values.get(row).map(|oid| match oid {
            0 => "-".to_owned(),
            oid => name_of_relation(environment, oid)
                .or_else(|| environment.live.system_relation_name(oid).map(|name| shown(environment, &name)))
                .or_else(|| system_relation(oid).map(str::to_owned))
                .unwrap_or_else(|| (oid as u32).to_string()),
        }))
    })
}

/// With the schema, if the path does not lead there.
fn shown(environment: &Environment, relation: &QualifiedName) -> String {
    let name = quoted(&relation.name);
    match relation.schema.as_deref() {
        Some(schema) if schema != "pg_catalog" && !environment.search_path.iter().any(|other| other == schema) => {
            format!("{}.{name}", quoted(schema))
        }
        _ => name,
    }
}

/// The relations of `pg_catalog` that statements of drivers cast to and from names, with Postgres' numbers.
const SYSTEM_RELATIONS: &[(i32, &str)] = &[
    (1247, "pg_type"),
    (1249, "pg_attribute"),
    (1255, "pg_proc"),
    (1259, "pg_class"),
    (1262, "pg_database"),
    (1260, "pg_authid"),
    (2604, "pg_attrdef"),
    (2606, "pg_constraint"),
    (2608, "pg_depend"),
    (2609, "pg_description"),
    (2610, "pg_index"),
    (2611, "pg_inherits"),
    (2615, "pg_namespace"),
    (2617, "pg_operator"),
    (2618, "pg_rewrite"),
    (2620, "pg_trigger"),
    (1213, "pg_tablespace"),
    (2396, "pg_shdescription"),
    (3079, "pg_extension"),
    (1417, "pg_foreign_server"),
];

fn system_relation(oid: i32) -> Option<&'static str> {
    SYSTEM_RELATIONS.iter().find(|(number, _)| *number == oid).map(|(_, name)| *name)
}

fn regtype_to_text(call: &Call<'_>) -> Result<ArrayRef> {
    let values = call.values::<Int32Type>(0)?;
    call.build_texts(|row| Ok(values.get(row).map(|oid| if oid == 0 { "-".to_owned() } else { type_name(oid) })))
}

fn type_name(oid: i32) -> String {
    match SqlType::from_oid(oid) {
        Some(sql_type) => sql_type.name(),
        None => match crate::functions::system::describe::other_type(oid) {
            "???" => (oid as u32).to_string(),
            name => name.to_owned(),
        },
    }
}

fn text_to_regtype(call: &Call<'_>) -> Result<ArrayRef> {
    let texts = call.texts(0)?;
    call.build::<Int32Type>(|row| texts.get(row).map(type_oid).transpose())
}

fn type_oid(text: &str) -> Result<i32> {
    match number(text) {
        Some(oid) => Ok(oid),
        None => match parse_type_name(text) {
            Ok((sql_type, _)) => Ok(sql_type.oid()),
            Err(error) => crate::functions::system::describe::other_type_named(text).ok_or(error),
        },
    }
}

fn schema_name(catalog: &Catalog, oid: i32) -> Option<String> {
    catalog.get(oid as u32 as u64).map(|schema| quoted(&schema.name))
}

fn regnamespace_to_text(call: &Call<'_>) -> Result<ArrayRef> {
    let (values, environment) = (call.values::<Int32Type>(0)?, call.environment());
    call.build_texts(|row| {
        Ok(values.get(row).map(|oid| schema_name(&environment.catalog, oid).unwrap_or_else(|| (oid as u32).to_string())))
    })
}

fn schema_oid(catalog: &Catalog, text: &str) -> Result<i32> {
    if let Some(oid) = number(text) {
        return Ok(oid);
    }
    let name = parse_name(text)?.name;
    catalog.schema(&name).map(|schema| schema.id as i32).ok_or_else(|| crate::catalog::no_schema(&name))
}

fn text_to_regnamespace(call: &Call<'_>) -> Result<ArrayRef> {
    let (texts, environment) = (call.texts(0)?, call.environment());
    call.build::<Int32Type>(|row| texts.get(row).map(|text| schema_oid(&environment.catalog, text)).transpose())
}

/// The object id that a constant text names.
pub(super) fn read(binder: &Binder<'_>, text: &str, to: &SqlType) -> Result<ScalarValue> {
    let oid = match to {
        SqlType::RegClass => match number(text) {
            Some(oid) => oid,
            None => {
                let name = parse_name(text)?;
                let system = || {
                    let known = SYSTEM_RELATIONS.iter().find(|(_, known)| *known == name.name).map(|(oid, _)| *oid);
                    known.filter(|_| name.schema.as_deref().is_none_or(|schema| schema == "pg_catalog"))
                };
                relation_oid(&binder.environment, &name).or_else(system).ok_or_else(|| no_relation(&name))?
            }
        },
        SqlType::RegType => type_oid(text)?,
        SqlType::RegNamespace => schema_oid(&binder.environment.catalog, text)?,
        SqlType::RegProc => number(text).map_or_else(|| function_named(&binder.environment, text), Ok)?,
        _ => read_oid(text)?,
    };
    Ok(ScalarValue::Int32(Some(oid)))
}
