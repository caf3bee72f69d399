//! One subtask of a view fails, by order, and is restarted alone.

use std::time::Duration;

use millpond_sql_tests::{TestServer, WireClient};

/// Something that happens soon takes longer than this only if it never happens.
const PATIENCE: Duration = Duration::from_secs(20);

fn sqlstate_of(client: &mut WireClient, sql: &str) -> String {
    client.query(sql).expect_err(sql).sqlstate().to_owned()
}

/// A view `v` over two tables, and another one on it. Each round changes both tables while one subtask fails.
struct Drilled {
    client: WireClient,
    rounds: usize,
}

/// What `v` is kept equal to.
const QUERY: &str = "SELECT d.name, count(*) AS n, sum(t.v) AS s, max(t.v) AS m FROM t JOIN d USING (k) GROUP BY 1";

impl Drilled {
    fn new(server: &TestServer) -> Self {
        let mut client = server.connect();
        client.query("CREATE TABLE t (k int, v int)").expect("a table");
        client.query("CREATE TABLE d (k int PRIMARY KEY, name text)").expect("a table");
        client.query("INSERT INTO d SELECT x, 'name ' || x FROM generate_series(0, 99) AS g(x)").expect("rows");
        client
            .query(&format!(
                "CREATE MATERIALIZED VIEW v WITH (parallelism = 2, checkpoint_interval = '100ms', recovery = 'exactly_once') AS {QUERY}"
            ))
            .expect("a view");
        client.query("CREATE MATERIALIZED VIEW w AS SELECT count(*) AS n, sum(m) AS m FROM v").expect("a view on it");
        Self { client, rounds: 0 }
    }

    /// The subtasks of the newest checkpoint, as `fragment subtask`.
    fn subtasks(&mut self) -> Vec<String> {
        self.client.await_rows(PATIENCE, "SELECT count(*) > 0 FROM millpond.checkpoint_subtasks WHERE job = 'v'", &["t"]);
        let newest = "SELECT max(epoch) FROM millpond.checkpoint_subtasks WHERE job = 'v'";
        let listed = "SELECT fragment, subtask FROM millpond.checkpoint_subtasks WHERE job = 'v'";
        self.client.rows(&format!("{listed} AND epoch = ({newest}) ORDER BY 1, 2")).expect("rows")
    }

    fn fails(&mut self, place: &str) {
        let (fragment, subtask) = place.split_once(' ').expect("two numbers");
        let round = self.rounds;
        self.rounds += 1;
        let of_place = format!("job = 'v' AND scope = 'subtask' AND fragment = {fragment} AND subtask = {subtask}");
        let before = self.client.rows(&format!("SELECT count(*) FROM millpond.recoveries WHERE {of_place}")).expect("rows");
        let before: usize = before[0].parse().expect("a number");
        self.run(&format!("INSERT INTO t SELECT x % 120, x * {round} FROM generate_series(1, 2000) AS g(x)"));
        self.run(&format!("ALTER MATERIALIZED VIEW v FAIL SUBTASK {subtask} OF FRAGMENT {fragment}"));
        self.run(&format!("DELETE FROM t WHERE v % 7 = {}", round % 7));
        self.run(&format!("UPDATE t SET v = v + 1 WHERE k % 5 = {}", round % 5));
        self.run("UPDATE d SET name = name || '!' WHERE k % 9 = 4");
        let differ = format!("SELECT count(*) FROM (SELECT name, n, s, m FROM v EXCEPT ALL {QUERY}) AS x");
        assert_eq!(self.client.rows(&differ).expect("rows"), ["0"], "after {place}");
        let both = "SELECT w.n = x.n FROM w, (SELECT count(*) AS n FROM v) AS x";
        assert_eq!(self.client.rows(both).expect("rows"), ["t"], "after {place}");
        let done = format!(
            "SELECT count(*) FROM millpond.recoveries WHERE {of_place} AND caught_up_ms >= replayed_ms AND replayed_ms >= restored_ms \
             AND why_job IS NULL AND from_epoch > 0"
        );
        self.client.await_rows(PATIENCE, &done, &[&(before + 1).to_string()]);
    }

    fn run(&mut self, sql: &str) {
        self.client.query(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
    }
}

#[test]
fn every_subtask_of_a_view_can_fail_and_its_contents_stay_right() {
    let server = TestServer::start();
    let mut drilled = Drilled::new(&server);
    let subtasks = drilled.subtasks();
    assert!(subtasks.len() > 4, "{subtasks:?}");
    subtasks.iter().for_each(|place| drilled.fails(place));
    let restarts = "SELECT sum(restarts) FROM millpond.jobs WHERE kind = 'view'";
    assert_eq!(drilled.client.rows(restarts).expect("rows"), ["0"], "peers went on");
    // The subtasks of another number take over what those before them have left in the store.
    drilled.run("ALTER MATERIALIZED VIEW v SET PARALLELISM 3");
    let rescaled = "SELECT count(*) FROM millpond.recoveries WHERE job = 'v' AND cause = 'alter' AND caught_up_ms IS NOT NULL";
    drilled.client.await_rows(PATIENCE, rescaled, &["1"]);
    drilled.run("INSERT INTO t VALUES (1, 1)");
    drilled.client.await_rows(PATIENCE, "SELECT max(subtask) FROM millpond.checkpoint_subtasks WHERE job = 'v'", &["2"]);
    let wider = drilled.subtasks();
    assert!(wider.len() > subtasks.len(), "{wider:?}");
    wider.iter().rev().step_by(2).for_each(|place| drilled.fails(place));
    assert_eq!(drilled.client.rows(restarts).expect("rows"), ["0"], "peers went on");
    let client = &mut drilled.client;
    assert_eq!(sqlstate_of(client, "ALTER MATERIALIZED VIEW v FAIL SUBTASK 9 OF FRAGMENT 0"), "22023");
    assert_eq!(sqlstate_of(client, "ALTER MATERIALIZED VIEW v FAIL SUBTASK 0"), "42601");
    assert_eq!(sqlstate_of(client, "ALTER TABLE t FAIL SUBTASK 0 OF FRAGMENT 0"), "0A000");
}

#[test]
fn who_reads_an_approximate_view_agrees_to_it() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("CREATE TABLE t (k int, v int)").expect("a table");
    client
        .query("CREATE MATERIALIZED VIEW a WITH (recovery = 'approximate') AS SELECT k, count(*) AS n FROM t GROUP BY k")
        .expect("a view");
    assert_eq!(sqlstate_of(&mut client, "CREATE MATERIALIZED VIEW b AS SELECT sum(n) FROM a"), "55000");
    assert_eq!(sqlstate_of(&mut client, "CREATE SINK s FROM a WITH (connector = 'blackhole')"), "55000");
    client.query("CREATE VIEW through AS SELECT n FROM a").expect("a plain view");
    assert_eq!(sqlstate_of(&mut client, "CREATE MATERIALIZED VIEW b AS SELECT sum(n) FROM through"), "55000");
    client.query("CREATE MATERIALIZED VIEW b WITH (recovery = 'approximate') AS SELECT sum(n) AS n FROM through").expect("it agrees");
    assert_eq!(sqlstate_of(&mut client, "ALTER MATERIALIZED VIEW b SET (recovery = 'exactly_once')"), "55000");
    client.query("ALTER MATERIALIZED VIEW a RESET (recovery)").expect("exact again");
    client.query("ALTER MATERIALIZED VIEW b SET (recovery = 'exactly_once')").expect("exact again");
    assert_eq!(sqlstate_of(&mut client, "ALTER MATERIALIZED VIEW a SET (recovery = 'approximate')"), "55000");
    assert_eq!(sqlstate_of(&mut client, "ALTER MATERIALIZED VIEW a SET (recovery = 'at_most_once')"), "22023");
    client.query("ALTER MATERIALIZED VIEW b SET (recovery = 'approximate')").expect("it agrees");
    client.query("ALTER MATERIALIZED VIEW a SET (recovery = 'approximate')").expect("now it may");
    let shown = "SELECT name, recovery, approximate_from IS NULL FROM millpond.jobs WHERE kind = 'view' ORDER BY 1";
    assert_eq!(client.rows(shown).expect("rows"), ["a approximate t", "b approximate t"]);
    client.query("INSERT INTO t SELECT x % 10, x FROM generate_series(1, 100) AS g(x)").expect("rows");
    assert_eq!(client.rows("SELECT count(*), sum(n) FROM a").expect("rows"), ["10 100"]);
    client.query("ALTER MATERIALIZED VIEW a FAIL SUBTASK 0 OF FRAGMENT 0").expect("a drill");
    client.await_rows(PATIENCE, "SELECT name, approximate_from > 0 FROM millpond.jobs WHERE name = 'a'", &["a t"]);
    client.query("INSERT INTO t SELECT x, x FROM generate_series(100, 199) AS g(x)").expect("rows");
    assert_eq!(client.rows("SELECT count(*) FROM a WHERE k >= 100").expect("rows"), ["100"], "it goes on");
}
