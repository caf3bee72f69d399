//! EXPLAIN and EXPLAIN ANALYZE: of a query its bounded plan, of a view or sink its dataflow graph.

use std::time::Instant;

use datafusion::{logical_expr::LogicalPlan, scalar::ScalarValue};
use futures::StreamExt;
use millpond_planner::{
    bind::{Bound, BoundStatement},
    catalog::Catalog,
    explain::explain_graph,
    optimize::join_order::Hints,
    parse::statement::Explain,
};

use crate::{
    act::{ddl, select, settings::text_rows},
    answer::{Answer, RowsTag},
    binding,
    error::{Result, SqlError},
    jobs,
    session::{Session, cancel::Cancel},
    statement::Parameters,
};

/// Executes EXPLAIN.
pub(crate) async fn execute(session: &mut Session, explain: &Explain, parameters: Parameters, cancel: &Cancel) -> Result<Answer> {
    if !matches!(explain.format.as_str(), "" | "text") {
        return Err(SqlError::unsupported(format!("EXPLAIN (FORMAT {}) is not supported", explain.format)).with_hint("Use FORMAT TEXT."));
    }
    let catalog = session.catalog();
    let bound = binding::bind(session, &catalog, &explain.statement, &parameters.types, cancel)?;
    let text = match explained_plan(&bound) {
        Some((plan, hints)) => bounded(session, (plan.clone(), hints), &parameters.values, explain, cancel).await?,
        None => continuous(session, &catalog, &bound, explain, cancel).await?,
    };
    text_rows(&["QUERY PLAN"], text.lines().map(|line| vec![line.to_owned()]).collect(), RowsTag::Explain)
}

/// The bounded plan of a statement that has one, and what its text says of it.
fn explained_plan(bound: &Bound) -> Option<(&LogicalPlan, Hints)> {
    match &bound.statement {
        BoundStatement::Query(query) | BoundStatement::CopyTo(query, _) | BoundStatement::DeclareCursor { query, .. } => {
            Some((&query.plan, query.hints.clone()))
        }
        BoundStatement::Insert(insert) => Some((&insert.plan, Hints::default())),
        BoundStatement::Update(update) => Some((&update.plan, Hints::default())),
        BoundStatement::Delete(delete) => Some((&delete.plan, Hints::default())),
        _ => None,
    }
}

async fn bounded(
    session: &mut Session,
    (plan, hints): (LogicalPlan, Hints),
    values: &[ScalarValue],
    explain: &Explain,
    cancel: &Cancel,
) -> Result<String> {
    let run = select::prepare(session, plan, values, Vec::new(), cancel.clone()).await?;
    let run = run.with_hints(&hints);
    let server = session.server.clone();
    let (analyze, verbose) = (explain.analyze, explain.verbose);
    let work = async move {
        let started = Instant::now();
        let query = server.queries.plan(&run.query, false).await?;
        let planned = started.elapsed();
        if !analyze {
            let mut text = query.explain(verbose);
            if verbose {
                text.push_str(&format!(
                    "\nLogical plan:\n{}",
                    server.queries.optimize(&run.query.plan, &run.query.hints, &run.query.interrupt)?.display_indent()
                ));
            }
            return Ok(text);
        }
        let started = Instant::now();
        let mut batches = query.execute()?;
        let mut rows = 0;
        while let Some(batch) = batches.next().await {
            rows += batch?.num_rows();
        }
        let millis = |duration: std::time::Duration| duration.as_secs_f64() * 1000.0;
        Ok(format!(
            "{}Rows: {rows}\nPlanning Time: {:.3} ms\nExecution Time: {:.3} ms",
            query.explain_analyzed(),
            millis(planned),
            millis(started.elapsed())
        ))
    };
    cancel.race(session.server.batch.run(work)).await
}

/// The graph of a materialized view or sink that a statement would create.
async fn continuous(session: &mut Session, catalog: &Catalog, bound: &Bound, explain: &Explain, cancel: &Cancel) -> Result<String> {
    let refused = || SqlError::unsupported(format!("EXPLAIN {} is not supported", explain.statement.statement.tag()));
    let BoundStatement::CreateAs(create) = &bound.statement else { return Err(refused()) };
    if explain.analyze {
        return Err(SqlError::unsupported("EXPLAIN ANALYZE of a statement that creates something is not supported"));
    }
    ddl::tell(session, create.notices.clone());
    let Some(change) = &create.change else { return Ok(String::new()) };
    let object = change.object().ok_or_else(refused)?;
    let changed = catalog.apply(change)?;
    jobs::catch_up(&session.server, &changed, object, cancel).await?;
    let plan = tokio::task::block_in_place(|| jobs::plan_new(&session.server, &changed, object, &cancel.interrupt()))?;
    let name = |id: u64| changed.get(id).map_or_else(|| format!("relation {id}"), |object| object.name.clone());
    Ok(format!("{}{}", explain_graph(&plan.graph, &name), plan.join_report))
}
