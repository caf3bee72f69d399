//! The extended protocol: statements, portals, parameters, pages of rows, formats, COPY.

use millpond_sql_tests::{TestServer, WireClient, bind, close, describe, execute, frame, parse, query};

use crate::wire::{kinds, rows, sqlstate, status, tags};

fn sync() -> Vec<u8> {
    frame(b'S', &[])
}

fn flush() -> Vec<u8> {
    frame(b'H', &[])
}

/// Parse, bind without parameters, execute, all unnamed.
fn run(sql: &str) -> Vec<u8> {
    [parse("", sql, &[]), bind("", "", &[], false, false), describe(b'P', ""), execute("", 0)].concat()
}

#[test]
fn a_statement_is_prepared_once_and_run_often() {
    let server = TestServer::start();
    let mut client = server.connect();
    let messages =
        client.exchange(&[parse("plus", "SELECT $1::int + $2 AS q", &[]), describe(b'S', "plus"), sync()].concat()).expect("answers");
    assert_eq!(kinds(&messages), "1tTZ");
    assert_eq!(messages[1].parameter_types(), [23, 23]);
    let column = &messages[2].columns()[0];
    assert_eq!((column.name.as_str(), column.type_oid, column.type_length, column.format), ("q", 23, 4, 0));
    for (a, b) in [(1, 2), (40, 2)] {
        let (a, b) = (a.to_string(), b.to_string());
        let parameters = [Some(a.as_bytes()), Some(b.as_bytes())];
        let messages = client.exchange(&[bind("", "plus", &parameters, false, false), execute("", 0), sync()].concat()).expect("answers");
        assert_eq!(kinds(&messages), "2DCZ");
        assert_eq!(rows(&messages)[0][0].parse::<i32>().expect("a number"), a.parse::<i32>().expect("a") + b.parse::<i32>().expect("b"));
    }
    let again = client.exchange(&[parse("plus", "SELECT 1", &[]), sync()].concat()).expect("answers");
    assert_eq!(sqlstate(&again).as_deref(), Some("42P05"));
    let gone = client.exchange(&[close(b'S', "plus"), bind("", "plus", &[], false, false), sync()].concat()).expect("answers");
    assert_eq!((kinds(&gone).as_str(), sqlstate(&gone).as_deref()), ("3EZ", Some("26000")));
    // Closing what is not there is no error.
    assert_eq!(kinds(&client.exchange(&[close(b'S', "x"), close(b'P', "x"), sync()].concat()).expect("answers")), "33Z");
}

#[test]
fn a_portal_is_fetched_in_pages() {
    let server = TestServer::start();
    let mut client = server.connect();
    let sql = "SELECT x FROM (VALUES (1), (2), (3), (4), (5), (6), (7)) t(x) ORDER BY x";
    let start = [parse("", sql, &[]), bind("pages", "", &[], false, false), describe(b'P', "pages"), execute("pages", 3), flush()].concat();
    client.send(&start).expect("sent");
    let first = client.until(b's').expect("a page");
    assert_eq!((kinds(&first).as_str(), rows(&first).len()), ("12TDDDs", 3));
    client.send(&[execute("pages", 3), flush()].concat()).expect("sent");
    assert_eq!(rows(&client.until(b's').expect("a page")), [["4"], ["5"], ["6"]]);
    client.send(&[execute("pages", 3), flush()].concat()).expect("sent");
    let last = client.until(b'C').expect("a page");
    assert_eq!((rows(&last), tags(&last)), (vec![vec!["7".to_string()]], vec!["SELECT 1".to_string()]));
    assert_eq!(kinds(&client.exchange(&sync()).expect("answers")), "Z");
    // The portal has ended with its transaction.
    assert_eq!(sqlstate(&client.exchange(&[execute("pages", 3), sync()].concat()).expect("answers")).as_deref(), Some("34000"));
}

#[test]
fn portals_of_a_block_live_until_its_end() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("BEGIN").expect("a block");
    let open =
        [parse("", "SELECT x FROM (VALUES (1), (2), (3)) t(x) ORDER BY x", &[]), bind("p", "", &[], false, false), execute("p", 2), sync()];
    assert_eq!(kinds(&client.exchange(&open.concat()).expect("answers")), "12DDsZ");
    assert_eq!(rows(&client.exchange(&[execute("p", 0), sync()].concat()).expect("answers")), [["3"]]);
    client.query("COMMIT").expect("the end");
    assert_eq!(sqlstate(&client.exchange(&[execute("p", 0), sync()].concat()).expect("answers")).as_deref(), Some("34000"));
}

#[test]
fn after_an_error_everything_up_to_sync_is_skipped() {
    let server = TestServer::start();
    let mut client = server.connect();
    let messages = client.exchange(&[run("SELECT nothing FROM nowhere"), run("SELECT 1"), sync()].concat()).expect("answers");
    assert_eq!((kinds(&messages).as_str(), sqlstate(&messages).as_deref(), status(&messages)), ("EZ", Some("42P01"), 'I'));
    let messages = client.exchange(&[run("SELECT 5"), sync()].concat()).expect("answers");
    assert_eq!((kinds(&messages).as_str(), rows(&messages)), ("12TDCZ", vec![vec!["5".to_string()]]));
    // A simple query in between is skipped too.
    let messages = client.exchange(&[run("SELECT 1/0"), query("SELECT 1"), sync()].concat()).expect("answers");
    assert_eq!(sqlstate(&messages).as_deref(), Some("22012"));
    assert_eq!(kinds(&messages).matches('Z').count(), 1);
}

#[test]
fn statements_that_answer_nothing() {
    let server = TestServer::start();
    let mut client = server.connect();
    assert_eq!(kinds(&client.exchange(&[run(""), sync()].concat()).expect("answers")), "12nIZ");
    let messages = client.exchange(&[run("CREATE TABLE nothing (a INT)"), sync()].concat()).expect("answers");
    assert_eq!((kinds(&messages).as_str(), tags(&messages)), ("12nCZ", vec!["CREATE TABLE".to_string()]));
}

#[test]
fn parameters_are_checked() {
    let server = TestServer::start();
    let mut client = server.connect();
    let prepare = || parse("", "SELECT $1::int", &[]);
    let try_bind = |client: &mut WireClient, parameters: &[Option<&[u8]>], binary: bool| {
        let messages =
            client.exchange(&[prepare(), bind("", "", parameters, binary, false), execute("", 0), sync()].concat()).expect("answers");
        (sqlstate(&messages), rows(&messages))
    };
    assert_eq!(try_bind(&mut client, &[None], false), (None, vec![vec!["NULL".to_string()]]));
    assert_eq!(try_bind(&mut client, &[Some(b"seven")], false).0.as_deref(), Some("22P02"));
    assert_eq!(try_bind(&mut client, &[Some(b"99999999999")], false).0.as_deref(), Some("22003"));
    assert_eq!(try_bind(&mut client, &[Some(&[1, 2, 3])], true).0.as_deref(), Some("22P03"));
    assert_eq!(try_bind(&mut client, &[], false).0.as_deref(), Some("08P01"));
    assert_eq!(try_bind(&mut client, &[Some(b"\xff")], false).0.as_deref(), Some("22021"));
    assert_eq!(try_bind(&mut client, &[Some(&7_i32.to_be_bytes())], true), (None, vec![vec!["7".to_string()]]));
    let undetermined = client.exchange(&[parse("", "SELECT $1 IS NULL", &[]), sync()].concat()).expect("answers");
    assert_eq!(sqlstate(&undetermined).as_deref(), Some("42P18"));
}

/// Every type's binary form is read back by the server as the value it was.
#[test]
fn a_parameter_may_name_an_object() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("CREATE TABLE orders (id int)").expect("a table");
    let ask = |sql: &str, name: &str| {
        [parse("", sql, &[]), bind("", "", &[Some(name.as_bytes())], false, false), execute("", 0), sync()].concat()
    };
    let same = "SELECT c.relname FROM pg_class c WHERE c.oid = CAST($1 AS regclass)";
    assert_eq!(rows(&client.exchange(&ask(same, "public.orders")).expect("answers")), [["orders"]]);
    assert_eq!(rows(&client.exchange(&ask("SELECT $1::regtype::oid", "bigint")).expect("answers")), [["20"]]);
    let missing = client.exchange(&ask(same, "nothing")).expect("answers");
    assert_eq!(sqlstate(&missing).as_deref(), Some("42P01"));
}

#[test]
fn binary_values_go_there_and_back() {
    let server = TestServer::start();
    let mut client = server.connect();
    let values = [
        ("boolean", "true", "t"),
        ("smallint", "-32768", "-32768"),
        ("int", "2147483647", "2147483647"),
        ("bigint", "-9223372036854775808", "-9223372036854775808"),
        ("real", "1.5", "1.5"),
        ("double precision", "-0.1", "-0.1"),
        ("numeric", "12345678901234567890.000123", "12345678901234567890.000123"),
        ("numeric(10,2)", "-7.50", "-7.50"),
        ("text", "naïve 日本", "naïve 日本"),
        ("bytea", "\\x00ff", "\\x00ff"),
        ("date", "0044-03-15 BC", "0044-03-15 BC"),
        ("time", "23:59:59.999999", "23:59:59.999999"),
        ("timestamp", "2031-01-02 03:04:05.678", "2031-01-02 03:04:05.678"),
        ("timestamp", "infinity", "infinity"),
        ("timestamptz", "1969-12-31 23:59:59+00", "1969-12-31 23:59:59+00"),
        ("interval", "1 year -2 days 00:00:03", "1 year -2 days +00:00:03"),
        ("uuid", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11", "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
        ("jsonb", "{\"a\": [1, null]}", "{\"a\": [1, null]}"),
        ("int[]", "{1,NULL,3}", "{1,NULL,3}"),
        ("text[]", "{}", "{}"),
        ("text[]", "{\"a b\",c}", "{\"a b\",c}"),
    ];
    for (sql_type, text, want) in values {
        let to_binary = [parse("", &format!("SELECT '{text}'::{sql_type}"), &[]), bind("", "", &[], false, true), execute("", 0), sync()];
        let messages = client.exchange(&to_binary.concat()).expect("answers");
        assert_eq!(sqlstate(&messages), None, "{sql_type} {text}");
        let row = messages.iter().find(|message| message.kind == b'D').expect("a row").row();
        let bytes = row[0].clone().expect("a value");
        let back = [parse("", &format!("SELECT $1::{sql_type}"), &[]), bind("", "", &[Some(&bytes)], true, false), execute("", 0), sync()];
        let messages = client.exchange(&back.concat()).expect("answers");
        assert_eq!((sqlstate(&messages), rows(&messages)), (None, vec![vec![want.to_string()]]), "{sql_type} {text}");
    }
}

#[test]
fn reported_settings_are_reported_when_they_change() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("SET TimeZone = 'America/Chicago'").expect("set");
    assert!(client.parameters.contains(&("TimeZone".to_string(), "America/Chicago".to_string())));
    assert_eq!(client.rows("SELECT '2031-07-01 12:00+00'::timestamptz").expect("rows"), ["2031-07-01 07:00:00-05"]);
    client.query("BEGIN; SET application_name = 'inner'; ROLLBACK").expect("rolled back");
    assert!(client.parameters.contains(&("application_name".to_string(), String::new())));
}

/// The data of a COPY TO STDOUT.
fn copied(client: &mut WireClient, sql: &str) -> String {
    let messages = client.exchange(&query(sql)).expect("answers");
    assert_eq!(sqlstate(&messages), None, "{sql}");
    messages.iter().filter(|message| message.kind == b'd').map(|message| String::from_utf8_lossy(&message.body).into_owned()).collect()
}

#[test]
fn copy_in_and_out() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("CREATE TABLE c (a INT, b TEXT)").expect("a table");
    client.send(&query("COPY c FROM STDIN")).expect("sent");
    assert_eq!(client.receive().expect("a message").kind, b'G');
    // Data may be cut anywhere.
    client.send(&[frame(b'd', b"1\tone\n2\tt"), frame(b'd', b"wo\\tparts\n3\t\\N\n"), frame(b'c', &[])].concat()).expect("sent");
    assert_eq!(client.until_ready().expect("an answer").tags, ["COPY 3"]);
    assert_eq!(copied(&mut client, "COPY (SELECT * FROM c ORDER BY a) TO STDOUT"), "1\tone\n2\ttwo\\tparts\n3\t\\N\n");
    let csv = copied(&mut client, "COPY (SELECT * FROM c ORDER BY a) TO STDOUT WITH (FORMAT csv, HEADER)");
    assert_eq!(csv, "a,b\n1,one\n2,two\tparts\n3,\n");
    // What goes out in binary comes in again.
    let messages = client.exchange(&query("COPY c TO STDOUT WITH (FORMAT binary)")).expect("answers");
    let binary: Vec<u8> = messages.iter().filter(|message| message.kind == b'd').flat_map(|message| message.body.clone()).collect();
    client
        .send(&[query("TRUNCATE c; COPY c FROM STDIN WITH (FORMAT binary)"), frame(b'd', &binary), frame(b'c', &[])].concat())
        .expect("sent");
    assert_eq!(client.until_ready().expect("an answer").tags.last().map(String::as_str), Some("COPY 3"));
    assert_eq!(client.rows("SELECT count(*), count(b), sum(a) FROM c").expect("rows"), ["3 2 6"]);
}

#[test]
fn a_copy_that_fails_leaves_nothing_and_the_session_goes_on() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("CREATE TABLE c (a INT)").expect("a table");
    for (data, sqlstate) in [(frame(b'd', b"1\nx\n"), "22P02"), (frame(b'f', b"no more\0"), "57014"), (query("SELECT 1"), "08P01")] {
        client.send(&[query("COPY c FROM STDIN"), data, frame(b'c', &[])].concat()).expect("sent");
        assert_eq!(client.until_ready().expect_err("refused").sqlstate(), sqlstate);
        assert_eq!(client.rows("SELECT count(*) FROM c").expect("rows"), ["0"]);
    }
    // In the extended protocol the Sync that ends the COPY is the one that is answered.
    let start = [parse("", "COPY c FROM STDIN", &[]), bind("", "", &[], false, false), execute("", 0), sync()].concat();
    client.send(&[start, frame(b'd', b"7\n"), frame(b'c', &[]), sync()].concat()).expect("sent");
    assert_eq!(client.until_ready().expect("an answer").tags, ["COPY 1"]);
    assert_eq!(client.rows("SELECT a FROM c").expect("rows"), ["7"]);
}

#[test]
fn an_error_of_a_copy_names_line_and_column() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("CREATE TABLE c (a INT PRIMARY KEY, b VARCHAR(3) NOT NULL, CHECK (a <> 13))").expect("a table");
    let mut refused = |options: &str, data: &str| {
        client
            .send(&[query(&format!("COPY c FROM STDIN {options}")), frame(b'd', data.as_bytes()), frame(b'c', &[])].concat())
            .expect("sent");
        let answer = client.exchange(&[]).expect("answers");
        let error = answer.iter().find(|message| message.kind == b'E').expect("an error").fields();
        let field = |code: char| error.iter().find(|(candidate, _)| *candidate == code).map(|(_, value)| value.clone()).unwrap_or_default();
        (field('C'), field('W'))
    };
    let expected = |sqlstate: &str, context: &str| (sqlstate.to_owned(), context.to_owned());
    assert_eq!(refused("", "1\tx\n2\ty\nabc\tz\nd\n"), expected("22P02", "COPY c, line 3, column a: \"abc\""));
    assert_eq!(refused("", "1\tx\n2\ttoolong\n"), expected("22001", "COPY c, line 2, column b: \"toolong\""));
    assert_eq!(refused("", "1\tx\n2\t\\N\n"), expected("23502", "COPY c, line 2: \"2\t\\N\""));
    assert_eq!(refused("", "13\tx\n"), expected("23514", "COPY c, line 1: \"13\tx\""));
    assert_eq!(refused("", "1\tx\n2\n"), expected("22P04", "COPY c, line 2: \"2\""));
    assert_eq!(refused("", "1\tx\t3\n"), expected("22P04", "COPY c, line 1: \"1\tx\t3\""));
    assert_eq!(refused("", "1\tx\n2\tx\n1\tx\n"), expected("23505", "COPY c, line 3"));
    assert_eq!(refused("(FORMAT csv, HEADER)", "a,b\n1,\"x\ny\"\n2,x,3\n"), expected("22P04", "COPY c, line 4: \"2,x,3\""));
    // The row before the one that cannot be read comes first, and a long value is cut.
    let long = format!("{}\t\n1\n", "9".repeat(200));
    assert_eq!(refused("", &long), expected("22003", &format!("COPY c, line 1, column a: \"{}...\"", "9".repeat(100))));
}

#[test]
fn statements_by_name_are_the_same_for_sql_and_for_messages() {
    let server = TestServer::start();
    let mut client = server.connect();
    let named = |name: &str, sql: &str| [parse(name, sql, &[]), sync()].concat();
    let described = |name: &str| [describe(b'S', name), sync()].concat();
    client.exchange(&named("one", "SELECT 1")).expect("answers");
    client.exchange(&named("two", "SELECT 2")).expect("answers");
    client.query("PREPARE three AS SELECT 3").expect("prepared");
    assert_eq!(client.rows("EXECUTE one").expect("rows"), ["1"]);
    let listed = "SELECT name, from_sql FROM pg_prepared_statements ORDER BY name";
    assert_eq!(client.rows(listed).expect("rows"), ["one f", "three t", "two f"]);
    for taken in ["one", "three"] {
        assert_eq!(sqlstate(&client.exchange(&named(taken, "SELECT 4")).expect("answers")).as_deref(), Some("42P05"));
    }
    client.query("DEALLOCATE two").expect("gone");
    assert_eq!(kinds(&client.exchange(&described("one")).expect("answers")), "tTZ");
    assert_eq!(kinds(&client.exchange(&described("three")).expect("answers")), "tTZ");
    assert_eq!(sqlstate(&client.exchange(&described("two")).expect("answers")).as_deref(), Some("26000"));
    client.query("DISCARD ALL").expect("gone");
    assert_eq!(sqlstate(&client.exchange(&described("one")).expect("answers")).as_deref(), Some("26000"));
    assert_eq!(client.rows("SELECT count(*) FROM pg_prepared_statements").expect("rows"), ["0"]);
}
