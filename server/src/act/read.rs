//! Opening the relations of a query: at which epoch, and with which rows.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use datafusion::catalog::TableProvider;
use millpond_engine::{coordinator::read::Freshness, engine::snapshot::SnapshotPoint};
use millpond_planner::catalog::{Catalog, Object, ObjectBody};
use millpond_storage::{
    collection::{Collection, Hold},
    epoch::Epoch,
};
use parking_lot::Mutex;

use crate::{
    act::dml::{changes::ChangedContents, reads::NotedContents, target::Target, work::Work},
    error::{Notice, Result, SqlError},
    relation::{
        contents::{CollectionContents, Contents},
        left_out::LeftOut,
        provider::RelationTable,
        resolve::Relations,
        source::SourceTable,
    },
    session::{Session, cancel::Cancel, settings, transaction::Phase},
    state::ServerState,
};

/// What `read_timeout = 0` means: no end.
const FOREVER: Duration = Duration::from_secs(365 * 86_400);

/// The epoch a block reads, kept readable in every relation.
pub(crate) struct Snapshot {
    point: SnapshotPoint,
    /// Relations with this number or above did not exist yet: the block created them since.
    first_new: u64,
    /// Of what has been read so far.
    holds: Mutex<BTreeMap<u64, (Epoch, Arc<Hold>)>>,
}

/// The relations of a query, opened.
#[derive(Default)]
pub(crate) struct Opened {
    /// By number.
    pub(crate) tables: BTreeMap<u64, Arc<dyn TableProvider>>,
    /// About how many rows they have together.
    pub(crate) rows: u64,
    /// What is left out of sources.
    pub(crate) left_out: Vec<Arc<LeftOut>>,
}

/// How fresh the session wants reads to be, and how long it waits for that.
pub(crate) fn freshness(session: &Session) -> (Freshness, Duration) {
    let freshness = match session.variables.get("read_freshness").as_deref() {
        Some("any") => Freshness::Any,
        Some("strict") => Freshness::Strict,
        _ => Freshness::Default,
    };
    let timeout = session.variables.get("read_timeout").and_then(|value| settings::duration(&value));
    (freshness, timeout.unwrap_or(FOREVER))
}

/// Opens relations for a query of the session.
///
/// # Errors
/// 55000 when a relation is not as far as it must be within `read_timeout`, 57014 when the statement is cancelled meanwhile.
pub(crate) async fn open(session: &mut Session, catalog: &Catalog, relations: &Relations, cancel: &Cancel) -> Result<Opened> {
    let mut opened = Opened::default();
    for id in &relations.sources {
        let (Some(object), Some(handle)) = (catalog.get(*id), session.server.engine.source(*id)) else {
            return Err(not_running(session, catalog, *id));
        };
        let left_out = LeftOut::of(&object.name);
        opened.left_out.push(left_out.clone());
        let source = SourceTable::new(&object.name, &handle, catalog.feeds_job(*id), left_out);
        opened.tables.insert(*id, Arc::new(source));
        // Sources do not tell; what they hold is rarely small.
        opened.rows += 1_000_000;
    }
    if relations.collections.is_empty() {
        return Ok(opened);
    }
    for id in &relations.collections {
        if session.server.engine.collection(*id).is_none() {
            return Err(not_running(session, catalog, *id));
        }
    }
    // A statement under the lock of the table it changes reads all else as it is now; it is not validated.
    let alone = session.transaction.phase() == Phase::Idle || session.transaction.work.as_ref().is_some_and(Work::holds_guards);
    let holds = if alone {
        let (freshness, timeout) = freshness(session);
        let point = cancel.race(session.server.engine.read_epoch(&relations.collections, freshness, timeout)).await?;
        point.holds.into_iter().map(|hold| (point.epoch, Arc::new(hold))).collect()
    } else {
        snapshot(session, catalog, &relations.collections, cancel).await?
    };
    for (id, (epoch, hold)) in relations.collections.iter().zip(holds) {
        let object = catalog.get(*id).ok_or_else(|| SqlError::internal("a bound relation is not in the catalog"))?;
        let contents = contents_of(session, catalog, object, epoch, hold, !alone)?;
        opened.rows = opened.rows.saturating_add(contents.row_estimate());
        opened.tables.insert(*id, Arc::new(RelationTable::new(object.name.clone(), contents)));
    }
    warn_of_failure(session, &relations.collections);
    Ok(opened)
}

/// Says once a statement that a view it reads is not what its query gives now, because a job has failed.
pub(crate) fn warn_of_failure(session: &Session, relations: &[u64]) {
    let Some(failure) = session.server.engine.failure_under(relations) else { return };
    let SqlError { message, .. } = failure.into();
    let hint = "Mend the cause and let it go on with ALTER .. RESUME. With SET read_freshness = 'strict' this is an error.";
    session.notify(Notice { hint: Some(hint.to_owned()), ..Notice::warning("01000", message) });
}

/// Why a relation of the catalog cannot be read.
fn not_running(session: &Session, catalog: &Catalog, id: u64) -> SqlError {
    let Some(object) = catalog.get(id) else { return SqlError::new("42P01", format!("relation with OID {id} does not exist")) };
    let reason = session.server.jobs.broken().get(&id).map(|reason| format!(": {reason}")).unwrap_or_default();
    SqlError::new("55000", format!("{} \"{}\" could not be started{reason}", object.kind().noun(), object.name))
}

fn contents_of(
    session: &Session,
    catalog: &Catalog,
    object: &Arc<Object>,
    epoch: Epoch,
    hold: Arc<Hold>,
    in_transaction: bool,
) -> Result<Arc<dyn Contents>> {
    let server = &session.server;
    let collection = server.engine.collection(object.id).ok_or_else(|| not_running(session, catalog, object.id))?;
    let (schema, key) = shape(object, &collection);
    let committed: Arc<dyn Contents> = Arc::new(CollectionContents::new(collection, schema, key, epoch, Some(hold)));
    if !in_transaction {
        return Ok(committed);
    }
    note_tables_under(session, catalog, object, epoch);
    if object.table().is_none() {
        return Ok(committed);
    }
    let target = server.targets.get(server, object.id)?;
    Ok(own_contents(session, &target, committed, epoch))
}

/// A table's contents as the session's transaction sees them, noting what is read.
fn own_contents(session: &Session, target: &Arc<Target>, committed: Arc<dyn Contents>, epoch: Epoch) -> Arc<dyn Contents> {
    let Some(work) = &session.transaction.work else { return committed };
    let (handle, identity) = (target.handle.clone(), target.identity.clone());
    let noted = Arc::new(NotedContents::new(committed, work.reads.clone(), handle, identity.clone(), epoch));
    match work.changes(target.object.id) {
        Some(changes) => Arc::new(ChangedContents::new(noted, changes, identity)),
        None => noted,
    }
}

/// Columns and key of a relation's collection.
fn shape(object: &Object, collection: &Collection) -> (arrow::datatypes::SchemaRef, Vec<usize>) {
    use millpond_storage::collection::CollectionKey;
    let key = match collection.key() {
        CollectionKey::Columns(columns) => columns.clone(),
        CollectionKey::WholeRow | CollectionKey::AppendOnly => Vec::new(),
    };
    (object.arrow_schema(), key)
}

/// A view is a function of the tables under it: reading it in a transaction rests on all of them.
fn note_tables_under(session: &Session, catalog: &Catalog, object: &Object, epoch: Epoch) {
    let (Some(work), ObjectBody::MaterializedView(_)) = (&session.transaction.work, &object.body) else { return };
    let mut open: Vec<u64> = object.depends_on.iter().copied().collect();
    let mut seen = std::collections::BTreeSet::new();
    while let Some(id) = open.pop() {
        if !seen.insert(id) {
            continue;
        }
        if let Some(handle) = session.server.engine.table(id) {
            work.reads.note(&handle, None, epoch, None);
        }
        open.extend(catalog.get(id).into_iter().flat_map(|object| object.depends_on.iter().copied()));
    }
}

/// A table's committed contents in the session's transaction, for a statement that changes it.
pub(crate) async fn block_contents(session: &mut Session, target: &Arc<Target>, cancel: &Cancel) -> Result<Arc<dyn Contents>> {
    let catalog = session.catalog();
    let id = target.object.id;
    let holds = snapshot(session, &catalog, &[id], cancel).await?;
    let (epoch, hold) = holds.into_iter().next().ok_or_else(|| SqlError::internal("a relation was not held"))?;
    let collection = target.handle.collection().clone();
    let identity = &target.identity;
    let committed: Arc<dyn Contents> =
        Arc::new(CollectionContents::new(collection, identity.schema.clone(), identity.key.clone(), epoch, Some(hold)));
    Ok(own_contents(session, target, committed, epoch))
}

/// The epoch that the session's transaction reads, held per relation.
async fn snapshot(session: &mut Session, catalog: &Catalog, relations: &[u64], cancel: &Cancel) -> Result<Vec<(Epoch, Arc<Hold>)>> {
    let (freshness, timeout) = freshness(session);
    let server = session.server.clone();
    let snapshot = match session.work().snapshot.clone() {
        Some(snapshot) => snapshot,
        None => {
            let point = cancel.race(server.engine.snapshot(relations, freshness, timeout)).await?;
            let snapshot = Arc::new(Snapshot { point, first_new: catalog.next_id(), holds: Mutex::default() });
            session.work().snapshot = Some(snapshot.clone());
            snapshot
        }
    };
    let mut holds = Vec::with_capacity(relations.len());
    for id in relations {
        holds.push(cancel.race(snapshot.hold(&server, *id, timeout)).await?);
    }
    Ok(holds)
}

impl Snapshot {
    /// A hold of a relation at the epoch; waits for one that has not come so far.
    async fn hold(&self, server: &ServerState, id: u64, timeout: Duration) -> Result<(Epoch, Arc<Hold>)> {
        if let Some(hold) = self.holds.lock().get(&id) {
            return Ok(hold.clone());
        }
        let held = if id >= self.first_new {
            // It was empty when it was created.
            let collection = server.engine.collection(id).ok_or_else(|| SqlError::internal("a relation of the block is gone"))?;
            let since = collection.since();
            (since, Arc::new(collection.hold(since)?))
        } else {
            let point = server.engine.read_at(&[id], self.point.epoch, timeout).await?;
            let hold = point.holds.into_iter().next().ok_or_else(|| SqlError::internal("a relation was not held"))?;
            (point.epoch, Arc::new(hold))
        };
        self.holds.lock().insert(id, held.clone());
        Ok(held)
    }
}
