//! Files of sources that are cut off or garbled: what cannot be read is named, and what can is read once.

use std::{
    fs,
    path::Path,
    path::PathBuf,
    time::{Duration, Instant},
};

use millpond_sql_tests::{TestServer, WireClient, query};

/// What takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(30);

fn run(client: &mut WireClient, sql: &str) {
    client.query(sql).unwrap_or_else(|error| panic!("{error}\n  in: {sql}"));
}

fn refused(client: &mut WireClient, sql: &str) -> String {
    let error = client.query(sql).expect_err("the damage was not found");
    assert_ne!(error.sqlstate(), "XX000", "{error}");
    error.to_string()
}

/// A Parquet file of a table with the columns `a bigint, b text` and the rows 1 to 20000.
fn parquet(client: &mut WireClient, folder: &Path) -> PathBuf {
    run(client, "CREATE TABLE t (a bigint, b text)");
    run(client, "INSERT INTO t SELECT g, 'row number ' || g FROM generate_series(1, 20000) AS x(g)");
    let with = format!("connector = 'file', path = '{}', format = 'parquet', force_append_only = 'true'", folder.display());
    run(client, &format!("CREATE SINK k AS SELECT a, b FROM t WITH ({with})"));
    let started = Instant::now();
    loop {
        let files = fs::read_dir(folder).into_iter().flatten().map(|entry| entry.expect("an entry").path());
        let found = files.filter(|path| path.extension().is_some_and(|extension| extension == "parquet")).max();
        let is_committed = fs::read_dir(folder.join("_manifest")).is_ok_and(|mut manifests| {
            manifests.any(|manifest| manifest.expect("an entry").path().extension().is_some_and(|extension| extension == "json"))
        });
        if let Some(found) = found.filter(|_| is_committed) {
            return found;
        }
        assert!(started.elapsed() < PATIENCE, "no file in {}", folder.display());
        std::thread::yield_now();
    }
}

#[test]
fn lines_that_are_cut_off_or_garbled_are_put_aside() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = TestServer::start();
    let mut client = server.connect();
    let cases: [(&str, &[u8], &str, &[&str]); 4] = [
        ("csv", b"a,b\n1,x\n2,\xff\xfe\n3,y\n4", "1 x;3 y", &["2,\u{fffd}\u{fffd}", "4"]),
        ("csv", b"a,b\n1,x\n\0\0\0\0\n3,\"never ends\n5,z\n", "1 x;5 z", &[]),
        (
            "json",
            b"{\"a\": 1, \"b\": \"x\"}\n{\"a\": 2, \"b\": \n{\"a\": 3, \"b\": \"y\"}\n{\"a\": 4, \"b",
            "1 x;3 y",
            &["{\"a\": 2, \"b\":", "{\"a\": 4, \"b"],
        ),
        ("json", b"{\"a\": 1, \"b\": \"x\"}\nnull\n[1]\n{\"a\": \"\xff\"}\n", "1 x", &[]),
    ];
    for (number, (format, bytes, rows, bad)) in cases.into_iter().enumerate() {
        let path = directory.path().join(format!("rows-{number}.{format}"));
        fs::write(&path, bytes).expect("written");
        let header = if format == "csv" { ", header = 'true'" } else { "" };
        let with = format!("connector = 'file', path = '{}', format = '{format}'{header}", path.display());
        run(&mut client, &format!("CREATE SOURCE s{number} (a int, b text) WITH ({with})"));
        run(&mut client, &format!("CREATE MATERIALIZED VIEW v{number} AS SELECT a, b FROM s{number}"));
        let found = client.rows(&format!("SELECT a, b FROM v{number} ORDER BY a")).expect("rows").join(";");
        assert_eq!(found, rows, "{number}");
        let aside = client.rows(&format!("SELECT row_text FROM millpond.bad_rows WHERE job = 'v{number}' ORDER BY 1")).expect("rows");
        assert!(!aside.is_empty(), "{number}");
        if !bad.is_empty() {
            assert_eq!(aside.iter().map(|row| row.trim_end()).collect::<Vec<_>>(), bad, "{number}");
        }
        run(&mut client, &format!("CREATE SOURCE f{number} (a int, b text) WITH ({with}, bad_rows = 'fail')"));
        for sql in [format!("SELECT a, b FROM f{number}"), format!("CREATE MATERIALIZED VIEW w{number} AS SELECT a, b FROM f{number}")] {
            let error = refused(&mut client, &sql);
            assert!(error.contains(&format!("rows-{number}.{format}")), "{number}: {error}");
        }
    }
}

#[test]
fn a_parquet_file_that_is_cut_off_or_garbled_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = TestServer::start();
    let mut client = server.connect();
    let whole = parquet(&mut client, &directory.path().join("out"));
    let bytes = fs::read(&whole).expect("a file");
    let garble = |at: usize| {
        let mut garbled = bytes.clone();
        garbled[at..at + 64].iter_mut().for_each(|byte| *byte ^= 0x55);
        garbled
    };
    let cases = [
        ("empty", Vec::new()),
        ("half", bytes[..bytes.len() / 2].to_vec()),
        ("end", bytes[..bytes.len() - 3].to_vec()),
        ("start", bytes[100..].to_vec()),
        ("page", garble(bytes.len() / 3)),
        ("later-page", garble(bytes.len() * 2 / 3)),
        ("footer", garble(bytes.len() - 100)),
    ];
    let mut unseen = 0;
    for (name, damaged) in cases {
        let name = format!("{name}.parquet");
        let path = directory.path().join(&name);
        let with = format!("connector = 'file', path = '{}', format = 'parquet'", path.display());
        // A source that was declared when the file was whole, and one that is declared now.
        fs::write(&path, &bytes).expect("written");
        run(&mut client, &format!("CREATE SOURCE before_it WITH ({with})"));
        assert_eq!(client.rows("SELECT count(*), sum(a) FROM before_it").expect("rows"), ["20000 200010000"]);
        fs::write(&path, &damaged).expect("written");
        for sql in ["SELECT a, b FROM before_it", "CREATE MATERIALIZED VIEW v AS SELECT a, b FROM before_it"] {
            let error = refused(&mut client, sql);
            assert!(error.contains(&name), "{name}: {sql}: {error}");
        }
        run(&mut client, "DROP SOURCE before_it");
        match client.query(&format!("CREATE SOURCE after_it WITH ({with})")) {
            Err(error) => assert!(error.to_string().contains(&name), "{name}: {error}"),
            Ok(_) => {
                unseen += 1;
                let error = refused(&mut client, "SELECT a, b FROM after_it");
                assert!(error.contains(&name), "{name}: {error}");
                run(&mut client, "DROP SOURCE after_it");
            }
        }
    }
    // What is damaged in the middle is found when it is read.
    assert_eq!(unseen, 3);
    assert_eq!(client.rows("SELECT 1").expect("rows"), ["1"]);
}

#[test]
fn what_a_query_leaves_out_of_a_source_is_said_before_its_tag() {
    let server = TestServer::start();
    let mut client = server.connect();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("rows.csv");
    fs::write(&path, "1,10\n2,x\n3,30\nfour,40\n").expect("written");
    let create = format!("CREATE SOURCE s (id int, v int) WITH (connector = 'file', path = '{}', format = 'csv')", path.display());
    client.query(&create).expect("a source");
    for statement in ["SELECT id FROM s", "SELECT count(*) FROM s", "COPY (SELECT v FROM s) TO STDOUT"] {
        client.notices.clear();
        client.send(&query(statement)).expect("sent");
        let mut said = Vec::new();
        loop {
            let message = client.receive_any().expect("a message");
            match message.kind {
                b'N' => said = message.fields(),
                b'C' => break,
                _ => {}
            }
        }
        client.until_ready().expect("an answer");
        let field = |wanted: char| said.iter().find(|(code, _)| *code == wanted).map(|(_, value)| value.as_str());
        assert_eq!(field('S'), Some("WARNING"), "{statement}");
        let message = format!(
            "2 rows of source \"s\" could not be read and were left out, first \"{}\", line 2: invalid input syntax for type integer: \"x\"",
            path.display()
        );
        assert_eq!(field('M'), Some(message.as_str()));
    }
    client.query("SET client_min_messages = error").expect("a setting");
    client.notices.clear();
    assert_eq!(client.rows("SELECT id FROM s").expect("rows"), ["1", "3"]);
    assert!(client.notices.is_empty());
}
