//! The protocol, message by message: startup, the simple protocol, errors, cancel, vanishing clients.

use millpond_server::config::Config;
use millpond_sql_tests::{Message, TestServer, WireClient, frame, query, startup};

pub(crate) fn kinds(messages: &[Message]) -> String {
    messages.iter().map(|message| char::from(message.kind)).collect()
}

pub(crate) fn tags(messages: &[Message]) -> Vec<String> {
    messages.iter().filter(|message| message.kind == b'C').map(Message::tag).collect()
}

/// Values in text form; NULL as the word.
pub(crate) fn rows(messages: &[Message]) -> Vec<Vec<String>> {
    let show = |value: Option<Vec<u8>>| value.map_or("NULL".to_string(), |bytes| String::from_utf8(bytes).expect("text"));
    messages.iter().filter(|message| message.kind == b'D').map(|message| message.row().into_iter().map(show).collect()).collect()
}

/// The first error's SQLSTATE.
pub(crate) fn sqlstate(messages: &[Message]) -> Option<String> {
    let error = messages.iter().find(|message| message.kind == b'E')?;
    error.fields().into_iter().find(|(code, _)| *code == 'C').map(|(_, value)| value)
}

/// The transaction status at the end.
pub(crate) fn status(messages: &[Message]) -> char {
    char::from(messages.last().expect("an answer").body[0])
}

#[test]
fn startup_reports_what_drivers_want_to_know() {
    let server = TestServer::start();
    let client = server.connect();
    let parameter = |name: &str| client.parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
    assert_eq!(parameter("server_encoding"), Some("UTF8"));
    assert_eq!(parameter("client_encoding"), Some("UTF8"));
    assert_eq!(parameter("integer_datetimes"), Some("on"));
    assert_eq!(parameter("standard_conforming_strings"), Some("on"));
    assert_eq!(parameter("DateStyle"), Some("ISO, MDY"));
    assert_eq!(parameter("session_authorization"), Some("millpond"));
    let version = parameter("server_version").expect("a version");
    // Drivers read digits and points up to the first other character.
    let number = version.split(' ').next().expect("a word");
    assert!(number.starts_with("15.") && number.split('.').all(|part| part.parse::<u32>().is_ok()), "{version}");
    assert!(client.process_id > 0);
}

#[test]
fn encryption_is_declined_and_the_session_goes_on() {
    let server = TestServer::start();
    let mut client = WireClient::open(server.address()).expect("a socket");
    for code in [80_877_104_u32, 80_877_103] {
        client.send(&[&8_u32.to_be_bytes()[..], &code.to_be_bytes()].concat()).expect("sent");
        assert_eq!(client.receive_byte().expect("an answer"), b'N');
    }
    client.send(&startup(0x0003_0000, &[("user", "millpond")])).expect("sent");
    client.until_ready().expect("a session");
    assert_eq!(client.rows("SELECT 1").expect("rows"), ["1"]);
}

#[test]
fn newer_minor_versions_and_unknown_options_are_negotiated_down() {
    let server = TestServer::start();
    let mut client = WireClient::open(server.address()).expect("a socket");
    client.send(&startup(0x0003_0002, &[("user", "millpond"), ("_pq_.nothing", "1")])).expect("sent");
    let first = client.receive().expect("a message");
    assert_eq!(first.kind, b'v');
    assert_eq!(first.body, [&0x0003_0000_u32.to_be_bytes()[..], &1_u32.to_be_bytes(), b"_pq_.nothing\0"].concat());
    client.until_ready().expect("a session");
}

#[test]
fn who_does_not_exist_is_told_so() {
    let server = TestServer::start();
    let refused = |parameters: &[(&str, &str)]| match WireClient::connect_with(server.address(), parameters) {
        Ok(_) => panic!("{parameters:?} was let in"),
        Err(error) => error.sqlstate().to_string(),
    };
    assert_eq!(refused(&[("user", "nobody")]), "28000");
    assert_eq!(refused(&[("user", "millpond"), ("database", "nothing")]), "3D000");
    assert_eq!(refused(&[("database", "millpond")]), "28000");
    assert_eq!(refused(&[("user", "millpond"), ("replication", "true")]), "0A000");
    assert_eq!(refused(&[("user", "millpond"), ("DateStyle", "strange")]), "22023");
    let mut old = WireClient::open(server.address()).expect("a socket");
    old.send(&startup(0x0002_0000, &[])).expect("sent");
    assert_eq!(old.until_ready().expect_err("version 2").sqlstate(), "0A000");
}

#[test]
fn settings_of_the_startup_packet_hold() {
    let server = TestServer::start();
    let parameters =
        [("user", "millpond"), ("application_name", "it's"), ("TimeZone", "europe/berlin"), ("options", "-c extra_float_digits=0")];
    let mut client = WireClient::connect_with(server.address(), &parameters).expect("a session");
    assert_eq!(client.rows("SHOW application_name").expect("a row"), ["it's"]);
    assert_eq!(client.rows("SHOW TimeZone").expect("a row"), ["Europe/Berlin"]);
    assert_eq!(client.rows("SHOW extra_float_digits").expect("a row"), ["0"]);
}

#[test]
fn sessions_are_told_how_many_there_may_be() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = Config { max_connections: 7, ..Config::for_tests(directory.path()) };
    let server = TestServer::start_with(config).expect("a server");
    let mut client = server.connect();
    assert_eq!(client.rows("SHOW max_connections").expect("a row"), ["7"]);
    let shown = client.rows("SELECT setting, boot_val, source FROM pg_settings WHERE name = 'max_connections'");
    assert_eq!(shown.expect("a row"), ["7 7 default"]);
}

#[test]
fn a_password_is_proved_with_scram() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = Config { password: Some("pond water".to_string()), ..Config::for_tests(directory.path()) };
    let server = TestServer::start_with(config).expect("a server");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let connect = |password: &str| {
        let mut client = tokio_postgres::Config::new();
        client.host("127.0.0.1").port(server.address().port()).user("millpond").dbname("millpond").password(password);
        runtime.block_on(async {
            let (client, connection) = client.connect(tokio_postgres::NoTls).await?;
            let pump = tokio::spawn(connection);
            let row = client.query_one("SELECT 7", &[]).await?;
            drop(client);
            let _ = pump.await;
            Ok::<i32, tokio_postgres::Error>(row.get(0))
        })
    };
    assert_eq!(connect("pond water").expect("let in"), 7);
    let refused = connect("sea water").expect_err("refused");
    assert_eq!(refused.code().map(|code| code.code()), Some("28P01"));
    // Not even a loopback client comes in without.
    assert!(WireClient::connect(server.address()).is_err());
}

#[test]
fn each_statement_of_a_script_has_its_own_answer() {
    let server = TestServer::start();
    let mut client = server.connect();
    let messages = client.exchange(&query("SELECT 1 AS a; SELECT 'x' AS b, NULL AS c")).expect("answers");
    assert_eq!(kinds(&messages), "TDCTDCZ");
    assert_eq!(rows(&messages), [vec!["1"], vec!["x", "NULL"]]);
    assert_eq!(tags(&messages), ["SELECT 1", "SELECT 1"]);
    for nothing in ["", " ", ";", "-- nothing\n", "/* a /* nested */ b */"] {
        assert_eq!(kinds(&client.exchange(&query(nothing)).expect("answers")), "IZ", "{nothing:?}");
    }
    // An error ends the script.
    let messages = client.exchange(&query("SELECT 1; SELECT 1/0; SELECT 2")).expect("answers");
    assert_eq!(kinds(&messages), "TDCEZ");
    assert_eq!(sqlstate(&messages).as_deref(), Some("22012"));
    // Nothing runs when anything does not parse.
    assert_eq!(kinds(&client.exchange(&query("SELECT 1; SELEKT 2")).expect("answers")), "EZ");
}

#[test]
fn error_fields_carry_the_position() {
    let server = TestServer::start();
    let mut client = server.connect();
    let messages = client.exchange(&query("SELECT naïve FROM nowhere")).expect("answers");
    let fields = messages[0].fields();
    let field = |code: char| fields.iter().find(|(candidate, _)| *candidate == code).map(|(_, value)| value.as_str());
    assert_eq!((field('S'), field('V'), field('C')), (Some("ERROR"), Some("ERROR"), Some("42P01")));
    assert_eq!(field('M'), Some("relation \"nowhere\" does not exist"));
    assert_eq!(field('P'), Some("19"));
}

#[test]
fn a_failed_block_hears_only_its_end() {
    let server = TestServer::start();
    let mut client = server.connect();
    assert_eq!(status(&client.exchange(&query("BEGIN")).expect("answers")), 'T');
    let failed = client.exchange(&query("SELECT 1/0")).expect("answers");
    assert_eq!((sqlstate(&failed).as_deref(), status(&failed)), (Some("22012"), 'E'));
    let deaf = client.exchange(&query("SELECT 1")).expect("answers");
    assert_eq!((sqlstate(&deaf).as_deref(), status(&deaf)), (Some("25P02"), 'E'));
    let ended = client.exchange(&query("COMMIT")).expect("answers");
    assert_eq!((tags(&ended), status(&ended)), (vec!["ROLLBACK".to_string()], 'I'));
}

#[test]
fn an_error_in_the_middle_of_rows_fails_the_block() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("BEGIN").expect("a block");
    let sql = "SELECT 10 / (5000 - x) AS q FROM generate_series(1, 6000) AS t(x)";
    let messages = client.exchange(&query(sql)).expect("answers");
    assert_eq!((sqlstate(&messages).as_deref(), status(&messages)), (Some("22012"), 'E'));
    client.query("ROLLBACK").expect("the end");
    assert_eq!(client.rows("SELECT 1").expect("rows"), ["1"]);
}

#[test]
fn statements_and_rows_of_a_megabyte_pass() {
    let server = TestServer::start();
    let mut client = server.connect();
    let long = "x".repeat(1_000_000);
    assert_eq!(client.rows(&format!("SELECT length('{long}')")).expect("rows"), ["1000000"]);
    assert_eq!(client.rows(&format!("SELECT '{long}'")).expect("rows"), [long]);
}

#[test]
fn text_must_be_utf8() {
    let server = TestServer::start();
    let mut client = server.connect();
    let messages = client.exchange(&frame(b'Q', b"SELECT '\xff'\0")).expect("answers");
    assert_eq!(sqlstate(&messages).as_deref(), Some("22021"));
    assert_eq!(client.rows("SELECT 'é'").expect("rows"), ["é"]);
}

#[test]
fn broken_framing_ends_the_connection() {
    let server = TestServer::start();
    for bytes in [&b"Q\x00\x00\x00\x03"[..], b"Q\xff\xff\xff\xff", b"!\x00\x00\x00\x04", b"S\x00\x0f\x00\x00"] {
        let mut client = server.connect();
        client.send(bytes).expect("sent");
        assert_eq!(client.until_ready().expect_err("broken").sqlstate(), "08P01", "{bytes:?}");
        assert!(client.is_closed());
    }
    // A body that is not what its type says is only an error.
    let mut client = server.connect();
    let messages = client.exchange(&frame(b'Q', b"SELECT 1")).expect("answers");
    assert_eq!(sqlstate(&messages).as_deref(), Some("08P01"));
    assert_eq!(client.rows("SELECT 1").expect("rows"), ["1"]);
}

#[test]
fn clients_that_vanish_do_no_harm() {
    let server = TestServer::start();
    let unfinished: [&[u8]; 4] = [b"", b"\0\0", b"\0\0\0\x08\x04\xd2\x16\x2f", b"\0\0\0\x40\0\x03\0\0user"];
    for bytes in unfinished {
        let mut client = WireClient::open(server.address()).expect("a socket");
        client.send(bytes).expect("sent");
    }
    let mut half = server.connect();
    half.send(b"Q\0\0\x01\0SELECT").expect("sent");
    drop(half);
    assert_eq!(server.connect().rows("SELECT 1").expect("rows"), ["1"]);
}

#[test]
fn a_cancel_ends_the_statement_that_runs() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send(&query("SELECT pg_sleep(600)")).expect("sent");
    assert_eq!(client.cancel_until_ready().expect_err("cancelled").sqlstate(), "57014");
    assert_eq!(client.rows("SELECT 1").expect("rows"), ["1"]);
}

#[test]
fn a_cancel_ends_rows_that_nobody_reads() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.send(&query("SELECT repeat('x', 1000) FROM generate_series(1, 10000) a, generate_series(1, 10000) b")).expect("sent");
    // Once rows have come, the statement runs; it soon waits for a reader.
    while client.receive().expect("a message").kind != b'D' {}
    client.cancel().expect("sent");
    assert_eq!(client.until_ready().expect_err("cancelled").sqlstate(), "57014");
    assert_eq!(client.rows("SELECT 1").expect("rows"), ["1"]);
}

#[test]
fn a_wrong_secret_cancels_nothing() {
    let server = TestServer::start();
    let mut client = server.connect();
    let mut stranger = WireClient::open(server.address()).expect("a socket");
    (stranger.process_id, stranger.secret) = (client.process_id, client.secret.wrapping_add(1));
    client.send(&query("SELECT count(*) FROM generate_series(1, 3000000)")).expect("sent");
    stranger.cancel().expect("sent");
    assert_eq!(client.until_ready().expect("rows").rows, [[Some("3000000".to_string())]]);
}

#[test]
fn the_work_of_a_client_that_has_gone_is_cancelled() {
    let server = TestServer::start();
    let mut leaver = server.connect();
    leaver.send(&query("SELECT pg_sleep(600)")).expect("sent");
    drop(leaver);
    // Its session ends long before its statement would have.
    let started = std::time::Instant::now();
    while server.session_count() > 0 {
        assert!(started.elapsed() < std::time::Duration::from_secs(20), "the session goes on without its client");
        std::thread::yield_now();
    }
}

#[test]
fn sessions_are_cancelled_and_ended_by_others() {
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(60);
    let server = TestServer::start();
    let mut administrator = server.connect();
    administrator.query("CREATE TABLE t (a INT)").expect("a table");
    let mut victim = server.connect();
    let process = victim.process_id;
    victim.send(&query("SELECT pg_sleep(600)")).expect("sent");
    // It may not have begun yet.
    let cancel = format!("SELECT pg_cancel_backend(pid), state FROM pg_stat_activity WHERE pid = {process}");
    administrator.await_rows(PATIENCE, &cancel, &["t active"]);
    administrator.await_rows(PATIENCE, &cancel, &["t idle"]);
    assert_eq!(victim.until_ready().expect_err("cancelled").sqlstate(), "57014");
    let end = format!("SELECT pg_terminate_backend({process})");
    for script in ["BEGIN; INSERT INTO t VALUES (1)", "BEGIN; INSERT INTO t VALUES (1); SELECT pg_sleep(600)"] {
        victim.send(&query(script)).expect("sent");
        administrator.await_rows(
            PATIENCE,
            &format!("SELECT state <> 'idle' FROM pg_stat_activity WHERE pid = {}", victim.process_id),
            &["t"],
        );
        let end = format!("SELECT pg_terminate_backend({})", victim.process_id);
        assert_eq!(administrator.rows(&end).expect("told"), ["t"]);
        let messages = victim.until(b'E').expect("an error");
        assert_eq!(sqlstate(&messages).as_deref(), Some("57P01"));
        assert!(victim.is_closed());
        victim = server.connect();
    }
    administrator.await_rows(PATIENCE, &end, &["f"]);
    assert_eq!(administrator.rows("SELECT count(*) FROM t").expect("rows"), ["0"]);
    assert_eq!(administrator.rows("SELECT pg_postmaster_start_time() BETWEEN now() - INTERVAL '1 hour' AND now()").expect("a row"), ["t"]);
    assert_eq!(administrator.query("SELECT pg_terminate_backend(pg_backend_pid())").expect_err("ended").sqlstate(), "57P01");
}
