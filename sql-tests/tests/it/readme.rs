//! The README against the server: its SQL runs as it stands, its tables name what there is, and what it says is not there yet is not.

use std::{collections::BTreeSet, path::Path, time::Duration};

use millpond_sql_tests::{ClientError, ObjectServer, TestServer, WireClient};

/// Something that happens soon takes longer than this only if it never happens.
const PATIENCE: Duration = Duration::from_secs(60);
/// The folder of the README's files.
const FOLDER: &str = "/tmp/millpond";
/// What its reader has to put in begins so.
const PLACEHOLDER: &str = "YOUR-";
const BUCKET: &str = "readme";

fn readme() -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md")).expect("the README")
}

/// The blocks of SQL, in their order.
fn blocks(text: &str) -> Vec<&str> {
    let begun = text.split("```sql\n").skip(1);
    begun.map(|block| block.split("```").next().expect("the block's text")).collect()
}

/// The statements of a block without its comments; none of them has a semicolon inside.
fn statements(block: &str) -> Vec<String> {
    let lines: Vec<&str> = block.lines().map(|line| line.split("--").next().unwrap_or_default()).collect();
    lines.join("\n").split(';').map(str::trim).filter(|statement| !statement.is_empty()).map(str::to_owned).collect()
}

/// The first cells of the table that follows a line, and their second cells.
fn table<'a>(text: &'a str, line: &str) -> Vec<(&'a str, &'a str)> {
    let after = &text[text.find(line).unwrap_or_else(|| panic!("no line {line:?}"))..];
    let rows = after.lines().skip_while(|row| !row.starts_with('|')).take_while(|row| row.starts_with('|')).skip(2);
    let rows = rows.map(|row| {
        let mut cells = row.trim_matches('|').split('|').map(str::trim);
        (cells.next().expect("a cell"), cells.next().unwrap_or_default())
    });
    rows.collect()
}

/// What is quoted as code.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

fn names(text: &str, lines: &[&str]) -> BTreeSet<String> {
    lines.iter().flat_map(|line| table(text, line)).flat_map(|(first, _)| quoted(first)).map(str::to_owned).collect()
}

/// The names that the hint of an error lists.
fn offered(client: &mut WireClient, sql: &str) -> BTreeSet<String> {
    match client.query(sql).expect_err(sql) {
        ClientError::Server { sqlstate, message, hint: Some(hint), .. } => {
            assert_eq!(sqlstate, "22023", "{sql}: {message}");
            let list = hint.split_once(": ").unwrap_or_else(|| panic!("{sql}: {hint}")).1;
            list.trim_end_matches('.').split(", ").map(str::to_owned).collect()
        }
        other => panic!("{sql}: {other}"),
    }
}

#[test]
fn its_sql_runs_as_it_stands() {
    let (server, text, folder) = (TestServer::start(), readme(), tempfile::tempdir().expect("a folder"));
    let text = text.replace(FOLDER, &folder.path().display().to_string());
    let mut client = server.connect();
    let mut count = 0;
    for statement in blocks(&text).into_iter().filter(|block| !block.contains(PLACEHOLDER)).flat_map(statements) {
        count += 1;
        client.query(&statement).unwrap_or_else(|error| panic!("{error}\n  in: {statement}"));
    }
    // Those in the text: nothing has failed here that could be resumed.
    for statement in quoted(&text).filter(|code| code.starts_with("ALTER ") && code.contains(" RESUME")) {
        count += 1;
        assert_eq!(client.query(statement).expect_err(statement).sqlstate(), "55000", "{statement}");
    }
    assert!(count > 15, "{count} statements");
    assert_eq!(client.rows("SELECT * FROM totals ORDER BY customer").expect("rows"), ["ann 2 12.50", "bob 1 5.00"]);
    for filled in ["per_second", "trending", "busiest"] {
        client.await_rows(PATIENCE, &format!("SELECT count(*) > 0 FROM {filled}"), &["t"]);
    }
    assert_eq!(client.rows("SELECT count(*) FROM millpond.jobs WHERE state = 'failed' OR error IS NOT NULL").expect("rows"), ["0"]);
}

#[test]
fn its_sql_for_a_store_runs_with_a_store() {
    let store = ObjectServer::start();
    store.create_bucket(BUCKET);
    let environment = store.environment();
    let value = |name: &str| &environment.iter().find(|(known, _)| *known == name).expect("a variable").1;
    let text = readme()
        .replace("YOUR-BUCKET", BUCKET)
        .replace("http://YOUR-ENDPOINT", value("AWS_ENDPOINT_URL"))
        .replace("YOUR-KEY", value("AWS_ACCESS_KEY_ID"))
        .replace("YOUR-SECRET", value("AWS_SECRET_ACCESS_KEY"));
    assert!(!text.contains(PLACEHOLDER));
    let server = TestServer::start();
    let mut client = server.connect();
    let mut count = 0;
    for statement in blocks(&text).into_iter().filter(|block| block.contains(BUCKET)).flat_map(statements) {
        client.query(&statement).unwrap_or_else(|error| panic!("{error}\n  in: {statement}"));
        count += 1;
    }
    assert_eq!((count, client.rows("SELECT count(*) FROM clicks").expect("rows")), (1, vec!["0".to_owned()]));
    // Each setting that the README names is one of the client's; they are taken in the order of their names.
    let settings = table(&text, "`file` as a source:").into_iter().find(|(name, _)| *name == "`s3.<setting>`").expect("a row");
    let line = text.lines().find(|line| line.starts_with("| `s3.<setting>` |")).expect("a row");
    assert_eq!(settings.1, "the `AWS_*` variables");
    let given: Vec<String> =
        quoted(line).filter(|name| name.starts_with("s3.") && !name.contains('<')).map(|name| format!("{name} = 'true'")).collect();
    let sql = format!(
        "CREATE SOURCE x (a INT) WITH (connector = 'file', path = 's3://x/', format = 'csv', mode = 'watch', {}, s3.zzz = 1)",
        given.join(", ")
    );
    let error = client.query(&sql).expect_err("no setting").to_string();
    assert!(given.len() > 5 && error.contains("no setting \"zzz\""), "{given:?}: {error}");
}

#[test]
fn its_tables_have_every_option() {
    let (server, text) = (TestServer::start(), readme());
    let mut client = server.connect();
    client.query("CREATE TABLE t (a INT)").expect("a table");
    let (any, a_file, sink) = ("Of every source:", "`file` as a source:", "Of every sink,");
    let source = |columns: &str, options: &str| format!("CREATE SOURCE x ({columns}) WITH (connector = {options})");
    let file = "'file', path = '/nowhere', format = 'csv', nonsense = 1";
    assert_eq!(offered(&mut client, &source("a TIMESTAMP", file)), names(&text, &[any, a_file]));
    assert_eq!(
        offered(&mut client, &source("auction BIGINT", "'nexmark', table = 'bid', nonsense = 1")),
        names(&text, &[any, "`nexmark`, whose"])
    );
    let mut datagen = offered(&mut client, &source("a INT", "'datagen', nonsense = 1"));
    for (column, kind) in [("INT", "sequence"), ("INT", "random"), ("TEXT", "random")] {
        let sql = source(&format!("a {column}"), &format!("'datagen', fields.a.kind = '{kind}', fields.a.nonsense = 1"));
        datagen.extend(offered(&mut client, &sql).into_iter().map(|setting| format!("fields.c.{setting}")));
    }
    assert_eq!(datagen, names(&text, &[any, "`datagen`:"]));
    let sql = format!("CREATE SINK x AS SELECT a FROM t WITH (connector = {file}, force_append_only = true)");
    assert_eq!(offered(&mut client, &sql), names(&text, &[sink, "`file` as a sink."]));
    let job = names(&text, &["Options of a job,"]);
    assert_eq!(offered(&mut client, "CREATE MATERIALIZED VIEW x WITH (nonsense = 1) AS SELECT a FROM t"), job);
    let changeable = offered(&mut client, "CREATE MATERIALIZED VIEW x AS SELECT a FROM t; ALTER MATERIALIZED VIEW x SET (nonsense = 1)");
    let last_two = job.difference(&changeable).map(String::as_str);
    assert_eq!(last_two.collect::<Vec<_>>(), ["background", "state_backend"]);
}

#[test]
fn its_settings_are_those_of_a_session() {
    let (server, text) = (TestServer::start(), readme());
    let mut client = server.connect();
    let rows = table(&text, "### Settings of a session");
    for (name, default) in &rows {
        let shown = client.rows(&format!("SHOW {}", name.trim_matches('`'))).expect(name);
        assert_eq!(shown, [default.trim_matches('`')], "{name}");
    }
    // All that can be set and does something; what belongs to one transaction has statements of its own.
    let effective = client.query("SHOW ALL").expect("settings").rows.into_iter().filter_map(|row| {
        let [Some(name), _, Some(description)] = <[_; 3]>::try_from(row).ok()? else { return None };
        (description.starts_with("Sets ") && (name == "transaction_timeout" || !name.starts_with("transaction_"))).then_some(name)
    });
    let named: BTreeSet<String> = rows.iter().flat_map(|(name, _)| quoted(name)).map(str::to_owned).collect();
    assert_eq!(effective.collect::<BTreeSet<_>>(), named);
}

#[test]
fn what_it_says_is_not_there_is_refused_as_not_supported() {
    let (server, text) = (TestServer::start(), readme());
    let mut client = server.connect();
    client.query("CREATE TABLE orders (id INT PRIMARY KEY, customer TEXT, amount NUMERIC(10, 2))").expect("a table");
    client.query("CREATE MATERIALIZED VIEW totals AS SELECT customer, count(*) AS orders FROM orders GROUP BY customer").expect("a view");
    client.query("CREATE SOURCE bid WITH (connector = 'nexmark', table = 'bid', events = 100)").expect("a source");
    let section = text.split("## What is not there yet").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("the section");
    let is_statement = |code: &&str| {
        let first = code.split(' ').next().unwrap_or_default();
        first.len() > 2 && first.chars().all(|c| c.is_ascii_uppercase()) && code.contains(' ') && !code.contains("..")
    };
    let mut count = 0;
    for statement in quoted(section).map(|code| code.split_whitespace().collect::<Vec<_>>().join(" ")) {
        if is_statement(&statement.as_str()) {
            let error = client.query(&statement).expect_err(&statement);
            assert_eq!(error.sqlstate(), "0A000", "{statement}: {error}");
            count += 1;
        }
    }
    assert!(count > 15, "{count} statements");
}
