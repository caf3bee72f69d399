//! Functions about the session and the catalog: what psql, drivers and tools ask.

pub mod describe;
pub mod numbers;
mod options;
mod privilege;
mod settings;
mod size;
mod sleep;

use arrow::{array::ArrayRef, datatypes::Int32Type};
use datafusion::{common::ScalarValue, logical_expr::lit};

use super::{
    environment::Signal,
    kernel::{Call, Traits},
    signature::Entry,
};
use crate::{
    bind::{Binder, Typed},
    error::{PlanError, Result},
    types::SqlType,
};

/// Of functions that ask the server each time.
const MEASURED: Traits = Traits { strict: true, local: true, live: true, volatile: true };

/// OID of the one user.
const OWNER: i32 = 10;

/// The name of an owner, the number of one that there is not.
fn owner_name(oid: i32) -> String {
    if oid == OWNER { "millpond".to_owned() } else { oid.to_string() }
}

/// Why a materialized view cannot have a function of the session or the server.
pub(crate) const NOT_OF_SESSION: &str =
    "The contents of a view may not depend on the session, the catalog or the state of the server. Call it in a SELECT over the view.";

pub(super) const FUNCTIONS: &[Entry] = &[
    Entry::rewrite("version() text", |binder, _| {
        let version = &binder.environment.server_version;
        Ok(Typed::text(&format!("PostgreSQL {version} on x86_64-pc-linux-gnu, 64-bit")))
    }),
    Entry::rewrite("current_database() name", |binder, _| name(&binder.environment.database)),
    Entry::rewrite("current_catalog() name", |binder, _| name(&binder.environment.database)),
    Entry::rewrite("current_user() name", |binder, _| user(binder, "current_user")),
    Entry::rewrite("current_role() name", |binder, _| user(binder, "current_role")),
    Entry::rewrite("session_user() name", |binder, _| user(binder, "session_user")),
    Entry::rewrite("user() name", |binder, _| user(binder, "user")),
    Entry::rewrite("current_schema() name", current_schema),
    Entry::rewrite("current_schemas(boolean) name[]", current_schemas),
    Entry::rewrite("current_query() text", |_, _| Ok(Typed::null(SqlType::Text))),
    Entry::rewrite("pg_typeof(any) regtype", describe::type_of),
    Entry::rewrite("pg_backend_pid() integer", settings::backend_pid),
    Entry::rewrite("current_setting(text) text", settings::current),
    Entry::rewrite("current_setting(text, boolean) text", settings::current),
    Entry::rewrite("set_config(text, text, boolean) text", settings::set),
    Entry::rewrite("pg_is_in_recovery() boolean", |_, _| Ok(Typed::boolean(lit(false)))),
    Entry::rewrite("pg_is_wal_replay_paused() boolean", |_, _| Ok(Typed::boolean(lit(false)))),
    Entry::rewrite("pg_my_temp_schema() oid", |_, _| Ok(oid(0, SqlType::Oid))),
    Entry::rewrite("pg_is_other_temp_schema(oid) boolean", |_, _| Ok(Typed::boolean(lit(false)))),
    Entry::rewrite("txid_current() bigint", |_, _| Ok(Typed::bigint(1))),
    Entry::rewrite("pg_current_xact_id() bigint", |_, _| Ok(Typed::bigint(1))),
    Entry::rewrite("pg_postmaster_start_time() timestamptz", settings::start_time),
    Entry::rewrite("pg_conf_load_time() timestamptz", settings::start_time),
    Entry::rewrite("inet_server_addr() text", |_, _| Ok(Typed::null(SqlType::Text))),
    Entry::rewrite("inet_client_addr() text", |_, _| Ok(Typed::null(SqlType::Text))),
    Entry::rewrite("inet_server_port() integer", |_, _| Ok(Typed::null(SqlType::Integer))),
    Entry::rewrite("inet_client_port() integer", |_, _| Ok(Typed::null(SqlType::Integer))),
    Entry::rewrite("pg_client_encoding() name", |_, _| name("UTF8")),
    Entry::rewrite("getdatabaseencoding() name", |_, _| name("UTF8")),
    Entry::strict("pg_encoding_to_char(integer) name", |call| {
        let codes = call.values::<Int32Type>(0)?;
        call.build_texts(|row| {
            Ok(codes.get(row).map(|code| match code {
                0 => "SQL_ASCII",
                6 => "UTF8",
                8 => "LATIN1",
                _ => "",
            }))
        })
    }),
    Entry::strict("pg_char_to_encoding(name) integer", |call| {
        let names = call.texts(0)?;
        call.build::<Int32Type>(|row| {
            Ok(names.get(row).map(|name| match name.to_uppercase().as_str() {
                "SQL_ASCII" => 0,
                "UTF8" => 6,
                "LATIN1" => 8,
                _ => -1,
            }))
        })
    }),
    Entry::strict("pg_get_userbyid(oid) name", |call| {
        let oids = call.values::<Int32Type>(0)?;
        call.build_texts(|row| Ok(oids.get(row).map(|oid| if oid == OWNER { owner_name(oid) } else { format!("unknown (OID={oid})") })))
    }),
    Entry::strict("pg_size_pretty(bigint) text", size::pretty),
    Entry::rewrite("pg_sleep(double precision) void", |_, values| Ok(sleep::sleep(values))),
    Entry::kernel("pg_cancel_backend(integer) boolean", MEASURED, |call| settings::signal(call, Signal::Cancel)),
    Entry::kernel("pg_terminate_backend(integer) boolean", MEASURED, |call| settings::signal(call, Signal::Terminate)),
    Entry::rewrite("pg_advisory_lock(bigint) void", |_, _| Ok(Typed::literal(ScalarValue::Null, SqlType::Void))),
    Entry::rewrite("pg_try_advisory_lock(bigint) boolean", |_, _| Ok(Typed::boolean(lit(true)))),
    Entry::rewrite("pg_advisory_unlock(bigint) boolean", |_, _| Ok(Typed::boolean(lit(true)))),
    Entry::rewrite("pg_advisory_unlock_all() void", |_, _| Ok(Typed::literal(ScalarValue::Null, SqlType::Void))),
    Entry::rewrite("pg_blocking_pids(integer) integer[]", |_, _| {
        Ok(Typed::literal(super::cast::empty_array(&SqlType::Integer), SqlType::array(SqlType::Integer)))
    }),
    Entry::kernel("pg_table_is_visible(oid) boolean", Traits::CATALOG, describe::is_visible),
    Entry::strict("pg_type_is_visible(oid) boolean", always),
    Entry::strict("pg_function_is_visible(oid) boolean", always).named("pg_type_is_visible"),
    Entry::strict("pg_operator_is_visible(oid) boolean", always).named("pg_type_is_visible"),
    Entry::strict("pg_opclass_is_visible(oid) boolean", always).named("pg_type_is_visible"),
    Entry::strict("pg_collation_is_visible(oid) boolean", always).named("pg_type_is_visible"),
    Entry::strict("pg_ts_config_is_visible(oid) boolean", always).named("pg_type_is_visible"),
    Entry::strict("pg_statistics_obj_is_visible(oid) boolean", always).named("pg_type_is_visible"),
    Entry::strict("pg_conversion_is_visible(oid) boolean", always).named("pg_type_is_visible"),
    Entry::strict("pg_opfamily_is_visible(oid) boolean", always).named("pg_type_is_visible"),
    Entry::strict("pg_ts_dict_is_visible(oid) boolean", always).named("pg_type_is_visible"),
    Entry::strict("pg_ts_parser_is_visible(oid) boolean", always).named("pg_type_is_visible"),
    Entry::strict("pg_ts_template_is_visible(oid) boolean", always).named("pg_type_is_visible"),
    Entry::kernel("format_type(oid, integer) text", Traits::NULLS, describe::format_type),
    Entry::kernel("obj_description(oid, name) text", Traits::CATALOG, describe::object_comment),
    Entry::kernel("obj_description(oid) text", Traits::CATALOG, describe::object_comment),
    Entry::kernel("pg_describe_object(oid, oid, integer) text", Traits::CATALOG, describe::what_it_is),
    Entry::kernel("shobj_description(oid, name) text", Traits::NULLS, describe::nothing),
    Entry::kernel("col_description(oid, integer) text", Traits::CATALOG, describe::column_comment),
    Entry::kernel("pg_get_viewdef(oid) text", Traits::CATALOG, describe::view_definition),
    Entry::kernel("pg_get_viewdef(oid, boolean) text", Traits::CATALOG, describe::view_definition),
    Entry::kernel("pg_get_viewdef(oid, integer) text", Traits::CATALOG, describe::view_definition),
    Entry::kernel("pg_get_viewdef(text) text", Traits::CATALOG, describe::view_definition_by_name),
    Entry::kernel("pg_get_viewdef(text, boolean) text", Traits::CATALOG, describe::view_definition_by_name),
    Entry::kernel("pg_get_indexdef(oid) text", Traits::CATALOG, describe::index_definition),
    Entry::kernel("pg_get_indexdef(oid, integer, boolean) text", Traits::CATALOG, describe::index_definition),
    Entry::kernel("pg_get_constraintdef(oid) text", Traits::CATALOG, describe::constraint_definition),
    Entry::kernel("pg_get_constraintdef(oid, boolean) text", Traits::CATALOG, describe::constraint_definition),
    Entry::rewrite("pg_get_expr(text, oid) text", |_, mut values| Ok(values.swap_remove(0))),
    Entry::rewrite("pg_get_expr(text, oid, boolean) text", |_, mut values| Ok(values.swap_remove(0))),
    Entry::rewrite("pg_partition_tree(oid) regclass", options::no_partitions),
    Entry::rewrite("pg_get_partkeydef(oid) text", |_, _| Ok(Typed::null(SqlType::Text))),
    Entry::rewrite("pg_get_statisticsobjdef_columns(oid) text", |_, _| Ok(Typed::null(SqlType::Text))),
    Entry::kernel("pg_get_ruledef(oid) text", Traits::CATALOG, describe::rule_definition),
    Entry::kernel("pg_get_ruledef(oid, boolean) text", Traits::CATALOG, describe::rule_definition),
    Entry::rewrite("pg_get_triggerdef(oid) text", |_, _| Ok(Typed::null(SqlType::Text))),
    Entry::rewrite("pg_get_triggerdef(oid, boolean) text", |_, _| Ok(Typed::null(SqlType::Text))),
    Entry::strict("pg_get_functiondef(oid) text", describe::function_definition),
    Entry::rewrite("pg_get_function_sqlbody(oid) text", |_, _| Ok(Typed::null(SqlType::Text))),
    Entry::strict("pg_get_function_result(oid) text", describe::function_result),
    Entry::strict("pg_get_function_arguments(oid) text", describe::function_arguments),
    Entry::strict("pg_get_function_identity_arguments(oid) text", describe::function_arguments).named("pg_get_function_arguments"),
    Entry::rewrite("pg_options_to_table(text[]) text", options::to_table),
    Entry::rewrite("pg_get_serial_sequence(text, text) text", |_, _| Ok(Typed::null(SqlType::Text))),
    Entry::rewrite("pg_tablespace_location(oid) text", |_, _| Ok(Typed::text(""))),
    Entry::rewrite("pg_relation_is_publishable(regclass) boolean", |_, _| Ok(Typed::boolean(lit(false)))),
    Entry::rewrite("pg_stat_get_numscans(oid) bigint", |_, _| Ok(Typed::null(SqlType::BigInt))),
    Entry::kernel("pg_relation_size(regclass) bigint", MEASURED, size::of_relation),
    Entry::kernel("pg_relation_size(regclass, text) bigint", MEASURED, size::of_relation),
    Entry::kernel("pg_total_relation_size(regclass) bigint", MEASURED, size::of_relation),
    Entry::kernel("pg_table_size(regclass) bigint", MEASURED, size::of_relation),
    Entry::kernel("pg_indexes_size(regclass) bigint", MEASURED, size::of_indexes),
    Entry::kernel("pg_database_size(name) bigint", MEASURED, size::of_database),
    Entry::kernel("pg_tablespace_size(oid) bigint", MEASURED, size::of_tablespace),
    Entry::kernel("to_regclass(text) regclass", Traits::CATALOG, describe::to_regclass),
    Entry::kernel("to_regproc(text) regproc", Traits::CATALOG, describe::to_regproc),
    Entry::kernel("to_regtype(text) regtype", Traits::STRICT, describe::to_regtype),
    Entry::kernel("to_regnamespace(text) regnamespace", Traits::CATALOG, describe::to_regnamespace),
    Entry::rewrite("has_schema_privilege(text, text) boolean", privilege::of_schema),
    Entry::rewrite("has_schema_privilege(name, text, text) boolean", privilege::of_schema),
    Entry::rewrite("has_schema_privilege(oid, text) boolean", privilege::granted),
    Entry::rewrite("has_table_privilege(text, text) boolean", privilege::granted),
    Entry::rewrite("has_table_privilege(oid, text) boolean", privilege::granted),
    Entry::rewrite("has_table_privilege(name, text, text) boolean", privilege::granted),
    Entry::rewrite("has_table_privilege(name, oid, text) boolean", privilege::granted),
    Entry::rewrite("has_any_column_privilege(text, text) boolean", privilege::granted),
    Entry::rewrite("has_any_column_privilege(name, text, text) boolean", privilege::granted),
    Entry::rewrite("has_any_column_privilege(name, oid, text) boolean", privilege::granted),
    Entry::rewrite("has_any_column_privilege(oid, text) boolean", privilege::granted),
    Entry::rewrite("has_column_privilege(text, text, text) boolean", privilege::granted),
    Entry::rewrite("has_column_privilege(oid, text, text) boolean", privilege::granted),
    Entry::rewrite("has_column_privilege(oid, smallint, text) boolean", privilege::granted),
    Entry::rewrite("has_database_privilege(text, text) boolean", privilege::granted),
    Entry::rewrite("has_database_privilege(oid, text) boolean", privilege::granted),
    Entry::rewrite("has_database_privilege(name, text, text) boolean", privilege::granted),
    Entry::rewrite("has_database_privilege(name, oid, text) boolean", privilege::granted),
    Entry::rewrite("has_schema_privilege(name, oid, text) boolean", privilege::granted),
    Entry::rewrite("has_tablespace_privilege(text, text) boolean", privilege::granted),
    Entry::rewrite("has_tablespace_privilege(oid, text) boolean", privilege::granted),
    Entry::rewrite("has_language_privilege(text, text) boolean", privilege::granted),
    Entry::rewrite("has_language_privilege(oid, text) boolean", privilege::granted),
    Entry::rewrite("has_server_privilege(text, text) boolean", privilege::granted),
    Entry::rewrite("has_server_privilege(oid, text) boolean", privilege::granted),
    Entry::rewrite("has_foreign_data_wrapper_privilege(text, text) boolean", privilege::granted),
    Entry::rewrite("has_foreign_data_wrapper_privilege(oid, text) boolean", privilege::granted),
    Entry::rewrite("has_sequence_privilege(oid, text) boolean", privilege::granted),
    Entry::rewrite("has_type_privilege(text, text) boolean", privilege::granted),
    Entry::rewrite("has_function_privilege(oid, text) boolean", privilege::granted),
    Entry::rewrite("has_function_privilege(text, text) boolean", privilege::granted),
    Entry::rewrite("has_sequence_privilege(text, text) boolean", privilege::granted),
    Entry::rewrite("has_type_privilege(oid, text) boolean", privilege::granted),
    Entry::rewrite("pg_has_role(name, text) boolean", privilege::granted),
    Entry::rewrite("pg_has_role(oid, text) boolean", privilege::granted),
    Entry::rewrite("pg_has_role(name, oid, text) boolean", privilege::granted),
    Entry::rewrite("acldefault(text, oid) text[]", privilege::by_default),
    Entry::rewrite("row_security_active(oid) boolean", |_, _| Ok(Typed::boolean(lit(false)))),
];

fn name(text: &str) -> Result<Typed> {
    Ok(Typed::literal(ScalarValue::Utf8View(Some(text.to_owned())), SqlType::Name))
}

/// The session's user, for one of its names.
fn user(binder: &Binder<'_>, function: &str) -> Result<Typed> {
    binder.require_session(function)?;
    name(&binder.environment.user)
}

fn oid(number: i32, sql_type: SqlType) -> Typed {
    Typed::literal(ScalarValue::Int32(Some(number)), sql_type)
}

/// The schemas of the path that exist.
fn visible_schemas(binder: &Binder<'_>, implicit: bool) -> Vec<String> {
    let environment = &binder.environment;
    let named = environment.search_path.iter().any(|schema| schema == "pg_catalog");
    let first = (implicit && !named).then(|| "pg_catalog".to_owned());
    first.into_iter().chain(environment.search_path.iter().filter(|schema| environment.catalog.schema(schema).is_some()).cloned()).collect()
}

fn current_schema(binder: &Binder<'_>, _: Vec<Typed>) -> Result<Typed> {
    binder.require_session("current_schema")?;
    match visible_schemas(binder, false).first() {
        Some(first) => name(first),
        None => Ok(Typed::null(SqlType::Name)),
    }
}

fn current_schemas(binder: &Binder<'_>, values: Vec<Typed>) -> Result<Typed> {
    binder.require_session("current_schemas")?;
    let implicit = match binder.constant_of(values[0].clone())? {
        Some(ScalarValue::Boolean(Some(implicit))) => implicit,
        _ => return Err(PlanError::unsupported("current_schemas with an argument that is no constant is not supported")),
    };
    let elements = visible_schemas(binder, implicit).iter().map(|schema| name(schema)).collect::<Result<Vec<_>>>()?;
    if elements.is_empty() {
        return Ok(Typed::literal(super::cast::empty_array(&SqlType::Name), SqlType::array(SqlType::Name)));
    }
    binder.make_array(elements, SqlType::Name)
}

fn always(call: &Call<'_>) -> Result<ArrayRef> {
    let oids = call.values::<Int32Type>(0)?;
    call.build_booleans(|row| Ok(oids.get(row).map(|_| true)))
}
