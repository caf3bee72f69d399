//! What psql shows of the catalog, word for word. Its queries join more of `pg_catalog` than any driver does.

use std::process::Command;

use millpond_sql_tests::TestServer;

/// What psql prints for a command.
fn shown(server: &TestServer, command: &str) -> String {
    let address = server.address();
    let output = Command::new("psql")
        .args(["-X", "-q", "-h", &address.ip().to_string(), "-p", &address.port().to_string(), "-U", "millpond", "-d", "millpond"])
        .args(["-v", "ON_ERROR_STOP=1", "-P", "pager=off", "-c", command])
        .env_clear()
        .envs(std::env::var_os("PATH").map(|path| ("PATH", path)))
        .output()
        .expect("psql can be run (the package postgresql-client)");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n").trim().to_owned()
}

/// Lines without the blanks that make columns.
fn lines(text: &str) -> Vec<String> {
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn relations_are_described() {
    let server = TestServer::start();
    let folder = tempfile::tempdir().expect("a folder for a sink");
    let path = folder.path().display();
    for statement in [
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(20) NOT NULL, amount NUMERIC(10, 2) DEFAULT 0, CHECK (amount >= 0))",
        "CREATE INDEX t_name ON t (name DESC, id)",
        "CREATE VIEW v AS SELECT id FROM t WHERE amount > 1",
        "CREATE MATERIALIZED VIEW m AS SELECT name, count(*) AS n FROM t GROUP BY name",
        "CREATE SOURCE s (a BIGINT) WITH (connector = 'datagen', rows_per_second = '1', start_time = '2031-01-01')",
        &format!("CREATE SINK k FROM m WITH (connector = 'file', path = '{path}', format = 'csv', type = 'changelog')"),
    ] {
        server.connect().query(statement).expect(statement);
    }
    assert_eq!(
        lines(&shown(&server, "\\d public.*"))[..13],
        [
            "Foreign table \"public.k\"",
            "Column | Type | Collation | Nullable | Default | FDW options",
            "--------+-----------------------+-----------+----------+---------+-------------",
            "name | character varying(20) | | | |",
            "n | bigint | | | |",
            "Server: file sink",
            &format!("FDW options: (format 'csv', path '{path}', type 'changelog')"),
            "",
            "Materialized view \"public.m\"",
            "Column | Type | Collation | Nullable | Default",
            "--------+-----------------------+-----------+----------+---------",
            "name | character varying(20) | | |",
            "n | bigint | | |",
        ]
    );
    assert_eq!(
        lines(&shown(&server, "\\d t")),
        [
            "Table \"public.t\"",
            "Column | Type | Collation | Nullable | Default",
            "--------+-----------------------+-----------+----------+---------",
            "id | integer | | not null |",
            "name | character varying(20) | | not null |",
            "amount | numeric(10,2) | | | 0",
            "Indexes:",
            "\"t_pkey\" PRIMARY KEY, btree (id)",
            "\"t_name\" btree (name DESC, id)",
            "Check constraints:",
            "\"t_amount_check\" CHECK (amount >= 0)",
        ]
    );
    assert_eq!(
        lines(&shown(&server, "\\d+ v")),
        [
            "View \"public.v\"",
            "Column | Type | Collation | Nullable | Default | Storage | Description",
            "--------+---------+-----------+----------+---------+---------+-------------",
            "id | integer | | | | plain |",
            "View definition:",
            "SELECT id FROM public.t WHERE amount > 1;",
        ]
    );
    let source = lines(&shown(&server, "\\d s"));
    assert_eq!((source[0].as_str(), source[4].as_str()), ("Foreign table \"public.s\"", "Server: datagen source"));
    assert_eq!(lines(&shown(&server, "\\dE"))[3..5], ["public | k | foreign table | millpond", "public | s | foreign table | millpond"]);
    assert!(lines(&shown(&server, "\\di"))[3..].contains(&"public | t_pkey | index | millpond | t".to_owned()));
}

#[test]
fn relations_are_listed_if_the_search_path_leads_to_them() {
    let server = TestServer::start();
    assert_eq!(lines(&shown(&server, "\\d"))[3..], ["(0 rows)"]);
    for statement in ["CREATE SCHEMA other", "CREATE TABLE other.o (a INT PRIMARY KEY)", "CREATE TABLE t (a INT PRIMARY KEY)"] {
        server.connect().query(statement).expect(statement);
    }
    assert_eq!(lines(&shown(&server, "\\d"))[3..], ["public | t | table | millpond", "(1 row)"]);
    assert_eq!(lines(&shown(&server, "\\di"))[3..], ["public | t_pkey | index | millpond | t", "(1 row)"]);
    assert!(lines(&shown(&server, "\\dv millpond.*")).contains(&"millpond | jobs | view | millpond".to_owned()));
    let visible = "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class WHERE pg_table_is_visible(oid) AND relkind IN ('r', 'v') \
                   AND relname IN ('o', 't', 'jobs', 'pg_class', 'tables')";
    let mut client = server.connect();
    assert_eq!(client.rows(visible).expect("names"), ["pg_class t"]);
    client.query("SET search_path = other, millpond, information_schema").expect("a path");
    assert_eq!(client.rows(visible).expect("names"), ["jobs o pg_class tables"]);
}

#[test]
fn own_system_relations_are_explained() {
    let server = TestServer::start();
    let described = lines(&shown(&server, "\\d+ millpond.sources"));
    assert!(described.iter().any(|line| line.starts_with("rows | bigint | | | | plain | Rows of the whole source")), "{described:#?}");
    let counted = "SELECT count(*), count(col_description(attrelid, attnum)) FROM pg_attribute WHERE attrelid = 'millpond.jobs'::regclass";
    let counts = server.connect().rows(counted).expect("counts");
    assert_eq!(counts, ["16 16"]);
}

#[test]
fn functions_are_listed() {
    let server = TestServer::start();
    let own = lines(&shown(&server, "\\df"));
    let tumble = "millpond | tumble | SETOF record | data relation, time descriptor, size interval, \"offset\" interval DEFAULT '0' | func";
    assert_eq!((own.len(), own[4].as_str()), (6, tumble));
    assert_eq!(lines(&shown(&server, "\\df lower"))[3], "pg_catalog | lower | text | text | func");
    assert_eq!(
        lines(&shown(&server, "\\df+ left"))[3],
        "pg_catalog | left | text | text, integer | func | immutable | safe | millpond | invoker | | internal | left |"
    );
    assert_eq!(lines(&shown(&server, "\\da string_agg"))[3], "pg_catalog | string_agg | text | text, text |");
    assert_eq!(lines(&shown(&server, "\\dfw rank"))[3], "pg_catalog | rank | bigint | | window");
}

#[test]
fn every_list_has_an_answer() {
    let server = TestServer::start();
    for statement in ["CREATE TABLE t (id INT PRIMARY KEY)", "CREATE MATERIALIZED VIEW m AS SELECT id FROM t"] {
        server.connect().query(statement).expect(statement);
    }
    let commands = "\\dA \\dAc \\dAf \\dAp \\db \\db+ \\dc \\dcS \\dC \\dC+ \\dconfig \\dd \\ddp \\dD \\dE \\det \\det+ \\des \\des+ \\deu \\dew \
                    \\dew+ \\dF \\dFd \\dFd+ \\dFp \\dFt \\dft \\dfn \\dg \\dL \\dL+ \\dl \\dn \\dn+ \\do \\dO \\dO+ \\dP \\dPt \\drds \\dRp \\dRs \
                    \\dT \\du \\dv \\dx \\dx+ \\dX \\dy \\l \\l+ \\lo_list";
    for command in commands.split_whitespace() {
        let answer = shown(&server, command);
        assert!(!answer.contains("???"), "{command}: {answer}");
    }
    assert!(lines(&shown(&server, "\\dconfig DateStyle")).contains(&"DateStyle | ISO, MDY".to_owned()));
    assert!(lines(&shown(&server, "\\dft")).last().is_some_and(|line| line == "(0 rows)"));
}

#[test]
fn sizes_are_those_of_the_rows() {
    let server = TestServer::start();
    let mut client = server.connect();
    client.query("CREATE TABLE t (id INT PRIMARY KEY, name TEXT)").expect("a table");
    client.query("CREATE MATERIALIZED VIEW m AS SELECT name, count(*) AS n FROM t GROUP BY name").expect("a view");
    assert_eq!(client.rows("SELECT pg_table_size('t'), pg_total_relation_size('m')").expect("sizes"), ["0 0"]);
    client.query("INSERT INTO t SELECT x, repeat('x', x % 100) FROM generate_series(1, 10000) AS g(x)").expect("rows");
    assert_eq!(client.rows("SELECT sum(n) FROM m").expect("rows"), ["10000"]);
    // What they take differs with how far they are folded; the name alone has half a million bytes, and hundred groups have less than all rows.
    let told = "SELECT pg_table_size('t') > 100000, pg_relation_size('m') BETWEEN 100 AND pg_relation_size('t'), \
                pg_database_size('millpond') >= pg_total_relation_size('t') + pg_total_relation_size('m'), pg_indexes_size('t')";
    assert_eq!(client.rows(told).expect("sizes"), ["t t t 0"]);
    assert_eq!(client.rows("SELECT pg_table_size(oid) > 0 FROM pg_class WHERE relname = 't'").expect("sizes"), ["t"]);
    assert_eq!(client.query("SELECT pg_database_size('nosuch')").expect_err("no database").sqlstate(), "3D000");
    for command in ["\\dt+", "\\dm+", "\\l+"] {
        let line = lines(&shown(&server, command))[3].clone();
        assert!(line.contains("kB |") && !line.contains("| 0 "), "{command}: {line}");
    }
}

#[test]
fn the_rows_of_a_system_relation_know_whose_they_are() {
    let server = TestServer::start();
    let mut client = server.connect();
    let sql = "SELECT DISTINCT n.tableoid, d.tableoid FROM pg_namespace n LEFT JOIN pg_description d ON d.objoid = n.oid AND d.classoid = n.tableoid \
               WHERE n.nspname = 'public'";
    assert_eq!(client.rows(sql).expect("rows"), ["2615 NULL"]);
    client.query("COMMENT ON SCHEMA public IS 'ours'").expect("a comment");
    assert_eq!(client.rows(sql).expect("rows"), ["2615 2609"]);
    client.query("CREATE TABLE t (a INT)").expect("a table");
    let told = "SELECT pg_describe_object(tableoid, oid, 0), pg_describe_object(tableoid, oid, 1), pg_describe_object(tableoid, 1, 0) FROM pg_class c \
                WHERE relname = 't'";
    // Alone it can be named as any column.
    assert_eq!(client.rows(told).expect("rows"), ["table t column a of table t NULL"]);
}
