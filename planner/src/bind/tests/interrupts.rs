//! Planning that is ended from outside, and bounds on what a short text can mean.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use super::{Bench, sqlstate};
use crate::{
    bind::{BindContext, BoundStatement, NoSystemRelations, bind},
    error::PlanError,
    functions::session::session_config,
    interrupt::Interrupt,
    optimize, parse,
};

/// Lets so many questions pass.
fn after(questions: usize) -> (Interrupt, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let interrupt = Interrupt::new(move || {
        if counter.fetch_add(1, Ordering::Relaxed) < questions {
            return Ok(());
        }
        Err(PlanError::new("57014", "canceling statement due to user request"))
    });
    (interrupt, asked)
}

fn bound_with(bench: &Bench, sql: &str, interrupt: &Interrupt) -> Result<BoundStatement, PlanError> {
    let context = BindContext {
        catalog: &bench.catalog,
        search_path: &["public".to_owned()],
        text: &bench.text,
        user: "millpond",
        database: "millpond",
        server_version: "15.0",
        system: &NoSystemRelations,
        parameter_types: &[],
        interrupt,
        is_kept: false,
    };
    Ok(bind(&parse::parse(sql)?[0], &context)?.statement)
}

#[test]
fn binding_asks_at_every_expression() {
    let mut bench = Bench::new();
    bench.run("CREATE TABLE t (a int)");
    let list = (0..1_000).map(|number| number.to_string()).collect::<Vec<_>>().join(", ");
    for sql in [format!("SELECT * FROM t WHERE a IN ({list})"), format!("VALUES ({})", list.replace(", ", "), ("))] {
        let (interrupt, asked) = after(500);
        let error = bound_with(&bench, &sql, &interrupt).unwrap_err();
        assert_eq!((error.sqlstate, asked.load(Ordering::Relaxed)), ("57014", 501));
    }
}

#[test]
fn the_rules_of_views_ask_before_every_step() {
    let mut bench = Bench::new();
    bench.run("CREATE TABLE t (a int)");
    let sql = "SELECT a, count(*) FROM t WHERE a > 1 GROUP BY a";
    let BoundStatement::Query(query) = bound_with(&bench, sql, &Interrupt::never()).unwrap() else { panic!("a query") };
    let (never, asked) = after(usize::MAX);
    optimize::optimize(query.plan.clone(), session_config().options(), &never).unwrap();
    let steps = asked.load(Ordering::Relaxed);
    assert!(steps > 50, "{steps}");
    let (interrupt, _) = after(steps / 2);
    let error = optimize::optimize(query.plan, session_config().options(), &interrupt).unwrap_err();
    assert_eq!(error.sqlstate, "57014");
}

#[test]
fn a_plan_has_a_bound_however_short_its_text() {
    let mut bench = Bench::new();
    bench.run("CREATE TABLE t (a int)");
    let doubled = |levels: usize| {
        let ctes = (1..=levels).map(|level| format!(", a{level} AS (SELECT * FROM a{0} UNION ALL SELECT * FROM a{0})", level - 1));
        format!("WITH a0 AS (SELECT * FROM t) {} SELECT * FROM a{levels}", ctes.collect::<String>())
    };
    bench.bind(&doubled(4)).unwrap();
    let error = bench.bind(&doubled(30)).unwrap_err();
    assert_eq!((error.sqlstate, error.message.as_str()), (sqlstate::STATEMENT_TOO_COMPLEX, "statement is too complex"));
    // What is not referred to costs nothing.
    let unused = (0..200).map(|number| format!(", u{number} AS (SELECT * FROM t)")).collect::<String>();
    bench.bind(&format!("WITH a AS (SELECT * FROM t){unused} SELECT * FROM a")).unwrap();
}

#[test]
fn arguments_that_are_written_twice_are_planned_once_or_refused() {
    let mut bench = Bench::new();
    bench.run("CREATE TABLE a (id int PRIMARY KEY); CREATE TABLE b (a int, ids int[])");
    // An array of a subquery is written twice: its value, and that it is none. Here a level is correlated with the one above it.
    let mut arrays = "SELECT id FROM a x0 WHERE x0.id = ANY (y1.ids)".to_owned();
    for level in 1..=5 {
        let value = format!("SELECT array_length(ARRAY({arrays}), 1) FROM b y{level} WHERE y{level}.a = ");
        arrays = if level == 5 { format!("{value} x.id") } else { format!("{value} ANY (y{}.ids)", level + 1) };
    }
    let BoundStatement::Query(query) = bench.bind(&format!("SELECT ARRAY({arrays}) FROM a x")).unwrap().statement else {
        panic!("a query")
    };
    let text = query.plan.display_indent().to_string();
    assert!(text.lines().count() < 500, "{}", text.lines().count());
    let nested = |levels: usize| format!("SELECT {}id{} FROM a", "coalesce(".repeat(levels), ", 1)".repeat(levels));
    bench.bind(&nested(10)).unwrap();
    let error = bench.bind(&nested(60)).unwrap_err();
    assert_eq!((error.sqlstate, error.message.as_str()), (sqlstate::STATEMENT_TOO_COMPLEX, "statement is too complex"));
    let many = |name: &str| format!("SELECT {name}({}) FROM a", (0..16).map(|n| format!("id + {n}")).collect::<Vec<_>>().join(", "));
    bench.bind(&many("greatest")).unwrap();
    bench.bind(&many("least")).unwrap();
    // What a subquery finds in the rows round about is not mentioned by a join above them.
    let both = "SELECT (SELECT max(x.id) FROM a x WHERE x.id > a.id) FROM a WHERE a.id > (SELECT max(b.a) FROM b WHERE b.a < a.id)";
    bench.bind(both).unwrap();
}
