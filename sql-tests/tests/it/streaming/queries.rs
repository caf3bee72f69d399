//! The queries under `sql-tests/streaming/`: statements that end with a semicolon at the end of a line. After `-- postgres` comes what
//! PostgreSQL is asked instead of the statement before.

use std::path::Path;

/// A query that is kept as a view.
#[derive(Clone, Debug)]
pub(crate) struct Query {
    /// File and number, also the view's name.
    pub(crate) name: String,
    pub(crate) sql: String,
    /// What PostgreSQL is asked.
    pub(crate) postgres: String,
}

/// Queries whose name contains this are run, all if it is not set.
const ONLY: &str = "MILLPOND_QUERY";
const FOR_POSTGRES: &str = "-- postgres";

/// All queries, in the order of files and places.
pub(crate) fn queries() -> Vec<Query> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("streaming");
    let mut files: Vec<_> = std::fs::read_dir(&folder).expect("the folder is there").map(|entry| entry.expect("readable").path()).collect();
    files.sort();
    let only = std::env::var(ONLY).unwrap_or_default();
    let mut all = Vec::new();
    for file in files {
        let stem = file.file_stem().expect("a name").to_string_lossy().into_owned();
        all.extend(read(&stem, &std::fs::read_to_string(&file).expect("readable")));
    }
    all.retain(|query: &Query| query.name.contains(&only));
    assert!(!all.is_empty(), "no queries under {}", folder.display());
    all
}

fn read(stem: &str, text: &str) -> Vec<Query> {
    let mut found: Vec<Query> = Vec::new();
    let (mut statement, mut for_postgres) = (String::new(), false);
    for line in text.lines() {
        if line.trim_end() == FOR_POSTGRES {
            for_postgres = true;
        } else if line.starts_with("--") || line.trim().is_empty() {
            continue;
        } else if let Some(end) = line.trim_end().strip_suffix(';') {
            statement.push_str(end);
            let sql = std::mem::take(&mut statement);
            if std::mem::take(&mut for_postgres) {
                found.last_mut().expect("a statement before").postgres = sql;
            } else {
                found.push(Query { name: format!("{stem}_{:02}", found.len() + 1), postgres: sql.clone(), sql });
            }
        } else {
            statement.push_str(line);
            statement.push('\n');
        }
    }
    assert!(statement.is_empty(), "{stem}.sql: a statement without its semicolon");
    found
}
