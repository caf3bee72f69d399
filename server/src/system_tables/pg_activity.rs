//! The server and its sessions: `pg_database`, `pg_roles`, `pg_settings`, `pg_stat_activity`, `pg_cursors` and the like.

use crate::{
    error::Result,
    session::settings::{self, Kind, OWNER_NAME},
    system_tables::{
        numbers::{DATABASE, OWNER},
        registry::{MakeRows, SystemContext},
        rows::{Cell, Row},
    },
};

/// The maker of a relation's rows, if it is one of these.
pub(crate) fn rows_of(name: &str) -> Option<MakeRows> {
    Some(match name {
        "pg_database" => pg_database,
        "pg_roles" | "pg_authid" => pg_roles,
        "pg_user" | "pg_shadow" => pg_user,
        "pg_settings" => pg_settings,
        "pg_stat_activity" => pg_stat_activity,
        "pg_stat_database" => pg_stat_database,
        "pg_cursors" => pg_cursors,
        "pg_prepared_statements" => pg_prepared_statements,
        "pg_timezone_names" => pg_timezone_names,
        _ => return None,
    })
}

fn pg_database(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    Ok(vec![vec![
        ("oid", DATABASE.into()),
        ("datname", context.session.database.as_str().into()),
        ("datdba", OWNER.into()),
        ("encoding", 6.into()),
        ("datlocprovider", "c".into()),
        ("datistemplate", false.into()),
        ("datallowconn", true.into()),
        ("datconnlimit", (-1).into()),
        ("datfrozenxid", 0.into()),
        ("datminmxid", 0.into()),
        ("dattablespace", 1663.into()),
        ("datcollate", "C.UTF-8".into()),
        ("datctype", "C.UTF-8".into()),
    ]])
}

/// The superuser, and whoever is connected under another name.
fn roles(context: &SystemContext<'_>) -> Vec<(i32, String)> {
    let mut roles = vec![(OWNER, OWNER_NAME.to_owned())];
    if context.session.user != OWNER_NAME {
        roles.push((16_382, context.session.user.clone()));
    }
    roles
}

fn pg_roles(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let row = |(oid, name): (i32, String)| -> Row {
        let mut row: Row =
            vec![("oid", oid.into()), ("rolname", name.into()), ("rolconnlimit", (-1).into()), ("rolpassword", "********".into())];
        for name in ["rolsuper", "rolinherit", "rolcreaterole", "rolcreatedb", "rolcanlogin", "rolreplication", "rolbypassrls"] {
            row.push((name, true.into()));
        }
        row
    };
    Ok(roles(context).into_iter().map(row).collect())
}

fn pg_user(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let row = |(oid, name): (i32, String)| -> Row {
        let mut row: Row = vec![("usesysid", oid.into()), ("usename", name.into()), ("passwd", "********".into())];
        for name in ["usecreatedb", "usesuper", "userepl", "usebypassrls"] {
            row.push((name, true.into()));
        }
        row
    };
    Ok(roles(context).into_iter().map(row).collect())
}

fn pg_settings(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, value) in &context.session.settings {
        let Some(setting) = settings::find(name) else { continue };
        let (kind, enumeration) = match setting.kind {
            Kind::Bool => ("bool", Cell::Null),
            Kind::Int(..) | Kind::Millis => ("integer", Cell::Null),
            Kind::Real(..) => ("real", Cell::Null),
            Kind::Word(words) => ("enum", Cell::Texts(words.iter().map(|word| (*word).to_owned()).collect())),
            Kind::Text | Kind::Names | Kind::DateStyle | Kind::TimeZone | Kind::Encoding => ("string", Cell::Null),
        };
        // Times are shown in the unit beside them.
        let (value, default, unit) = if setting.kind == Kind::Millis {
            let millis = |text: &str| settings::parse_millis(text).unwrap_or_default().to_string();
            (millis(value), millis(setting.default), Cell::from("ms"))
        } else {
            // What users cannot set is what the server was started with.
            let default = if setting.read_only { value.clone() } else { setting.default.to_owned() };
            (value.clone(), default, Cell::Null)
        };
        rows.push(vec![
            ("name", setting.name.into()),
            ("source", if value == default { "default" } else { "session" }.into()),
            ("setting", value.into()),
            ("unit", unit),
            ("category", "Client Connection Defaults".into()),
            ("short_desc", setting.description.into()),
            ("context", if setting.read_only { "internal" } else { "user" }.into()),
            ("vartype", kind.into()),
            ("enumvals", enumeration),
            ("boot_val", default.clone().into()),
            ("reset_val", default.into()),
            ("pending_restart", false.into()),
        ]);
    }
    Ok(rows)
}

fn pg_stat_activity(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let row = |session: crate::session::activity::ActivityView| -> Row {
        vec![
            ("datid", DATABASE.into()),
            ("datname", session.database.into()),
            ("pid", session.process_id.into()),
            ("usesysid", OWNER.into()),
            ("usename", session.user.into()),
            ("application_name", session.application_name.into()),
            ("client_addr", session.peer.map(|peer| peer.ip().to_string()).into()),
            ("client_port", session.peer.map(|peer| i32::from(peer.port())).into()),
            ("backend_start", Cell::Time(session.started_us)),
            ("xact_start", session.transaction_start_us.map_or(Cell::Null, Cell::Time)),
            ("query_start", session.query_start_us.map_or(Cell::Null, Cell::Time)),
            ("state_change", Cell::Time(session.state_change_us)),
            ("wait_event_type", if session.state == "active" { Cell::Null } else { "Client".into() }),
            ("wait_event", if session.state == "active" { Cell::Null } else { "ClientRead".into() }),
            ("state", session.state.into()),
            ("query", session.query.as_ref().into()),
            ("backend_type", "client backend".into()),
        ]
    };
    Ok(context.server.sessions.list().into_iter().map(row).collect())
}

fn pg_stat_database(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    Ok(vec![vec![
        ("datid", DATABASE.into()),
        ("datname", context.session.database.as_str().into()),
        ("numbackends", context.server.sessions.list().len().into()),
    ]])
}

fn pg_cursors(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let row = |(name, text, held, scrollable): &(String, String, bool, bool)| -> Row {
        vec![
            ("name", name.as_str().into()),
            ("statement", text.as_str().into()),
            ("is_holdable", (*held).into()),
            ("is_binary", false.into()),
            ("is_scrollable", (*scrollable).into()),
        ]
    };
    Ok(context.session.cursors.iter().map(row).collect())
}

fn pg_prepared_statements(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let row = |(name, text, from_sql): &(String, String, bool)| -> Row {
        vec![("name", name.as_str().into()), ("statement", text.as_str().into()), ("from_sql", (*from_sql).into())]
    };
    Ok(context.session.prepared.iter().map(row).collect())
}

fn pg_timezone_names(_context: &SystemContext<'_>) -> Result<Vec<Row>> {
    Ok(chrono_tz::TZ_VARIANTS.iter().map(|zone| vec![("name", zone.name().into())]).collect())
}
