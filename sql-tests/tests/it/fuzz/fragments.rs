//! Random messages and random SQL: whatever comes, the server answers or closes, and goes on serving others.

use std::time::Duration;

use millpond_sql_tests::{TestServer, WireClient, bind, close, describe, execute, frame, parse, query, startup};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::{SEED, seed};

/// Sessions of random messages.
const SESSIONS: u64 = 60;
/// Random texts.
const TEXTS: u64 = 1500;
const FRAGMENTS: &[&str] = &[
    "SELECT",
    "1",
    "'a'",
    "NULL",
    "FROM",
    "t",
    "WHERE",
    "GROUP BY",
    "(",
    ")",
    ",",
    "*",
    "+",
    "-",
    "/",
    "::int",
    "::text",
    "count",
    "x",
    "AS",
    "ORDER BY",
    "LIMIT",
    "JOIN",
    "ON",
    "=",
    "<",
    "IN",
    "NOT",
    "EXISTS",
    "CASE",
    "WHEN",
    "THEN",
    "END",
    "OVER",
    "PARTITION BY",
    "CREATE",
    "TABLE",
    "VIEW",
    "MATERIALIZED",
    "DROP",
    "INSERT INTO",
    "VALUES",
    "UPDATE",
    "SET",
    "DELETE",
    ";",
    "$1",
    "$2",
    "\"q\"",
    "interval '1 day'",
    "E'\\n'",
    "now()",
    "ARRAY[",
    "]",
    "{",
    "}",
    "BEGIN",
    "COMMIT",
    "ROLLBACK",
    "UNION ALL",
    "WITH",
    "RECURSIVE",
    "TUMBLE",
    "WATERMARK FOR",
    "1e400",
    "99999999999999999999",
    "--",
    "/*",
    "*/",
    "é",
    "\u{1F600}",
    "COPY",
    "STDIN",
    "EXPLAIN",
    "SHOW",
    "pg_catalog.pg_class",
    "generate_series(1, 3)",
];

fn random_sql(rng: &mut StdRng) -> String {
    let length = rng.random_range(0..18);
    (0..length).map(|_| *FRAGMENTS.choose(rng).expect("not empty")).collect::<Vec<_>>().join(" ")
}

/// A well-formed message, most of the time.
fn random_message(rng: &mut StdRng) -> Vec<u8> {
    let name = *["", "a", "b"].choose(rng).expect("not empty");
    let mut message = match rng.random_range(0..12) {
        0 => query(&random_sql(rng)),
        1 | 2 => parse(name, &random_sql(rng), &[[0, 23, 25, 1114, 999_999].choose(rng).copied().unwrap_or(0)]),
        3 => {
            let value = rng.random::<[u8; 4]>();
            let parameters = [Some(&value[..]), None];
            bind(name, name, &parameters[..rng.random_range(0..3)], rng.random(), rng.random())
        }
        4 => describe(if rng.random() { b'S' } else { b'P' }, name),
        5 => execute(name, rng.random_range(0..3)),
        6 => close(if rng.random() { b'S' } else { b'P' }, name),
        7 => frame(b'H', &[]),
        8 => frame(b'S', &[]),
        9 => frame(b'd', &rng.random::<[u8; 9]>()),
        10 => frame(b'c', &[]),
        _ => frame(rng.random(), &rng.random::<[u8; 3]>()),
    };
    if rng.random_range(0..20) == 0 && !message.is_empty() {
        let at = rng.random_range(0..message.len());
        message[at] = rng.random();
    }
    message
}

/// Whether the server still answers on a new connection.
fn assert_alive(server: &TestServer, context: &str) {
    let mut client = server.try_connect().unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(client.rows("SELECT 1").unwrap_or_else(|error| panic!("{context}: {error}")), ["1"], "{context}");
}

#[test]
fn random_messages_are_answered_or_refused() {
    let server = TestServer::start();
    for session in 0..SESSIONS {
        let seed = seed().wrapping_add(session);
        let mut rng = StdRng::seed_from_u64(seed);
        let mut client = server.connect();
        let script: Vec<u8> = (0..rng.random_range(1..30)).flat_map(|_| random_message(&mut rng)).collect();
        // The server may have closed in the middle.
        let _ = client.send(&script);
        if rng.random() {
            client.finish_sending();
            assert!(client.is_closed(), "{SEED}={seed}: not closed after the client's last byte");
        }
        drop(client);
        assert_alive(&server, &format!("{SEED}={seed}"));
    }
}

#[test]
fn random_startups_are_answered_or_refused() {
    let server = TestServer::start();
    for session in 0..SESSIONS {
        let seed = seed().wrapping_add(session);
        let mut rng = StdRng::seed_from_u64(seed);
        let mut packet = startup(0x0003_0000, &[("user", "millpond"), ("options", "-c a=b")]);
        for _ in 0..rng.random_range(1..4) {
            let at = rng.random_range(0..packet.len());
            packet[at] = rng.random();
        }
        let mut client = WireClient::open(server.address()).expect("a socket");
        let _ = client.send(&packet);
        drop(client);
    }
    assert_alive(&server, "after random startups");
}

#[test]
fn random_sql_is_answered_or_refused() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("SET statement_timeout = '5s'").expect("a setting");
    for round in 0..TEXTS {
        let seed = seed().wrapping_add(round);
        let sql = random_sql(&mut StdRng::seed_from_u64(seed));
        if sql.contains("COPY") {
            // The answer could be a wait for data.
            continue;
        }
        let started = std::time::Instant::now();
        if let Err(error) = client.query(&sql) {
            let state = error.sqlstate();
            assert!(!state.is_empty() && state != "XX000", "{SEED}={seed}: {error}\n{sql}");
        }
        assert!(started.elapsed() < Duration::from_secs(10), "{SEED}={seed}: too slow\n{sql}");
    }
    client.query("ROLLBACK").expect("the session goes on");
    assert_alive(&server, "after random texts");
}

#[test]
fn deep_nesting_is_refused_or_planned() {
    let server = TestServer::start();
    let mut client = server.connect();
    let depth = 5000;
    let texts = [
        format!("SELECT {}1{}", "(".repeat(depth), ")".repeat(depth)),
        format!("SELECT {}1", "- ".repeat(depth)),
        format!("SELECT {}TRUE", "NOT ".repeat(depth)),
        format!("SELECT 1{}", " + 1".repeat(depth)),
        format!("SELECT {}1{}", "(SELECT ".repeat(depth), ")".repeat(depth)),
        format!("SELECT '{}'::jsonb", "[".repeat(depth)),
        format!("SELECT '{}'::int[]", "{".repeat(depth)),
        format!("SELECT {}1{}", "CASE WHEN TRUE THEN ".repeat(depth / 10), " END".repeat(depth / 10)),
    ];
    for sql in texts {
        // Either answer is right; the session must live.
        let _ = client.query(&sql);
        assert_eq!(client.rows("SELECT 1").expect("rows"), ["1"], "after {} bytes of {}", sql.len(), &sql[..30]);
    }
}
