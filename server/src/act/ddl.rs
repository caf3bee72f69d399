//! CREATE, ALTER, DROP and COMMENT: the catalog's record first, then the engine, so that a crash in between is made good at the next start;
//! the other way round for what a record must not outlive.

use std::{sync::Arc, time::Duration};

use millpond_engine::{
    job::status::{JobHandle, JobState},
    sink::open_sink,
};
use millpond_planner::{
    bind::{BoundAlterJob, BoundCreateAs, BoundDrop, BoundNotice, BoundStatement, JobAction},
    catalog::{CatalogChange, Object, ObjectBody},
    parse::{ParsedStatement, Statement},
};

use crate::{
    act::{define_source, dml, select},
    answer::Answer,
    binding,
    catalog_store::DdlGuard,
    error::{Notice, Result, Severity, SqlError},
    jobs,
    query::run,
    session::{Session, cancel::Cancel, transaction::Phase},
    state::ServerState,
};

/// How often a CREATE that takes long says how far it is.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Whether a statement defines or removes objects.
pub(crate) fn is_definition(statement: &Statement) -> bool {
    matches!(
        statement,
        Statement::CreateTable(_)
            | Statement::CreateTableAs(_)
            | Statement::CreateSource(_)
            | Statement::CreateSink(_)
            | Statement::CreateView(_)
            | Statement::CreateSchema { .. }
            | Statement::CreateIndex(_)
            | Statement::Drop(_)
            | Statement::Alter(_)
            | Statement::Comment(_)
            | Statement::Refresh(_)
    )
}

/// Executes a definition; for what it means in a block see [`super::definitions`].
pub(crate) async fn execute(session: &mut Session, parsed: &ParsedStatement, cancel: &Cancel) -> Result<Answer> {
    let tag = parsed.statement.tag();
    session.require_writable(&tag)?;
    if session.transaction.phase() == Phase::Implicit {
        // Earlier statements of the script come first.
        session.commit(cancel).await?;
    }
    let server = session.server.clone();
    let guard = cancel.locked(server.catalog.lock()).await?;
    let bound = binding::bind(session, &session.catalog(), parsed, &[], cancel)?;
    let guard = match changes(&bound.statement) {
        Some(change) if session.transaction.definitions.wants_dropped_name(&server.catalog.snapshot(), change) => {
            drop(guard);
            session.notify(Notice::warning("25001", "what this transaction has dropped goes now, because its name is wanted again"));
            session.transaction.definitions.finish(&server).await?;
            cancel.locked(server.catalog.lock()).await?
        }
        _ => guard,
    };
    match bound.statement {
        BoundStatement::Create(change, notices) => {
            tell(session, notices);
            match (change, &parsed.statement) {
                (None, _) => {}
                (Some(change), Statement::CreateSource(source)) => {
                    note(session, &change);
                    define_source::create(session, source, &change, &guard, cancel).await?;
                }
                (Some(change), _) => {
                    note(session, &change);
                    create(&server, &guard, &change)?;
                }
            }
        }
        BoundStatement::CreateAs(create) => return create_as(session, *create, tag, guard, cancel).await,
        BoundStatement::Drop(dropped) => drop_objects(session, dropped, &guard).await?,
        BoundStatement::Alter(change, notices) => {
            tell(session, notices);
            if let Some(change) = change {
                note(session, &change);
                server.catalog.commit(&guard, &change)?;
            }
        }
        BoundStatement::AlterJob(order) => alter_job(session, order, &tag, &guard)?,
        _ => return Err(SqlError::internal("a definition was bound to something else")),
    }
    Ok(Answer::done(tag))
}

/// ALTER of what runs behind a view or sink. It is no part of a transaction: a job that has been told cannot be told otherwise by a ROLLBACK.
fn alter_job(session: &Session, order: BoundAlterJob, tag: &str, guard: &DdlGuard<'_>) -> Result<()> {
    if session.transaction.phase() == Phase::Block {
        return Err(SqlError::new("25001", format!("{tag} cannot run inside a transaction block")));
    }
    let server = &session.server;
    match order.action {
        JobAction::Resume { skip } => jobs::resume(server, order.id, skip),
        JobAction::FailSubtask { fragment, subtask } => jobs::fail_subtask(server, order.id, fragment, subtask),
        JobAction::SetOptions(change, names) => {
            let object = put_object(&change)?;
            let options = jobs::changed_options(server, &object, &names)?;
            jobs::check_exactness(&server.catalog.snapshot().apply(&change)?, &object)?;
            server.catalog.commit(guard, &change)?;
            if let Some(job) = server.engine.job(order.id) {
                job.reconfigure(options);
            }
            Ok(())
        }
    }
}

/// The change of the catalog that a statement is bound to.
fn changes(statement: &BoundStatement) -> Option<&CatalogChange> {
    match statement {
        BoundStatement::Create(change, _) | BoundStatement::Alter(change, _) => change.as_ref(),
        BoundStatement::CreateAs(create) => create.change.as_ref(),
        _ => None,
    }
}

/// In a block, notes how a change that is about to be made is taken back.
pub(crate) fn note(session: &mut Session, change: &CatalogChange) {
    if session.transaction.phase() == Phase::Block {
        let before = session.server.catalog.snapshot();
        session.transaction.definitions.note(&before, change);
    }
}

/// Passes notices on.
pub(crate) fn tell(session: &Session, notices: Vec<BoundNotice>) {
    for notice in notices {
        let message = match notice.detail {
            Some(detail) => format!("{}\nDETAIL:  {detail}", notice.message),
            None => notice.message,
        };
        session.notify(Notice { severity: Severity::Notice, sqlstate: notice.sqlstate.to_owned(), message, hint: None });
    }
}

/// The object that a change puts.
pub(crate) fn put_object(change: &CatalogChange) -> Result<Arc<Object>> {
    change.object().cloned().ok_or_else(|| SqlError::internal("a definition that puts no object"))
}

/// A table, schema or index.
fn create(server: &ServerState, guard: &DdlGuard<'_>, change: &CatalogChange) -> Result<()> {
    let object = put_object(change)?;
    let changed = server.catalog.record(guard, change)?;
    if object.table().is_some()
        && let Err(error) = jobs::create_table(server, &object)
    {
        server.catalog.record(guard, &CatalogChange::remove([object.id]))?;
        return Err(error);
    }
    server.catalog.publish(guard, changed);
    Ok(())
}

async fn create_as(session: &mut Session, create: BoundCreateAs, tag: String, guard: DdlGuard<'_>, cancel: &Cancel) -> Result<Answer> {
    tell(session, create.notices.clone());
    let Some(change) = &create.change else { return Ok(Answer::done(tag)) };
    let object = put_object(change)?;
    match &object.body {
        ObjectBody::Table(_) => create_table_as(session, &create, change, &object, guard, cancel).await,
        ObjectBody::MaterializedView(_) | ObjectBody::Sink(_) => create_job(session, &object, tag, guard, cancel).await,
        _ => {
            note(session, change);
            session.server.catalog.commit(&guard, change)?;
            Ok(Answer::done(tag))
        }
    }
}

async fn create_table_as(
    session: &mut Session,
    create_as: &BoundCreateAs,
    change: &CatalogChange,
    object: &Arc<Object>,
    guard: DdlGuard<'_>,
    cancel: &Cancel,
) -> Result<Answer> {
    let server = session.server.clone();
    let rows = if create_as.fill {
        let run = select::prepare(session, create_as.query.plan.clone(), &[], Vec::new(), cancel.clone()).await?;
        run::collect(&server, run.with_hints(&create_as.query.hints)).await?
    } else {
        Vec::new()
    };
    note(session, change);
    create(&server, &guard, change)?;
    drop(guard);
    let filled = dml::fill::fill(session, object.id, rows, cancel).await;
    match filled {
        Ok(count) if create_as.fill => Ok(Answer::done(format!("SELECT {count}"))),
        Ok(_) => Ok(Answer::done("CREATE TABLE AS")),
        Err(error) => {
            take_back(&server, object.id).await;
            Err(error)
        }
    }
}

/// A materialized view or sink: planned, recorded, started, and, unless it is to go on by itself, waited for.
async fn create_job(session: &mut Session, object: &Object, tag: String, guard: DdlGuard<'_>, cancel: &Cancel) -> Result<Answer> {
    let server = session.server.clone();
    let mut object = object.clone();
    jobs::keep_session_options(session, &mut object);
    jobs::check_options(&server, &object)?;
    let background = match &object.body {
        ObjectBody::MaterializedView(view) => jobs::in_background(&view.options),
        _ => true,
    };
    let changed = server.catalog.snapshot().apply(&CatalogChange::put(object.clone()))?;
    jobs::check_exactness(&changed, &object)?;
    jobs::catch_up(&server, &changed, &object, cancel).await?;
    // Its lowering has no bound by the length of its text.
    let plan = tokio::task::block_in_place(|| jobs::plan_new(&server, &changed, &object, &cancel.interrupt()))?;
    object.set_join_order((!plan.join_order.is_as_written()).then(|| plan.join_order.to_string()));
    let change = &CatalogChange::put(object);
    let object = put_object(change)?;
    if let ObjectBody::Sink(sink) = &object.body {
        let spec = jobs::sink_spec(&object.name, sink, &plan.schema, plan.append_only)?;
        // A job would go on trying; who creates the sink hears of it at once.
        cancel.race(async { open_sink(&spec).check().await.map_err(SqlError::from) }).await?;
    }
    for warning in plan.warnings.clone() {
        session.notify(Notice::information(warning));
    }
    note(session, change);
    let changed = server.catalog.record(&guard, change)?;
    let job = match jobs::start(&server, &object, plan) {
        Ok(job) => job,
        Err(error) => {
            server.catalog.record(&guard, &CatalogChange::remove([object.id]))?;
            return Err(error);
        }
    };
    server.catalog.publish(&guard, changed);
    drop(guard);
    if !background && let Err(error) = wait_ready(session, &job, cancel).await {
        take_back(&server, object.id).await;
        return Err(error);
    }
    Ok(Answer::done(tag))
}

/// Waits until what existed when the job started is in the view, saying how far it is.
async fn wait_ready(session: &mut Session, job: &Arc<JobHandle>, cancel: &Cancel) -> Result<()> {
    let mut ready = std::pin::pin!(job.wait_ready());
    let mut told = String::new();
    loop {
        tokio::select! {
            biased;
            ready = &mut ready => return Ok(ready?),
            error = cancel.fired() => return Err(error),
            () = tokio::time::sleep(PROGRESS_INTERVAL) => {
                let progress = format!("materialized view \"{}\": {}", job.name, job.progress());
                // What has been read waits for its checkpoint: nothing new to tell.
                if job.state() == JobState::Backfilling && progress != told {
                    session.notify(Notice::information(progress.clone()));
                    told = progress;
                }
            }
        }
    }
}

/// Removes what could not be finished, and what was built on it meanwhile.
pub(crate) async fn take_back(server: &ServerState, id: u64) {
    let guard = server.catalog.lock().await;
    let catalog = server.catalog.snapshot();
    let removed = match catalog.plan_drop(&[id], true, &[]) {
        Ok(plan) => remove(server, &guard, &plan.ids, &CatalogChange::remove(plan.ids.iter().copied())).await,
        Err(error) => Err(error.into()),
    };
    if let Err(error) = removed {
        tracing::error!(id, %error, "an object that could not be finished was not removed");
    }
}

async fn drop_objects(session: &mut Session, dropped: BoundDrop, guard: &DdlGuard<'_>) -> Result<()> {
    tell(session, dropped.notices);
    let Some(change) = &dropped.change else { return Ok(()) };
    if let Some(work) = &mut session.transaction.work {
        dropped.ids.iter().for_each(|id| work.forget(*id));
    }
    if session.transaction.phase() == Phase::Block {
        session.transaction.definitions.note_dropped(&dropped.ids);
        return Ok(());
    }
    remove(&session.server.clone(), guard, &dropped.ids, change).await
}

/// The record goes first: an object whose files were gone and whose record was not would come back empty.
pub(crate) async fn remove(server: &ServerState, guard: &DdlGuard<'_>, ids: &[u64], change: &CatalogChange) -> Result<()> {
    server.catalog.commit(guard, change)?;
    for id in ids {
        server.jobs.forget(*id);
        if let Err(error) = server.engine.drop_object(*id).await {
            // It is gone for everyone; what is left of its files is garbage.
            tracing::warn!(id, %error, "files of a dropped object could not be deleted");
        }
    }
    Ok(())
}
