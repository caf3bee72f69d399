//! Names of objects.

use std::fmt;

use sqlparser::ast::{Ident, ObjectName, ObjectNamePart, Spanned};

use super::DATABASE;
use crate::error::{PlanError, Result, sqlstate};

/// A name with its schema, if one was given.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QualifiedName {
    /// The schema.
    pub schema: Option<String>,
    /// The name.
    pub name: String,
}

impl fmt::Display for QualifiedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.schema {
            Some(schema) => write!(f, "{schema}.{}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

/// Longest name, in bytes; longer ones are cut, as in Postgres.
const MAX_NAME_BYTES: usize = 63;

/// What an identifier means: lower case unless it was quoted.
pub fn fold(ident: &Ident) -> String {
    let mut name = if ident.quote_style.is_some() { ident.value.clone() } else { fold_case(&ident.value) };
    if name.len() > MAX_NAME_BYTES {
        let cut = (0..=MAX_NAME_BYTES).rev().find(|at| name.is_char_boundary(*at)).unwrap_or(0);
        name.truncate(cut);
    }
    name
}

/// Postgres folds ASCII letters only, in a database of UTF-8.
fn fold_case(text: &str) -> String {
    text.chars().map(|character| character.to_ascii_lowercase()).collect()
}

impl QualifiedName {
    /// The name that a statement gives.
    ///
    /// # Errors
    /// 0A000 for names of another database.
    pub fn from_ast(name: &ObjectName) -> Result<Self> {
        let mut parts = Vec::with_capacity(name.0.len());
        for part in &name.0 {
            match part {
                ObjectNamePart::Identifier(ident) => parts.push(fold(ident)),
                ObjectNamePart::Function(_) => {
                    return Err(PlanError::new(sqlstate::SYNTAX_ERROR, format!("improper qualified name: {name}")).at(name.span()));
                }
            }
        }
        let last = parts.pop().ok_or_else(|| PlanError::internal("a name without parts"))?;
        let schema = parts.pop();
        match parts.as_slice() {
            [] => Ok(Self { schema, name: last }),
            [database] if database == DATABASE => Ok(Self { schema, name: last }),
            [database] => {
                let message =
                    format!("cross-database references are not implemented: \"{database}.{}.{last}\"", schema.unwrap_or_default());
                Err(PlanError::unsupported(message).at(name.span()))
            }
            _ => {
                let message = format!("improper qualified name (too many dotted names): {name}");
                Err(PlanError::new(sqlstate::SYNTAX_ERROR, message).at(name.span()))
            }
        }
    }
}

/// The name as SQL has to write it.
pub fn quoted(name: &str) -> String {
    let plain = name.starts_with(|first: char| first.is_ascii_lowercase() || first == '_')
        && name.chars().all(|character| character.is_ascii_lowercase() || character.is_ascii_digit() || character == '_')
        && !is_reserved(name);
    if plain { name.to_owned() } else { format!("\"{}\"", name.replace('"', "\"\"")) }
}

/// Words that Postgres reserves, in order.
const RESERVED: &[&str] = &[
    "all",
    "analyse",
    "analyze",
    "and",
    "any",
    "array",
    "as",
    "asc",
    "asymmetric",
    "authorization",
    "between",
    "bigint",
    "binary",
    "bit",
    "boolean",
    "both",
    "case",
    "cast",
    "char",
    "character",
    "check",
    "coalesce",
    "collate",
    "collation",
    "column",
    "concurrently",
    "constraint",
    "create",
    "cross",
    "current_catalog",
    "current_date",
    "current_role",
    "current_schema",
    "current_time",
    "current_timestamp",
    "current_user",
    "dec",
    "decimal",
    "default",
    "deferrable",
    "desc",
    "distinct",
    "do",
    "else",
    "end",
    "except",
    "exists",
    "extract",
    "false",
    "fetch",
    "float",
    "for",
    "foreign",
    "freeze",
    "from",
    "full",
    "grant",
    "greatest",
    "group",
    "grouping",
    "having",
    "ilike",
    "in",
    "initially",
    "inner",
    "inout",
    "int",
    "integer",
    "intersect",
    "interval",
    "into",
    "is",
    "isnull",
    "join",
    "lateral",
    "leading",
    "least",
    "left",
    "like",
    "limit",
    "localtime",
    "localtimestamp",
    "natural",
    "nchar",
    "none",
    "normalize",
    "not",
    "notnull",
    "null",
    "nullif",
    "numeric",
    "offset",
    "on",
    "only",
    "or",
    "order",
    "out",
    "outer",
    "overlaps",
    "overlay",
    "placing",
    "position",
    "precision",
    "primary",
    "real",
    "references",
    "returning",
    "right",
    "row",
    "select",
    "session_user",
    "setof",
    "similar",
    "smallint",
    "some",
    "substring",
    "symmetric",
    "table",
    "tablesample",
    "then",
    "time",
    "timestamp",
    "to",
    "trailing",
    "treat",
    "trim",
    "true",
    "union",
    "unique",
    "user",
    "using",
    "values",
    "varchar",
    "variadic",
    "verbose",
    "when",
    "where",
    "window",
    "with",
];

/// Whether a word has to be quoted to be a name.
fn is_reserved(name: &str) -> bool {
    RESERVED.binary_search(&name).is_ok()
}
