//! What is restarted when a subtask of a job fails, who must agree to it, and how to see it.

use millpond_engine::{
    job::spec::{Recovery, recovery},
    task::subtask::SubtaskId,
};
use millpond_planner::catalog::{Catalog, Object};

use super::{RECOVERY, inputs_of, options_of};
use crate::{
    error::{Result, SqlError},
    state::ServerState,
};

/// What a job does when a subtask of it fails.
pub(crate) fn recovery_of(object: &Object) -> Recovery {
    options_of(object).and_then(|options| recovery(options.get(RECOVERY)?).ok()).unwrap_or_default()
}

/// Checks that what a view or sink reads as exact is exact, and that nobody who reads the view as exact is misled.
///
/// # Errors
/// 55000 that names the other one.
pub(crate) fn check_exactness(catalog: &Catalog, object: &Object) -> Result<()> {
    let is_approximate = |object: &Object| recovery_of(object) == Recovery::Approximate;
    if is_approximate(object) {
        let reads = |reader: &Object| inputs_of(catalog, reader).iter().any(|input| input.id == object.id);
        let reader = catalog.objects().find(|reader| options_of(reader).is_some() && !is_approximate(reader) && reads(reader));
        return reader.map_or(Ok(()), |reader| {
            Err(SqlError::new("55000", format!("\"{}\" reads \"{}\" as exact", reader.name, object.name))
                .with_hint(format!("Set recovery = 'approximate' for \"{}\" first.", reader.name)))
        });
    }
    let input = inputs_of(catalog, object).into_iter().find(|input| is_approximate(input));
    input.map_or(Ok(()), |input| {
        Err(SqlError::new("55000", format!("\"{}\" may lack rows after a failure: its recovery is approximate", input.name))
            .with_hint("What reads it must agree to that WITH (recovery = 'approximate')."))
    })
}

/// Lets one subtask of a running job fail as by a panic, so that it can be seen what follows.
///
/// # Errors
/// 55000 if the job does not run; 22023 if it has no such subtask.
pub(crate) fn fail_subtask(state: &ServerState, id: u64, fragment: i64, subtask: i64) -> Result<()> {
    let Some(job) = state.engine.job(id) else { return Err(SqlError::new("55000", "the job does not run")) };
    let widths = job.subtasks();
    let width = usize::try_from(fragment).ok().and_then(|fragment| widths.get(fragment).copied()).unwrap_or(0);
    match (usize::try_from(fragment), usize::try_from(subtask)) {
        (Ok(fragment), Ok(index)) if index < width => Ok(job.fail(SubtaskId { fragment, index })?),
        _ => Err(SqlError::new("22023", format!("the job of \"{}\" has no subtask {subtask} of fragment {fragment}", job.name))
            .with_hint("millpond.checkpoint_subtasks lists them.")),
    }
}
