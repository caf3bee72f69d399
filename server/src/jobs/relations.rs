//! What the planner of jobs is told of the relations that they read.

use std::time::Duration;

use millpond_engine::{coordinator::read::Freshness, graph::CollectionKeySpec};
use millpond_planner::{
    catalog::{Catalog, Object, ObjectBody, object::LateRows},
    optimize::statistics::RelationStatistics,
    relation_source::RelationKind,
    stream::{StreamRelation, StreamRelations},
};

use crate::{
    error::{Result, SqlError},
    session::cancel::Cancel,
    state::ServerState,
};

/// How long a new job waits for the rows of its tables to be counted.
const PATIENCE: Duration = Duration::from_secs(1);

/// Waits until what has been written to the tables under a view or sink is counted in them, by which the order of its joins is chosen. Where that does not come
/// in time, what is there decides.
///
/// # Errors
/// 57014 if the statement is cancelled meanwhile.
pub(crate) async fn catch_up(state: &ServerState, catalog: &Catalog, object: &Object, cancel: &Cancel) -> Result<()> {
    let inputs = super::inputs_of(catalog, object);
    let tables: Vec<u64> = inputs.into_iter().filter(|input| input.table().is_some()).map(|input| input.id).collect();
    if tables.len() > 1 {
        let read = async { Ok::<_, SqlError>(state.engine.read_epoch(&tables, Freshness::Default, PATIENCE).await.ok()) };
        cancel.race(read).await?;
    }
    Ok(())
}

/// Relations as the stream planner asks for them.
pub(super) struct KnownRelations<'a> {
    catalog: &'a Catalog,
    state: &'a ServerState,
}

impl<'a> KnownRelations<'a> {
    /// Of a catalog, with what plans have told.
    pub(super) fn new(catalog: &'a Catalog, state: &'a ServerState) -> Self {
        Self { catalog, state }
    }
}

impl StreamRelations for KnownRelations<'_> {
    fn statistics(&self, id: u64) -> Option<RelationStatistics> {
        Some(RelationStatistics { rows: self.state.row_estimate(id)? as f64, ..Default::default() })
    }

    fn relation(&self, id: u64) -> Option<StreamRelation> {
        let object = self.catalog.get(id)?;
        let (name, schema) = (object.name.clone(), object.arrow_schema());
        match &object.body {
            ObjectBody::Table(table) => Some(StreamRelation {
                name,
                kind: RelationKind::Collection,
                schema,
                append_only: table.append_only,
                stream_key: table.primary_key.as_ref().map(|key| key.columns.clone()),
                watermark_column: table.watermark.map(|watermark| watermark.column),
                late_rows_diverted: table.diverts_late_rows(),
            }),
            ObjectBody::Source(source) => Some(StreamRelation {
                name,
                kind: RelationKind::Source,
                schema,
                append_only: true,
                stream_key: None,
                watermark_column: source.watermark.map(|watermark| watermark.column),
                late_rows_diverted: source.watermark.is_some() && source.late_rows == LateRows::Divert,
            }),
            ObjectBody::MaterializedView(_) => {
                let info = self.state.jobs.view(id)?;
                Some(StreamRelation {
                    name,
                    kind: RelationKind::Collection,
                    schema,
                    append_only: info.append_only,
                    stream_key: if let CollectionKeySpec::Columns(key) = &info.key { Some(key.clone()) } else { None },
                    watermark_column: info.watermark_column,
                    late_rows_diverted: info.late_rows_diverted,
                })
            }
            ObjectBody::Schema | ObjectBody::View(_) | ObjectBody::Sink(_) | ObjectBody::Index(_) => None,
        }
    }
}
