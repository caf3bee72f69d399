//! Schema `millpond`: what an operator asks about. Jobs and how far they are, checkpoints, sources and what holds their watermark back,
//! refused rows, backfills, and all relations with their sizes.

use millpond_engine::job::{
    recovery::RecoveryStep,
    rescale::RescaleStep,
    status::{JobState, SubtaskCheckpoint},
};
use millpond_planner::catalog::{Object, ObjectBody};

use crate::{
    error::Result,
    system_tables::{
        registry::{MakeRows, SystemContext},
        rows::{Cell, Row},
    },
};

/// Number, kind, name and columns of each, and what makes its rows.
pub(crate) const RELATIONS: &[(&str, MakeRows)] = &[
    (
        "13101 v jobs: id int8, schema_name text, name text, kind text, state text, epoch int8, lag_ms int8, rows_per_second float8, \
         rows int8, state_bytes int8, restarts int8, error text, recovery text, approximate_from int8, \
         parallelism int8, rescaling text",
        jobs,
    ),
    (
        "13102 v checkpoints: job_id int8, job text, epoch int8, mode text, duration_ms float8, alignment_ms float8, sync_ms float8, \
         async_ms float8, bytes int8, log_bytes int8, materialization_bytes int8, in_flight_bytes int8, stored_bytes int8, \
         replay_bytes int8, replay_ms float8, error text",
        checkpoints,
    ),
    (
        "13108 v checkpoint_subtasks: job_id int8, job text, epoch int8, fragment int8, subtask int8, mode text, delay_ms float8, \
         alignment_ms float8, sync_ms float8, log_bytes int8, in_flight_bytes int8",
        checkpoint_subtasks,
    ),
    (
        "13110 v exchanges: job_id int8, job text, exchange int8, kind text, from_fragment int8, from_subtask int8, to_fragment int8, \
         to_subtask int8, buffered_rows int8, buffered_bytes int8, capacity_rows int8, chunk_rows int8, target_ms float8, \
         rows_per_second float8, debloated bool",
        exchanges,
    ),
    (
        "13103 v sources: source_id int8, source text, split text, split_offset int8, split_end int8, bounded bool, finished bool, idle bool, \
         watermark timestamptz, source_watermark timestamptz, holds_back_watermark bool, rows int8, error text",
        sources,
    ),
    (
        "13104 v late_rows: job_id int8, job text, operator text, epoch int8, refused_at timestamptz, reason text, row_text text, split text, split_offset int8",
        late_rows,
    ),
    (
        "13105 v bad_rows: job_id int8, job text, operator text, epoch int8, refused_at timestamptz, reason text, row_text text, split text, split_offset int8",
        bad_rows,
    ),
    ("13106 v backfills: job_id int8, job text, state text, rows_read int8, rows_expected int8, progress float8", backfills),
    (
        "13109 v recoveries: job_id int8, job text, cause text, error text, detected_at timestamptz, from_epoch int8, cancelled_ms float8, \
         restored_ms float8, replayed_ms float8, caught_up_ms float8, restored_from text, local_files int8, store_files int8, \
         scope text, fragment int8, subtask int8, why_job text",
        recoveries,
    ),
    (
        "13111 v rescales: job_id int8, job text, from_parallelism int8, to_parallelism int8, ordered_at timestamptz, state text, \
         waited_ms float8, stopped_ms float8, started_ms float8, sealed_ms float8, pause_ms float8",
        rescales,
    ),
    (
        "13107 v relations: id int8, schema_name text, name text, kind text, rows int8, bytes int8, since int8, upper int8, durable int8, \
         definition text",
        relations,
    ),
];

/// What each relation and each of its columns means: `relation.column: text` a line.
const DESCRIPTIONS: &str = include_str!("millpond.descriptions");

/// The name of a relation or `relation.column`, and what it means.
pub(crate) fn descriptions() -> impl Iterator<Item = (&'static str, &'static str)> {
    DESCRIPTIONS.lines().filter_map(|line| line.split_once(": "))
}

/// What a relation of schema `millpond` is about, or one of its columns.
pub(crate) fn description(relation: &str, column: Option<&str>) -> Option<&'static str> {
    let wanted = column.map_or_else(|| relation.to_owned(), |column| format!("{relation}.{column}"));
    descriptions().find(|(name, _)| *name == wanted).map(|(_, text)| text)
}

/// The name of an object as messages show it.
fn name_of(context: &SystemContext<'_>, id: u64) -> Cell {
    context.catalog.get(id).map(|object| object.name.clone()).into()
}

fn recovery_of(context: &SystemContext<'_>, id: u64) -> Cell {
    context.catalog.get(id).map(|object| crate::jobs::recovery_of(object).as_str().to_owned()).into()
}

fn jobs(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let schema = |id: u64| -> Cell { context.catalog.get(id).map(|object| context.catalog.schema_name(object).to_owned()).into() };
    let mut rows: Vec<Row> = Vec::new();
    for job in context.server.engine.jobs() {
        let is_sink = context.catalog.get(job.id).is_some_and(|object| matches!(object.body, ObjectBody::Sink(_)));
        rows.push(vec![
            ("id", job.id.into()),
            ("schema_name", schema(job.id)),
            ("name", name_of(context, job.id)),
            ("kind", if is_sink { "sink" } else { "view" }.into()),
            ("state", job.state.as_str().into()),
            ("epoch", job.epoch.0.into()),
            ("lag_ms", job.lag_ms.into()),
            ("rows_per_second", tenths(job.rows_per_second).into()),
            ("rows", job.rows.into()),
            ("state_bytes", job.state_bytes.into()),
            ("restarts", job.restarts.into()),
            ("error", job.error.into()),
            ("recovery", recovery_of(context, job.id)),
            ("approximate_from", job.approximate_from.map(|epoch| epoch.0).into()),
            ("parallelism", job.parallelism.into()),
            ("rescaling", job.rescale.map(|rescale| format!("to {}: {}", rescale.to, rescale.state())).into()),
        ]);
    }
    for (id, reason) in context.server.jobs.broken() {
        let Some(object) = context.catalog.get(id) else { continue };
        let kind = match &object.body {
            ObjectBody::MaterializedView(_) => "view",
            ObjectBody::Sink(_) => "sink",
            _ => continue,
        };
        rows.push(vec![
            ("id", id.into()),
            ("schema_name", schema(id)),
            ("name", object.name.as_str().into()),
            ("kind", kind.into()),
            ("state", JobState::Failed.as_str().into()),
            ("restarts", 0.into()),
            ("error", reason.into()),
        ]);
    }
    for table in context.catalog.objects().filter(|object| matches!(object.body, ObjectBody::Table(_))) {
        let Some(collection) = context.server.engine.collection(table.id) else { continue };
        rows.push(vec![
            ("id", table.id.into()),
            ("schema_name", schema(table.id)),
            ("name", table.name.as_str().into()),
            ("kind", "table".into()),
            ("state", JobState::Running.as_str().into()),
            ("epoch", collection.upper().0.into()),
            ("lag_ms", 0.into()),
            ("rows_per_second", 0.0.into()),
            ("rows", collection.row_estimate().into()),
            ("state_bytes", collection.bytes().into()),
            ("restarts", 0.into()),
        ]);
    }
    Ok(rows)
}

fn checkpoints(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let rows = context.server.engine.checkpoints().into_iter().map(|checkpoint| -> Row {
        let longest = |time: fn(&SubtaskCheckpoint) -> u64| -> Cell {
            checkpoint.subtasks.iter().map(|subtask| millis(time(subtask))).reduce(f64::max).into()
        };
        vec![
            ("job_id", checkpoint.job.into()),
            ("job", name_of(context, checkpoint.job)),
            ("epoch", checkpoint.epoch.0.into()),
            ("mode", checkpoint.error.is_none().then(|| mode(checkpoint.in_flight_bytes.is_some())).into()),
            ("duration_ms", millis(checkpoint.duration_us).into()),
            ("alignment_ms", longest(|subtask| subtask.alignment_us)),
            ("sync_ms", longest(|subtask| subtask.sync_us)),
            ("async_ms", millis(checkpoint.async_us).into()),
            ("bytes", (checkpoint.log_bytes + checkpoint.materialized_bytes + checkpoint.in_flight_bytes.unwrap_or(0)).into()),
            ("log_bytes", checkpoint.log_bytes.into()),
            ("materialization_bytes", checkpoint.materialized_bytes.into()),
            ("in_flight_bytes", checkpoint.in_flight_bytes.unwrap_or(0).into()),
            ("stored_bytes", checkpoint.stored_bytes.into()),
            ("replay_bytes", checkpoint.replay_bytes.into()),
            ("replay_ms", millis(checkpoint.replay_us).into()),
            ("error", checkpoint.error.into()),
        ]
    });
    Ok(rows.collect())
}

fn recoveries(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let rows = context.server.engine.recoveries().into_iter().map(|recovery| -> Row {
        let after = |step| recovery.after(step).map_or(Cell::Null, |after| millis(after.as_micros() as u64).into());
        vec![
            ("job_id", recovery.job.into()),
            ("job", name_of(context, recovery.job)),
            ("cause", recovery.cause.as_str().into()),
            ("detected_at", Cell::Time(recovery.detected_at_us)),
            ("from_epoch", recovery.from_epoch.0.into()),
            ("cancelled_ms", after(RecoveryStep::Cancelled)),
            ("restored_ms", after(RecoveryStep::Restored)),
            ("replayed_ms", after(RecoveryStep::Replayed)),
            ("caught_up_ms", after(RecoveryStep::CaughtUp)),
            ("restored_from", recovery.restored_from().map(str::to_owned).into()),
            ("local_files", recovery.image.local_files.into()),
            ("store_files", recovery.image.store_files.into()),
            ("scope", recovery.scope().into()),
            ("fragment", recovery.subtask.map(|id| id.fragment).into()),
            ("subtask", recovery.subtask.map(|id| id.index).into()),
            ("why_job", recovery.why_whole.into()),
            ("error", recovery.error.into()),
        ]
    });
    Ok(rows.collect())
}

fn rescales(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let rows = context.server.engine.rescales().into_iter().map(|rescale| -> Row {
        let after = |step| rescale.after(step).map_or(Cell::Null, |after| millis(after.as_micros() as u64).into());
        vec![
            ("job_id", rescale.job.into()),
            ("job", name_of(context, rescale.job)),
            ("from_parallelism", rescale.from.into()),
            ("to_parallelism", rescale.to.into()),
            ("ordered_at", Cell::Time(rescale.ordered_at_us)),
            ("state", rescale.state().into()),
            ("waited_ms", after(RescaleStep::Stopping)),
            ("stopped_ms", after(RescaleStep::Stopped)),
            ("started_ms", after(RescaleStep::Started)),
            ("sealed_ms", after(RescaleStep::Sealed)),
            ("pause_ms", millis(rescale.pause().as_micros() as u64).into()),
        ]
    });
    Ok(rows.collect())
}

fn checkpoint_subtasks(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let mut rows: Vec<Row> = Vec::new();
    for checkpoint in context.server.engine.checkpoints() {
        rows.extend(checkpoint.subtasks.iter().map(|subtask| -> Row {
            vec![
                ("job_id", checkpoint.job.into()),
                ("job", name_of(context, checkpoint.job)),
                ("epoch", checkpoint.epoch.0.into()),
                ("fragment", subtask.fragment.into()),
                ("subtask", subtask.subtask.into()),
                ("mode", mode(subtask.is_unaligned).into()),
                ("delay_ms", millis(subtask.delay_us).into()),
                ("alignment_ms", millis(subtask.alignment_us).into()),
                ("sync_ms", millis(subtask.sync_us).into()),
                ("log_bytes", subtask.log_bytes.into()),
                ("in_flight_bytes", subtask.in_flight_bytes.into()),
            ]
        }));
    }
    Ok(rows)
}

fn exchanges(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let rows = context.server.engine.exchanges().into_iter().map(|edge| -> Row {
        let (channel, bounds) = (&edge.channel, edge.channel.bounds);
        let target = (!edge.target.is_zero()).then(|| millis(edge.target.as_micros() as u64));
        vec![
            ("job_id", edge.job.into()),
            ("job", name_of(context, edge.job)),
            ("exchange", edge.exchange.into()),
            ("kind", edge.kind.into()),
            ("from_fragment", edge.from.map(|from| from.fragment).into()),
            ("from_subtask", edge.from.map(|from| from.index).into()),
            ("to_fragment", edge.to.fragment.into()),
            ("to_subtask", edge.to.index.into()),
            ("buffered_rows", channel.buffered_rows.into()),
            ("buffered_bytes", channel.buffered_bytes.into()),
            ("capacity_rows", bounds.rows.into()),
            ("chunk_rows", bounds.chunk_rows.into()),
            ("target_ms", target.into()),
            ("rows_per_second", channel.rows_per_second.map(tenths).into()),
            ("debloated", bounds.is_debloated().into()),
        ]
    });
    Ok(rows.collect())
}

fn mode(is_unaligned: bool) -> &'static str {
    if is_unaligned { "unaligned" } else { "aligned" }
}

/// Milliseconds of a time, with at most two digits behind the point.
fn millis(micros: u64) -> f64 {
    (micros as f64 / 10.0).round() / 100.0
}

fn tenths(rate: f64) -> f64 {
    (rate * 10.0).round() / 10.0
}

fn sources(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let closed = context.server.engine.coordinator().closed().epoch;
    let broken = context.server.jobs.broken();
    let mut rows: Vec<Row> = Vec::new();
    for object in context.catalog.objects().filter(|object| matches!(object.body, ObjectBody::Source(_))) {
        let Some(source) = context.server.engine.source(object.id) else {
            let reason: Cell = broken.get(&object.id).cloned().into();
            rows.push(vec![("source_id", object.id.into()), ("source", object.name.as_str().into()), ("error", reason)]);
            continue;
        };
        let splits = source.status();
        // The split that is furthest behind of those that are not idle holds the source's watermark back.
        let lowest = splits.iter().filter_map(|(_, bound)| bound.filter(|bound| !bound.idle)).map(|bound| bound.watermark_us).min();
        for (split, bound) in splits {
            let watermark = bound.map(|bound| bound.watermark_us);
            let offset = bound.map_or(0, |bound| bound.end);
            rows.push(vec![
                ("source_id", object.id.into()),
                ("source", object.name.as_str().into()),
                ("split", split.id.into()),
                ("split_offset", offset.into()),
                ("split_end", split.end.into()),
                ("bounded", split.bounded.into()),
                ("finished", (split.bounded && (source.finished().is_some() || split.end.is_some_and(|end| offset >= end))).into()),
                ("idle", bound.is_some_and(|bound| bound.idle).into()),
                ("watermark", watermark.map_or(Cell::Null, time)),
                ("source_watermark", source.watermark_at(closed).map_or(Cell::Null, time)),
                ("holds_back_watermark", (watermark.is_some() && watermark == lowest && bound.is_some_and(|bound| !bound.idle)).into()),
                ("rows", source.rows().into()),
            ]);
        }
    }
    Ok(rows)
}

/// A time, unless none is known.
fn time(micros: i64) -> Cell {
    if matches!(micros, i64::MIN | i64::MAX) { Cell::Null } else { Cell::Time(micros) }
}

fn refused(context: &SystemContext<'_>, refused: Vec<millpond_engine::side::SideRow>) -> Vec<Row> {
    let row = |refused: millpond_engine::side::SideRow| -> Row {
        vec![
            ("job_id", refused.job.into()),
            ("job", name_of(context, refused.job)),
            ("operator", refused.operator.into()),
            ("epoch", refused.epoch.0.into()),
            ("refused_at", time(refused.time_us)),
            ("reason", refused.reason.into()),
            ("row_text", refused.row.into()),
            ("split", refused.split.into()),
            ("split_offset", refused.offset.into()),
        ]
    };
    refused.into_iter().map(row).collect()
}

fn late_rows(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    Ok(refused(context, context.server.engine.late_rows()))
}

fn bad_rows(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    Ok(refused(context, context.server.engine.bad_rows()))
}

fn backfills(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let jobs = context.server.engine.jobs().into_iter().filter(|job| job.backfill.1 > 0 || job.state == JobState::Backfilling);
    let rows = jobs.map(|job| -> Row {
        let (read, expected) = job.backfill;
        let is_running = job.state == JobState::Backfilling;
        // Of sources it is not known how much there is to read, and what was read is counted for the whole job.
        let is_known = expected > 0;
        let progress = is_known.then(|| (read as f64 / expected.max(read) as f64 * 1000.0).floor() / 1000.0);
        vec![
            ("job_id", job.id.into()),
            ("job", name_of(context, job.id)),
            ("state", if is_running { "running" } else { "done" }.into()),
            ("rows_read", if is_known { read } else { job.rows }.into()),
            ("rows_expected", is_known.then_some(expected.max(read)).into()),
            ("progress", if is_running { progress.into() } else { 1.0.into() }),
        ]
    });
    Ok(rows.collect())
}

fn relations(context: &SystemContext<'_>) -> Result<Vec<Row>> {
    let row = |object: &std::sync::Arc<Object>| -> Row {
        let mut row: Row = vec![
            ("id", object.id.into()),
            ("schema_name", context.catalog.schema_name(object).into()),
            ("name", object.name.as_str().into()),
            ("kind", object.kind().noun().into()),
            ("definition", object.sql.as_str().into()),
        ];
        if let Some(collection) = context.server.engine.collection(object.id) {
            row.extend([
                ("rows", Cell::from(collection.row_estimate())),
                ("bytes", collection.bytes().into()),
                ("since", collection.since().0.into()),
                ("upper", collection.upper().0.into()),
                ("durable", collection.durable().0.into()),
            ]);
        }
        row
    };
    let shown = context.catalog.objects().filter(|object| !matches!(object.body, ObjectBody::Schema));
    Ok(shown.map(row).collect())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{DESCRIPTIONS, descriptions};
    use crate::system_tables::registry::SystemRelations;

    #[test]
    fn every_column_is_described() {
        let relations = SystemRelations::load().unwrap();
        let own = relations.iter().filter(|relation| relation.schema_name == "millpond");
        let columns = |relation: &crate::system_tables::registry::SystemRelation| {
            let column = |name: &String| format!("{}.{name}", relation.name);
            relation.schema.fields().iter().map(|field| column(field.name())).chain([relation.name.clone()]).collect::<Vec<_>>()
        };
        let wanted: BTreeSet<String> = own.flat_map(columns).collect();
        let described: BTreeSet<String> = descriptions().map(|(name, _)| name.to_owned()).collect();
        assert_eq!(described, wanted);
        assert_eq!(described.len(), DESCRIPTIONS.lines().count(), "one line each");
    }
}
