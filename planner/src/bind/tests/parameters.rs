//! Types of parameters.

use super::Bench;

#[test]
fn types_are_inferred_from_the_place() {
    let mut bench = Bench::new();
    bench.run("CREATE TABLE t (i INT, s TEXT, t TIMESTAMP, n NUMERIC, b BIGINT)");
    for (sql, oids) in [
        ("SELECT s FROM t WHERE i = $1 AND t < $2 LIMIT $3", &[23, 1114, 20][..]),
        ("INSERT INTO t VALUES ($1, $2, $3, $4, $5)", &[23, 25, 1114, 1700, 20]),
        ("SELECT $1 || s FROM t", &[25]),
        ("SELECT $1::int + $2 AS q", &[23, 23]),
        ("SELECT * FROM t WHERE i = ANY ($1)", &[1007]),
        ("UPDATE t SET n = $1 WHERE b IN ($2, $3)", &[1700, 20, 20]),
        ("SELECT coalesce($1, n) AS q FROM t", &[1700]),
        ("SELECT * FROM t WHERE s LIKE $2 AND b > $1", &[20, 25]),
        ("SELECT i, s FROM t WHERE s = $1 AND ($2::bigint IS NULL OR b = $2)", &[25, 20]),
        ("SELECT $1 IS NULL OR i = $1 FROM t", &[23]),
        ("DELETE FROM t WHERE t BETWEEN $1 AND $2", &[1114, 1114]),
        ("SELECT CASE WHEN $1 THEN 1 ELSE $2 END", &[16, 23]),
        ("SELECT $1 AS a, 'x' AS b", &[25]),
        ("INSERT INTO t (i, n) SELECT $1, $2", &[23, 1700]),
        ("SELECT lower($1), length($2)", &[25, 25]),
    ] {
        let bound = bench.bind(sql).unwrap_or_else(|error| panic!("{sql}: {error}"));
        let found: Vec<i32> = bound.parameter_types.iter().map(|sql_type| sql_type.oid()).collect();
        assert_eq!(found, oids, "{sql}");
    }
    assert_eq!(bench.bind("SELECT $1 IS NULL AS q").unwrap_err().sqlstate, "42P18");
    assert_eq!(bench.bind("SELECT $2::int").unwrap_err().sqlstate, "42P18");
}
