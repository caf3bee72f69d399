//! The house rules that a compiler does not check.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Lines of a file, tests aside.
const MAX_FILE_LINES: usize = 500;

/// Crates from left to right; each may use those to its right.
const CRATES: [&str; 4] = ["server", "planner", "engine", "storage"];

/// Foreign crates and the one crate, or file, that may name them.
const OWNERS: &[(&str, &[&str])] = &[
    ("pgwire", &["server/src/pgwire/"]),
    ("axum", &["server/src/http.rs"]),
    ("prometheus", &["server/src/metrics.rs", "server/src/server.rs"]),
    ("sqlparser", &["planner/src/"]),
    ("rocksdb", &["storage/src/rocks.rs", "storage/src/rocks/"]),
    ("object_store", &["storage/src/"]),
];

/// Names that collect what belongs to nobody.
const HEAPS: [&str; 5] = ["common", "utils", "util", "helpers", "misc"];

/// Left-overs.
const LEFT_OVERS: [&str; 4] = ["todo!(", "unimplemented!(", "dbg!(", "FIXME"];

/// A left-over as a word of its own, for it may also be a part of a Roman number.
const LEFT_OVER_WORD: &str = "XXX";

/// Synonyms of words that the glossary has already.
const SYNONYMS: [&str; 2] = ["vnode", "actor_id"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").to_path_buf()
}

/// Path from the root and text of every file with one of the extensions.
fn files(extensions: &[&str]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).expect("readable") {
            let path = entry.expect("readable").path();
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            if path.is_dir() && !name.starts_with('.') && !matches!(name.as_str(), "target" | "millpond-data" | "demo-data" | "data") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extensions.iter().any(|wanted| extension == *wanted)) {
                let text = std::fs::read_to_string(&path).expect("text");
                let relative = path.strip_prefix(root()).expect("under the root").to_string_lossy().into_owned();
                found.push((relative, text));
            }
        }
    }
    found.sort();
    assert!(!found.is_empty());
    found
}

fn is_test_file(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("/tests.rs") || path.ends_with("_tests.rs") || path.contains("/benches/")
}

/// The text in front of the tests' module.
fn without_tests(text: &str) -> &str {
    text.find("\n#[cfg(test)]\nmod ").map_or(text, |at| &text[..at])
}

fn check(faults: Vec<String>) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn files_are_short_and_say_what_they_are() {
    let mut faults = Vec::new();
    for (path, text) in files(&["rs"]) {
        // A `tests.rs` belongs to the file above it, which has the header.
        if !text.starts_with("//!") && !path.ends_with("/tests.rs") {
            faults.push(format!("{path}: begins without a //! header"));
        }
        let lines = without_tests(&text).lines().count();
        if !is_test_file(&path) && lines > MAX_FILE_LINES {
            faults.push(format!("{path}: {lines} lines without its tests, at most {MAX_FILE_LINES}"));
        }
        let stem = Path::new(&path).file_stem().expect("a name").to_string_lossy().into_owned();
        if HEAPS.contains(&stem.as_str()) || HEAPS.iter().any(|heap| path.contains(&format!("/{heap}/"))) {
            faults.push(format!("{path}: a heap of things is no module"));
        }
    }
    check(faults);
}

#[test]
fn crates_depend_in_one_direction() {
    let mut faults = Vec::new();
    for (place, name) in CRATES.iter().enumerate() {
        let manifest = std::fs::read_to_string(root().join(name).join("Cargo.toml")).expect("a manifest");
        for other in &CRATES[..=place] {
            let dependency = format!("millpond-{other}");
            if manifest.lines().any(|line| line.starts_with(&dependency)) {
                faults.push(format!("{name} depends on {other}, against {}", CRATES.join(" -> ")));
            }
        }
    }
    check(faults);
}

#[test]
fn foreign_crates_have_one_owner() {
    let mut faults = Vec::new();
    for (path, text) in files(&["rs"]) {
        if path.starts_with("sql-tests/") {
            continue;
        }
        for (foreign, owners) in OWNERS {
            let names = |line: &str| !line.trim_start().starts_with("//") && mentions(line, foreign);
            if !owners.iter().any(|owner| path.starts_with(owner)) && text.lines().any(names) {
                faults.push(format!("{path}: names {foreign}, which belongs to {}", owners.join(", ")));
            }
        }
    }
    check(faults);
}

/// Whether a line of code uses a crate: `name::` that is no part of a longer path or word.
fn mentions(line: &str, name: &str) -> bool {
    line.match_indices(&format!("{name}::")).any(|(at, _)| {
        let before = line[..at].chars().next_back().unwrap_or(' ');
        let own_module = line[..at].ends_with("crate::") || line[..at].ends_with("self::") || line[..at].ends_with("super::");
        !before.is_alphanumeric() && before != '_' && !own_module
    })
}

#[test]
fn nothing_is_left_over() {
    let mut faults = Vec::new();
    for (path, text) in files(&["rs"]) {
        if path.ends_with("it/tidy.rs") {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let place = format!("{path}:{}", number + 1);
            for word in LEFT_OVERS.iter().chain(&SYNONYMS) {
                if line.contains(word) {
                    faults.push(format!("{place}: {word}"));
                }
            }
            if line.split(|character: char| !character.is_alphanumeric()).any(|word| word == LEFT_OVER_WORD) {
                faults.push(format!("{place}: {LEFT_OVER_WORD}"));
            }
            if !is_test_file(&path) && !path.starts_with("sql-tests/") && (line.contains(" println!(") || line.contains("eprintln!(")) {
                faults.push(format!("{place}: prints instead of logging"));
            }
        }
    }
    check(faults);
}

/// A clone must build anywhere, and read the same in a year.
#[test]
fn texts_name_no_place_outside_of_the_repository() {
    let hosts = [
        ["crates", ".io"].concat(),
        ["docs", ".rs/"].concat(),
        ["static.", "crates"].concat(),
        ["/wo", "rk/"].concat(),
        ["/ro", "ot/"].concat(),
    ];
    let mut faults = Vec::new();
    for (path, text) in files(&["rs", "md", "toml", "slt", "sql"]) {
        for (number, line) in text.lines().enumerate() {
            for host in hosts.iter().filter(|host| line.contains(host.as_str())) {
                faults.push(format!("{path}:{}: {host}", number + 1));
            }
        }
    }
    check(faults);
}

#[test]
fn the_architecture_names_paths_that_exist() {
    let mut faults = Vec::new();
    for document in ["ARCHITECTURE.md", "README.md"] {
        let text = std::fs::read_to_string(root().join(document)).expect("the document");
        let quoted: BTreeSet<&str> = text.split('`').skip(1).step_by(2).collect();
        for path in quoted.iter().filter(|quoted| names_a_path(quoted)) {
            if !root().join(path.trim_end_matches('/')).exists() {
                faults.push(format!("{document}: {path} does not exist"));
            }
        }
    }
    check(faults);
}

/// `server/src/pgwire/`, `engine/src/graph.rs`, `Makefile`; not `SELECT 1/0`.
fn names_a_path(quoted: &str) -> bool {
    let first = quoted.split('/').next().unwrap_or_default();
    let known = CRATES.contains(&first) || ["sql-tests", ".ci"].contains(&first);
    known && quoted.contains('/') && !quoted.contains([' ', '*', '{'])
}
