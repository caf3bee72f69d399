-- ORDER BY .. LIMIT, ranks with a bound, DISTINCT ON. Orders are total, or nothing that a tie could change is selected.

SELECT id, v FROM t ORDER BY v DESC NULLS LAST, id LIMIT 3;
SELECT id, v FROM t ORDER BY v, id LIMIT 3 OFFSET 2;
SELECT k, v FROM bag ORDER BY k NULLS FIRST, v DESC LIMIT 4;
SELECT id, k, rn FROM (SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY v, id) AS rn FROM t) x WHERE rn <= 2;
SELECT id, k FROM (SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS rn FROM t) x WHERE rn BETWEEN 2 AND 3;
SELECT id, k FROM (SELECT id, k, row_number() OVER (PARTITION BY k ORDER BY v DESC, id) AS rn FROM t) x WHERE rn = 1;
SELECT id, r FROM (SELECT id, rank() OVER (PARTITION BY k ORDER BY v) AS r FROM t) x WHERE r <= 2;
SELECT id, r FROM (SELECT id, dense_rank() OVER (ORDER BY v DESC) AS r FROM t) x WHERE r <= 2;
SELECT k, v, r FROM (SELECT k, v, rank() OVER (PARTITION BY k ORDER BY v) AS r FROM bag) x WHERE r <= 3;
SELECT id, row_number() OVER (PARTITION BY k ORDER BY v, id) AS rn FROM t;
SELECT DISTINCT ON (k) k, id, v FROM t ORDER BY k, v DESC, id;
SELECT DISTINCT ON (s, k) s, k, id FROM t ORDER BY s, k, id DESC;
SELECT k, n, rn FROM (SELECT k, n, row_number() OVER (ORDER BY n DESC, k) AS rn FROM busy) x WHERE rn <= 2;
SELECT sum(v) AS sv FROM (SELECT v FROM t ORDER BY v DESC NULLS LAST, id LIMIT 4) AS x;
SELECT t.id, x.k FROM t JOIN (SELECT k, v FROM bag ORDER BY k, v LIMIT 5) AS x ON x.k = t.k;
