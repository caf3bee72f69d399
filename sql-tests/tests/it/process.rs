//! The server as a process: how it starts, refuses to start, and ends.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;

use millpond_server::config::Config;
use millpond_server::server::ServerError;
use millpond_sql_tests::{ServerProcess, TestServer};

const BINARY: &str = env!("CARGO_BIN_EXE_millpond-under-test");

#[test]
fn sigterm_ends_a_server_with_a_connected_session() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = ServerProcess::start(Path::new(BINARY), &directory.path().join("data"), &[]);
    let mut session = server.connect().expect("a session");
    assert_eq!(session.rows("SELECT 1").expect("rows"), ["1"]);
    let status = server.terminate();
    assert_eq!(status.code(), Some(0));
    // The session was told why.
    let farewell = session.receive().expect("a message");
    assert!(farewell.fields().contains(&('C', "57P01".to_string())), "{farewell:?}");
    assert!(session.is_closed());
}

#[test]
fn a_second_server_on_the_directory_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = ServerProcess::start(Path::new(BINARY), directory.path(), &[]);
    let second = Command::new(BINARY).arg("--data-dir").arg(directory.path()).args(["--listen", "127.0.0.1:0"]).output().expect("it runs");
    assert_eq!(second.status.code(), Some(1));
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(said.contains("is in use by another millpond"), "{said}");
    first.kill();
    // The lock does not outlive its process.
    ServerProcess::start(Path::new(BINARY), directory.path(), &[]).terminate();
}

#[test]
fn wrong_arguments_are_named() {
    let output = Command::new(BINARY).args(["--memory-limit", "12 parsecs"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("12 parsecs"));
}

#[test]
fn a_taken_address_is_an_error() {
    let server = TestServer::start();
    let directory = tempfile::tempdir().expect("a directory");
    let config = Config { listen: server.address().to_string(), ..Config::for_tests(directory.path()) };
    assert!(matches!(TestServer::start_with(config), Err(ServerError::Listen { .. })));
}

#[test]
fn health_and_metrics_over_http() {
    let server = TestServer::start();
    let _session = server.connect();
    let get = |path: &str| {
        let mut socket = TcpStream::connect(server.http_address().expect("on")).expect("a connection");
        socket.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").as_bytes()).expect("sent");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("an answer");
        answer
    };
    assert!(get("/healthz").ends_with("ok\n"));
    let metrics = get("/metrics");
    assert!(metrics.contains("millpond_sessions 1"), "{metrics}");
    assert!(get("/nothing").starts_with("HTTP/1.1 404"));
}

/// Ticks of a hundredth of a second that a process has had of the processors.
fn processor_ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("the process is there");
    let fields: Vec<&str> = stat.rsplit_once(')').expect("a name").1.split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<u64>().expect("a number")).sum()
}

#[test]
fn jobs_with_nothing_to_do_take_next_to_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = ServerProcess::start(Path::new(BINARY), &directory.path().join("data"), &[]);
    let mut session = server.connect().expect("a session");
    let statements = [
        "CREATE SOURCE slow (n BIGINT) WITH (connector = 'datagen', rows_per_second = 1)",
        "CREATE TABLE t (n BIGINT)",
        "CREATE MATERIALIZED VIEW of_source AS SELECT count(*) FROM slow",
        "CREATE MATERIALIZED VIEW another AS SELECT max(n) FROM slow",
        "CREATE MATERIALIZED VIEW of_table AS SELECT count(*) FROM t",
    ];
    for statement in statements {
        session.query(statement).expect(statement);
    }
    let before = processor_ticks(server.process_id());
    session.rows("SELECT pg_sleep(4)").expect("it waits");
    // A task that goes round without waiting would have taken 400 alone.
    let taken = processor_ticks(server.process_id()) - before;
    assert!(taken < 200, "{taken} ticks in 4 seconds");
    server.terminate();
}
