-- GROUP BY, HAVING, FILTER, DISTINCT inside of aggregates, global aggregates, grouping sets, aggregates of aggregates.

SELECT count(*) AS n, count(v) AS nv, sum(v) AS sv, min(v) AS lo, max(v) AS hi, count(DISTINCT k) AS dk FROM t;
SELECT count(*) AS n, sum(k) AS sk, min(s) AS lo, bool_and(v > 2) AS every, bool_or(v > 2) AS some FROM t WHERE id < 0;
SELECT k, count(*) AS n, sum(v) AS sv, min(s) AS lo, max(v) AS hi, max(s) AS last FROM t GROUP BY k;
SELECT k, sum(v) AS sv FROM bag GROUP BY k HAVING sum(v) > 3;
SELECT k FROM bag GROUP BY k HAVING count(*) > 1 AND min(v) IS NOT NULL;
SELECT k, count(*) FILTER (WHERE v > 2) AS n, count(DISTINCT v) FILTER (WHERE v < 4) AS d, sum(DISTINCT v) AS sd FROM bag GROUP BY k;
SELECT v + 1 AS v1, k, count(*) AS n FROM bag GROUP BY v + 1, k;
SELECT n, count(*) AS m FROM (SELECT k, count(*) AS n FROM bag GROUP BY k) AS x GROUP BY n;
SELECT k, bool_and(v > 2) AS every, bool_or(v > 2) AS some, round(avg(v), 6) AS mean FROM bag GROUP BY k;
SELECT b, sum(d) AS sd, min(d) AS lo, max(d) AS hi, sum(f) AS sf, avg(f) AS mean, min(at) AS first, max(day) AS last FROM m GROUP BY b;
SELECT k, v, count(*) AS n FROM bag GROUP BY GROUPING SETS ((k, v), (k), ());
SELECT k, v, grouping(k) AS g, sum(v) AS sv FROM bag GROUP BY ROLLUP (k, v);
SELECT k, s, count(*) AS n FROM t GROUP BY CUBE (k, s);
SELECT max(n) AS top FROM (SELECT count(*) AS n FROM bag GROUP BY k) AS x;
SELECT k, count(DISTINCT v) AS dv, count(DISTINCT s) AS ds, count(DISTINCT (v > 2)) AS db FROM t GROUP BY k;
SELECT k % 2 AS odd, min(n) AS lo, sum(n) AS all_rows FROM busy GROUP BY k % 2;
SELECT k, array_agg(v ORDER BY v DESC NULLS LAST, id) AS vs FROM t GROUP BY k;
SELECT s, min(v) FILTER (WHERE k > 1) AS lo, max(v) FILTER (WHERE k IS NULL) AS hi FROM t GROUP BY s;
SELECT avg(v) AS mean, avg(k) AS small FROM bag;
SELECT k, avg(v) AS mean FROM t GROUP BY k;
SELECT day, count(*) AS n, avg(d) AS mean, count(DISTINCT b) AS kinds FROM m GROUP BY day;
SELECT k, string_agg(s, ',' ORDER BY id) AS names FROM t GROUP BY k;
SELECT k, round(stddev_pop(v), 6) AS sp, round(var_samp(v), 6) AS vs FROM bag GROUP BY k;
