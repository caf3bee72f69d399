//! Statements of the other tests, in the order in which they stand, and pieces of them.

use std::path::{Path, PathBuf};

/// More files with statements, in this folder.
const MORE: &str = "MILLPOND_FUZZ_CORPUS";

/// The statements of each file; `folder` stands where tests put their files.
pub(super) fn files(folder: &Path) -> Vec<Vec<String>> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let more = std::env::var_os(MORE).map(PathBuf::from);
    let mut paths = Vec::new();
    for place in [own.join("slt"), own.join("streaming")].into_iter().chain(more) {
        find(&place, &mut paths);
    }
    paths.sort();
    let read = |path: &PathBuf| {
        let text = std::fs::read_to_string(path).expect("text").replace("$__TEST_DIR__", &folder.display().to_string());
        let is_slt = path.extension().is_some_and(|extension| extension == "slt");
        if is_slt { of_slt(&text) } else { of_script(&text) }
    };
    paths.iter().map(read).filter(|statements| !statements.is_empty()).collect()
}

fn find(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            find(&path, paths);
        } else if path.extension().is_some_and(|extension| extension == "slt" || extension == "sql") {
            paths.push(path);
        }
    }
}

/// What is never sent, not even in pieces: it would reach for other machines.
fn reaches_out(sql: &str) -> bool {
    let sql = sql.to_ascii_lowercase();
    ["s3", "http"].iter().any(|word| sql.contains(word))
}

fn of_slt(text: &str) -> Vec<String> {
    let mut statements = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("statement ") || line.starts_with("query ") {
            let sql: Vec<&str> = lines.by_ref().take_while(|line| !line.trim().is_empty() && *line != "----").collect();
            statements.push(sql.join("\n"));
        }
    }
    statements.retain(|sql| !reaches_out(sql));
    statements
}

fn of_script(text: &str) -> Vec<String> {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with("--")).collect::<Vec<_>>().join("\n");
    let statements = lines.split(';').map(|sql| sql.trim().to_owned());
    statements.filter(|sql| !sql.is_empty() && !reaches_out(sql)).collect()
}

/// Cuts a statement into words, numbers, texts in quotes, and signs.
pub(super) fn tokens(sql: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = sql.trim_start();
    while let Some(first) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let length = match first {
            '\'' | '"' => rest[1..].find(first).map_or(rest.len(), |at| at + 2),
            first if is_word(first) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            ':' if rest.starts_with("::") => 2,
            first => first.len_utf8(),
        };
        let (token, behind) = rest.split_at(length);
        tokens.push(token);
        rest = behind.trim_start();
    }
    tokens
}

#[test]
fn statements_are_taken_apart() {
    assert_eq!(tokens("SELECT a::int, 'x y' FROM t -- é"), ["SELECT", "a", "::", "int", ",", "'x y'", "FROM", "t", "-", "-", "é"]);
    assert_eq!(of_slt("statement ok\nSELECT 1\n\nquery I\nSELECT\n2\n----\n2\n"), ["SELECT 1", "SELECT\n2"]);
    assert!(files(Path::new("/somewhere")).iter().map(Vec::len).sum::<usize>() > 100);
}
