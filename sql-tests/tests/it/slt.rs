//! Every file under `slt/`, over the simple and the extended protocol, each run on a server of its own.

use std::path::{Path, PathBuf};
use std::sync::Mutex;

use millpond_sql_tests::{Protocol, SltDatabase, TestServer, WireClient};
use sqllogictest::Runner;

/// Files run at a time.
const WORKERS: usize = 2;

/// Files whose path contains this are run, all if it is not set.
const ONLY: &str = "MILLPOND_SLT";

#[test]
fn sqllogictest_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("slt");
    let mut files = Vec::new();
    find(&folder, &mut files);
    files.sort();
    let only = std::env::var(ONLY).unwrap_or_default();
    let mut runs: Vec<(PathBuf, Protocol)> = files
        .iter()
        .filter(|file| file.to_string_lossy().contains(&only))
        .flat_map(|file| [(file.clone(), Protocol::Extended), (file.clone(), Protocol::Simple)])
        .collect();
    runs.reverse();
    assert!(!runs.is_empty(), "no files under {}", folder.display());
    let runs = Mutex::new(runs);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..WORKERS {
            scope.spawn(|| {
                while let Some((file, protocol)) = take(&runs) {
                    if let Err(failure) = run(&file, protocol) {
                        failures.lock().expect("no panics").push(format!("{} ({protocol:?}): {failure}", file.display()));
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().expect("no panics");
    assert!(failures.is_empty(), "{} runs failed:\n{}", failures.len(), failures.join("\n\n"));
}

fn take(runs: &Mutex<Vec<(PathBuf, Protocol)>>) -> Option<(PathBuf, Protocol)> {
    runs.lock().expect("no panics").pop()
}

fn find(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder is there") {
        let path = entry.expect("readable").path();
        if path.is_dir() {
            find(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "slt") {
            files.push(path);
        }
    }
}

fn run(file: &Path, protocol: Protocol) -> Result<(), String> {
    let server = TestServer::start();
    let address = server.address();
    let mut runner = Runner::new(|| async { Ok(SltDatabase::new(WireClient::connect(address)?, protocol)) });
    let outcome = runner.run_file(file).map_err(|error| error.to_string());
    drop(runner);
    server.shutdown();
    outcome
}
