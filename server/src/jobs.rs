//! From objects of the catalog to what runs in the engine, at creation and after a restart.

mod exactness;
mod relations;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use arrow::datatypes::SchemaRef;
use futures::FutureExt;
use millpond_engine::{
    coordinator::{sources::SourceSettings, table::TableSpec},
    graph::CollectionKeySpec,
    job::{
        spec::{
            DEFAULT_ALIGNED_CHECKPOINT_TIMEOUT, DEFAULT_BUFFER_DEBLOAT_TARGET, DEFAULT_RECOVERY_TARGET, JobKind, JobOptions, JobSpec,
            ReadableWhen, Recovery, SinkTarget, readable_when, recovery, state_backend,
        },
        status::JobHandle,
    },
    sink::{SinkConnector, SinkOptions, SinkSpec, open_sink},
    source::{self, SourceOptions, SourceSpec},
};
use millpond_planner::{
    catalog::{
        Catalog, Object, ObjectBody,
        object::{Sink, Source, Watermark},
    },
    interrupt::Interrupt,
    optimize::join_order::{Hints, JoinOrder},
    stream::{Joins, Root, StreamPlan, ViewOptions, plan_view},
};
use millpond_storage::collection::{CollectionKey, CollectionSpec};
use parking_lot::RwLock;

use self::relations::KnownRelations;
pub(crate) use self::{
    exactness::{check_exactness, fail_subtask, recovery_of},
    relations::catch_up,
};
use crate::{
    binding,
    error::{Result, SqlError},
    session::{
        Session,
        settings::{self, UNITS},
    },
    state::ServerState,
};

/// What plans have told about running views, and why jobs do not run.
#[derive(Default)]
pub(crate) struct Jobs {
    views: RwLock<BTreeMap<u64, ViewInfo>>,
    broken: RwLock<BTreeMap<u64, String>>,
}

/// What a view on a view may rely on.
#[derive(Clone, Debug)]
pub(crate) struct ViewInfo {
    /// How its rows are identified.
    pub(crate) key: CollectionKeySpec,
    append_only: bool,
    watermark_column: Option<usize>,
    late_rows_diverted: bool,
}

impl Jobs {
    /// What is known of a view.
    pub(crate) fn view(&self, id: u64) -> Option<ViewInfo> {
        self.views.read().get(&id).cloned()
    }

    /// Objects that could not be started again, with the reason.
    pub(crate) fn broken(&self) -> BTreeMap<u64, String> {
        self.broken.read().clone()
    }

    /// Forgets an object.
    pub(crate) fn forget(&self, id: u64) {
        self.views.write().remove(&id);
        self.broken.write().remove(&id);
    }
}

/// Registers a table.
pub(crate) fn create_table(state: &ServerState, object: &Object) -> Result<()> {
    let Some(table) = object.table() else { return Err(SqlError::internal("a table is expected")) };
    state.engine.create_table(TableSpec {
        id: object.id,
        name: object.name.clone(),
        schema: object.arrow_schema(),
        primary_key: table.primary_key.as_ref().map(|key| key.columns.clone()),
        append_only: table.append_only,
        watermark: table.watermark.map(watermark_spec),
        diverts_late_rows: table.diverts_late_rows(),
    })?;
    Ok(())
}

fn watermark_spec(watermark: Watermark) -> source::WatermarkSpec {
    source::WatermarkSpec { column: watermark.column, delay: watermark.delay_us }
}

/// The checked specification of a source.
pub(crate) fn source_spec(name: &str, source: &Source, schema: Option<SchemaRef>) -> Result<SourceSpec> {
    let watermark = source.watermark.map(watermark_spec);
    Ok(SourceSpec::new(name, &source_options(source), schema, watermark)?)
}

/// The options of a source as connectors take them.
pub(crate) fn source_options(source: &Source) -> SourceOptions {
    SourceOptions { with: source.options.iter().map(|(key, value)| (key.clone(), value.clone())).collect(), format: None }
}

/// Registers a source.
pub(crate) async fn create_source(state: &ServerState, object: &Object) -> Result<()> {
    let ObjectBody::Source(source) = &object.body else { return Err(SqlError::internal("a source is expected")) };
    let spec = source_spec(&object.name, source, Some(object.arrow_schema()))?;
    let settings =
        SourceSettings { watermark: spec.watermark, late_rows: spec.late_rows, fail_on_bad_rows: spec.bad_rows == source::BadRows::Fail };
    let opened = source::open_source(&spec).await?;
    state.engine.create_source(object.id, &object.name, opened, settings).await?;
    Ok(())
}

/// Plans the job of a materialized view or sink that is to be created: the order of its joins is chosen, for ever.
pub(crate) fn plan_new(state: &ServerState, catalog: &Catalog, object: &Object, interrupt: &Interrupt) -> Result<StreamPlan> {
    let hints = Hints::in_text(object.definition().unwrap_or_default());
    plan_with(state, catalog, object, Joins::Chosen(hints), interrupt)
}

/// Plans the job of a materialized view or sink as it was created.
pub(crate) fn plan(state: &ServerState, catalog: &Catalog, object: &Object, interrupt: &Interrupt) -> Result<StreamPlan> {
    let order = match object.join_order() {
        None => JoinOrder::as_written(),
        Some(text) => JoinOrder::from_text(text).ok_or_else(|| {
            SqlError::internal(format!("the order of the joins of \"{}\" cannot be read: {text}", object.name))
                .with_hint("It may be of a newer server: start that again.")
        })?,
    };
    plan_with(state, catalog, object, Joins::Kept(order), interrupt)
}

fn plan_with(state: &ServerState, catalog: &Catalog, object: &Object, joins: Joins, interrupt: &Interrupt) -> Result<StreamPlan> {
    let (emit_on_window_close, query_settings, root) = match &object.body {
        ObjectBody::MaterializedView(view) => (view.emit_on_window_close, &view.settings, Root::Collection { id: object.id }),
        ObjectBody::Sink(sink) => {
            let root = if is_blackhole(sink) { Root::Discard } else { Root::Collection { id: object.id } };
            (sink.emit_on_window_close, &sink.settings, root)
        }
        _ => return Err(SqlError::internal("only views and sinks have jobs")),
    };
    let bound = binding::bind_stored_query(&state.system, catalog, object, query_settings, interrupt)?;
    let config = binding::config_of(query_settings)?;
    let options = ViewOptions { emit_on_window_close, root, config, joins, interrupt: interrupt.clone() };
    Ok(plan_view(&bound, &KnownRelations::new(catalog, state), &options)?)
}

fn is_blackhole(sink: &Sink) -> bool {
    sink.options.get("connector").is_some_and(|connector| connector.eq_ignore_ascii_case("blackhole"))
}

/// Starts a job that was planned.
pub(crate) fn start(state: &ServerState, object: &Object, plan: StreamPlan) -> Result<Arc<JobHandle>> {
    let kind = if matches!(object.body, ObjectBody::Sink(_)) { JobKind::Sink } else { JobKind::View };
    let options = job_options(state, options_of(object).ok_or_else(has_no_job)?)?;
    let sink = match &object.body {
        ObjectBody::Sink(sink) if !is_blackhole(sink) => Some(sink_target(&object.name, sink, &plan)?),
        _ => None,
    };
    let keeps = kind == JobKind::View || sink.is_some();
    let collection = keeps.then(|| CollectionSpec {
        id: object.id,
        schema: plan.schema.clone(),
        key: collection_key(&plan.key),
        directory: state.config.data_dir.join("collections"),
        durable_deltas: true,
    });
    let info = ViewInfo {
        key: plan.key.clone(),
        append_only: plan.append_only,
        watermark_column: plan.watermark_columns.first().copied(),
        late_rows_diverted: plan.late_rows_diverted,
    };
    let job =
        state.engine.start_job(JobSpec { id: object.id, name: object.name.clone(), kind, graph: plan.graph, collection, sink, options })?;
    state.jobs.views.write().insert(object.id, info);
    Ok(job)
}

fn collection_key(key: &CollectionKeySpec) -> CollectionKey {
    match key {
        CollectionKeySpec::Columns(columns) => CollectionKey::Columns(columns.clone()),
        CollectionKeySpec::WholeRow => CollectionKey::WholeRow,
        CollectionKeySpec::AppendOnly => CollectionKey::AppendOnly,
    }
}

fn sink_target(name: &str, sink: &Sink, plan: &StreamPlan) -> Result<SinkTarget> {
    let spec = sink_spec(name, sink, &plan.schema, plan.append_only)?;
    let commit_interval = spec.commit_interval;
    let open = Arc::new(move || {
        let spec = spec.clone();
        async move { Ok(open_sink(&spec)) }.boxed()
    });
    Ok(SinkTarget { open, commit_interval })
}

/// The checked specification of a sink; `blackhole` has none to check beyond its name.
pub(crate) fn sink_spec(name: &str, sink: &Sink, schema: &SchemaRef, append_only: bool) -> Result<SinkSpec> {
    let with = sink.options.iter().filter(|(key, _)| !JOB_OPTIONS.contains(&key.as_str()));
    let options = SinkOptions { with: with.map(|(key, value)| (key.clone(), value.clone())).collect(), format: None };
    let spec = SinkSpec::new(name, &options, schema, append_only)?;
    debug_assert!(!matches!(spec.connector, SinkConnector::Blackhole) || is_blackhole(sink));
    Ok(spec)
}

/// Options that are the job's, not the connector's.
const JOB_OPTIONS: [&str; 8] = [
    "parallelism",
    "checkpoint_interval",
    "recovery_target",
    ALIGNED_CHECKPOINT_TIMEOUT,
    BUFFER_DEBLOAT_TARGET,
    RECOVERY,
    "state_backend",
    "background",
];

/// When a view can be read after a restart. Nobody reads a sink.
const READABLE: &str = "readable";

/// How long a checkpoint's barrier waits: an option of a job, and the session's setting that it has by default.
const ALIGNED_CHECKPOINT_TIMEOUT: &str = "aligned_checkpoint_timeout";

/// Within which time a consumer should take what its exchanges hold: likewise.
const BUFFER_DEBLOAT_TARGET: &str = "buffer_debloat_target";

/// What becomes of a subtask's work when it fails: an option of a job.
const RECOVERY: &str = "recovery";

/// Most subtasks a fragment may have.
const PARALLELISM_LIMIT: usize = 64;

fn job_options(state: &ServerState, options: &BTreeMap<String, String>) -> Result<JobOptions> {
    let parallelism = match options.get("parallelism") {
        None => state.config.parallelism.min(PARALLELISM_LIMIT),
        Some(text) => text.parse().ok().filter(|count| (1..=PARALLELISM_LIMIT).contains(count)).ok_or_else(|| {
            invalid("parallelism", text)
                .with_hint(format!("Valid values are between 1 and {PARALLELISM_LIMIT}, or AUTO for SET PARALLELISM."))
        })?,
    };
    let positive = |name: &str, default: Duration| duration_option(options, name, default, Duration::from_millis(1));
    let or_zero = |name: &str, default: Duration| duration_option(options, name, default, Duration::ZERO);
    Ok(JobOptions {
        parallelism,
        checkpoint_interval: positive("checkpoint_interval", state.config.checkpoint_interval)?,
        recovery_target: positive("recovery_target", DEFAULT_RECOVERY_TARGET)?,
        aligned_checkpoint_timeout: or_zero(ALIGNED_CHECKPOINT_TIMEOUT, DEFAULT_ALIGNED_CHECKPOINT_TIMEOUT)?,
        buffer_debloat_target: or_zero(BUFFER_DEBLOAT_TARGET, DEFAULT_BUFFER_DEBLOAT_TARGET)?,
        readable: options.get(READABLE).map_or(Ok(ReadableWhen::default()), |name| readable_when(name))?,
        state_backend: state_backend(options.get("state_backend").unwrap_or(&state.config.state_backend))?,
        recovery: options.get(RECOVERY).map_or(Ok(Recovery::default()), |name| recovery(name))?,
    })
}

fn invalid(name: &str, value: &str) -> SqlError {
    SqlError::new("22023", format!("invalid value for parameter \"{name}\": \"{value}\""))
}

/// Options whose values are times.
const TIMES: [&str; 4] = ["checkpoint_interval", "recovery_target", ALIGNED_CHECKPOINT_TIMEOUT, BUFFER_DEBLOAT_TARGET];

/// What is written in a statement has a unit: `'5'` would be milliseconds to one reader and seconds to another. What was stored by an earlier
/// version may have none.
///
/// # Errors
/// 22023 for a time without a unit that is not zero.
pub(crate) fn check_units<'a>(options: &BTreeMap<String, String>, names: impl IntoIterator<Item = &'a str>) -> Result<()> {
    for name in names.into_iter().filter(|name| TIMES.contains(name)) {
        let Some(text) = options.get(name) else { continue };
        if text.trim().parse::<f64>().is_ok_and(|number| number > 0.0) {
            return Err(invalid(name, text).with_hint(format!("A time needs a unit here, as in '{}s'. {UNITS}", text.trim())));
        }
    }
    Ok(())
}

fn duration_option(options: &BTreeMap<String, String>, name: &str, default: Duration, least: Duration) -> Result<Duration> {
    let Some(text) = options.get(name) else { return Ok(default) };
    let value = settings::parse_millis(text).map(Duration::from_millis).filter(|value| *value >= least);
    value.ok_or_else(|| {
        let hint = if least.is_zero() { UNITS.to_owned() } else { format!("It must be at least {} ms. {UNITS}", least.as_millis()) };
        invalid(name, text).with_hint(hint)
    })
}

/// The options of a job that maintains a view, or that feeds a sink.
fn known_options(is_view: bool) -> impl Iterator<Item = &'static str> {
    JOB_OPTIONS.into_iter().chain(is_view.then_some(READABLE))
}

/// The options of a view or sink, among which are those of its job; other objects have none.
fn options_of(object: &Object) -> Option<&BTreeMap<String, String>> {
    match &object.body {
        ObjectBody::MaterializedView(view) => Some(&view.options),
        ObjectBody::Sink(sink) => Some(&sink.options),
        _ => None,
    }
}

fn has_no_job() -> SqlError {
    SqlError::internal("only views and sinks have jobs")
}

/// A job keeps what the session that creates it has set for it, unless its own options say something else.
pub(crate) fn keep_session_options(session: &Session, object: &mut Object) {
    let options = match &mut object.body {
        ObjectBody::MaterializedView(view) => &mut view.options,
        ObjectBody::Sink(sink) => &mut sink.options,
        _ => return,
    };
    for name in [ALIGNED_CHECKPOINT_TIMEOUT, BUFFER_DEBLOAT_TARGET] {
        let Some(setting) = settings::find(name) else { continue };
        let value = session.variables.value(setting);
        if value != setting.default {
            options.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        }
    }
}

/// The settings of a job after some of an object's options were set or reset.
///
/// # Errors
/// 22023 for a value that means nothing, or a name that is no setting of a job.
pub(crate) fn changed_options(state: &ServerState, object: &Object, names: &[String]) -> Result<JobOptions> {
    let is_view = matches!(object.body, ObjectBody::MaterializedView(_));
    let known: Vec<&str> = known_options(is_view).filter(|name| !matches!(*name, "background" | "state_backend")).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(SqlError::new("22023", format!("unrecognized parameter \"{unknown}\""))
            .with_hint(format!("What can be changed while the job exists: {}.", known.join(", "))));
    }
    let options = options_of(object).ok_or_else(has_no_job)?;
    check_units(options, names.iter().map(String::as_str))?;
    job_options(state, options)
}

/// Lets the job of a view or sink go on that has failed, or that could not be started with the server.
///
/// # Errors
/// 55000 if it has not failed; why it cannot be started.
pub(crate) fn resume(state: &ServerState, id: u64, skip: bool) -> Result<()> {
    if let Some(job) = state.engine.job(id) {
        return Ok(job.resume(skip)?);
    }
    let catalog = state.catalog.snapshot();
    let object = catalog.get(id).cloned().ok_or_else(|| SqlError::internal("an object that is not in the catalog"))?;
    if let Some(source) = sources_under(&catalog, &object).into_iter().find(|source| state.engine.source(source.id).is_none()) {
        return Err(SqlError::new("55000", format!("source \"{}\" could not be opened when the server was started", source.name))
            .with_hint("What it had read is in the epoch log, which is read at a start: mend the source and start the server again."));
    }
    let plan = plan(state, &catalog, &object, &Interrupt::never())?;
    start(state, &object, plan)?;
    state.engine.unpark(id);
    state.jobs.broken.write().remove(&id);
    Ok(())
}

/// Checks the options of the job of an object that is to be created.
///
/// # Errors
/// 22023 for a name or value that means nothing.
pub(crate) fn check_options(state: &ServerState, object: &Object) -> Result<()> {
    let options = match &object.body {
        ObjectBody::MaterializedView(view) => &view.options,
        // The other names are the connector's, which checks them itself.
        ObjectBody::Sink(sink) => {
            check_units(&sink.options, TIMES)?;
            return job_options(state, &sink.options).map(|_| ());
        }
        _ => return Ok(()),
    };
    let known: Vec<&str> = known_options(true).collect();
    if let Some(unknown) = options.keys().find(|name| !known.contains(&name.as_str())) {
        return Err(SqlError::new("22023", format!("unrecognized parameter \"{unknown}\""))
            .with_hint(format!("Available parameters: {}.", known.join(", "))));
    }
    check_units(options, TIMES)?;
    if let Some(text) = options.get("background").filter(|text| settings::parse_bool(text).is_none()) {
        return Err(invalid("background", text).with_hint("It is true or false."));
    }
    job_options(state, options).map(|_| ())
}

/// Whether CREATE is to return at once.
pub(crate) fn in_background(options: &BTreeMap<String, String>) -> bool {
    options.get("background").and_then(|value| settings::parse_bool(value)).unwrap_or(false)
}

/// After a restart: tables and sources, then the epoch log, then jobs, each in the order of numbers, which is that of creation. What cannot be
/// started again is named in the log and in `millpond.jobs`; everything else goes on.
pub(crate) async fn recover(state: &ServerState) -> Result<()> {
    let catalog = state.catalog.snapshot();
    for object in catalog.objects().filter(|object| object.table().is_some()) {
        create_table(state, object)?;
    }
    for object in catalog.objects() {
        if matches!(object.body, ObjectBody::Source(_))
            && let Err(error) = create_source(state, object).await
        {
            broken(state, object, &error);
        }
    }
    state.engine.recover().await?;
    let starting = state.engine.starting();
    for object in catalog.objects() {
        if matches!(object.body, ObjectBody::MaterializedView(_) | ObjectBody::Sink(_))
            && let Err(error) = plan(state, &catalog, object, &Interrupt::never()).and_then(|plan| start(state, object, plan))
        {
            broken(state, object, &error);
        }
    }
    drop(starting);
    state.engine.start_maintenance();
    Ok(())
}

/// The tables, sources and materialized views that a query reads, also through views.
fn inputs_of<'a>(catalog: &'a Catalog, object: &Object) -> Vec<&'a Arc<Object>> {
    let mut open: Vec<u64> = object.depends_on.iter().copied().collect();
    let mut found = BTreeMap::new();
    while let Some(id) = open.pop() {
        let Some(object) = catalog.get(id) else { continue };
        match &object.body {
            ObjectBody::View(_) => open.extend(object.depends_on.iter().copied()),
            ObjectBody::Table(_) | ObjectBody::MaterializedView(_) | ObjectBody::Source(_) => {
                found.insert(object.id, object);
            }
            ObjectBody::Schema | ObjectBody::Sink(_) | ObjectBody::Index(_) => {}
        }
    }
    found.into_values().collect()
}

fn collections_under(catalog: &Catalog, object: &Object) -> Vec<u64> {
    let inputs = inputs_of(catalog, object).into_iter().filter(|input| !matches!(input.body, ObjectBody::Source(_)));
    inputs.map(|input| input.id).collect()
}

fn sources_under<'a>(catalog: &'a Catalog, object: &Object) -> Vec<&'a Arc<Object>> {
    inputs_of(catalog, object).into_iter().filter(|input| matches!(input.body, ObjectBody::Source(_))).collect()
}

fn broken(state: &ServerState, object: &Object, error: &SqlError) {
    tracing::error!(object = %object.name, %error, "could not be started again");
    state.engine.park(object.id, collections_under(&state.catalog.snapshot(), object));
    state.jobs.broken.write().insert(object.id, error.message.clone());
}
