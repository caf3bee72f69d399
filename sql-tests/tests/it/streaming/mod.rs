//! A view equals its query: every query under `sql-tests/streaming/` is kept as a view while random histories run over its tables, and compared
//! with the same query in batch and with a real PostgreSQL.
//!
//! A failure prints its seed; the environment variable MILLPOND_SEED repeats it, MILLPOND_QUERY picks queries by name.

mod four_ways;
mod histories;
pub(crate) mod history;
mod queries;
mod snapshots;

use std::collections::BTreeMap;
use std::fmt::Write;

use millpond_sql_tests::{ClientError, WireClient};

use self::queries::Query;

/// Rows as text, with their multiplicities.
type Contents = BTreeMap<String, usize>;

/// Where random numbers begin.
pub(crate) fn seed() -> u64 {
    std::env::var("MILLPOND_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_260_101)
}

/// The rows of a query, or the error's text.
fn contents(client: &mut WireClient, sql: &str) -> Result<Contents, String> {
    let answer = client.query(sql).map_err(|error| format!("{error}\n  in: {sql}"))?;
    let mut contents = Contents::new();
    for row in answer.rows {
        let show = |value: Option<String>| value.map_or_else(|| "NULL".to_owned(), |text| without_trailing_zeros(&text));
        *contents.entry(row.into_iter().map(show).collect::<Vec<_>>().join(" | ")).or_default() += 1;
    }
    Ok(contents)
}

/// A numeric without a scale of its own prints its trailing zeros in PostgreSQL only.
fn without_trailing_zeros(text: &str) -> String {
    let digits = text.strip_prefix('-').unwrap_or(text);
    match digits.split_once('.') {
        Some((whole, fraction))
            if !whole.is_empty() && [whole, fraction].iter().all(|part| part.bytes().all(|byte| byte.is_ascii_digit())) =>
        {
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        }
        _ => text.to_owned(),
    }
}

/// What one has and the other has not.
fn difference(name: &str, one: &Contents, other_name: &str, other: &Contents) -> Option<String> {
    if one == other {
        return None;
    }
    let mut text = String::new();
    for (name, one, other) in [(name, one, other), (other_name, other, one)] {
        let _ = write!(text, "  only in {name}:");
        for (row, count) in one.iter().filter(|(row, count)| other.get(*row) != Some(count)) {
            let _ = write!(text, "\n    {count} x {row}");
        }
        text.push('\n');
    }
    Some(text)
}

/// Differences, the first one of each query.
#[derive(Default)]
struct Failures(BTreeMap<String, String>);

impl Failures {
    fn add(&mut self, query: &Query, when: &str, difference: &str) {
        self.0.entry(query.name.clone()).or_insert_with(|| format!("{} ({when}): {}\n{difference}", query.name, query.sql));
    }

    fn check(self, seed: u64) {
        let texts: Vec<String> = self.0.into_values().collect();
        assert!(texts.is_empty(), "seed {seed}: {} queries\n\n{}", texts.len(), texts.join("\n"));
    }
}

/// Runs statements that must succeed.
fn run_all(client: &mut WireClient, statements: impl IntoIterator<Item = impl AsRef<str>>) {
    for statement in statements {
        run(client, statement.as_ref());
    }
}

fn run(client: &mut WireClient, statement: &str) -> Vec<String> {
    client.query(statement).unwrap_or_else(|error| panic!("{error}\n  in: {statement}")).tags
}

fn view(query: &Query) -> String {
    format!("CREATE MATERIALIZED VIEW {} AS {}", query.name, query.sql)
}

/// Makes the views; those that are refused are failures, and are not looked at again.
fn create_views(client: &mut WireClient, queries: &mut Vec<Query>, failures: &mut Failures) {
    queries.retain(|query| match client.query(&view(query)) {
        Ok(_) => true,
        Err(error @ ClientError::Io(_)) => panic!("{error}\n  in: {}", query.sql),
        Err(error) => {
            failures.add(query, "as a view", &error.to_string());
            false
        }
    });
}

/// Compares a view with its query; both are read at one epoch only if nothing else is going on.
fn compare_with_batch(client: &mut WireClient, query: &Query, when: &str, failures: &mut Failures) -> Option<Contents> {
    let kept = contents(client, &format!("SELECT * FROM {}", query.name));
    let batch = contents(client, &query.sql);
    match (kept, batch) {
        (Ok(kept), Ok(batch)) => {
            if let Some(difference) = difference("the view", &kept, "the query", &batch) {
                failures.add(query, when, &difference);
            }
            Some(batch)
        }
        (Err(error), _) | (_, Err(error)) => {
            failures.add(query, when, &error);
            None
        }
    }
}
