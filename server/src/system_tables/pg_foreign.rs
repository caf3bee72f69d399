//! Sources and sinks as Postgres' tools know such things: foreign tables, whose server is the connector.

use std::collections::{BTreeMap, BTreeSet};

use millpond_planner::catalog::{Catalog, Object, ObjectBody};

use crate::{
    error::Result,
    system_tables::{
        numbers::{OWNER, oid},
        registry::{MakeRows, SystemContext},
        rows::{Cell, Row},
    },
};

/// The maker of a relation's rows, if it is one of these.
pub(crate) fn rows_of(name: &str) -> Option<MakeRows> {
    Some(match name {
        "pg_foreign_data_wrapper" => pg_foreign_data_wrapper,
        "pg_foreign_server" => pg_foreign_server,
        "pg_foreign_table" => pg_foreign_table,
        _ => return None,
    })
}

/// The option that names the connector.
const CONNECTOR: &str = "connector";
/// Words in the names of options whose values are nobody's business.
const SECRETS: [&str; 4] = ["secret", "password", "token", "access_key"];
const FIRST_WRAPPER: i32 = 13_200;
const FIRST_SERVER: i32 = 13_210;

/// What reads or writes foreign tables: numbers of wrapper and word.
const WRAPPERS: [&str; 2] = ["source", "sink"];

/// A source or sink: which of the wrappers it belongs to, and its options.
fn foreign(object: &Object) -> Option<(usize, &BTreeMap<String, String>)> {
    match &object.body {
        ObjectBody::Source(source) => Some((0, &source.options)),
        ObjectBody::Sink(sink) => Some((1, &sink.options)),
        _ => None,
    }
}

fn server_of(object: &Object) -> Option<(usize, &str)> {
    let (wrapper, options) = foreign(object)?;
    Some((wrapper, options.get(CONNECTOR).map_or("", String::as_str)))
}

/// The servers of all sources and sinks, in a fixed order.
fn servers(catalog: &Catalog) -> BTreeSet<(usize, &str)> {
    catalog.objects().filter_map(|object| server_of(object)).collect()
}

fn pg_foreign_data_wrapper(_: &SystemContext<'_>) -> Result<Vec<Row>> {
    let row = |(wrapper, oid): (&&str, i32)| -> Row {
        let (handler, validator) = (("fdwhandler", 0.into()), ("fdwvalidator", 0.into()));
        vec![("oid", oid.into()), ("fdwname", (*wrapper).into()), ("fdwowner", OWNER.into()), handler, validator]
    };
    Ok(WRAPPERS.iter().zip(FIRST_WRAPPER..).map(row).collect())
}

fn pg_foreign_server(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let row = |((wrapper, connector), oid): ((usize, &str), i32)| -> Row {
        vec![
            ("oid", oid.into()),
            ("srvname", format!("{connector} {}", WRAPPERS[wrapper]).into()),
            ("srvowner", OWNER.into()),
            ("srvfdw", (FIRST_WRAPPER + wrapper as i32).into()),
        ]
    };
    Ok(servers(context.catalog).into_iter().zip(FIRST_SERVER..).map(row).collect())
}

fn pg_foreign_table(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let servers: Vec<(usize, &str)> = servers(context.catalog).into_iter().collect();
    let row = |object: &Object| -> Option<Row> {
        let server = server_of(object)?;
        let place = servers.iter().position(|other| *other == server)?;
        let options = foreign(object)?.1.iter().filter(|(name, _)| *name != CONNECTOR);
        Some(vec![
            ("ftrelid", oid(object.id).into()),
            ("ftserver", (FIRST_SERVER + place as i32).into()),
            ("ftoptions", Cell::Texts(options.map(|(name, value)| shown_option(name, value)).collect())),
        ])
    };
    Ok(context.catalog.objects().filter_map(|object| row(object)).collect())
}

fn shown_option(name: &str, value: &str) -> String {
    let is_secret = SECRETS.iter().any(|word| name.to_ascii_lowercase().contains(word));
    format!("{name}={}", if is_secret { "********" } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(shown_option("path", "/a=b"), "path=/a=b");
        assert_eq!(shown_option("s3.secret_access_key", "x"), "s3.secret_access_key=********");
    }
}
