//! Statements of the other tests, changed and mixed with each other, between the unchanged ones that make what they speak of.

use std::time::{Duration, Instant};

use millpond_sql_tests::{ClientError, Message, WireClient, describe, frame, parse, query};
use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};

use super::{
    Failures, SEED, Target,
    corpus::{files, tokens},
    duration, seed,
};

/// Changed statements between two unchanged ones.
const CHANGED: usize = 2;
/// Statements between two looks at the server.
const BATCH: u64 = 100;
/// Statements that a server gets before the next one is begun: jobs gather on it.
const PER_SERVER: u64 = 600;
const STATEMENT_TIMEOUT: &str = "3s";
const TOO_SLOW: Duration = Duration::from_secs(15);
const EXTREMES: [&str; 28] = [
    "NULL",
    "0",
    "-1",
    "32768",
    "2147483648",
    "9223372036854775807",
    "(-9223372036854775808)",
    "99999999999999999999999999999999999999999",
    "1e308",
    "'NaN'::float8",
    "'infinity'",
    "''",
    "'\\xff'::bytea",
    "'é😀'",
    "'294276-12-31 23:59:59.999999'",
    "'4713-01-01 BC'",
    "INTERVAL '178000000 years'",
    "INTERVAL '-1 microsecond'",
    "'{}'::int[]",
    "ARRAY[NULL]",
    "'{\"a\": [1, null]}'::jsonb",
    "now()",
    "$1",
    "*",
    "(SELECT NULL)",
    "ROW(1, 'a')",
    "repeat('x', 100000)",
    "count(*)",
];

/// A part of a statement in parentheses, if it has any.
fn group<'t>(rng: &mut StdRng, tokens: &[&'t str]) -> Option<(usize, Vec<&'t str>)> {
    let openings: Vec<usize> = tokens.iter().enumerate().filter(|(_, token)| **token == "(").map(|(at, _)| at).collect();
    let start = *openings.choose(rng)?;
    let mut depth = 0;
    let length = tokens[start..].iter().position(|token| {
        depth += i32::from(*token == "(") - i32::from(*token == ")");
        depth == 0
    })?;
    Some((start, tokens[start..=start + length].to_vec()))
}

fn change<'t>(rng: &mut StdRng, tokens: &mut Vec<&'t str>, other: &[&'t str]) {
    if tokens.is_empty() || other.is_empty() {
        return;
    }
    let at = rng.random_range(0..tokens.len());
    let length = rng.random_range(1..4).min(tokens.len() - at);
    let there = rng.random_range(0..other.len());
    match rng.random_range(0..9) {
        0 => drop(tokens.drain(at..at + length)),
        1 => {
            let again = tokens[at..at + length].to_vec();
            tokens.splice(at..at, again);
        }
        2 | 3 => tokens[at] = other[there],
        4 => {
            tokens.truncate(at);
            tokens.extend_from_slice(&other[there..]);
        }
        5 | 6 => tokens[at] = EXTREMES.choose(rng).expect("not empty"),
        7 => {
            if let (Some((start, mine)), Some((_, theirs))) = (group(rng, tokens), group(rng, other)) {
                tokens.splice(start..start + mine.len(), theirs);
            }
        }
        _ => {
            let to = rng.random_range(0..tokens.len());
            tokens.swap(at, to);
        }
    }
}

/// Puts a statement where another form of it is expected.
fn wrap(rng: &mut StdRng, sql: &str, other: &str) -> String {
    match rng.random_range(0..14) {
        0 => format!("SELECT * FROM ({sql}) AS q"),
        1 => format!("SELECT count(*), (SELECT 1 FROM ({sql}) AS p LIMIT 1) FROM ({other}) AS q"),
        2 => format!("EXPLAIN {sql}"),
        3 => format!("CREATE MATERIALIZED VIEW fuzz_{} AS {sql}", rng.random_range(0..1000)),
        4 => format!("WITH q AS ({sql}) SELECT * FROM q, ({other}) AS r LIMIT 10"),
        5 => format!("{sql} UNION ALL {other}"),
        6 => format!("{sql}; {other}"),
        7 => format!("CREATE TABLE fuzz_{} AS {sql}", rng.random_range(0..1000)),
        _ => sql.to_owned(),
    }
}

/// A statement made of one and another.
fn changed(rng: &mut StdRng, sql: &str, other: &str) -> String {
    let theirs = tokens(other);
    let mut mine = tokens(sql);
    for _ in 0..rng.random_range(0..4) {
        change(rng, &mut mine, &theirs);
    }
    wrap(rng, &mine.join(" "), other)
}

/// Runs a statement, whatever it is, to its end.
fn run(client: &mut WireClient, sql: &str, extended: bool) -> Result<(), ClientError> {
    if extended {
        client.send(&[parse("", sql, &[]), describe(b'S', ""), frame(b'S', &[])].concat())?;
    } else {
        client.send(&query(sql))?;
    }
    let mut error = None;
    loop {
        let message = client.receive()?;
        match message.kind {
            // The server waits for rows.
            b'G' => client.send(&frame(b'f', b"no rows\0"))?,
            b'E' => {
                let told = refusal(&message);
                let is_fatal = told.to_string().starts_with("FATAL");
                error.get_or_insert(told);
                if is_fatal {
                    break;
                }
            }
            b'Z' => break,
            _ => {}
        }
    }
    error.map_or(Ok(()), Err)
}

fn refusal(message: &Message) -> ClientError {
    let field = |code| message.fields().into_iter().find(|(found, _)| *found == code).map(|(_, value)| value).unwrap_or_default();
    ClientError::Server { severity: field('S'), sqlstate: field('C'), message: field('M'), hint: None }
}

/// Whether a statement may be sent: it ends no server's life and reaches for no other machine.
fn is_harmless(sql: &str) -> bool {
    let sql = sql.to_ascii_lowercase();
    !["s3", "http", "pg_sleep", "statement_timeout", "reset all", "discard"].iter().any(|word| sql.contains(word))
}

struct Driver {
    target: Target,
    client: WireClient,
    sent: u64,
    /// Of those, the ones that were no error.
    done: u64,
    failures: Failures,
}

impl Driver {
    fn new() -> Self {
        let target = Target::start();
        std::fs::create_dir_all(target.folder()).expect("a folder");
        let client = session(&target);
        Self { target, client, sent: 0, done: 0, failures: Failures::default() }
    }

    fn send(&mut self, sql: &str, extended: bool, context: &str) {
        let started = Instant::now();
        match run(&mut self.client, sql, extended) {
            Ok(()) => self.done += 1,
            Err(ClientError::Io(error)) => {
                self.failures.add(&format!("connection {error}"), format!("{context}: {error}\n{sql}"));
                self.client = session(&self.target);
            }
            Err(error) => {
                if error.sqlstate().starts_with("XX") || error.sqlstate().is_empty() {
                    self.failures.add(&error.to_string(), format!("{context}: {error}\n{sql}"));
                }
                if error.to_string().starts_with("FATAL") {
                    self.client = session(&self.target);
                }
            }
        }
        if started.elapsed() > TOO_SLOW {
            self.failures.add(&format!("slow {sql}"), format!("{context}: took {:?}\n{sql}", started.elapsed()));
        }
        self.sent += 1;
        if self.sent.is_multiple_of(BATCH) {
            self.target.assert_well(&format!("{context}, after\n{sql}"));
        }
    }
}

fn session(target: &Target) -> WireClient {
    let mut client = target.connect("a session for statements");
    client.query(&format!("SET statement_timeout = '{STATEMENT_TIMEOUT}'")).expect("a setting");
    client
}

#[test]
fn changed_statements_are_answered_or_refused() {
    let started = Instant::now();
    let mut number = seed();
    let (mut sent, mut done, mut failures) = (0, 0, Failures::default());
    while started.elapsed() < duration() {
        let mut driver = Driver::new();
        let corpus = files(&driver.target.folder());
        let all: Vec<&String> = corpus.iter().flatten().collect();
        while driver.sent < PER_SERVER && started.elapsed() < duration() {
            let mut rng = StdRng::seed_from_u64(number);
            let file = corpus.choose(&mut rng).expect("not empty");
            let start = rng.random_range(0..file.len()) / 2;
            for sql in &file[start..] {
                for _ in 0..CHANGED {
                    number += 1;
                    let mut rng = StdRng::seed_from_u64(number);
                    let other =
                        if rng.random() { *all.choose(&mut rng).expect("not empty") } else { file.choose(&mut rng).expect("not empty") };
                    let changed = changed(&mut rng, sql, other);
                    if is_harmless(&changed) {
                        driver.send(&changed, rng.random_range(0..5) == 0, &format!("{SEED}={number}"));
                    }
                }
                // A block that was begun by chance is ended by chance.
                driver.send(sql, false, &format!("{SEED}={number}, unchanged"));
                if driver.sent >= PER_SERVER || started.elapsed() >= duration() {
                    break;
                }
            }
            driver.send("ROLLBACK", false, "the end of a file");
        }
        driver.target.assert_well(&format!("{SEED}={number}, at the end"));
        sent += driver.sent;
        done += driver.done;
        failures.0.extend(driver.failures.0);
    }
    println!("{sent} statements, {done} without an error");
    failures.assert_none();
}
