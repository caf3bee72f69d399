//! What the planner is told about the session when a statement is bound.

use std::{
    fmt,
    sync::{Arc, Weak},
};

use datafusion::{
    common::config::ConfigOptions,
    logical_expr::{LogicalPlan, TableSource},
};
use millpond_planner::{
    bind::{self, BindContext, Bound},
    catalog::{
        Catalog, Object, ObjectBody, QualifiedName,
        name::quoted,
        object::{QuerySettings, Sink, SinkInput},
    },
    functions::environment::{LiveState, Signal},
    interrupt::Interrupt,
    parse::ParsedStatement,
    pg_text::TextSettings,
    types::SqlType,
};

use crate::{
    error::{Result, SqlError},
    relation::system::SystemSource,
    session::{
        Session,
        cancel::Cancel,
        settings::{OWNER_NAME, SERVER_VERSION},
        text,
        variables::Variables,
    },
    state::ServerState,
    system_tables::registry::SystemRelations,
};

/// Parses, binds or optimizes. However short a text is, nothing tells beforehand how long its planning takes, and a thread that is busy does not
/// look after connections: so they all are left to another thread meanwhile.
pub(crate) fn planning<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

/// System relations and settings by name, for the planner.
#[derive(Clone)]
struct SystemNames {
    relations: Arc<SystemRelations>,
    /// What is stored is bound without a server.
    server: Option<Weak<ServerState>>,
    /// Those of a session; what is stored has none.
    variables: Option<Variables>,
    process_id: i32,
}

impl bind::SystemRelations for SystemNames {
    fn relation(&self, schema: &str, name: &str) -> Option<Arc<dyn TableSource>> {
        let relation = self.relations.find(schema, name)?;
        let (schema_name, name, schema) = (relation.schema_name, relation.name.clone(), relation.schema.clone());
        Some(Arc::new(SystemSource { schema_name, name, schema }))
    }

    fn oid(&self, schema: &str, name: &str) -> Option<i32> {
        self.relations.find(schema, name).map(|relation| relation.oid)
    }

    fn setting(&self, name: &str) -> Option<String> {
        if name == "backend_pid" {
            return Some(self.process_id.to_string());
        }
        self.variables.as_ref().and_then(|variables| variables.get(name))
    }

    fn live(&self) -> Arc<dyn LiveState> {
        Arc::new(self.clone())
    }
}

impl fmt::Debug for SystemNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemNames").field("process_id", &self.process_id).finish_non_exhaustive()
    }
}

impl LiveState for SystemNames {
    fn relation_bytes(&self, id: u64) -> Option<u64> {
        self.server.as_ref()?.upgrade()?.byte_estimate(id)
    }

    fn setting(&self, name: &str) -> Option<String> {
        bind::SystemRelations::setting(self, name)
    }

    fn system_relation(&self, schema: &str, name: &str) -> Option<i32> {
        bind::SystemRelations::oid(self, schema, name)
    }

    fn system_relation_name(&self, oid: i32) -> Option<QualifiedName> {
        let relation = self.relations.iter().find(|relation| relation.oid == oid)?;
        Some(QualifiedName { schema: Some(relation.schema_name.to_owned()), name: relation.name.clone() })
    }

    fn system_comment(&self, oid: i32, column: Option<usize>) -> Option<String> {
        let relation = self.relations.iter().find(|relation| relation.oid == oid && relation.schema_name == "millpond")?;
        let column = match column {
            Some(number) => Some(relation.schema.fields().get(number - 1)?.name().as_str()),
            None => None,
        };
        crate::system_tables::millpond::description(&relation.name, column).map(str::to_owned)
    }

    fn type_function(&self, name: &str) -> Option<i32> {
        self.relations.functions().iter().find(|(_, known)| *known == name).map(|(oid, _)| *oid)
    }

    fn type_function_name(&self, oid: i32) -> Option<String> {
        self.relations.functions().get(&oid).cloned()
    }

    fn operator(&self, oid: i32) -> Option<(String, i32, i32)> {
        self.relations.operator(oid)
    }

    fn started_us(&self) -> Option<i64> {
        Some(self.server.as_ref()?.upgrade()?.started_us)
    }

    fn signal(&self, process_id: i32, signal: Signal) -> bool {
        let Some(handle) = self.server.as_ref().and_then(Weak::upgrade).and_then(|server| server.sessions.cancel_of(process_id)) else {
            return false;
        };
        match signal {
            Signal::Cancel => handle.fire(),
            Signal::Terminate => handle.terminate(),
        }
        true
    }
}

/// What a session's statements are bound in.
pub(crate) struct SessionNames {
    search_path: Vec<String>,
    text: TextSettings,
    user: String,
    database: String,
    system: SystemNames,
    interrupt: Interrupt,
}

impl SessionNames {
    /// Of a session as it is now, for a statement that `cancel` ends.
    pub(crate) fn of(session: &Session, cancel: &Cancel) -> Self {
        Self {
            search_path: session.search_path(),
            text: session.text_settings(),
            user: session.info().user.clone(),
            database: session.info().database.clone(),
            system: SystemNames {
                relations: session.server.system.clone(),
                server: Some(Arc::downgrade(&session.server)),
                variables: Some(session.variables.clone()),
                process_id: session.info().process_id,
            },
            interrupt: cancel.interrupt(),
        }
    }

    /// Calls `bind` with the names and a catalog.
    pub(crate) fn with<T>(&self, catalog: &Catalog, parameters: &[Option<SqlType>], bind: impl FnOnce(&BindContext<'_>) -> T) -> T {
        bind(&BindContext {
            catalog,
            search_path: &self.search_path,
            text: &self.text,
            user: &self.user,
            database: &self.database,
            server_version: SERVER_VERSION,
            system: &self.system,
            parameter_types: parameters,
            interrupt: &self.interrupt,
            is_kept: false,
        })
    }
}

/// Binds a statement of the session.
pub(crate) fn bind(
    session: &Session,
    catalog: &Catalog,
    parsed: &ParsedStatement,
    parameters: &[Option<SqlType>],
    cancel: &Cancel,
) -> Result<Bound> {
    let names = SessionNames::of(session, cancel);
    Ok(planning(|| names.with(catalog, parameters, |context| bind::bind(parsed, context)))?)
}

/// Calls `bind` for something that is stored, outside of any session.
pub(crate) fn with_stored<T>(
    system: &Arc<SystemRelations>,
    catalog: &Catalog,
    text: TextSettings,
    interrupt: Interrupt,
    bind: impl FnOnce(&BindContext<'_>) -> T,
) -> T {
    let names = SessionNames {
        search_path: Vec::new(),
        text,
        user: OWNER_NAME.to_owned(),
        database: millpond_planner::catalog::DATABASE.to_owned(),
        system: SystemNames { relations: system.clone(), server: None, variables: None, process_id: 0 },
        interrupt,
    };
    names.with(catalog, &[], bind)
}

/// Binds the stored query of a materialized view or sink under the settings it was created with.
pub(crate) fn bind_stored_query(
    system: &Arc<SystemRelations>,
    catalog: &Catalog,
    object: &Object,
    settings: &QuerySettings,
    interrupt: &Interrupt,
) -> Result<LogicalPlan> {
    let definition = match &object.body {
        ObjectBody::Sink(Sink { input: SinkInput::Relation(id), .. }) => {
            let relation = catalog.get(*id).ok_or_else(|| SqlError::internal("the relation of a sink has gone"))?;
            format!("SELECT * FROM {}.{}", quoted(catalog.schema_name(relation)), quoted(&relation.name))
        }
        _ => object.definition().ok_or_else(|| SqlError::internal("an object without a query"))?.to_owned(),
    };
    let bind = |context: &BindContext<'_>| bind::bind_stored_query(&definition, settings, context);
    Ok(with_stored(system, catalog, text::of_settings(settings)?, interrupt.clone(), bind)?.plan)
}

/// DataFusion's options for expressions of a stored query.
pub(crate) fn config_of(settings: &QuerySettings) -> Result<Arc<ConfigOptions>> {
    let mut options = ConfigOptions::new();
    options.execution.time_zone = Some(settings.time_zone.clone());
    Ok(Arc::new(options))
}
