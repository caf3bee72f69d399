//! Views, batch queries and PostgreSQL over one random history.

use millpond_sql_tests::{Postgres, TestServer, WireClient};

use super::{
    Failures, compare_with_batch, contents, create_views, difference, history, queries::Query, queries::queries, run, run_all, seed,
};

const STEPS: u64 = 160;
/// Statements between two looks.
const STEPS_PER_LOOK: u64 = 10;
/// At each look but the last, one of so many queries is compared.
const PARTS: usize = 5;

#[test]
fn views_equal_their_queries_and_postgres() {
    let seed = seed();
    let (server, postgres) = (TestServer::start(), Postgres::start());
    let (mut ours, mut theirs) = (server.connect(), postgres.connect());
    run_all(&mut ours, history::definitions());
    run_all(&mut theirs, history::definitions_for_postgres());
    let mut failures = Failures::default();
    let mut queries = queries();
    create_views(&mut ours, &mut queries, &mut failures);
    let mut history = history::History::new(seed);
    for step in 1..=STEPS {
        let statement = history.step();
        let tags = [run(&mut ours, &statement), run(&mut theirs, &statement)];
        assert_eq!(tags[0], tags[1], "seed {seed}, step {step}: {statement}");
        if step % STEPS_PER_LOOK == 0 {
            let part = (step / STEPS_PER_LOOK) as usize % PARTS;
            let looked_at = queries.iter().enumerate().filter(|(number, _)| step == STEPS || number % PARTS == part);
            for (_, query) in looked_at {
                compare(&mut ours, &mut theirs, query, &format!("step {step}"), &mut failures);
            }
        }
    }
    failures.check(seed);
    server.shutdown();
}

fn compare(ours: &mut WireClient, theirs: &mut WireClient, query: &Query, when: &str, failures: &mut Failures) {
    let Some(batch) = compare_with_batch(ours, query, when, failures) else { return };
    match contents(theirs, &query.postgres) {
        Ok(wanted) => {
            if let Some(difference) = difference("the batch query", &batch, "PostgreSQL", &wanted) {
                failures.add(query, when, &difference);
            }
        }
        Err(error) => failures.add(query, when, &format!("PostgreSQL: {error}")),
    }
}
