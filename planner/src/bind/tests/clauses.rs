//! Clauses of queries.

use super::{Bench, check};

fn bench() -> Bench {
    let mut bench = Bench::new();
    bench.run(
        "CREATE TABLE a (k int, x int); CREATE TABLE b (k int, y int);
         INSERT INTO a VALUES (1, 10), (2, 20), (2, 21); INSERT INTO b VALUES (2, 200), (3, 300), (NULL, 400);
         CREATE TABLE t (id int PRIMARY KEY, g text, v int, d interval, f float8);
         INSERT INTO t VALUES (1, 'x', 5, '1 month', 'NaN'), (2, 'x', 7, '30 days', 1.5), (3, 'y', NULL, '1 day', 2.5), (4, 'y', 2, '24:00', 'Infinity');
         CREATE VIEW tv (n, total) AS SELECT g, sum(v) FROM t GROUP BY g;
         CREATE TABLE e (at timestamp, v int);
         INSERT INTO e VALUES ('1969-12-31 23:59:49.5', 1), ('1969-12-31 23:59:50', 2), ('1969-12-31 23:59:59.999999', 4), ('1970-01-01 00:00:00', 8)",
    );
    bench
}

#[test]
fn selecting_and_ordering() {
    check(
        &bench(),
        &[
            ("SELECT * FROM a ORDER BY x", &["1 10", "2 20", "2 21"]),
            ("SELECT x AS y, k FROM a ORDER BY y DESC LIMIT 2", &["21 2", "20 2"]),
            ("SELECT x FROM a ORDER BY k DESC, 1", &["20", "21", "10"]),
            ("SELECT k + x AS s FROM a WHERE x BETWEEN 10 AND 20 ORDER BY s OFFSET 1", &["22"]),
            ("SELECT DISTINCT k FROM a ORDER BY k", &["1", "2"]),
            ("SELECT DISTINCT ON (k) k, x FROM a ORDER BY k, x DESC", &["1 10", "2 21"]),
            ("SELECT y FROM b ORDER BY k NULLS FIRST", &["400", "200", "300"]),
            ("SELECT k FROM b ORDER BY k DESC", &["NULL", "3", "2"]),
            ("SELECT a.*, a.x * 2 FROM a WHERE k = 1", &["1 10 20"]),
            ("SELECT a.k, a.k FROM a WHERE k = 1", &["1 1"]),
            ("SELECT Q.y FROM (VALUES (3)) AS q(Y)", &["3"]),
            ("VALUES (1, 'a'), (2, NULL) ORDER BY 1 DESC", &["2 NULL", "1 a"]),
            ("TABLE a ORDER BY x LIMIT 1", &["1 10"]),
            ("SELECT x FROM a LIMIT 0", &[]),
            ("WITH Cte(Aa) AS (SELECT x FROM a) SELECT aA FROM cTE ORDER BY 1", &["10", "20", "21"]),
            ("WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 4) SELECT * FROM r", &["1", "2", "3", "4"]),
            ("SELECT * FROM tv ORDER BY n", &["x 12", "y 2"]),
            ("SELECT 1 WHERE false", &[]),
        ],
    );
}

#[test]
fn joining() {
    check(
        &bench(),
        &[
            ("SELECT a.x, b.y FROM a JOIN b ON a.k = b.k ORDER BY 1", &["20 200", "21 200"]),
            (
                "SELECT k, x, y FROM a FULL JOIN b USING (k) ORDER BY k, x",
                &["1 10 NULL", "2 20 200", "2 21 200", "3 NULL 300", "NULL NULL 400"],
            ),
            ("SELECT k, count(*) FROM a FULL JOIN b USING (k) WHERE k > 1 GROUP BY k ORDER BY k", &["2 2", "3 1"]),
            ("SELECT * FROM a NATURAL LEFT JOIN b ORDER BY x", &["1 10 NULL", "2 20 200", "2 21 200"]),
            ("SELECT k FROM a RIGHT JOIN b USING (k) ORDER BY k", &["2", "2", "3", "NULL"]),
            ("SELECT p.x, q.x FROM a p JOIN a q ON p.k = q.k AND p.x < q.x", &["20 21"]),
            ("SELECT a.x, b.y FROM a, b WHERE a.k = b.k AND a.x > 20", &["21 200"]),
            (
                "SELECT a.x, s.m FROM a CROSS JOIN LATERAL (SELECT max(y) AS m FROM b WHERE b.k = a.k) s ORDER BY 1",
                &["10 NULL", "20 200", "21 200"],
            ),
            ("SELECT EXISTS (SELECT), EXISTS (SELECT WHERE false), (SELECT count(*) FROM (SELECT FROM a) s) = count(*) FROM a", &["t f t"]),
            ("SELECT", &[""]),
            ("SELECT a.x, g FROM a, generate_series(1, a.k) g ORDER BY 1, 2", &["10 1", "20 1", "20 2", "21 1", "21 2"]),
            ("SELECT count(*) FROM a CROSS JOIN b", &["9"]),
            (
                "SELECT p.x, q.x FROM (VALUES (NULL::int, NULL::int), (1, 1), (1, NULL)) p(x, y) JOIN (VALUES (NULL::int, NULL::int), (1, 1), (1, NULL)) q(x, y) ON p.x IS NOT DISTINCT FROM q.x WHERE p.y = q.y",
                &["1 1"],
            ),
            ("SELECT p.k FROM a p JOIN a q ON p.k IS NOT DISTINCT FROM q.k AND p.x = q.x OR false ORDER BY p.x", &["1", "2", "2"]),
            (
                "SELECT k IS DISTINCT FROM 1 d, x FROM a WHERE k IS NOT DISTINCT FROM 1 OR x = 21 AND k IS DISTINCT FROM x - 20 ORDER BY x",
                &["f 10", "t 21"],
            ),
            ("SELECT x FROM (a JOIN b USING (k)) ORDER BY x", &["20", "21"]),
        ],
    );
}

#[test]
fn grouping() {
    check(
        &bench(),
        &[
            ("SELECT g, count(*), count(v), sum(v), min(v), max(v) FROM t GROUP BY g ORDER BY g", &["x 2 2 12 5 7", "y 2 1 2 2 2"]),
            ("SELECT g AS name, sum(v) + 1 FROM t GROUP BY name HAVING sum(v) > 5", &["x 13"]),
            ("SELECT upper(g), avg(v) FROM t GROUP BY upper(g) ORDER BY 1", &["X 6", "Y 2"]),
            ("SELECT avg(v), sum(v::bigint), sum(v::numeric(5,2)), count(DISTINCT g) FROM t", &["4.6666666666666667 14 14.00 2"]),
            (
                "SELECT sum(v) FILTER (WHERE g = 'x'), bool_and(v > 1), bool_or(v > 6), string_agg(g, ',' ORDER BY id) FROM t",
                &["12 t t x,x,y,y"],
            ),
            ("SELECT min(f), max(f) FROM t", &["1.5 NaN"]),
            ("SELECT sum(f) FROM t WHERE f = 1.5 OR f = 2.5", &["4"]),
            ("SELECT count(*) AS n, min(id) AS lo FROM t GROUP BY d ORDER BY n, lo", &["2 1", "2 3"]),
            ("SELECT count(DISTINCT d) FROM t", &["2"]),
            ("SELECT a.id, b.id FROM t a JOIN t b ON a.d = b.d WHERE a.id < b.id ORDER BY 1", &["1 2", "3 4"]),
            ("SELECT id, g FROM t GROUP BY id ORDER BY id LIMIT 1", &["1 x"]),
            ("SELECT sum(v), count(*) FROM t WHERE false", &["NULL 0"]),
            ("SELECT sum(v), count(*) FROM t WHERE false GROUP BY GROUPING SETS (())", &["NULL 0"]),
            ("SELECT g, sum(v) FROM t GROUP BY ROLLUP (g) ORDER BY g", &["x 12", "y 2", "NULL 14"]),
            ("SELECT g, grouping(g), count(*) FROM t GROUP BY CUBE (g) ORDER BY 2, 1", &["x 0 2", "y 0 2", "NULL 1 4"]),
            ("SELECT g FROM t WHERE false GROUP BY g", &[]),
            ("SELECT count(*) FROM t HAVING count(*) > 100", &[]),
            ("SELECT array_agg(v ORDER BY id) FROM t", &["{5,7,NULL,2}"]),
            ("SELECT sum(DISTINCT v), count(DISTINCT v) FILTER (WHERE v > 2) FROM t", &["14 2"]),
            ("SELECT length(g), count(*) FROM t GROUP BY 1", &["1 4"]),
            ("SELECT NULL UNION SELECT 2 ORDER BY 1", &["2", "NULL"]),
            (
                "SELECT 1, NULL, '2031-01-02' UNION ALL SELECT NULL, 'x', DATE '2031-01-01' ORDER BY 3",
                &["NULL x 2031-01-01", "1 NULL 2031-01-02"],
            ),
            ("SELECT 1 AS a, NULL AS b UNION ALL SELECT NULL, 2 ORDER BY 1", &["1 NULL", "NULL 2"]),
            ("SELECT 1 UNION SELECT 'a'", &["!22P02"]),
            ("SELECT id, unnest(ARRAY[v, id]) FROM t WHERE id < 3 ORDER BY 1, 2", &["1 1", "1 5", "2 2", "2 7"]),
            ("SELECT id, u FROM t, unnest(ARRAY[v, id]) u WHERE id < 3 ORDER BY 1, 2", &["1 1", "1 5", "2 2", "2 7"]),
            ("SELECT 42 HAVING true", &["42"]),
            ("SELECT 42 HAVING false", &[]),
        ],
    );
}

#[test]
fn collecting() {
    check(
        &bench(),
        &[
            (
                "SELECT string_agg(g, '-' ORDER BY id DESC), string_agg(g, v::text ORDER BY id), string_agg(g, ',') FILTER (WHERE false) FROM t",
                &["y-y-x-x x7xy2y NULL"],
            ),
            ("SELECT string_agg(DISTINCT g, ',' ORDER BY g) FROM t", &["x,y"]),
            (
                "SELECT json_agg(v ORDER BY id), jsonb_agg(g ORDER BY id), json_agg(v) FILTER (WHERE id > 9) FROM t",
                &["[5, 7, null, 2] [\"x\", \"x\", \"y\", \"y\"] NULL"],
            ),
            (
                "SELECT json_object_agg(id, v ORDER BY id), jsonb_object_agg(g, v ORDER BY id DESC) FROM t WHERE v IS NOT NULL",
                &["{ \"1\" : 5, \"2\" : 7, \"4\" : 2 } {\"x\": 5, \"y\": 2}"],
            ),
            ("SELECT json_object_agg(v, id) FROM t", &["!22023"]),
            (
                "SELECT json_agg(a.* ORDER BY x), jsonb_agg(a ORDER BY x) FROM a WHERE x < 15",
                &["[{\"k\":1,\"x\":10}] [{\"k\": 1, \"x\": 10}]"],
            ),
            ("SELECT row_to_json(a.*), a, to_jsonb(a) FROM a WHERE x = 10", &["{\"k\":1,\"x\":10} (1,10) {\"k\": 1, \"x\": 10}"]),
            ("SELECT g, json_agg(id ORDER BY id)::text FROM t GROUP BY g HAVING count(*) > 1 ORDER BY g", &["x [1, 2]", "y [3, 4]"]),
            (
                "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY v), percentile_disc(0.5) WITHIN GROUP (ORDER BY v), percentile_disc(ARRAY[0, 1]) WITHIN GROUP (ORDER BY v DESC), mode() WITHIN GROUP (ORDER BY g DESC) FROM t",
                &["5 5 {7,2} y"],
            ),
            ("SELECT percentile_cont(0.25) WITHIN GROUP (ORDER BY d) FROM t WHERE id IN (2, 3)", &["8 days 06:00:00"]),
            ("SELECT percentile_cont(2) WITHIN GROUP (ORDER BY v) FROM t", &["!22003"]),
            ("SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY v) FROM t WHERE false", &["NULL"]),
            (
                "SELECT var_samp(x), stddev_samp(x), var_pop(x), stddev_pop(x) FROM (VALUES (1), (2), (4)) s(x)",
                &["2.3333333333333333 1.5275252316519467 1.5555555555555556 1.2472191289246471"],
            ),
            (
                "SELECT variance(x), stddev(x), var_pop(x), stddev_pop(x) FROM (VALUES (1.5::float8), (2), (4)) s(x)",
                &["1.75 1.3228756555322954 1.1666666666666667 1.0801234497346435"],
            ),
            ("SELECT stddev(x), var_pop(x) FROM (VALUES (7)) s(x)", &["NULL 0"]),
            (
                "SELECT regr_slope(y, x), regr_intercept(y, x), regr_count(y, x), corr(y, x), covar_pop(y, x), regr_sxx(y, x) FROM (VALUES (1, 2), (3, 6), (NULL, 9)) s(x, y)",
                &["2 0 2 1 2 2"],
            ),
            ("SELECT array_agg(x) FROM (SELECT x FROM a ORDER BY x DESC) s", &["{21,20,10}"]),
            ("SELECT ARRAY(SELECT k FROM a ORDER BY x DESC), ARRAY(SELECT x FROM a ORDER BY 1 DESC LIMIT 2)", &["{2,2,1} {21,20}"]),
            ("SELECT id, string_agg(g, ',') OVER (ORDER BY id) FROM t ORDER BY id LIMIT 2", &["1 x", "2 x,x"]),
        ],
    );
}

#[test]
fn windows() {
    check(
        &bench(),
        &[
            ("SELECT id, row_number() OVER (PARTITION BY g ORDER BY v DESC NULLS LAST) FROM t ORDER BY id", &["1 2", "2 1", "3 2", "4 1"]),
            (
                "SELECT id, sum(v) OVER (ORDER BY id), lag(v) OVER (ORDER BY id), rank() OVER (ORDER BY g) FROM t ORDER BY id",
                &["1 5 NULL 1", "2 12 5 1", "3 12 7 3", "4 14 NULL 3"],
            ),
            ("SELECT id FROM (SELECT id, row_number() OVER (ORDER BY id DESC) AS r FROM t) q WHERE r <= 2 ORDER BY id", &["3", "4"]),
            (
                "SELECT id, sum(v) OVER w FROM t WINDOW w AS (ORDER BY id ROWS BETWEEN 1 PRECEDING AND CURRENT ROW) ORDER BY id",
                &["1 5", "2 12", "3 7", "4 2"],
            ),
            (
                "SELECT id, lag(v, 1, v * 2) OVER (ORDER BY id), lead(v, 1, id) OVER (ORDER BY id) FROM t ORDER BY id",
                &["1 10 7", "2 5 NULL", "3 7 2", "4 NULL 4"],
            ),
            ("SELECT g, sum(sum(v)) OVER () FROM t GROUP BY g ORDER BY g", &["x 14", "y 14"]),
            (
                "SELECT window_start, window_end, sum(v) FROM TUMBLE(e, at, INTERVAL '10 seconds') GROUP BY window_start, window_end ORDER BY 1",
                &[
                    "1969-12-31 23:59:40 1969-12-31 23:59:50 1",
                    "1969-12-31 23:59:50 1970-01-01 00:00:00 6",
                    "1970-01-01 00:00:00 1970-01-01 00:00:10 8",
                ],
            ),
            (
                "SELECT window_start, count(*) FROM TABLE(HOP(TABLE e, DESCRIPTOR(at), INTERVAL '10' SECOND, INTERVAL '20' SECOND)) AS w GROUP BY w.window_start ORDER BY 1",
                &["1969-12-31 23:59:30 1", "1969-12-31 23:59:40 3", "1969-12-31 23:59:50 3", "1970-01-01 00:00:00 1"],
            ),
            (
                "SELECT window_start FROM TUMBLE(e, at, INTERVAL '1 month') GROUP BY 1 ORDER BY 1",
                &["1969-12-01 00:00:00", "1970-01-01 00:00:00"],
            ),
        ],
    );
}

#[test]
fn subqueries() {
    let mut bench = bench();
    bench.run(
        "CREATE TABLE o (id int, g int); CREATE TABLE i (x int, g int);
         INSERT INTO o VALUES (1, 5), (2, 6), (3, 7), (NULL, 8); INSERT INTO i VALUES (1, 5), (NULL, 6), (9, 8);
         CREATE TABLE l (f int); CREATE TABLE r (q int); INSERT INTO l VALUES (0), (0), (1); INSERT INTO r VALUES (5), (6)",
    );
    check(
        &bench,
        &[
            ("SELECT x FROM a WHERE k IN (SELECT k FROM b) ORDER BY x", &["20", "21"]),
            ("SELECT x FROM a WHERE k NOT IN (SELECT k FROM b WHERE k IS NOT NULL) ORDER BY x", &["10"]),
            ("SELECT x FROM a WHERE k NOT IN (SELECT k FROM b)", &[]),
            ("SELECT x FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k) ORDER BY x", &["20", "21"]),
            ("SELECT x FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE b.k = a.k)", &["10"]),
            ("SELECT x, (SELECT y FROM b WHERE b.k = a.k) FROM a ORDER BY x", &["10 NULL", "20 200", "21 200"]),
            ("SELECT x, (SELECT count(*) FROM b WHERE b.k = a.k) AS c FROM a ORDER BY x", &["10 0", "20 1", "21 1"]),
            ("SELECT (SELECT max(x) FROM a), 1", &["21 1"]),
            ("SELECT 1, (SELECT x FROM a)", &["!21000"]),
            ("SELECT x FROM a WHERE x = (SELECT x FROM a)", &["!21000"]),
            ("SELECT y, (SELECT x FROM a WHERE a.k = b.k) FROM b", &["!21000"]),
            ("SELECT id, g FROM o WHERE 4 NOT IN (SELECT x FROM i WHERE i.g = o.g) ORDER BY g", &["1 5", "3 7", "NULL 8"]),
            ("SELECT id, g FROM o WHERE id NOT IN (SELECT x FROM i WHERE i.g < o.g) ORDER BY g", &["1 5", "2 6"]),
            ("SELECT g, (id NOT IN (SELECT x FROM i WHERE i.g = o.g)) AS flag FROM o ORDER BY g", &["5 f", "6 NULL", "7 t", "8 NULL"]),
            ("SELECT l.f, d.c FROM l, (SELECT 0 AS c FROM r) d WHERE l.f IN (SELECT d.c)", &["0 0", "0 0", "0 0", "0 0"]),
            ("SELECT x FROM a WHERE x > ALL (SELECT 10) ORDER BY x", &["20", "21"]),
            ("SELECT x FROM a WHERE x > ANY (SELECT y - 180 FROM b WHERE y = 200)", &["21"]),
            ("SELECT x FROM a WHERE (k, x) IN (SELECT 2, 21)", &["21"]),
            ("SELECT x, EXISTS (SELECT 1 FROM b WHERE b.k = a.k) FROM a ORDER BY x", &["10 f", "20 t", "21 t"]),
        ],
    );
}

#[test]
fn set_operations() {
    let mut bench = bench();
    bench.run("CREATE TABLE l (v int); CREATE TABLE r (v int); INSERT INTO l VALUES (1), (1), (1), (2), (NULL), (NULL); INSERT INTO r VALUES (1), (2), (2), (NULL)");
    check(
        &bench,
        &[
            ("SELECT v FROM l UNION SELECT v FROM r ORDER BY v", &["1", "2", "NULL"]),
            ("SELECT k FROM a UNION ALL SELECT y FROM b ORDER BY 1", &["1", "2", "2", "200", "300", "400"]),
            ("SELECT 1 UNION ALL SELECT 2.5 ORDER BY 1", &["1.0", "2.5"]),
            ("SELECT v FROM l EXCEPT ALL SELECT v FROM r ORDER BY v", &["1", "1", "NULL"]),
            ("SELECT v FROM l INTERSECT ALL SELECT v FROM r ORDER BY v", &["1", "2", "NULL"]),
            ("SELECT v FROM l EXCEPT SELECT v FROM r", &[]),
            ("SELECT v FROM l INTERSECT SELECT v FROM r ORDER BY v", &["1", "2", "NULL"]),
            ("(SELECT x FROM a ORDER BY x LIMIT 1) UNION ALL (SELECT y FROM b ORDER BY y DESC LIMIT 1) ORDER BY 1", &["10", "400"]),
            ("SELECT 'a' AS c UNION SELECT NULL ORDER BY c", &["a", "NULL"]),
        ],
    );
}

/// Correlated subqueries that no equality in a filter alone correlates.
#[test]
fn unnesting() {
    let mut bench = bench();
    bench.run(
        "CREATE TABLE c (x int, y int, z int); CREATE TABLE d (z int, w text);
         INSERT INTO c VALUES (3, 1, 50), (1, 2, 60), (3, 0, 70), (NULL, 1, NULL); INSERT INTO d VALUES (50, 'a'), (60, 'b'), (NULL, 'c')",
    );
    check(
        &bench,
        &[
            ("SELECT * FROM c WHERE x = 3 AND y = (SELECT count(*) FROM d WHERE d.z = c.z AND c.x = 3) ORDER BY y", &["3 0 70", "3 1 50"]),
            ("SELECT z, (SELECT count(*) FROM d WHERE d.z <> c.z) FROM c ORDER BY z", &["50 1", "60 1", "70 2", "NULL 0"]),
            ("SELECT z, (SELECT max(d.z + c.x) FROM d WHERE d.z < c.z) FROM c ORDER BY z", &["50 NULL", "60 51", "70 63", "NULL NULL"]),
            ("SELECT z FROM c WHERE EXISTS (SELECT 1 FROM d WHERE d.z = c.z AND d.z <> c.x) ORDER BY z", &["50", "60"]),
            ("SELECT z FROM c WHERE NOT EXISTS (SELECT 1 FROM d WHERE d.z < c.z OR c.x IS NULL) ORDER BY z", &["50"]),
            ("SELECT z FROM c WHERE x > 2 OR EXISTS (SELECT 1 FROM d WHERE d.z > c.z) ORDER BY z", &["50", "70"]),
            ("SELECT z FROM c WHERE x + 57 IN (SELECT d.z FROM d WHERE d.z < c.z + 20) ORDER BY z", &["50", "70"]),
            ("SELECT z, EXISTS (SELECT 1 FROM d WHERE d.z >= c.z) FROM c ORDER BY z", &["50 t", "60 t", "70 f", "NULL f"]),
            (
                "SELECT z, (SELECT string_agg(w, ',' ORDER BY w DESC) FROM d WHERE d.z <= c.z) FROM c ORDER BY z",
                &["50 a", "60 b,a", "70 b,a", "NULL NULL"],
            ),
            (
                "SELECT z, (SELECT w FROM d WHERE d.z < c.z ORDER BY d.z DESC LIMIT 1) FROM c ORDER BY z",
                &["50 NULL", "60 a", "70 b", "NULL NULL"],
            ),
            ("SELECT z, (SELECT w FROM d WHERE d.z <= c.z) FROM c ORDER BY z", &["!21000"]),
            (
                "SELECT c.z, q.w FROM c LEFT JOIN LATERAL (SELECT w FROM d WHERE d.z >= c.z ORDER BY d.z LIMIT 1) q ON true ORDER BY 1",
                &["50 a", "60 b", "70 NULL", "NULL NULL"],
            ),
            (
                "SELECT c.z, q.s FROM c, LATERAL (SELECT c.x + c.y AS s UNION ALL SELECT d.z FROM d WHERE d.z = c.z) q ORDER BY 1, 2",
                &["50 4", "50 50", "60 3", "60 60", "70 3", "NULL NULL"],
            ),
            (
                "SELECT c.z, d.w, q.v FROM c, d LEFT JOIN LATERAL (SELECT c.x + d.z) q(v) ON q.v > 55 WHERE c.y = 0 ORDER BY 2",
                &["70 a NULL", "70 b 63", "70 c NULL"],
            ),
            ("SELECT c.z, q.v FROM c, LATERAL (VALUES (c.x), (c.y)) q(v) WHERE c.z < 60 ORDER BY 2", &["50 1", "50 3"]),
            (
                "SELECT z, (SELECT sum((SELECT count(*) FROM d e WHERE e.z <= d.z + c.y)) FROM d WHERE d.z < c.z) FROM c ORDER BY z",
                &["50 NULL", "60 1", "70 3", "NULL NULL"],
            ),
            ("SELECT z FROM c WHERE z = (SELECT max(d.z) FROM d JOIN c e ON d.z = e.z AND e.x <> c.x) ORDER BY z", &[]),
            (
                "SELECT x, count(*) FROM c GROUP BY x HAVING count(*) > (SELECT count(*) FROM d WHERE d.z < c.x * 20) ORDER BY x",
                &["1 1", "3 2", "NULL 1"],
            ),
            ("SELECT z FROM c ORDER BY (SELECT count(*) FROM d WHERE d.z <> c.z) DESC, z LIMIT 2", &["70", "50"]),
            (
                "SELECT z, (SELECT a FROM (SELECT d.z * c.y AS a, row_number() OVER (ORDER BY d.z DESC NULLS LAST) r FROM d) q WHERE r = 1) FROM c ORDER BY z",
                &["50 60", "60 120", "70 0", "NULL 60"],
            ),
        ],
    );
}
