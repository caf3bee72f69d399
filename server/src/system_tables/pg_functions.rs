//! `pg_proc`: the functions that can be called, and those that types name for their input and output.

use arrow::{
    array::{AsArray, BooleanArray, RecordBatch},
    compute::{concat_batches, filter_record_batch},
    datatypes::{Int32Type, SchemaRef},
};
use millpond_planner::{
    catalog::{MILLPOND_ID, PG_CATALOG_ID},
    functions::listing::{self, ListedFunction, ListedKind},
};

use crate::{
    error::Result,
    system_tables::{
        numbers::{OWNER, oid},
        rows::{self, Cell, Row},
    },
};

/// Postgres' number of the language of functions that are part of the server.
const LANGUAGE_INTERNAL: i32 = 12;
/// Rows that a planner expects of a function that returns rows.
const EXPECTED_ROWS: f64 = 1000.0;

/// The columns of `pg_type` that name functions.
const FUNCTIONS_OF_TYPES: [&str; 8] =
    ["typsubscript", "typinput", "typoutput", "typreceive", "typsend", "typmodin", "typmodout", "typanalyze"];

/// All rows, given all of Postgres' functions and its types.
///
/// # Errors
/// A bug, when a row does not fit.
pub(crate) fn rows(schema: &SchemaRef, shipped: &RecordBatch, types: Option<&RecordBatch>) -> Result<RecordBatch> {
    let named_by_types: Vec<i32> = types
        .into_iter()
        .flat_map(|types| FUNCTIONS_OF_TYPES.iter().filter_map(|name| types.column_by_name(name)))
        .flat_map(|column| column.as_primitive::<Int32Type>().iter().flatten())
        .collect();
    let oids = shipped.column(0).as_primitive::<Int32Type>();
    let wanted: BooleanArray = oids.iter().map(|oid| Some(oid.is_some_and(|oid| named_by_types.contains(&oid)))).collect();
    let own: Vec<Row> = listing::functions().iter().map(row).collect();
    Ok(concat_batches(schema, [&rows::batch(schema, &own)?, &filter_record_batch(shipped, &wanted)?])?)
}

fn row(function: &ListedFunction) -> Row {
    let (schema, kind) = match function.kind {
        ListedKind::Function => (PG_CATALOG_ID, "f"),
        ListedKind::Aggregate => (PG_CATALOG_ID, "a"),
        ListedKind::Window => (PG_CATALOG_ID, "w"),
        ListedKind::OfRelation => (MILLPOND_ID, "f"),
    };
    vec![
        ("oid", function.oid.into()),
        ("proname", function.name.into()),
        ("pronamespace", oid(schema).into()),
        ("proowner", OWNER.into()),
        ("prolang", LANGUAGE_INTERNAL.into()),
        ("procost", Cell::Float(1.0)),
        ("prorows", Cell::Float(if function.returns_set { EXPECTED_ROWS } else { 0.0 })),
        ("provariadic", function.variadic.into()),
        ("prosupport", 0.into()),
        ("prokind", kind.into()),
        ("prosecdef", false.into()),
        ("proleakproof", false.into()),
        ("proisstrict", function.strict.into()),
        ("proretset", function.returns_set.into()),
        ("provolatile", if function.volatile { "v" } else { "i" }.into()),
        ("proparallel", "s".into()),
        ("pronargs", function.argument_types.len().into()),
        ("pronargdefaults", 0.into()),
        ("prorettype", function.result_type.into()),
        ("proargtypes", Cell::Ints(function.argument_types.iter().map(|oid| i64::from(*oid)).collect())),
        ("prosrc", function.name.into()),
    ]
}
