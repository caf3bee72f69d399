//! Statements to plans: names resolved against a catalog, types settled by Postgres' rules, everything that can be wrong with a statement said.
//!
//! A query becomes a `LogicalPlan` of DataFusion's that is analysed but not optimized. Its names are the user's where they can be; relations
//! that occur twice get qualifiers of their own (`t`, `t_1`), so that a column's qualified name is unique in the whole plan. Scans are of
//! [`crate::relation_source::RelationSource`]s, or of a system relation's table source.
//!
//! | file | what it binds |
//! |---|---|
//! | `query`, `set_operation`, `values`, `common_table` | a query round its SELECTs |
//! | `select`, `grouping`, `windowing`, `ordering` | one SELECT |
//! | `from`, `join`, `table_function`, `window_function_table` | FROM |
//! | `expression/*`, `coerce`, `subquery` | expressions and their types |
//! | `dml/*` | INSERT, UPDATE, DELETE, COPY |
//! | `definition/*` | CREATE, ALTER, DROP, COMMENT |

mod asof_join;
mod binder;
mod bound;
mod coerce;
mod common_table;
mod definition;
mod dml;
mod expression;
mod from;
mod grouping;
mod join;
mod ordering;
mod output_name;
mod query;
mod reference;
mod repeat;
mod scope;
mod select;
mod select_list;
mod set_operation;
mod similar;
mod statement;
mod subquery;
mod table_function;
mod typed;
mod values;
mod window_table;
mod windowing;

use std::sync::Arc;

use datafusion::logical_expr::TableSource;

use self::expression::balanced as expression_balanced;
pub use self::{
    binder::Binder,
    bound::*,
    definition::{checks_of, default_of},
    statement::{bind, bind_expression_values, bind_query, bind_query_text, bind_source_columns, bind_stored_query},
    typed::Typed,
};
use crate::{
    catalog::Catalog,
    functions::environment::{LiveState, NoLiveState},
    interrupt::Interrupt,
    pg_text::TextSettings,
    types::SqlType,
};

/// Relations that the server makes up: `pg_catalog`, `information_schema`, `millpond`.
pub trait SystemRelations: Send + Sync {
    /// The relation of a name. Fields of other types than their Arrow type says carry [`crate::types::SQL_TYPE_METADATA`].
    fn relation(&self, schema: &str, name: &str) -> Option<Arc<dyn TableSource>>;

    /// Its OID, for `'pg_class'::regclass`.
    fn oid(&self, schema: &str, name: &str) -> Option<i32>;

    /// The value of a session's setting, by its name in lower case; of `backend_pid` the number of the session.
    fn setting(&self, _name: &str) -> Option<String> {
        None
    }

    /// The server as functions see it when they run.
    fn live(&self) -> Arc<dyn LiveState> {
        Arc::new(NoLiveState)
    }
}

/// No system relations, for tests and tools.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSystemRelations;

impl SystemRelations for NoSystemRelations {
    fn relation(&self, _: &str, _: &str) -> Option<Arc<dyn TableSource>> {
        None
    }

    fn oid(&self, _: &str, _: &str) -> Option<i32> {
        None
    }
}

/// What a statement is bound in.
#[derive(Clone, Copy)]
pub struct BindContext<'a> {
    /// What exists.
    pub catalog: &'a Catalog,
    /// Schemas in which names without one are looked for; `pg_catalog` comes first by itself.
    pub search_path: &'a [String],
    /// Time zone and styles; `now_us` is the transaction's time for literals such as `'now'`.
    pub text: &'a TextSettings,
    /// The session's user.
    pub user: &'a str,
    /// The database's name.
    pub database: &'a str,
    /// What `version()` and `server_version` say, `15.0`.
    pub server_version: &'a str,
    /// System relations.
    pub system: &'a dyn SystemRelations,
    /// Types of parameters that the client declared.
    pub parameter_types: &'a [Option<SqlType>],
    /// Asked at every expression and relation whether binding may go on.
    pub interrupt: &'a Interrupt,
    /// The result is kept for all sessions, as that of a materialized view or sink.
    pub is_kept: bool,
}

#[cfg(test)]
pub(crate) mod tests;
