//! FLUSH: waits until everything written is in every view.

use millpond_engine::coordinator::read::Freshness;
use millpond_planner::catalog::ObjectBody;

use crate::{
    act::read,
    answer::Answer,
    error::Result,
    session::{Session, cancel::Cancel},
};

/// Executes FLUSH.
pub(crate) async fn flush(session: &mut Session, cancel: &Cancel) -> Result<Answer> {
    let (_, timeout) = read::freshness(session);
    let server = session.server.clone();
    let is_view = |object: &&std::sync::Arc<millpond_planner::catalog::Object>| {
        matches!(object.body, ObjectBody::MaterializedView(_)) && server.is_populated(object.id)
    };
    let catalog = server.catalog.snapshot();
    let views: Vec<u64> = catalog.objects().filter(is_view).map(|object| object.id).collect();
    // Each view by itself: they need not have an epoch in common.
    for view in views {
        cancel.race(server.engine.read_epoch(&[view], Freshness::Strict, timeout)).await?;
    }
    Ok(Answer::done("FLUSH"))
}
